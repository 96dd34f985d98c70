"""Fields: global arrays that kernels name directly, of static shape.

Owns: `field`, `vector_field`, `matrix_field` and the field classes. Must not know: kernels.

    x = ti.field(ti.f32, shape=(4, 4)); x[0, 1] = 3.0
"""

from __future__ import annotations

import enum
import math
from typing import Any

from vkchi.errors import ArgumentError, Unsupported
from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.runtime import Runtime, current
from vkchi.types import Array, AxisTerm, Layout, Scalar, Tensor, cook, shape_of


class Order(enum.Enum):
    """Where a matrix field's components lie (`ti.Layout`): beside each other, or each apart."""

    AOS = "array of structures"
    SOA = "structure of arrays"


class Field(Storage):
    """A global array. Kernels read and write it by name; Python by `x[i]`."""

    grad: Field | None = None

    def __vkchi_array__(self) -> Array:
        self.check_alive()
        return self.array_type

    def __repr__(self) -> str:
        return f"<ti.field of {self.elem}, shape {self.shape}>"

    def __str__(self) -> str:
        return str(self.to_numpy())


class ScalarField(Field):
    """A field of numbers."""

    def to_numpy(self, dtype: Any = None) -> Any:
        """A copy, cast to `dtype` if given."""
        return super().to_numpy().astype(host.numpy_dtype(dtype or self.dtype), copy=False)


class MatrixField(Field):
    """A field of vectors (`m` is 1 and `ndim` 1) or matrices."""

    @property
    def n(self) -> int:
        """Rows, or the length of the vectors."""
        assert isinstance(self.elem, Tensor)
        return self.elem.n

    @property
    def m(self) -> int:
        """Columns."""
        assert isinstance(self.elem, Tensor)
        return self.elem.m

    @property
    def ndim(self) -> int:
        """1 for vectors, 2 for matrices."""
        return len(shape_of(self.elem))

    def to_numpy(self, keep_dims: bool = False, dtype: Any = None) -> Any:
        """A copy of shape `shape + (n, m)`, without the axis of `m` where that is 1, unless
        `keep_dims`; cast to `dtype` if given."""
        values = super().to_numpy().astype(host.numpy_dtype(dtype or self.dtype), copy=False)
        column = (self.m,) if self.m > 1 or keep_dims else ()
        return values.reshape((*self.shape, self.n, *column))

    def to_torch(self, device: Any = None, keep_dims: bool = False) -> Any:
        """A torch tensor with a copy of the contents, shaped as `to_numpy` does."""
        return host.make_torch(self.to_numpy(keep_dims), device)

    def from_numpy(self, source: Any) -> None:
        """Take over the contents of an array of the same shape; an axis of 1 for the columns of
        vectors may be there or not."""
        values = host.numbers_of(source)
        full = self.shape + shape_of(self.elem)
        if self.m == 1 and values.shape in ((*self.shape, self.n), (*self.shape, self.n, 1)):
            values = values.reshape(full)
        super().from_numpy(values)


def field(dtype: Any, shape: Any = None, *, needs_grad: bool = False, **options: Any) -> Field:
    """A field of `shape` many `dtype` (a number, vector or matrix type), zero at first.

    Raises KernelRuntimeError before `init`, ArgumentError for a bad dtype or shape.
    """
    return make_field(current(), cook(dtype), shape, Order.AOS, needs_grad, options)


def vector_field(n: int, dtype: Any, shape: Any = None, *, layout: Any = Order.AOS,
                 needs_grad: bool = False, **options: Any) -> Field:  # fmt: skip
    """A field of vectors of `n` numbers."""
    return make_field(current(), tensor_type(dtype, n), shape, layout, needs_grad, options)


def matrix_field(n: int, m: int, dtype: Any, shape: Any = None, *, layout: Any = Order.AOS,
                 needs_grad: bool = False, **options: Any) -> Field:  # fmt: skip
    """A field of `n` by `m` matrices."""
    return make_field(current(), tensor_type(dtype, n, m), shape, layout, needs_grad, options)


def make_field(
    runtime: Runtime, elem: Any, shape: Any, order: Order, needs_grad: bool, options: dict[str, Any]
) -> Field:
    """A field from checked parts."""
    refuse_options(options)
    if not isinstance(elem, Scalar | Tensor):
        raise ArgumentError(f"a field holds numbers, vectors or matrices, not {elem!r}")
    if shape is None:
        raise Unsupported(
            "a field without shape=, placed by hand with ti.root, is not supported yet: give shape="
        )
    if not isinstance(order, Order):
        raise ArgumentError(f"layout= is ti.Layout.AOS or ti.Layout.SOA, not {order!r}")
    extents = cook_shape(shape)
    cls = ScalarField if isinstance(elem, Scalar) else MatrixField
    layout = None
    if order is Order.SOA and isinstance(elem, Tensor):
        layout = soa_layout(extents, elem.size)
    made = cls(runtime, elem, extents, layout)
    if needs_grad:
        made.grad = cls(runtime, elem, extents, layout)
    return made


def tensor_type(dtype: Any, *extents: Any) -> Tensor:
    """The type of vectors or matrices of so many numbers. Raises ArgumentError."""
    elem = cook(dtype)
    if not isinstance(elem, Scalar):
        raise ArgumentError(f"components are numbers such as ti.f32, not {dtype!r}")
    return Tensor.of(elem, cook_shape(extents))


IGNORED = ("name", "order", "dynamic_index")


def refuse_options(options: dict[str, Any]) -> None:
    """Raises Unsupported for an option that would change the result."""
    for key, value in options.items():
        if key not in IGNORED and value not in (None, False, ()):
            raise Unsupported(f"field option {key}={value!r} is not supported yet")


def cook_shape(shape: Any) -> tuple[int, ...]:
    """The shape as a tuple of ints. Raises ArgumentError for anything but positive integers."""
    extents = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    if any(not hasattr(n, "__index__") or isinstance(n, bool) or n < 1 for n in extents):
        raise ArgumentError(f"a shape is made of positive integers, not {shape!r}")
    return tuple(n.__index__() for n in extents)


def soa_layout(shape: tuple[int, ...], components: int) -> Layout:
    """Each tensor component in an array of its own, one after the other."""
    count = math.prod(shape)
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    axes = tuple((AxisTerm(1, 0, s),) for s in reversed(strides))
    return Layout(axes, tuple(k * count for k in range(components)), count * components)
