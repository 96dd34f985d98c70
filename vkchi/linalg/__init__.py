"""Linear systems: solvers whose matrix is a kernel."""

from vkchi.linalg.matrixfree import LinearOperator, MatrixFreeBICGSTAB, MatrixFreeCG
from vkchi.unsupported import refuse

__all__ = ["LinearOperator", "MatrixFreeBICGSTAB", "MatrixFreeCG"]


def __getattr__(name: str) -> object:
    raise refuse(f"linalg.{name}")
