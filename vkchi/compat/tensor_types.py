"""`MatrixType` and `VectorType` of Taichi's private modules, as constructors of tensor types.

MatrixType(2, 3, 2, ti.f32)         # ti.types.matrix(2, 3, ti.f32) isinstance(ti.math.vec3,
VectorType)
"""

from __future__ import annotations

from typing import Any

from vkchi.types import DefaultTensor, Tensor, matrix, vector


class _OfTensors(type):
    """Metaclass: instances are the tensor types with `ndims` axes."""

    ndims: tuple[int, ...]

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor | DefaultTensor) and len(x.shape) in cls.ndims


class MatrixType(metaclass=_OfTensors):
    """The type of vectors (`ndim` 1) or matrices (`ndim` 2)."""

    ndims: tuple[int, ...] = (1, 2)

    def __new__(cls, n: int, m: int, ndim: int, dtype: Any) -> Any:
        return vector(n, dtype) if ndim == 1 else matrix(n, m, dtype)


class VectorType(MatrixType):
    """The type of vectors."""

    ndims = (1,)

    def __new__(cls, n: int, dtype: Any) -> Any:
        return vector(n, dtype)
