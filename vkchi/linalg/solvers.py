"""Solvers for linear systems with a sparse matrix.

Owns: `SparseSolver`, `SparseCG`. They run on the host: with scipy where it is installed, else a
direct solver takes matrices of up to MOST_DENSE rows. Must not know: how matrices are built.

    solver = SparseSolver(solver_type="LLT"); solver.compute(A); x = solver.solve(b)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from vkchi.errors import GradientError, KernelRuntimeError, Unsupported
from vkchi.fields.field import Field
from vkchi.fields.storage import Storage
from vkchi.interrupts.imports import import_whole
from vkchi.linalg.adjoint import ROUNDINGS
from vkchi.linalg.entries import Weighted
from vkchi.linalg.sparse import SparseMatrix
from vkchi.ndarray import Ndarray
from vkchi.span import user_span
from vkchi.tape.hosted import compute
from vkchi.tuples import NamedTuple
from vkchi.types import cook, f32
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.types.hints import Column, ScalarDType


MOST_DENSE = 4000

SOLVER_TYPES = ("LLT", "LDLT", "LU")
ORDERINGS = ("AMD", "COLAMD")

Solve = Callable[[Any], Any]


class Factors(NamedTuple):
    """Solvers for a matrix and for its transpose."""

    solve: Solve
    solve_transposed: Solve


class Solution:
    """x of A x = b, a function of b and of the entries of A; of symmetric matrices only the lower
    triangle counts. `info` says whether A could be factorised."""

    who = "SparseSolver.solve()"

    def __init__(self, matrix: SparseMatrix, solver_type: str) -> None:
        self.rows, self.columns, self.numbers = matrix.entries
        self.n, self.dtype, self.solver_type = matrix.n, matrix.dtype.dtype, solver_type
        self.factors = self.factorize(self.numbers)

    def factorize(self, numbers: Any) -> Factors | None:
        """Factorise the matrix of these numbers."""
        rows, columns, numbers = self.rows, self.columns, numbers.astype(np.float64)
        if self.solver_type != "LU":
            low, off = rows >= columns, rows > columns
            rows, columns, numbers = (
                np.concatenate([rows[low], columns[off]]),
                np.concatenate([columns[low], rows[off]]),
                np.concatenate([numbers[low], numbers[off]]),
            )
        return factorize((rows, columns, numbers), self.n, definite=self.solver_type == "LLT")

    def factors_of(self, numbers: Any) -> Factors:
        """Those for these numbers. Raises KernelRuntimeError where there are none."""
        is_same = numbers is self.numbers or np.array_equal(numbers, self.numbers)
        found = self.factors if is_same else self.factorize(numbers)
        if found is None:
            raise KernelRuntimeError("SparseSolver: the matrix could not be factorised")
        return found

    def value(self, *inputs: Any) -> Any:
        """x."""
        b, numbers = inputs
        return self.factors_of(numbers).solve(b.astype(np.float64)).astype(self.dtype)

    def slopes(self, slope: Any, result: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """By b it is the solution s of the transposed system, by A the matrix -s x^T."""
        s = self.factors_of(inputs[1]).solve_transposed(slope)
        x, rows, columns = result.astype(np.float64), self.rows, self.columns
        by_entry = -s[rows] * x[columns]
        if self.solver_type != "LU":
            mirrored = np.where(rows > columns, -s[columns] * x[rows], 0)
            by_entry = np.where(rows >= columns, by_entry + mirrored, 0)
        return s, by_entry


def check_right_side(who: str, b: Column, n: int) -> None:
    """Raises KernelRuntimeError unless b is a field, ndarray or numpy array of n numbers."""
    if not isinstance(b, Field | Ndarray | np.ndarray):
        raise KernelRuntimeError(f"{who}: a field, ndarray or numpy array is needed, not {type(b)}")
    if b.shape != (n,) or (isinstance(b, Storage) and not b.is_scalar):
        raise KernelRuntimeError(f"{who}: {n} numbers are needed, not an array of {b.shape}")


class SparseSolver:
    """Factorises a square matrix once and solves systems with it: "LLT" for symmetric positive
    definite ones, "LDLT" for symmetric ones, of both of which the lower triangle is read, "LU".

    Raises KernelRuntimeError for other names. The ordering is a hint.
    """

    def __init__(
        self, dtype: ScalarDType = f32, solver_type: str = "LLT", ordering: str = "AMD"
    ) -> None:
        if solver_type not in SOLVER_TYPES or ordering not in ORDERINGS:
            raise KernelRuntimeError(
                f"SparseSolver: the solver type is one of {', '.join(SOLVER_TYPES)}, the ordering "
                f"one of {', '.join(ORDERINGS)}: not {solver_type!r} with {ordering!r}"
            )
        self.dtype, self.solver_type, self.ordering = cook(dtype), solver_type, ordering
        self.matrix: SparseMatrix | None = None
        self._solution: Solution | None = None

    def compute(self, sparse_matrix: SparseMatrix) -> None:
        """`analyze_pattern` and `factorize`."""
        self.analyze_pattern(sparse_matrix)
        self.factorize(sparse_matrix)

    def analyze_pattern(self, sparse_matrix: SparseMatrix) -> None:
        """Note the matrix. Raises KernelRuntimeError unless it is square."""
        if not isinstance(sparse_matrix, SparseMatrix):
            raise KernelRuntimeError(
                f"SparseSolver: a SparseMatrix is needed, not {type(sparse_matrix)}"
            )
        if sparse_matrix.n != sparse_matrix.m:
            raise KernelRuntimeError(
                f"SparseSolver: the matrix must be square, not {sparse_matrix.shape}"
            )
        self.matrix, self._solution = sparse_matrix, None

    def factorize(self, sparse_matrix: SparseMatrix) -> None:
        """Factorise the matrix; `info` says whether that was possible."""
        self.analyze_pattern(sparse_matrix)
        self._solution = Solution(sparse_matrix, self.solver_type)

    @overload
    def solve(self, b: Ndarray) -> Ndarray: ...
    @overload
    def solve(self, b: Field | NDArray[np.number]) -> NDArray[np.number]: ...
    def solve(self, b: Column) -> Ndarray | NDArray[np.number]:
        """x with A @ x = b: of an ndarray an ndarray, else a numpy array.

        Raises KernelRuntimeError before `compute`, and for a matrix that could not be factorised.
        """
        if self.matrix is None:
            raise KernelRuntimeError("SparseSolver: call compute() before solve()")
        check_right_side("SparseSolver.solve", b, self.matrix.n)
        if not self.info():
            raise KernelRuntimeError("SparseSolver: the matrix could not be factorised")
        assert self._solution is not None
        inputs = (b, self._solution.numbers)
        is_shown = not isinstance(b, Ndarray)
        found: Ndarray | NDArray[np.number] = compute(
            self._solution, inputs, None if is_shown else self.matrix.dtype, is_shown=is_shown
        )
        return found

    def info(self) -> bool:
        """Whether the last `factorize` succeeded."""
        return self._solution is not None and self._solution.factors is not None


def factorize(entries: tuple[Any, Any, Any], n: int, *, definite: bool) -> Factors | None:
    """Solvers for the matrix; None if it is singular, or not positive definite and has to be."""
    try:
        csc_matrix = import_whole("scipy.sparse").csc_matrix
        splu = import_whole("scipy.sparse.linalg").splu
    except ImportError:
        return factorize_dense(entries, n, definite=definite)
    rows, columns, numbers = entries
    matrix = csc_matrix((numbers, (rows, columns)), (n, n))
    symmetric = {"SymmetricMode": True}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lu = splu(matrix, "MMD_AT_PLUS_A", 0.0, options=symmetric) if definite else splu(matrix)
    except RuntimeError:  # exactly singular
        return None
    if definite and not (lu.U.diagonal() > 0).all():
        return None
    return Factors(lu.solve, lambda b: lu.solve(b, "T"))


def factorize_dense(entries: tuple[Any, Any, Any], n: int, *, definite: bool) -> Factors | None:
    """The same without scipy. Raises Unsupported for large matrices."""
    if n > MOST_DENSE:
        raise Unsupported(
            f"SparseSolver: without scipy a matrix has at most {MOST_DENSE} rows, this has {n}: "
            "pip install scipy, or use ti.linalg.SparseCG"
        )
    dense = np.zeros((n, n))
    rows, columns, numbers = entries
    dense[rows, columns] = numbers
    try:
        if definite:
            np.linalg.cholesky(dense)
        inverse = np.linalg.inv(dense)
    except np.linalg.LinAlgError:
        return None
    return Factors(lambda b: inverse @ b, lambda b: inverse.T @ b)


class SparseCG:
    """Conjugate gradients for A x = b, A symmetric and positive definite, from `x0` or zero, for at
    most `max_iter` iterations or until the residual is below `atol` times b's norm.

    Source: M. R. Hestenes and E. Stiefel, "Methods of conjugate gradients for solving linear
    systems", 1952.
    """

    def __init__(
        self,
        A: SparseMatrix,
        b: Column,
        x0: Column | None = None,
        max_iter: int = 50,
        atol: float = 1e-6,
    ) -> None:
        self.A, self.max_iter, self.atol = A, max_iter, atol
        self.b = right_side(b, A.n)
        self.x0 = np.zeros(A.n) if x0 is None else right_side(x0, A.n)

    def solve(self) -> tuple[NDArray[np.number], bool]:
        """x in numpy, and whether it converged."""
        search = Search(self)
        x = compute(search, (self.b, self.A.entries[2], self.x0), is_shown=True)
        return x, search.is_done


def right_side(b: Column, n: int) -> NDArray[np.float64]:
    """A copy of the n numbers of b in numpy."""
    check_right_side("SparseCG", b, n)
    every = np.arange(n)
    weighted = Weighted("SparseCG", every, 1, every, n, np.float64)
    found: NDArray[np.float64] = compute(weighted, (b,), is_shown=True)
    return found


def is_symmetric(matrix: SparseMatrix, numbers: Any) -> bool:
    """Whether a positive definite matrix with these entries is its own transpose, but for
    rounding."""
    rows, columns, _ = matrix.entries
    keys, mirrored = rows * matrix.n + columns, columns * matrix.n + rows
    at = np.minimum(np.searchsorted(keys, mirrored), max(len(keys) - 1, 0))
    others = np.where(keys[at] == mirrored, numbers[at], 0)
    diagonal = np.zeros(matrix.n)
    diagonal[rows[rows == columns]] = np.abs(numbers[rows == columns])
    noise = ROUNDINGS * np.finfo(matrix.dtype.dtype).eps
    scale = np.sqrt(diagonal[rows] * diagonal[columns])  # no entry is greater
    return bool((np.abs(numbers - others) <= noise * scale).all())


class Search:
    """x of A x = b, by conjugate gradients from x0, a function of b, the entries of A, and x0."""

    who = "SparseCG.solve()"
    is_done = False  # whether it converged

    def __init__(self, given: SparseCG) -> None:
        self.given, self.span = given, user_span()

    def value(self, *inputs: Any) -> Any:
        """x."""
        b, numbers, x = inputs
        x, self.is_done = self.search(b, numbers, x)
        return x.astype(self.given.A.dtype.dtype)

    def slopes(self, slope: Any, result: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """By b it is s, found in the same way from the slope, by A the matrix -s x^T; where the
        search began has no influence. Raises GradientError if either did not converge, or if A is
        not symmetric: then s is that of another system."""
        _, numbers, x0 = inputs
        if not is_symmetric(self.given.A, numbers.astype(np.float64)):
            raise GradientError(
                "the gradient flows through SparseCG.solve(), and the matrix is not symmetric",
                self.span, help='take SparseSolver(solver_type="LU")',
            )  # fmt: skip
        s, is_done = self.search(slope, numbers, np.zeros(len(x0)))
        if not (is_done and self.is_done):
            raise GradientError(
                "the gradient flows through SparseCG.solve(), which did not converge: what it gave "
                "is no solution", self.span, help="give it a greater max_iter, or atol",
            )  # fmt: skip
        rows, columns, _ = self.given.A.entries
        return s, -s[rows] * result.astype(np.float64)[columns], np.zeros(len(x0))

    def search(self, b: Any, numbers: Any, x: Any) -> tuple[Any, bool]:
        """x, and whether it converged."""
        A, max_iter, atol = self.given.A, self.given.max_iter, self.given.atol
        b, numbers, x = (v.astype(np.float64) for v in (b, numbers, x))
        rows, columns, _ = A.entries

        def multiply(v: Any) -> Any:
            return np.bincount(rows, numbers * v[columns], A.n)

        r = b - multiply(x)
        p, square = r.copy(), r @ r
        limit = (atol * max(float(np.linalg.norm(b)), np.finfo(float).tiny)) ** 2
        for _ in range(max_iter):
            if square <= limit:
                break
            Ap = multiply(p)
            alpha = square / (p @ Ap)
            x += alpha * p
            r -= alpha * Ap
            square, before = r @ r, square
            p = r + (square / before) * p
        return x, bool(square <= limit)
