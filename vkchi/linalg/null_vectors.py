"""Null spaces of sparse square matrices, by block inverse iteration.

A matrix is block diagonal over the connected components of its graph. Inverse iteration runs on all
components in parallel; each has its own basis, with one column per null vector.

A symmetric matrix A is shifted to A + δI. Any other is embedded in [[δI, A], [A^T, -δI]], which is
always regular. Its solutions give (A^T A + δ²I)^{-1} and (A A^T + δ²I)^{-1}. Source: G. Golub and
C. Van Loan, "Matrix computations", 8.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vkchi.linalg.factors import SquareTriplets, Values, factorize
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

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
