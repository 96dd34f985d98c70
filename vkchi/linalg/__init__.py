"""Linear systems: solvers whose matrix is a kernel."""

from vkchi.linalg.matrixfree import LinearOperator, MatrixFreeBICGSTAB, MatrixFreeCG

__all__ = ["LinearOperator", "MatrixFreeBICGSTAB", "MatrixFreeCG"]
