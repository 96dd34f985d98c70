"""Solvers for linear systems with a sparse matrix.

Owns: `SparseSolver`, `SparseCG`. They run on the host: with scipy where it is installed, else a
direct solver takes matrices of up to MOST_DENSE rows. Must not know: how matrices are built.

    solver = SparseSolver(solver_type="LLT"); solver.compute(A); x = solver.solve(b)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from vkchi.errors import KernelRuntimeError, Unsupported
from vkchi.fields.field import Field
from vkchi.linalg.sparse import SparseMatrix
from vkchi.ndarray import Ndarray, ndarray
from vkchi.types import cook, f32

MOST_DENSE = 4000

SOLVER_TYPES = ("LLT", "LDLT", "LU")
ORDERINGS = ("AMD", "COLAMD")

Solve = Callable[[Any], Any]


def right_side(who: str, b: Any, n: int) -> Any:
    """The vector b, a field, ndarray or numpy array of n numbers. Raises KernelRuntimeError."""
    if not isinstance(b, Field | Ndarray | np.ndarray):
        raise KernelRuntimeError(f"{who}: a field, ndarray or numpy array is needed, not {type(b)}")
    found = b if isinstance(b, np.ndarray) else b.to_numpy()
    if found.shape != (n,):
        raise KernelRuntimeError(f"{who}: {n} numbers are needed, not an array of {found.shape}")
    return found.astype(np.float64)


class SparseSolver:
    """Factorises a square matrix once and solves systems with it: "LLT" for symmetric positive
    definite ones, "LDLT" for symmetric ones, of both of which the lower triangle is read, "LU".

    Raises KernelRuntimeError for other names. The ordering is a hint.
    """

    def __init__(self, dtype: Any = f32, solver_type: str = "LLT", ordering: str = "AMD") -> None:
        if solver_type not in SOLVER_TYPES or ordering not in ORDERINGS:
            raise KernelRuntimeError(
                f"SparseSolver: the solver type is one of {', '.join(SOLVER_TYPES)}, the ordering "
                f"one of {', '.join(ORDERINGS)}: not {solver_type!r} with {ordering!r}"
            )
        self.dtype, self.solver_type, self.ordering = cook(dtype), solver_type, ordering
        self.matrix: SparseMatrix | None = None
        self._solve: Solve | None = None

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
        self.matrix, self._solve = sparse_matrix, None

    def factorize(self, sparse_matrix: SparseMatrix) -> None:
        """Factorise the matrix; `info` says whether that was possible."""
        self.analyze_pattern(sparse_matrix)
        rows, columns, numbers = sparse_matrix.entries
        numbers = numbers.astype(np.float64)
        if self.solver_type != "LU":
            low, off = rows >= columns, rows > columns
            rows, columns, numbers = (
                np.concatenate([rows[low], columns[off]]),
                np.concatenate([columns[low], rows[off]]),
                np.concatenate([numbers[low], numbers[off]]),
            )
        entries = rows, columns, numbers
        self._solve = factorize(entries, sparse_matrix.n, definite=self.solver_type == "LLT")

    def solve(self, b: Any) -> Any:
        """x with A @ x = b: of an ndarray an ndarray, else a numpy array.

        Raises KernelRuntimeError before `compute`, and for a matrix that could not be factorised.
        """
        if self.matrix is None:
            raise KernelRuntimeError("SparseSolver: call compute() before solve()")
        right = right_side("SparseSolver.solve", b, self.matrix.n)
        if self._solve is None:
            raise KernelRuntimeError("SparseSolver: the matrix could not be factorised")
        x = self._solve(right).astype(self.matrix.dtype.dtype)
        if not isinstance(b, Ndarray):
            return x
        found = ndarray(self.matrix.dtype, self.matrix.n)
        found.from_numpy(x)
        return found

    def info(self) -> bool:
        """Whether the last `factorize` succeeded."""
        return self._solve is not None


def factorize(entries: tuple[Any, Any, Any], n: int, *, definite: bool) -> Solve | None:
    """A solver for the matrix; None if it is singular, or not positive definite and has to be."""
    try:
        from scipy.sparse import csc_matrix
        from scipy.sparse.linalg import splu
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
    solve: Solve = lu.solve
    return solve


def factorize_dense(entries: tuple[Any, Any, Any], n: int, *, definite: bool) -> Solve | None:
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
    return lambda b: inverse @ b


class SparseCG:
    """Conjugate gradients for A x = b, A symmetric and positive definite, from `x0` or zero, for at
    most `max_iter` iterations or until the residual is below `atol` times b's norm.

    Source: M. R. Hestenes and E. Stiefel, "Methods of conjugate gradients for solving linear
    systems", 1952.
    """

    def __init__(
        self, A: SparseMatrix, b: Any, x0: Any = None, max_iter: int = 50, atol: float = 1e-6
    ) -> None:
        self.A, self.max_iter, self.atol = A, max_iter, atol
        self.b = right_side("SparseCG", b, A.n)
        self.x0 = np.zeros(A.n) if x0 is None else right_side("SparseCG", x0, A.n)

    def solve(self) -> tuple[Any, bool]:
        """x, and whether it converged."""
        rows, columns, numbers = self.A.entries
        numbers = numbers.astype(np.float64)

        def multiply(v: Any) -> Any:
            return np.bincount(rows, numbers * v[columns], self.A.n)

        x = self.x0.copy()
        r = self.b - multiply(x)
        p, square = r.copy(), r @ r
        limit = (self.atol * max(float(np.linalg.norm(self.b)), np.finfo(float).tiny)) ** 2
        for _ in range(self.max_iter):
            if square <= limit:
                break
            Ap = multiply(p)
            alpha = square / (p @ Ap)
            x += alpha * p
            r -= alpha * Ap
            square, before = r @ r, square
            p = r + (square / before) * p
        return x.astype(self.A.dtype.dtype), bool(square <= limit)
