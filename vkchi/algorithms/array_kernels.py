"""Kernels that accept fields and ndarrays alike, and scratch arrays for them.

@on_arrays(n=i32)
def add_one(x: Any, n: Any) -> None:
    for i in range(n):
        x[i] += 1

add_one(field, 3); add_one(ndarray, 3)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from vkchi.errors import ArgumentError
from vkchi.fields.constructors import field
from vkchi.fields.field import Field
from vkchi.fields.storage import Storage
from vkchi.fields.views import View
from vkchi.kernel import Kernel, UserFunc, func, kernel
from vkchi.ndarray import Ndarray, ndarray
from vkchi.runtime import current_runtime
from vkchi.signature import is_ndarrays_view
from vkchi.types import Scalar, i32, template
from vkchi.types import ndarray as ndarray_argument


class ArrayKernel:
    """A function of arrays and scalars, with one kernel per combination of fields and ndarrays."""

    def __init__(self, fn: FunctionType, numbers: dict[str, Scalar], returns: Scalar | None):
        self.fn, self.numbers, self.returns = fn, numbers, returns
        names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
        self.arrays = {k: name for k, name in enumerate(names) if name not in numbers}
        self.kernels: dict[tuple[bool, ...], Kernel] = {}

    def __call__(self, *args: Any) -> Any:
        return self.kernel_for(args)(*args)

    def kernel_for(self, args: Sequence[Any]) -> Kernel:
        """Return the kernel that takes arguments of these kinds."""
        key = tuple(
            [isinstance(args[k], Ndarray) or is_ndarrays_view(args[k]) for k in self.arrays]
        )
        if key not in self.kernels:
            self.kernels[key] = self.make(key)
        return self.kernels[key]

    def make(self, are_ndarrays: tuple[bool, ...]) -> Kernel:
        """Kernel for ndarray arguments where `are_ndarrays` is True, and for fields elsewhere."""
        fn = self.fn
        copy = FunctionType(fn.__code__, fn.__globals__, fn.__name__, None, fn.__closure__)
        notes: dict[str, Any] = dict(self.numbers)
        for name, is_ndarray in zip(self.arrays.values(), are_ndarrays):
            notes[name] = ndarray_argument() if is_ndarray else template()
        if self.returns is not None:
            notes["return"] = self.returns
        copy.__annotations__ = notes
        made: Kernel = kernel(copy)
        return made


def on_arrays(returns: Scalar | None = None, **numbers: Scalar) -> Callable[[Any], ArrayKernel]:
    """Decorator that returns an ArrayKernel.

    Its parameters in `numbers` are scalars of those types, all others fields or ndarrays. It
    returns a scalar of type `returns`, if given.
    """
    return lambda fn: ArrayKernel(fn, numbers, returns)


def library_func(fn: Any) -> UserFunc:
    """`ti.func` for the functions of library kernels, with an argument type that mypy accepts."""
    return func(fn)


def check_array(
    who: str, name: str, x: Any, ndim: int | None = None, *, takes_views: bool = False
) -> None:
    """Raise ArgumentError unless x is a field or an ndarray, or with `takes_views` a view of one,
    of `ndim` axes if given."""
    if not (isinstance(x, Field | Ndarray) or (takes_views and isinstance(x, View))):
        raise ArgumentError(f"{who}: `{name}` must be a field or an ndarray, not {x!r}")
    if ndim is not None and len(x.shape) != ndim:
        raise ArgumentError(f"{who}: `{name}` must have {ndim} axis, not {len(x.shape)}")


def make_like(x: Field | Ndarray, *, needs_grad: bool = False) -> Any:
    """A zeroed field or ndarray, whichever x is, of scalars, with x's scalar type, shape and
    origin."""
    if isinstance(x, Ndarray):
        return ndarray(x.dtype, x.shape, needs_grad)
    return field(x.dtype, x.shape, offset=x.origin, needs_grad=needs_grad)


def spare_for(x: Storage, n: int) -> Any:
    """An ndarray for n elements of x, with a gradient if a tape needs it."""
    return ndarray(x.seen_elem, max(1, n), current_runtime().is_taped and x.compute.kind == "f")


@on_arrays(to=i32, n=i32)
def copy_first(x: Any, out: Any, to: Any, n: Any) -> None:
    """Set out[to + k] to x[k], for n values of k."""
    for k in range(n):
        out[to + k] = x[k]
