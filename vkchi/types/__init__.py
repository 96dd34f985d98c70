"""`ti.types`: type constructors, and annotations of kernel arguments.

Defines `vector`, `matrix`, `struct`, `argpack`, `template`, `ref` and `ndarray`. Re-exports names
of `core` and `layout`.

    >>> vector(3, f32) is Tensor.of(f32, (3,))
    True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from vkchi.errors import ArgumentError
from vkchi.hooks import open_names
from vkchi.tuples import NamedTuple
from vkchi.types.core import SCALARS as SCALARS
from vkchi.types.core import Array as Array
from vkchi.types.core import Defaults as Defaults
from vkchi.types.core import DefaultTensor as DefaultTensor
from vkchi.types.core import Ptr as Ptr
from vkchi.types.core import Scalar as Scalar
from vkchi.types.core import Tensor as Tensor
from vkchi.types.core import Type as Type
from vkchi.types.core import bf16 as bf16
from vkchi.types.core import cell_of as cell_of
from vkchi.types.core import cook as cook
from vkchi.types.core import f16 as f16
from vkchi.types.core import f32 as f32
from vkchi.types.core import f64 as f64
from vkchi.types.core import float16 as float16
from vkchi.types.core import float32 as float32
from vkchi.types.core import float64 as float64
from vkchi.types.core import i8 as i8
from vkchi.types.core import i16 as i16
from vkchi.types.core import i32 as i32
from vkchi.types.core import i64 as i64
from vkchi.types.core import int8 as int8
from vkchi.types.core import int16 as int16
from vkchi.types.core import int32 as int32
from vkchi.types.core import int64 as int64
from vkchi.types.core import integer_range as integer_range
from vkchi.types.core import is_quantised as is_quantised
from vkchi.types.core import promote as promote
from vkchi.types.core import scalar_named as scalar_named
from vkchi.types.core import scalar_of as scalar_of
from vkchi.types.core import scalar_of_dtype as scalar_of_dtype
from vkchi.types.core import shape_of as shape_of
from vkchi.types.core import stored_scalar as stored_scalar
from vkchi.types.core import u1 as u1
from vkchi.types.core import u8 as u8
from vkchi.types.core import u16 as u16
from vkchi.types.core import u32 as u32
from vkchi.types.core import u64 as u64
from vkchi.types.core import uint1 as uint1
from vkchi.types.core import uint8 as uint8
from vkchi.types.core import uint16 as uint16
from vkchi.types.core import uint32 as uint32
from vkchi.types.core import uint64 as uint64
from vkchi.types.core import with_scalar as with_scalar
from vkchi.types.core import with_shape as with_shape
from vkchi.types.layout import WIDE_FROM as WIDE_FROM
from vkchi.types.layout import WIDE_FROM_BYTES as WIDE_FROM_BYTES
from vkchi.types.layout import Affine as Affine
from vkchi.types.layout import AxisTerm as AxisTerm
from vkchi.types.layout import Layout as Layout
from vkchi.types.layout import needs_wide as needs_wide
from vkchi.types.layout import row_major as row_major
from vkchi.types.struct_types import ArgPackType, StructType

if TYPE_CHECKING:  # not imported above; `open_names` loads them on demand
    from vkchi.protocols import sparse_matrix_builder as sparse_matrix_builder
    from vkchi.types.formats import rw_texture as rw_texture
    from vkchi.types.formats import texture as texture
    from vkchi.types.hints import DType, ScalarDType, TensorDType


def vector(n: int | None = None, dtype: ScalarDType | None = None) -> Tensor:
    """The type of vectors of `n` scalars of type `dtype` (default: the default float type).

    Raises ArgumentError if n is not a positive int, or dtype not a scalar type. Source: Taichi's
    `ti.types.vector`.
    """
    if not _is_count(n):
        raise ArgumentError(f"ti.types.vector: n must be a positive int, not {n!r}")
    return Tensor.of(_number(dtype, "vector"), (n,))


def matrix(n: int | None = None, m: int | None = None, dtype: ScalarDType | None = None) -> Tensor:
    """The type of `n` by `m` matrices of scalars of type `dtype` (default: the default float type).

    Raises ArgumentError if n or m is not a positive int, or dtype not a scalar type. Source:
    Taichi's `ti.types.matrix`.
    """
    if not _is_count(n) or not _is_count(m):
        raise ArgumentError(f"ti.types.matrix: n and m must be positive ints, not {n!r} and {m!r}")
    return Tensor.of(_number(dtype, "matrix"), (n, m))


def _is_count(n: object) -> TypeGuard[int]:
    return isinstance(n, int) and not isinstance(n, bool) and n >= 1


def _number(dtype: object, who: str) -> Scalar:
    t = cook(float if dtype is None else dtype)
    if not isinstance(t, Scalar):
        raise ArgumentError(
            f"ti.types.{who}: dtype must be a number type such as ti.f32, not {dtype!r}"
        )
    return t


def struct(**members: object) -> StructType:
    """The type of structs with these members, given as name=type.

    Raises KernelValueError for a member that is no scalar, vector, matrix or struct type. Source:
    Taichi's `ti.types.struct`.
    """
    return StructType(members)


def argpack(**members: object) -> ArgPackType:
    """The type of packs of kernel arguments, given as name=annotation."""
    return ArgPackType(members)


class template:
    """Annotation: a field, a function or a compile-time value.

    A kernel is compiled once for each of these. Use the class or an instance; `tensor` and `dim`
    are accepted for compatibility. Source: Taichi's `ti.template()`.
    """

    def __init__(self, tensor: object = None, dim: int | None = None) -> None:
        self.dim = dim


class ref:
    """Annotation: a scalar or vector argument of a `ti.real_func`, passed by reference.

    tp: its type; the variable passed must have the same type. Source: Taichi's `ti.ref`.
    """

    def __init__(self, tp: ScalarDType | TensorDType) -> None:
        self.tp = tp


class ndarray:
    """Annotation: an array argument (ti.ndarray, numpy array or torch tensor), passed by reference.

    - dtype: scalar, vector, matrix or struct type, or None for any;
    - ndim: number of axes, or None for any; field_dim is an alias;
    - element_dim, element_shape: number of axes and shape of the elements, where dtype has none;
    - needs_grad: True if the array must have a gradient, False if its elements count as constants;
    - boundary: `unsafe`, or `clamp`: indices outside are replaced by the nearest inside.

    `ndarray[ti.f32, 2]` is short for `ndarray(ti.f32, 2)`. Raises ArgumentError for another
    boundary, and if dtype is no type. Source: Taichi's `ti.types.ndarray`.
    """

    def __init__(
        self,
        dtype: DType | StructType | None = None,
        ndim: int | None = None,
        element_dim: int | None = None,
        element_shape: tuple[int, ...] | None = None,
        field_dim: int | None = None,
        needs_grad: bool | None = None,
        boundary: str = "unsafe",
    ) -> None:
        if boundary not in ("unsafe", "clamp"):
            raise ArgumentError(f"boundary= is 'unsafe' or 'clamp', not {boundary!r}")
        self._dtype, self.ndim = dtype, ndim if ndim is not None else field_dim
        self.element_shape = None if element_shape is None else tuple(element_shape)
        self.element_dim = element_dim if element_shape is None else len(element_shape)
        self.needs_grad, self.boundary = needs_grad, boundary
        if dtype is not None and not isinstance(self.dtype, Type):
            raise ArgumentError(f"ti.types.ndarray: dtype is a type such as ti.f32, not {dtype!r}")

    @property
    def dtype(self) -> Scalar | Tensor | StructType | None:
        """The type of an element under the current default types; None for any."""
        t: Scalar | Tensor | StructType | None = cook(self._dtype)
        return with_shape(t, self.element_shape or ()) if isinstance(t, Scalar) else t

    def __or__(self, other: None) -> OptionalArray:
        return OptionalArray(self) if other is None else NotImplemented

    __ror__ = __or__

    def __class_getitem__(cls, items: DType | tuple[DType, int]) -> ndarray:
        return cls(*items) if isinstance(items, tuple) else cls(items)

    def __repr__(self) -> str:
        return f"ti.types.ndarray(dtype={self.dtype}, ndim={self.ndim})"


class OptionalArray(NamedTuple):
    """The annotation `ndarray(...) | None`."""

    array: ndarray


NDArray = ndarray  # Quadrants' name


def is_tensor(t: object) -> bool:
    """True if t is a vector or matrix type."""
    return isinstance(t, Tensor | DefaultTensor)


def is_signed(t: object) -> bool:
    """True if t is a signed integer or a float type."""
    return isinstance(t, Scalar) and t.kind in "if"


def is_integral(t: object) -> bool:
    """True if t is an integer scalar type or u1."""
    return isinstance(t, Scalar) and t.kind in "iub"


def is_real(t: object) -> bool:
    """True if t is a floating-point scalar type."""
    return isinstance(t, Scalar) and t.kind == "f"


open_names(globals())
