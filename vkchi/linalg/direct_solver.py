"""Direct solvers for linear systems, including singular ones (minimum-norm solution A^+ b).

A singular matrix gets one pin per null vector: one entry of the balanced matrix is increased by the
largest magnitude. The pins are chosen so that the sum is regular. For a consistent right side the
sum has the same solution, with 0 at the pins. Its projection off the null space is the solution of
least norm.

    DirectSolver(square, "LU", np.float32).solve(b).x       # square: a SquareTriplets
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from vkchi.errors import Unsupported
from vkchi.interrupts.imports import import_uninterrupted
from vkchi.interrupts.local import local
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

# --- factorizations ------------------------------------------------------------------------------
#
# Triangular factorizations of sparse square matrices in f64.
#
# They use SuperLU of scipy if it is installed. Otherwise numpy inverts dense matrices of up to
# MOST_DENSE rows.
#
#     >>> square = SquareTriplets(np.array([0, 1]), np.array([0, 1]), np.array([2.0, 4.0]), 2)
#     >>> factorize(square, is_symmetric=True).solve(np.ones(2))
#     array([0.5 , 0.25])

Values = np.ndarray[Any, Any]

MOST_DENSE = 4000  # rows without scipy
ESTIMATES = 2  # iterations of the power method that estimate the norm of an inverse


class SquareTriplets(NamedTuple):
    """An `n` by `n` matrix as triplets in f64; duplicates are summed."""

    rows: Values
    columns: Values
    numbers: Values
    n: int

    def multiply(self, x: Values) -> Values:
        """A @ x, for a vector or each column of a matrix."""
        return scatter_add_rows(self.rows, self.numbers, x, self.columns, self.n)

    def multiply_transposed(self, x: Values) -> Values:
        """A^T @ x, for a vector or each column of a matrix."""
        return scatter_add_rows(self.columns, self.numbers, x, self.rows, self.n)

    def scale(self, left: Values, right: Values) -> SquareTriplets:
        numbers = left[self.rows] * self.numbers * right[self.columns]
        return self._replace(numbers=numbers)

    def add(self, rows: Values, columns: Values, numbers: Values) -> SquareTriplets:
        pairs = (self.rows, rows), (self.columns, columns), (self.numbers, numbers)
        i, j, x = map(np.concatenate, pairs)
        return SquareTriplets(i, j, x, self.n)

    def size(self) -> float:
        return float(np.abs(self.numbers).max(initial=0))


def scatter_add_rows(where: Values, numbers: Values, x: Values, taken: Values, n: int) -> Values:
    """Return `n` sums, result[where[t]] += numbers[t] * x[taken[t]]; for each column if x is a
    matrix."""
    if x.ndim == 2:
        return np.stack([scatter_add_rows(where, numbers, c, taken, n) for c in x.T], axis=1)
    return np.bincount(where, numbers * x[taken], n) if len(where) else np.zeros(n)


class Factors(NamedTuple):
    """Solvers for a matrix and its transpose. `is_definite`: it was factorized as symmetric and
    is positive definite."""

    solve: Callable[[Values], Values]
    solve_transposed: Callable[[Values], Values]
    is_definite: bool = False


def factorize(square: SquareTriplets, *, is_symmetric: bool) -> Factors | None:
    """Factorize a matrix; return None if it is exactly singular.

    With `is_symmetric`, SuperLU pivots only at zeros of the diagonal, and `is_definite` is
    determined. Without scipy, a dense inverse is computed; raises Unsupported for more than
    MOST_DENSE rows then.
    """
    if square.n == 0:
        return Factors(np.copy, np.copy, is_definite=True)
    try:
        csc_matrix = import_uninterrupted("scipy.sparse").csc_matrix
        splu = import_uninterrupted("scipy.sparse.linalg").splu
    except ImportError:
        return factorize_dense(square, is_symmetric=is_symmetric)
    rows, columns, numbers, n = square
    matrix = csc_matrix((numbers, (rows, columns)), (n, n))
    symmetric = {"SymmetricMode": True}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not is_symmetric:
                lu = splu(matrix)
            else:
                lu = splu(matrix, "MMD_AT_PLUS_A", 0.0, options=symmetric)
    except local(RuntimeError):  # exactly singular
        return None
    # A zero on the diagonal makes SuperLU exchange rows, even in its symmetric mode.
    is_definite = is_symmetric and np.array_equal(lu.perm_r, lu.perm_c)
    is_definite = is_definite and bool((lu.U.diagonal() > 0).all())
    return Factors(lu.solve, lambda b: lu.solve(b, "T"), is_definite)


def factorize_dense(square: SquareTriplets, *, is_symmetric: bool) -> Factors | None:
    rows, columns, numbers, n = square
    if n > MOST_DENSE:
        raise Unsupported(
            f"SparseSolver: without scipy a matrix has at most {MOST_DENSE} rows, this has {n}: "
            "pip install scipy, or use ti.linalg.SparseCG"
        )
    dense = np.zeros((n, n))
    np.add.at(dense, (rows, columns), numbers)
    try:
        inverse = np.linalg.inv(dense)
    except np.linalg.LinAlgError:
        return None
    is_definite = is_symmetric and has_cholesky(dense)
    return Factors(lambda b: inverse @ b, lambda b: inverse.T @ b, is_definite)


def has_cholesky(dense: Values) -> bool:
    try:
        np.linalg.cholesky(dense)
    except np.linalg.LinAlgError:
        return False
    return True


def estimate_condition(square: SquareTriplets, factors: Factors) -> float:
    """A lower estimate of the condition number: the largest entry times the norm of the inverse, by
    the power method from a random vector. Infinite if the factors give 0, inf or nan. Source: J. D.
    Dixon, "Estimating extremal eigenvalues and condition numbers of matrices", 1983."""
    if square.n == 0:
        return 1.0
    v, norm = np.random.default_rng(1).standard_normal(square.n), 0.0
    with np.errstate(all="ignore"):
        for _ in range(ESTIMATES):
            v = factors.solve(v / np.linalg.norm(v))
            norm = float(np.linalg.norm(v))
            if not 0 < norm < np.inf:
                return float(np.inf)
            v = factors.solve_transposed(v / norm)
    return norm * square.size()


# --- null spaces ---------------------------------------------------------------------------------
#
# Null spaces of sparse square matrices, by block inverse iteration.
#
# A matrix is block diagonal over the connected components of its graph. Inverse iteration runs on
# all components in parallel; each has its own basis, with one column per null vector.
#
# A symmetric matrix A is shifted to A + δI. Any other is embedded in [[δI, A], [A^T, -δI]], which
# is always regular. Its solutions give (A^T A + δ²I)^{-1} and (A A^T + δ²I)^{-1}. Source: G. Golub
# and C. Van Loan, "Matrix computations", 8.2.

SHIFT = 1e-10  # δ, for matrices with largest entries of about 1
EXACT = 1e-14  # relative to the largest singular value: below is f64 rounding
POWERS = 8  # iterations that estimate the largest singular value
GAP = 100.0  # ratio of the next singular value to null ones above EXACT
ITERATIONS = 6
MOST = 32  # null vectors per component
ROUNDINGS = 16  # rounding errors allowed in the sum of a row
BALANCINGS = 3
LOST = 1e-12  # relative to a vector's length: below is rounding

Operator = Callable[[Values], Values]


class ComponentBlocks(NamedTuple):
    """Connected components of a matrix's graph: a component label per index, and their number."""

    labels: Values
    number: int

    def add_up(self, x: Values) -> Values:
        return np.bincount(self.labels, x, self.number)

    def spread(self, x: Values) -> Values:
        return x[self.labels]

    def sizes(self) -> Values:
        return np.bincount(self.labels, minlength=self.number)

    def orthonormalize(self, vectors: Values) -> Values:
        """Return the columns orthonormalized in each component, by Gram-Schmidt, applied twice.
        Columns beyond the component's dimension become zero."""
        vectors = vectors.copy()
        for j in range(vectors.shape[1]):
            x = vectors[:, j]
            before = np.sqrt(self.add_up(x * x))
            for i in [*range(j)] * 2:
                x = x - vectors[:, i] * self.spread(self.add_up(vectors[:, i] * x))
            norm = np.sqrt(self.add_up(x * x))
            norm[norm <= LOST * before] = np.inf
            vectors[:, j] = x / self.spread(norm)
        return vectors

    def remove(self, vectors: Values, x: Values) -> Values:
        """Project x to the complement of vectors that are orthonormal in each component."""
        for v in vectors.T:
            x = x - v * self.spread(self.add_up(v * x))
        return x

    def find_largest(self, x: Values) -> Values:
        """Index of the largest magnitude in each component."""
        order = np.lexsort((-np.abs(x), self.labels))
        starts = np.searchsorted(self.labels[order], np.arange(self.number))
        found: Values = order[starts]
        return found


class NullSpaces(NamedTuple):
    """Null vectors of a matrix (`right`) and of its transpose (`left`). Each component has
    `ranks` of them, in the first columns."""

    blocks: ComponentBlocks
    left: Values
    right: Values
    ranks: Values

    def choose_pins(self, *, is_symmetric: bool) -> tuple[Values, Values]:
        """Rows and columns of the entries to increase, one per null vector, so that the sum is
        regular."""
        columns = self._choose(self.right)
        return (columns if is_symmetric else self._choose(self.left)), columns

    def _choose(self, vectors: Values) -> Values:
        """One index per null vector, by Gaussian elimination with partial pivoting."""
        left, found = vectors.copy(), []
        for j in range(vectors.shape[1]):
            has = self.ranks > j
            at = self.blocks.find_largest(left[:, j])
            pivots = np.where(has, left[at, j], 1)
            for k in range(j + 1, vectors.shape[1]):
                left[:, k] -= left[:, j] * self.blocks.spread(left[at, k] / pivots)
            found.append(at[has])
        return np.concatenate(found)


def find_blocks(square: SquareTriplets) -> ComponentBlocks:
    """Connected components, by hooking and pointer jumping. Source: Y. Shiloach and U. Vishkin,
    "An O(log n) parallel connectivity algorithm", 1982."""
    is_edge = (square.rows != square.columns) & (square.numbers != 0)
    a, b = square.rows[is_edge], square.columns[is_edge]
    labels = np.arange(square.n)
    while True:
        low, new = np.minimum(labels[a], labels[b]), labels.copy()
        np.minimum.at(new, labels[a], low)
        np.minimum.at(new, labels[b], low)
        while not np.array_equal(new, new[new]):
            new = new[new]
        if np.array_equal(new, labels):
            break
        labels = new
    roots, labels = np.unique(labels, return_inverse=True)
    return ComponentBlocks(labels.reshape(-1), len(roots))


def equilibrate(square: SquareTriplets, *, is_symmetric: bool) -> tuple[Values, Values]:
    """Powers of two that scale rows and columns so that their largest entries are about 1. Source:
    D. Ruiz, "A scaling algorithm to equilibrate both rows and columns norms in matrices", 2001."""
    left = right = np.ones(square.n)
    for _ in range(BALANCINGS):
        numbers = np.abs(square.scale(left, right).numbers)
        by_row, by_column = np.zeros(square.n), np.zeros(square.n)
        np.maximum.at(by_row, square.rows, numbers)
        np.maximum.at(by_column, square.columns, numbers)
        if is_symmetric:
            by_column = by_row
        left, right = (
            factor * 2.0 ** -np.round(np.log2(np.where(most > 0, most, 1)) / 2)
            for factor, most in ((left, by_row), (right, by_column))
        )
    return left, right


def guess_constant(square: SquareTriplets, blocks: ComponentBlocks) -> NullSpaces | None:
    """Constant null vectors: normalized indicators of the components whose rows and columns sum to
    0 up to rounding. None if there are none."""
    sums, noise = np.stack([square.numbers, np.abs(square.numbers)]), []
    for where in (square.rows, square.columns):
        total, most = (np.bincount(where, x, square.n) for x in sums)
        noise.append(np.abs(total) <= ROUNDINGS * np.finfo(np.float64).eps * most)
    ranks = (blocks.add_up(~(noise[0] & noise[1])) == 0).astype(np.int64)
    if not ranks.any():
        return None
    vectors = blocks.spread(ranks / np.sqrt(blocks.sizes()))[:, None]
    return NullSpaces(blocks, vectors, vectors, ranks)


def find_null_spaces(
    square: SquareTriplets, blocks: ComponentBlocks, *, is_symmetric: bool, precision: float
) -> NullSpaces | None:
    """The null spaces of a balanced matrix.

    Singular values up to EXACT times the largest count as zero. So do those up to `precision` times
    the largest, if the next one is GAP times larger. None if the factorization or the iteration
    fails, if a component has 2 * MOST null vectors or more, or if row and column ranks differ.
    """
    operators = shifted_inverses(square, is_symmetric=is_symmetric)
    if operators is None:
        return None
    products = square.multiply, square.multiply_transposed
    norm, spaces = estimate_norm(square), []
    for operator, product in list(zip(operators, products))[: 1 if is_symmetric else 2]:
        found = inverse_iteration(operator, product, blocks, precision, norm)
        if found is None:
            return None
        spaces.append(found)
    (right, ranks), (left, others) = spaces[0], spaces[-1]
    if not np.array_equal(ranks, others):
        return None
    return NullSpaces(blocks, left, right, ranks)


def estimate_norm(square: SquareTriplets) -> float:
    """Estimate of the largest singular value, by the power method; 1 for the zero matrix."""
    v, norm = np.random.default_rng(1).standard_normal(square.n), 1.0
    for _ in range(POWERS):
        v = square.multiply_transposed(square.multiply(v / norm))
        norm = float(np.linalg.norm(v))
        if norm == 0:
            return 1.0
    return math.sqrt(norm)


def shifted_inverses(
    square: SquareTriplets, *, is_symmetric: bool
) -> tuple[Operator, Operator] | None:
    """Operators whose dominant eigenvectors are the null vectors of a matrix and of its transpose.
    None if the shifted matrix cannot be factorized."""
    n, every = square.n, np.arange(square.n)
    if is_symmetric:
        shifted = factorize(square.add(every, every, np.full(n, SHIFT)), is_symmetric=False)
        return None if shifted is None else (shifted.solve, shifted.solve)
    rows, columns, numbers, _ = square
    twice = np.arange(2 * n)
    embedded = SquareTriplets(
        np.concatenate([rows, columns + n, twice]),
        np.concatenate([columns + n, rows, twice]),
        np.concatenate([numbers, numbers, np.repeat([SHIFT, -SHIFT], n)]),
        2 * n,
    )
    factors = factorize(embedded, is_symmetric=False)
    if factors is None:
        return None
    return (
        lambda x: factors.solve(np.concatenate([np.zeros_like(x), x]))[n:],
        lambda x: factors.solve(np.concatenate([x, np.zeros_like(x)]))[:n],
    )


def inverse_iteration(
    operator: Operator, product: Operator, blocks: ComponentBlocks, precision: float, norm: float
) -> tuple[Values, Values] | None:
    """Return null vectors of the matrix that `product` multiplies by, and their number per
    component.

    `operator` is the matrix's shifted inverse. None if a component has 2 * MOST null vectors or
    more, and if `operator` gives inf or nan.
    """
    numbers, sizes = np.random.default_rng(1), blocks.sizes()
    n, width = len(blocks.labels), 2
    while True:
        vectors = numbers.standard_normal((n, width))
        with np.errstate(all="ignore"):
            for _ in range(ITERATIONS):
                vectors = blocks.orthonormalize(operator(blocks.orthonormalize(vectors)))
        if not np.isfinite(vectors).all():
            return None
        lengths, singular = (
            np.stack([np.sqrt(blocks.add_up(x * x)) for x in given.T], axis=1)
            for given in (vectors, product(vectors))
        )
        singular[lengths == 0] = np.inf
        ranks = count_zeros(singular / norm, precision)
        if (ranks < np.minimum(width, sizes + 1)).all():
            break
        if width > MOST:
            return None
        width *= 2
    order = np.argsort(singular, axis=1)
    vectors = np.take_along_axis(vectors, order[blocks.labels], axis=1)
    vectors[np.arange(width) >= ranks[blocks.labels][:, None]] = 0
    return vectors[:, : int(ranks.max(initial=0))], ranks


def count_zeros(singular: Values, precision: float) -> Values:
    """Number of values in each row that count as zero, by the rule of `find_null_spaces`."""
    ordered = np.sort(singular, axis=1)
    exact = (ordered <= EXACT).sum(axis=1)
    below = (ordered <= precision).sum(axis=1)
    last = np.take_along_axis(ordered, np.maximum(below - 1, 0)[:, None], axis=1)[:, 0]
    ahead = np.append(ordered, np.full((len(ordered), 1), np.inf), axis=1)
    following = np.take_along_axis(ahead, below[:, None], axis=1)[:, 0]
    ranks: Values = np.where((below > exact) & (following >= GAP * last), below, exact)
    return ranks


# --- solvers -------------------------------------------------------------------------------------

SINGULAR = 1e11  # condition number of matrices that may be singular up to f64 rounding
UNRELIABLE = 1e13  # condition number of unusable factors
REFINEMENTS = 3
REFINED = 1e-2  # fraction of the tolerance at which refinement stops
TOLERANCES = {"f32": 1e-3, "f64": 1e-8}  # of residuals, relative to the right side

NOT_DEFINITE = 'the matrix is not positive definite: take solver_type="LDLT" or "LU"'
NOT_FINITE = "the matrix has entries that are not finite"
NOT_FACTORISED = "the matrix is singular, and its null vectors could not be found"


class PinnedFactors(NamedTuple):
    """A singular matrix: factors of the pinned matrix, and its null spaces."""

    factors: Factors
    spaces: NullSpaces

    def solve(self, b: Values) -> Values:
        """A^+ b."""
        blocks, left, right, _ = self.spaces
        return blocks.remove(right, self.factors.solve(blocks.remove(left, b)))

    def solve_transposed(self, b: Values) -> Values:
        """(A^+)^T b."""
        blocks, left, right, _ = self.spaces
        return blocks.remove(left, self.factors.solve_transposed(blocks.remove(right, b)))


class DirectSolution(NamedTuple):
    """A solution in f64, with the factors that computed it."""

    x: Values
    by: Factors | PinnedFactors


Outer = list[tuple[Values, Values]]


class DirectSolver:
    """A factorization of a matrix with entries of type `dtype`, by "LLT", "LDLT" or "LU".

    `failure` is the reason why it is unusable, or "". `pinned` is set if the matrix was found to be
    singular.
    """

    def __init__(self, square: SquareTriplets, solver_type: str, dtype: Any) -> None:
        self.square, self.dtype = square, dtype
        self.is_symmetric, self.is_llt = solver_type != "LU", solver_type == "LLT"
        self.precision = ROUNDINGS * float(np.finfo(dtype).eps)
        self.tolerance = TOLERANCES[f"f{8 * np.dtype(dtype).itemsize}"]
        self.condition = np.inf
        self.pinned: PinnedFactors | None = None
        self.factors: Factors | None = None
        self.failure = ""
        self._is_missed = self._is_searched = self._is_doubtful = False
        self._nearly: PinnedFactors | None = (
            None  # set if the matrix is singular in its own precision
        )
        if np.isfinite(square.numbers).all():
            self._factorize()
        else:
            self.failure = NOT_FINITE

    # --- factorization -----------------------------------------------------------------------

    def _factorize(self) -> None:
        """Set `factors`, `pinned` if the matrix is singular, or `failure`."""
        guessed = guess_constant(self.square, find_blocks(self.square))
        if guessed is not None:
            every = np.ones(self.square.n)
            self.pinned = self._pin(guessed, guessed, every, every)
            if self.pinned is not None:
                return
        self.factors = factorize(self.square, is_symmetric=self.is_llt)
        is_refused = self.is_llt and not (self.factors and self.factors.is_definite)
        if self.factors is not None:
            self.condition = estimate_condition(self.square, self.factors)
        if self.condition >= (1 / self.precision if is_refused else SINGULAR):
            self.pinned = self._search(self.precision if is_refused else 0)
            self._is_doubtful = self.pinned is None and self._is_missed
        if self.pinned is None and is_refused:
            self.failure = NOT_DEFINITE
        elif self.pinned is None and self.factors is None:
            self.failure = NOT_FACTORISED

    def _search(self, precision: float) -> PinnedFactors | None:
        """Return the pinned matrix, if there are null vectors within `precision`, else None. Sets
        `_is_missed` if the search failed."""
        blocks = find_blocks(self.square)
        left, right = equilibrate(self.square, is_symmetric=self.is_symmetric)
        found = find_null_spaces(
            self.square.scale(left, right), blocks, is_symmetric=self.is_symmetric,
            precision=precision,
        )  # fmt: skip
        self._is_missed = found is None
        if found is None or not found.ranks.any():
            return None
        spaces = found._replace(
            left=blocks.orthonormalize(left[:, None] * found.left),
            right=blocks.orthonormalize(right[:, None] * found.right),
        )
        pinned = self._pin(spaces, found, left, right)
        self._is_missed = pinned is None
        return pinned

    def _pin(
        self, spaces: NullSpaces, balanced: NullSpaces, left: Values, right: Values
    ) -> PinnedFactors | None:
        """Return the pinned matrix, with pins chosen for the matrix scaled by `left` and `right`.
        None if it is singular or ill-conditioned too, or not positive definite for "LLT"."""
        rows, columns = balanced.choose_pins(is_symmetric=self.is_symmetric)
        scaled = self.square.scale(left, right)
        pins = np.full(len(rows), scaled.size() or 1.0)
        scaled = scaled.add(rows, columns, pins)
        factors = factorize(scaled, is_symmetric=self.is_llt)
        if factors is None or (self.is_llt and not factors.is_definite):
            return None
        if estimate_condition(scaled, factors) >= UNRELIABLE:
            return None
        solve, solve_transposed = factors.solve, factors.solve_transposed
        whole = Factors(
            lambda b: right * solve(left * b),
            lambda b: left * solve_transposed(right * b),
            factors.is_definite,
        )
        return PinnedFactors(whole, spaces)

    # --- solution ----------------------------------------------------------------------------

    def solve(self, b: Values) -> DirectSolution:
        """The solution of A x = b. For a singular A it has the least residual and, among these, the
        least norm. Precondition: no `failure`."""
        found = self._answer(b, self._best)
        if self.pinned is not None:
            return self._solve_as_regular(b, found)
        if self.precision * self.condition < 1:
            return found
        # The matrix is regular in f64. It may be singular within the precision of its own type.
        if self.residual(b, found.x.astype(self.dtype)) <= self.tolerance:
            return found
        if not self._is_searched:
            self._nearly, self._is_searched = self._search(self.precision), True
        if self._nearly is not None:
            other = self._answer(b, self._nearly)
            if self.residual(b, other.x.astype(self.dtype)) <= self.tolerance:
                return other
        return found

    def _solve_as_regular(self, b: Values, found: DirectSolution) -> DirectSolution:
        """Return the solution by the unpinned factors if that is one and `found` is not, else
        `found`.

        A matrix that seems singular up to rounding may be regular, such as triangular integer
        matrices.
        """
        if self.factors is None or (self.is_llt and not self.factors.is_definite):
            return found
        if self.residual(b, found.x.astype(self.dtype)) <= self.tolerance:
            return found
        with np.errstate(all="ignore"):
            other = self._answer(b, self.factors)
            is_better = self.residual(b, other.x.astype(self.dtype)) <= self.tolerance
        return other if is_better else found

    def _answer(self, b: Values, by: Factors | PinnedFactors) -> DirectSolution:
        return DirectSolution(self._refine(by.solve, self.square.multiply, b), by)

    def solve_transposed(self, b: Values, by: Factors | PinnedFactors) -> Values:
        """The solution of A^T x = b by given factors, refined; for PinnedFactors (A^+)^T b."""
        return self._refine(by.solve_transposed, self.square.multiply_transposed, b)

    def differentiate(self, b: Values, slope: Values) -> tuple[str, Values, Outer]:
        """Derivatives of x, given the gradient `slope` of x.

        Returns the reason why x is no solution (or ""), the gradient of b, and that of A. The
        latter is a list of outer products (u, v), whose sum of u v^T it is. A singular matrix has
        derivatives for changes that preserve its rank. Source: G. Golub and V. Pereyra, "The
        differentiation of pseudo-inverses and nonlinear least squares problems whose variables
        separate", 1973.
        """
        x, by = self.solve(b)
        s = self.solve_transposed(slope, by)
        products = [(-s, x)]
        if isinstance(by, PinnedFactors):
            blocks, _, right, _ = by.spaces
            null_part = slope - blocks.remove(right, slope)
            rest = b - self.square.multiply(x)
            products += [(self.solve_transposed(x, by), null_part), (rest, self._answer(s, by).x)]
        return self.explain(b, DirectSolution(x, by)), s, products

    def explain(self, b: Values, found: DirectSolution) -> str:
        """The reason why x does not solve A x = b, or ""."""
        if not np.isfinite(b).all():
            return "the right side has numbers that are not finite"
        # Do not blame x for rounding, which enlarges the residual of an ill-conditioned matrix.
        x = found.x.astype(self.dtype) if self._is_doubtful else found.x
        residual = self.residual(b, x)
        if residual <= self.tolerance:
            return ""
        size = f"the residual is {residual:.2g} times the right side"
        if isinstance(found.by, PinnedFactors):
            return f"the matrix is singular and the right side not in its range: {size}"
        return f"the matrix is singular or too ill-conditioned: {size}"

    @property
    def _best(self) -> Factors | PinnedFactors:
        found = self.pinned or self.factors
        assert found is not None
        return found

    def residual(self, b: Values, x: Values) -> float:
        """The norm of b - A x relative to the norm of b, as in `relative_norm`."""
        return relative_norm(b - self.square.multiply(x.astype(np.float64)), b)

    def _refine(
        self, solve: Callable[[Values], Values], multiply: Callable[[Values], Values], b: Values
    ) -> Values:
        """Iterative refinement: solve, then correct by solutions for the residual. At most
        REFINEMENTS times, while the residual decreases and is above REFINED times the tolerance."""
        x = solve(b)
        rest = b - multiply(x)
        for _ in range(REFINEMENTS):
            if relative_norm(rest, b) <= REFINED * self.tolerance:
                break
            better = x + solve(rest)
            smaller = b - multiply(better)
            if not np.linalg.norm(smaller) < np.linalg.norm(rest):
                break
            x, rest = better, smaller
        return x


def relative_norm(rest: Values, b: Values) -> float:
    """The norm of `rest` relative to the norm of b; absolute if b is 0."""
    norm = float(np.linalg.norm(b))
    return float(np.linalg.norm(rest)) / (norm or 1.0)
