"""Linear systems: matrix-free operators (kernels), and sparse matrices assembled by kernels."""

from vkchi.errors import KernelRuntimeError as TaichiRuntimeError
from vkchi.errors import KernelTypeError as TaichiTypeError
from vkchi.errors import SolverWarning
from vkchi.linalg.coo_matrix import SparseMatrix, SparseMatrixBuilder
from vkchi.linalg.matrixfree import LinearOperator, MatrixFreeBICGSTAB, MatrixFreeCG
from vkchi.linalg.solvers import SparseCG, SparseSolver

__all__ = [
    "LinearOperator", "MatrixFreeBICGSTAB", "MatrixFreeCG", "SolverWarning", "SparseCG",
    "SparseMatrix", "SparseMatrixBuilder", "SparseSolver", "TaichiRuntimeError", "TaichiTypeError",
]  # fmt: skip
