"""What `v != w` of vectors and matrices gives in Python scope: true where some components differ.

Owns: `Differences`, and Matrix's operator `!=`. Truth values of other kinds are true where all are,
as in the asserts of kernels (`matrix`). Must not know: fields, kernels.

    >>> if Vector([1, 2]) != Vector([1, 3]): print("other")
    other
"""

from __future__ import annotations

from typing import Any

from vkchi.lang.matrix import Matrix, Vector
from vkchi.types.lazy_numpy import np


class Differences(Matrix):
    """Truth values, of which one is enough."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return bool(self.entries.any())


class VectorDifferences(Differences, Vector):
    """Those of vectors."""

    __slots__ = ()


def unequal(self: Matrix, other: Any) -> Any:
    """`v != w`."""
    found = self._apply(np.not_equal, self, other)
    if isinstance(found, Matrix):
        found.__class__ = VectorDifferences if found.ndim == 1 else Differences
    return found
