"""Triangular factorizations of sparse square matrices in f64.

They use SuperLU of scipy if it is installed. Otherwise numpy inverts dense matrices of up to
MOST_DENSE rows.

    >>> square = SquareTriplets(np.array([0, 1]), np.array([0, 1]), np.array([2.0, 4.0]), 2)
    >>> factorize(square, is_symmetric=True).solve(np.ones(2))
    array([0.5 , 0.25])
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from vkchi.errors import Unsupported
from vkchi.interrupts.imports import import_uninterrupted
from vkchi.interrupts.local import local
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

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
