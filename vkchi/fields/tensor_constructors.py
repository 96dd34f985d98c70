"""Factories of tensors, Quadrants' name for an array of either backend: a field or an ndarray.

    x = tensor(ti.f32, (4, 5))                                           # an ndarray
    y = tensor(ti.f32, (4, 5), backend=Backend.FIELD, layout=(1, 0))     # a field, by columns
    v = Vector.tensor(3, ti.f32, shape=8)

Source: Quadrants' user guide, "Tensors".
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vkchi.errors import ArgumentError
from vkchi.fields.constructors import field
from vkchi.fields.field import cook_shape, tensor_type
from vkchi.fields.trees.snode import LETTERS
from vkchi.ndarray import axes_in_memory, ndarray
from vkchi.types import Scalar, Tensor, cook, scalar_of

if TYPE_CHECKING:
    from vkchi.fields.storage import Storage
    from vkchi.types.hints import DType, ScalarDType, Shape


class Backend(enum.IntEnum):
    """Memory of a tensor: FIELD, a field of static shape; NDARRAY, an ndarray, whose shape is a
    run-time value of kernels."""

    FIELD = 0
    NDARRAY = 1


def tensor(
    dtype: DType,
    shape: Shape,
    *,
    backend: Backend = Backend.NDARRAY,
    layout: Sequence[int] | None = None,
    needs_grad: bool = False,
) -> Storage:
    """Create a field or an ndarray, initially 0.

    Args:
        dtype: a scalar, vector or matrix type.
        shape: an integer or integers.
        backend: the kind of array.
        layout: the axes from the slowest to the fastest in memory. Indices keep their order.
        needs_grad: add `.grad`; without effect on tensors of integers and bools.

    Returns:
        The field or ndarray. Kernels take both by arguments annotated with `ti.Tensor`.

    Raises:
        KernelRuntimeError: before `init`.
        ArgumentError: for invalid arguments.
    """
    elem = cook(dtype)
    if not isinstance(elem, Scalar | Tensor):
        raise ArgumentError(f"a tensor holds numbers, vectors or matrices, not {dtype!r}")
    axes = axes_in_memory(layout, None, len(cook_shape(shape)))
    needs_grad = needs_grad and scalar_of(elem).kind == "f"
    if backend == Backend.FIELD:
        order = "".join(LETTERS[k] for k in axes) or None
        return field(elem, shape, order=order, needs_grad=needs_grad)
    if backend != Backend.NDARRAY:
        raise ArgumentError(f"backend= is ti.Backend.FIELD or ti.Backend.NDARRAY, not {backend!r}")
    return ndarray(elem, shape, needs_grad, layout=layout)


def vector_tensor(
    n: int, dtype: ScalarDType, shape: Shape, *, backend: Backend = Backend.NDARRAY,
    layout: Sequence[int] | None = None, needs_grad: bool = False,
) -> Storage:  # fmt: skip
    """`tensor` of vectors of n components."""
    made = tensor_type(dtype, n)
    return tensor(made, shape, backend=backend, layout=layout, needs_grad=needs_grad)


def matrix_tensor(
    n: int, m: int, dtype: ScalarDType, shape: Shape, *, backend: Backend = Backend.NDARRAY,
    layout: Sequence[int] | None = None, needs_grad: bool = False,
) -> Storage:  # fmt: skip
    """`tensor` of n by m matrices."""
    made = tensor_type(dtype, n, m)
    return tensor(made, shape, backend=backend, layout=layout, needs_grad=needs_grad)
