"""NDArrays: arrays on the device that kernels take as arguments, of any shape.

x = ti.ndarray(ti.f32, shape=(4, 4)); x.fill(1); x.to_numpy()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast, overload

from vkchi.compat.unsupported import add_unsupported_members
from vkchi.errors import ArgumentError
from vkchi.fields.field import cook_shape, tensor_type
from vkchi.fields.storage import Storage
from vkchi.fields.trees.snode import axes_of_layout, order_axes
from vkchi.hooks import Hook
from vkchi.interop import host_views
from vkchi.runtime import InitArguments, current_runtime, init_arguments
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Layout, Scalar, Tensor, cook, needs_wide, scalar_of, shape_of
from vkchi.types.core import ArrayArgument, Attributes, alignment_of
from vkchi.types.struct_types import StructType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.device import Buffer
    from vkchi.fields.struct_arrays import StructNdarray
    from vkchi.types.hints import DType, ScalarDType, Shape, TensorDType


MOST_EXTENT = (1 << 31) - 1  # extents are i32 in kernels


class NdarrayType(NamedTuple):
    element_type: Scalar | Tensor
    shape: tuple[int, ...]
    needs_grad: bool


class Ndarray(Storage):
    """A dense array of scalars, vectors or matrices on the device.

    It is pickled with its contents and gradient; unpickling creates it on the current device.
    """

    __vkchi_name__ = "an ndarray that no name leads to"  # for error messages
    kind_name = "ti.ndarray"
    grad: Ndarray | None = None
    is_copy = False  # True for stand-ins of other libraries' arrays during a call
    is_noguard = False  # True if the memory ends with the last element

    def arrange(self, shape: tuple[int, ...], layout: Layout) -> None:
        longest = max(shape, default=1)
        if longest > MOST_EXTENT:
            raise ArgumentError(
                f"an axis of {longest} elements: kernels index an axis by 32-bit numbers, up to "
                f"{MOST_EXTENT}; use two axes"
            )
        super().arrange(shape, layout)

    def attach(self, buffer: Buffer, *, is_own: bool) -> None:
        super().attach(buffer, is_own=is_own)
        t = Array.of(self.elem, len(self.shape), stored=self.stored)
        is_wide = needs_wide(self.layout.size, self.stored.size_bytes)
        aligned = alignment_of(buffer.address)
        known = Attributes(ext64=is_wide, noguard=self.is_noguard, aligned=aligned)
        self.argument = ArrayArgument.of(t, known)

    @property
    def __vkchi_argument__(self) -> ArrayArgument:
        """The type and attributes of the array in kernels."""
        return self.argument

    def add_gradient(self) -> None:
        """Add a gradient array, initially 0."""
        self.grad, self.token = type(self)(self.runtime, self.elem, self.shape), object()
        self.runtime.gradients.add(self.grad)

    @property
    def element_type(self) -> Scalar | Tensor:
        """The type of an element."""
        return self.elem

    def get_type(self) -> NdarrayType:
        """Return the element type, the shape, and `needs_grad`: True if it has a gradient."""
        return NdarrayType(self.elem, self.shape, self.grad is not None)

    def to_numpy(self, dtype: ScalarDType | None = None, *, copy: bool = True) -> NDArray[Any]:
        """A copy as a numpy array of shape `shape + element_shape`, cast to `dtype` if given; with
        `copy` False an array in the same memory.

        Waits for the device. Raises ArgumentError if `copy` is False and a copy is needed.
        """
        if not copy:
            return host_views.view_as_numpy(self, dtype)
        values = super().to_numpy()
        return values if dtype is None else values.astype(host_views.numpy_dtype(dtype), copy=False)

    def __reduce__(self) -> Any:
        gradient = None if self.grad is None else self.grad.to_numpy()
        values = (self.elem, self.shape, self.to_numpy(), gradient)
        return (restore, (init_arguments(), *values))


def restore(
    arguments: InitArguments | None, elem: Scalar | Tensor, shape: tuple[int, ...], values: Any,
    gradient: Any, layout: tuple[int, ...] | None = None,
) -> Ndarray:  # fmt: skip
    """A new ndarray with these contents, for pickle. `arguments` are unpickled before it is made.

    Raises KernelRuntimeError if there is no runtime, and was none in the process that pickled.
    """
    made: Ndarray = ndarray(elem, shape, needs_grad=gradient is not None, layout=layout)
    made.from_numpy(values)
    if made.grad is not None:
        made.grad.from_numpy(gradient)
    return made


add_unsupported_members(Ndarray)


class ScalarNdarray(Ndarray):
    """An ndarray of scalars."""


class VectorNdarray(Ndarray):
    """An ndarray of vectors."""

    @property
    def n(self) -> int:
        """Length of the vectors."""
        return self.element_shape[0]


class MatrixNdarray(Ndarray):
    """An ndarray of matrices."""

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.element_shape[0]

    @property
    def m(self) -> int:
        """Number of columns."""
        return self.element_shape[1]


@overload
def ndarray(
    dtype: ScalarDType, shape: Shape, needs_grad: bool = False, *,
    layout: Sequence[int] | None = None, order: str | None = None,
) -> ScalarNdarray: ...  # fmt: skip
@overload
def ndarray(
    dtype: TensorDType, shape: Shape, needs_grad: bool = False, *,
    layout: Sequence[int] | None = None, order: str | None = None,
) -> VectorNdarray | MatrixNdarray: ...  # fmt: skip
@overload
def ndarray(
    dtype: StructType, shape: Shape, needs_grad: bool = False, *,
    layout: Sequence[int] | None = None, order: str | None = None,
) -> StructNdarray: ...  # fmt: skip
def ndarray(
    dtype: DType | StructType, shape: Shape, needs_grad: bool = False, *,
    layout: Sequence[int] | None = None, order: str | None = None,
) -> Ndarray | StructNdarray:  # fmt: skip
    """Create an array on the device, initially 0.

    Args:
        dtype: a scalar, vector, matrix or struct type.
        shape: an integer or integers.
        needs_grad: add `.grad`.
        layout: the axes from the slowest to the fastest in memory, such as (1, 0). Indices keep
            their order.
        order: the same by letters, such as "ji".

    Returns:
        The array; for a struct type, an array of structs.

    Raises:
        KernelRuntimeError: before `init`.
        ArgumentError: for a bad dtype, shape or order, and for `needs_grad` without floats.
    """
    elem = cook(dtype)
    axes = axes_in_memory(layout, order, len(cook_shape(shape)))
    if isinstance(elem, StructType):
        if axes:
            raise ArgumentError("an ndarray of structs has no layout= and order=: leave them out")
        return elem.ndarray(shape, needs_grad)
    if not isinstance(elem, Scalar | Tensor):
        raise ArgumentError(f"an ndarray holds numbers, vectors or matrices, not {dtype!r}")
    if needs_grad and scalar_of(elem).kind != "f":
        raise ArgumentError(
            f"ndarrays of {scalar_of(elem)} have no gradients: needs_grad= is for floats"
        )
    cls = (ScalarNdarray, VectorNdarray, MatrixNdarray)[len(shape_of(elem))]
    extents = cook_shape(shape)
    made = cls(current_runtime(), elem, tuple([extents[k] for k in axes]) if axes else extents)
    if needs_grad:
        made.add_gradient()
    return NdarrayHook.ordered(made, axes) if axes else made


class NdarrayHook:
    """Hook for ndarrays with another order of the axes, which few programs use."""

    ordered = Hook("ordered ndarray")


def axes_in_memory(layout: Sequence[int] | None, order: str | None, ndim: int) -> tuple[int, ...]:
    """Return the axes from the slowest to the fastest; () for the order of indices. Raises
    ArgumentError unless they are a permutation, and if both are given."""
    if layout is None and order is None:
        return ()
    if layout is not None and order is not None:
        raise ArgumentError("layout= and order= say the same: give one of them")
    axes = order_axes(order, ndim) if layout is None else axes_of_layout(layout, ndim)
    return () if axes == tuple(range(ndim)) else axes


def vector_ndarray(
    n: int, dtype: ScalarDType, shape: Shape, needs_grad: bool = False, *,
    layout: Sequence[int] | None = None, order: str | None = None,
) -> VectorNdarray:  # fmt: skip
    """Create an array of vectors on the device, initially 0.

    Args:
        n: number of components.
        dtype: scalar type of the components.
        shape: an integer or integers.
        needs_grad: add `.grad`.
        layout: as for `ti.ndarray`.
        order: as for `ti.ndarray`.

    Returns:
        The array of vectors.

    Raises:
        KernelRuntimeError: before `init`.
        ArgumentError: for invalid arguments.
    """
    made = ndarray(tensor_type(dtype, n), shape, needs_grad, layout=layout, order=order)
    return cast("VectorNdarray", made)


def matrix_ndarray(
    n: int, m: int, dtype: ScalarDType, shape: Shape, needs_grad: bool = False, *,
    layout: Sequence[int] | None = None, order: str | None = None,
) -> MatrixNdarray:  # fmt: skip
    """Create an array of matrices on the device, initially 0.

    Args:
        n: number of rows.
        m: number of columns.
        dtype: scalar type of the components.
        shape: an integer or integers.
        needs_grad: add `.grad`.
        layout: as for `ti.ndarray`.
        order: as for `ti.ndarray`.

    Returns:
        The array of matrices.

    Raises:
        KernelRuntimeError: before `init`.
        ArgumentError: for invalid arguments.
    """
    made = ndarray(tensor_type(dtype, n, m), shape, needs_grad, layout=layout, order=order)
    return cast("MatrixNdarray", made)
