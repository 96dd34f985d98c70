"""Solvers for linear systems with a sparse matrix: `SparseSolver` (direct), `SparseCG` (iterative).

They run on the host.

    solver = SparseSolver(solver_type="LLT"); solver.compute(A); x = solver.solve(b)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from vkchi.errors import GradientError, KernelRuntimeError, SolverWarning, warn_user
from vkchi.fields.field import Field
from vkchi.fields.storage import Storage
from vkchi.linalg.adjoint import ROUNDINGS
from vkchi.linalg.coo_matrix import SparseMatrix, WeightedScatter
from vkchi.linalg.direct_solver import DirectSolver, SquareTriplets
from vkchi.ndarray import Ndarray
from vkchi.span import user_span
from vkchi.tape.hosted import run_host_function
from vkchi.types import cook, f32
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.types.hints import Column, ScalarDType


SOLVER_TYPES = ("LLT", "LDLT", "LU")
ORDERINGS = ("AMD", "COLAMD")


class FactorisedMatrix:
    """A factorized sparse matrix. For "LLT" and "LDLT" only the lower triangle is read."""

    def __init__(self, matrix: SparseMatrix, solver_type: str) -> None:
        self.rows, self.columns, self.numbers = matrix.entries
        self.n, self.dtype, self.solver_type = matrix.n, matrix.dtype.dtype, solver_type
        self.direct = self.factorize(self.numbers)

    def factorize(self, numbers: Any) -> DirectSolver:
        rows, columns, numbers = self.rows, self.columns, numbers.astype(np.float64)
        if self.solver_type != "LU":
            low, off = rows >= columns, rows > columns
            rows, columns, numbers = (
                np.concatenate([rows[low], columns[off]]),
                np.concatenate([columns[low], rows[off]]),
                np.concatenate([numbers[low], numbers[off]]),
            )
        return DirectSolver(
            SquareTriplets(rows, columns, numbers, self.n), self.solver_type, self.dtype
        )

    def of(self, numbers: Any) -> DirectSolver:
        """The factorization for these values of the entries, reused if they are equal. Raises
        KernelRuntimeError if it failed."""
        is_same = numbers is self.numbers or np.array_equal(numbers, self.numbers)
        found = self.direct if is_same else self.factorize(numbers)
        if found.failure:
            raise KernelRuntimeError(f"SparseSolver: {found.failure}")
        return found


class DirectSolve:
    """x of A x = b as a function of b and of A's entries. `failure` is the reason why the last x
    is no solution, or ""."""

    who = "SparseSolver.solve()"
    failure = ""

    def __init__(self, matrix: FactorisedMatrix) -> None:
        self.matrix, self.span = matrix, user_span()

    def value(self, *inputs: Any) -> Any:
        b, numbers = inputs
        direct, b = self.matrix.of(numbers), b.astype(np.float64)
        found = direct.solve(b)
        self.failure = direct.explain(b, found)
        return found.x.astype(self.matrix.dtype)

    def slopes(self, slope: Any, result: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Gradients of b and of A's entries. Raises GradientError if x is no solution."""
        direct = self.matrix.of(inputs[1])
        failure, s, products = direct.differentiate(inputs[0].astype(np.float64), slope)
        if failure:
            raise GradientError(
                f"the gradient flows through SparseSolver.solve(), and {failure}", self.span
            )
        rows, columns = self.matrix.rows, self.matrix.columns
        by_entry = sum(u[rows] * v[columns] for u, v in products)
        if self.matrix.solver_type != "LU":
            mirrored = sum(u[columns] * v[rows] for u, v in products)
            by_entry = np.where(rows > columns, by_entry + mirrored, by_entry)
            by_entry = np.where(rows >= columns, by_entry, 0)
        return s, by_entry


def check_right_side(who: str, b: Column, n: int) -> None:
    """Raise KernelRuntimeError unless b is a field, ndarray or numpy array of n scalars."""
    if not isinstance(b, Field | Ndarray | np.ndarray):
        raise KernelRuntimeError(f"{who}: a field, ndarray or numpy array is needed, not {type(b)}")
    if b.shape != (n,) or (isinstance(b, Storage) and not b.is_scalar):
        raise KernelRuntimeError(f"{who}: {n} numbers are needed, not an array of {b.shape}")


class SparseSolver:
    """Direct solver that factorizes a square matrix once and solves several systems.

    solver_type: "LLT" for symmetric positive definite matrices, "LDLT" for symmetric ones, "LU" for
    any. The first two read the lower triangle only. ordering: "AMD" or "COLAMD"; it and `dtype`
    have no effect.

    Raises KernelRuntimeError for other names.
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
        self._factorised: FactorisedMatrix | None = None
        self._failure, self._has_warned = "", False

    def compute(self, sparse_matrix: SparseMatrix) -> None:
        """`analyze_pattern` and `factorize`."""
        self.analyze_pattern(sparse_matrix)
        self.factorize(sparse_matrix)

    def analyze_pattern(self, sparse_matrix: SparseMatrix) -> None:
        """Set the matrix, and drop the factorization. Raises KernelRuntimeError unless it is a
        square SparseMatrix."""
        if not isinstance(sparse_matrix, SparseMatrix):
            raise KernelRuntimeError(
                f"SparseSolver: a SparseMatrix is needed, not {type(sparse_matrix)}"
            )
        if sparse_matrix.n != sparse_matrix.m:
            raise KernelRuntimeError(
                f"SparseSolver: the matrix must be square, not {sparse_matrix.shape}"
            )
        self.matrix, self._factorised = sparse_matrix, None

    def factorize(self, sparse_matrix: SparseMatrix) -> None:
        """Set and factorize the matrix; `info` returns True if this succeeded. Raises as
        `analyze_pattern`."""
        self.analyze_pattern(sparse_matrix)
        self._factorised = FactorisedMatrix(sparse_matrix, self.solver_type)
        self._failure = self._factorised.direct.failure

    @overload
    def solve(self, b: Ndarray) -> Ndarray: ...
    @overload
    def solve(self, b: Field | NDArray[np.number]) -> NDArray[np.number]: ...
    def solve(self, b: Column) -> Ndarray | NDArray[np.number]:
        """x with A @ x = b: an ndarray if b is one, otherwise a numpy array.

        A singular matrix gives the solution of least norm. If b is not in its range, x has the
        least residual, `info` is false, and the first such x of the solver warns (SolverWarning).

        Raises KernelRuntimeError before `factorize`, for a matrix that could not be factorized, and
        for a b of another type or shape.
        """
        if self.matrix is None:
            raise KernelRuntimeError("SparseSolver: call compute() before solve()")
        check_right_side("SparseSolver.solve", b, self.matrix.n)
        if self._factorised is None:
            raise KernelRuntimeError("SparseSolver: call factorize() before solve()")
        if failure := self._factorised.direct.failure:
            raise KernelRuntimeError(f"SparseSolver: the matrix could not be factorised: {failure}")
        solution = DirectSolve(self._factorised)
        is_shown = not isinstance(b, Ndarray)
        found: Ndarray | NDArray[np.number] = run_host_function(
            solution, (b, self._factorised.numbers), None if is_shown else self.matrix.dtype,
            is_shown=is_shown,
        )  # fmt: skip
        self._failure = solution.failure
        if self._failure and not self._has_warned:
            self._has_warned = True
            warn_user(f"SparseSolver.solve(): {self._failure}", SolverWarning)
        return found

    def info(self) -> bool:
        """True if the last `factorize`, and since then the last `solve`, succeeded."""
        return self._factorised is not None and not self._failure


class SparseCG:
    """Conjugate gradients for A x = b with a symmetric positive definite A. They start at `x0` or
    zero and stop after `max_iter` iterations, or when the residual norm is at most `atol` times
    that of b.

    Raises KernelRuntimeError unless A is square and fits b and x0. Source: M. R. Hestenes and E.
    Stiefel, "Methods of conjugate gradients for solving linear systems", 1952.
    """

    def __init__(
        self,
        A: SparseMatrix,
        b: Column,
        x0: Column | None = None,
        max_iter: int = 50,
        atol: float = 1e-6,
    ) -> None:
        if A.n != A.m:
            raise KernelRuntimeError(f"SparseCG: the matrix must be square, not {A.shape}")
        self.A, self.max_iter, self.atol = A, max_iter, atol
        self.b = right_side(b, A.n)
        self.x0 = np.zeros(A.n) if x0 is None else right_side(x0, A.n)

    def solve(self) -> tuple[NDArray[np.number], bool]:
        """x as a numpy array, and True if it converged."""
        search = ConjugateGradientSolve(self)
        x = run_host_function(search, (self.b, self.A.entries[2], self.x0), is_shown=True)
        return x, search.is_done


def right_side(b: Column, n: int) -> NDArray[np.float64]:
    """A numpy copy, in f64, of the n scalars of b. Raises as `check_right_side` does."""
    check_right_side("SparseCG", b, n)
    every = np.arange(n)
    weighted = WeightedScatter("SparseCG", every, 1, every, n, np.float64)
    found: NDArray[np.float64] = run_host_function(weighted, (b,), is_shown=True)
    return found


def is_symmetric(matrix: SparseMatrix, numbers: Any) -> bool:
    """True if a positive definite matrix with these entries is symmetric up to rounding."""
    rows, columns, _ = matrix.entries
    keys, mirrored = rows * matrix.n + columns, columns * matrix.n + rows
    at = np.minimum(np.searchsorted(keys, mirrored), max(len(keys) - 1, 0))
    others = np.where(keys[at] == mirrored, numbers[at], 0)
    diagonal = np.zeros(matrix.n)
    diagonal[rows[rows == columns]] = np.abs(numbers[rows == columns])
    noise = ROUNDINGS * np.finfo(matrix.dtype.dtype).eps
    scale = np.sqrt(diagonal[rows] * diagonal[columns])  # upper bound of entries
    return bool((np.abs(numbers - others) <= noise * scale).all())


class ConjugateGradientSolve:
    """Conjugate gradients as a differentiable function: x of A x = b, from b, A's entries and
    x0."""

    who = "SparseCG.solve()"
    is_done = False  # converged

    def __init__(self, given: SparseCG) -> None:
        self.given, self.span = given, user_span()

    def value(self, *inputs: Any) -> Any:
        b, numbers, x = inputs
        x, self.is_done = self.search(b, numbers, x)
        return x.astype(self.given.A.dtype.dtype)

    def slopes(self, slope: Any, result: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Gradients by the adjoint method: s, the solution of A s = slope, for b; -s x^T for A;
        0 for x0. Raises GradientError if either search did not converge, or if A is not
        symmetric."""
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
        """Conjugate gradients from x: the last x, and True if it converged."""
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
            curvature = p @ Ap
            if curvature == 0 or not np.isfinite(curvature):  # breakdown
                break
            alpha = square / curvature
            x += alpha * p
            r -= alpha * Ap
            square, before = r @ r, square
            p = r + (square / before) * p
        return x, bool(square <= limit)
