"""`MatrixType` and `VectorType` of Taichi's private modules, as constructors of tensor types.

>>> MatrixType(2, 3, 2, ti.f32), isinstance(ti.math.vec3, VectorType)
(f32<2x3>, True)
"""

from __future__ import annotations

from typing import Any

from vkchi.types import DefaultTensor, Tensor, matrix, vector


class _OfTensors(type):
    """Metaclass: `isinstance` is True for tensor types whose number of axes is in `ndims`."""

    ndims: tuple[int, ...]

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor | DefaultTensor) and len(x.shape) in cls.ndims


class MatrixType(metaclass=_OfTensors):
    """Constructor of vector types (`ndim` 1; `m` has no effect) and of `n` by `m` matrix types.

    Vector and matrix types are its instances.
    """

    ndims: tuple[int, ...] = (1, 2)

    def __new__(cls, n: int, m: int, ndim: int, dtype: Any) -> Any:
        return vector(n, dtype) if ndim == 1 else matrix(n, m, dtype)


class VectorType(MatrixType):
    """Constructor of vector types, which are its instances."""

    ndims = (1,)

    def __new__(cls, n: int, dtype: Any) -> Any:
        return vector(n, dtype)
