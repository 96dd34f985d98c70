"""Direct solvers for linear systems, including singular ones (minimum-norm solution A^+ b).

A singular matrix gets one pin per null vector: one entry of the balanced matrix is increased by the
largest magnitude. The pins are chosen so that the sum is regular. For a consistent right side the
sum has the same solution, with 0 at the pins. Its projection off the null space is the solution of
least norm.

    DirectSolver(square, "LU", np.float32).solve(b).x       # square: a SquareTriplets
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkchi.linalg.factors import (  # fmt: skip
    Factors,
    NullSpaces,
    SquareTriplets,
    Values,
    equilibrate,
    estimate_condition,
    factorize,
    find_blocks,
    find_null_spaces,
    guess_constant,
)
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

SINGULAR = 1e11  # condition number of matrices that may be singular up to f64 rounding
UNRELIABLE = 1e13  # condition number of unusable factors
REFINEMENTS = 3
REFINED = 1e-2  # fraction of the tolerance at which refinement stops
TOLERANCES = {"f32": 1e-3, "f64": 1e-8}  # of residuals, relative to the right side
ROUNDINGS = 16  # rounding errors allowed per entry, in the matrix's type

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
