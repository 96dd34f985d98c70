"""Kernels without a device: lowered, verified, and run by the reference interpreter.

    x = Field(np.zeros(4, np.float32))
    result = run(kernel, 3, x)          # kernel is a plain function with kernel annotations

`Field` stands for `ti.field`: kernels name it directly, or take it as ti.template().
"""

from __future__ import annotations

import inspect
import linecache
from types import FunctionType
from typing import Any

import numpy as np

import vkchi as ti
from vkchi.compile_state import compiling
from vkchi.frontend.calls.inline import annotations_of
from vkchi.frontend.lowering import ArgSpec, Lowered, lower_kernel
from vkchi.frontend.syntax.source import source_of
from vkchi.ir import interp
from vkchi.ir.verify import verify
from vkchi.opt.lowering.legalize import legalize
from vkchi.opt.rewrite.bounds import eliminate_bounds_checks
from vkchi.target.caps import FULL, Caps
from vkchi.target.options import Options
from vkchi.types import (
    Array,
    Scalar,
    Tensor,
    cook,
    ndarray,
    row_major,
    scalar_of,
    scalar_of_dtype,
    shape_of,
    template,
)
from vkchi.types.core import ArrayArgument, Attributes


class Field:
    """Stand-in for a field that a kernel can capture. `data` has the elements' axes last."""

    def __init__(self, data: Any, *, element_axes: int = 0, offset: tuple[int, ...] = ()) -> None:
        self.data = data
        self.grad: Field | None = None
        ndim = data.ndim - element_axes
        scalar = scalar_of_dtype(data.dtype)
        assert scalar is not None
        inner = data.shape[ndim:]
        elem = Tensor.of(scalar, inner) if inner else scalar
        self.shape = data.shape[:ndim]
        size = int(np.prod(inner))
        layout = row_major(self.shape, size)
        self.type = Array.of(elem, ndim, self.shape, layout._replace(origin=offset))

    def __vkchi_array__(self) -> Array:
        return self.type

    def __vkchi_attributes__(self) -> Attributes:
        return Attributes()


class Func:
    __vkchi_kind__ = "func"

    def __init__(self, fn: Any) -> None:
        self.__vkchi_func__, self.__name__ = fn, fn.__name__

    def __call__(self, *args: Any) -> Any:
        raise AssertionError("only kernels call it")

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self if obj is None else Bound(self, obj)


class Bound:
    __vkchi_kind__ = "func"

    def __init__(self, func: Func, obj: Any) -> None:
        self.__func__, self.__self__ = func, obj
        self.__vkchi_func__, self.__name__ = func.__vkchi_func__, func.__name__


class Kernel:
    """Stands for `@ti.kernel` inside other kernels."""

    __vkchi_kind__ = "kernel"

    def __init__(self, fn: Any) -> None:
        self.__vkchi_func__, self.__name__ = fn, fn.__name__


def define(text: str, **names: Any) -> Any:
    """Execute `text`, and return the last function that it defines; `linecache` gets its source."""
    file = f"<test {len(linecache.cache)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope: dict[str, Any] = {"ti": ti, **names}
    exec(compile(text, file, "exec"), scope)
    return next(v for v in reversed(scope.values()) if isinstance(v, FunctionType))


def spec_of(name: str, note: Any, arg: Any) -> ArgSpec:
    """ArgSpec of an argument with the annotation `note`."""
    if note is template or isinstance(note, template):
        return ArgSpec(name, "template", None, arg)
    if note is ndarray or isinstance(note, ndarray):
        inner = shape_of(note.dtype) if isinstance(note, ndarray) and note.dtype else ()
        scalar = scalar_of_dtype(arg.dtype)
        assert scalar is not None
        elem = Tensor.of(scalar, inner) if inner else scalar
        return ArgSpec(name, "array", ArrayArgument.of(Array.of(elem, arg.ndim - len(inner))))
    if note is None:
        return ArgSpec(name, "self", None, arg)
    if hasattr(note, "__dataclass_fields__"):
        return ArgSpec(name, "object", None, arg)
    t = cook(note)
    return ArgSpec(name, "scalar" if isinstance(t, Scalar) else "tensor", t)


def lower(fn: Any, *args: Any, **options: Any) -> Lowered:
    """Lower and verify the kernel for the types of these arguments."""
    notes = annotations_of(fn, source_of(fn))
    names = inspect.signature(fn).parameters
    specs = tuple(spec_of(name, notes.get(name), a) for name, a in zip(names, args))
    with compiling(fn.__name__):
        lowered = lower_kernel(fn, specs, Options(**options))
        verify(lowered.func)
    return lowered


def run(
    fn: Any, *args: Any, device: interp.Compute | None = None, caps: Caps = FULL, **options: Any
) -> Any:
    """Lower a kernel and interpret it; arrays change in place. Returns its results as Python
    values.

    With `device`, the Func is legalized for `caps`, and `device` evaluates its ops.
    """
    lowered = lower(fn, *args, **options)
    given = dict(zip(inspect.signature(fn).parameters, args))
    bound: dict[str, Any] = {}
    for name, (kind, *rest) in lowered.bindings.items():
        if kind == "arg":
            bound[name] = given[rest[0]]
        elif kind == "field":
            bound[name] = rest[0].data
        elif kind == "grad":
            bound[name] = given[rest[0] + "_grad"]
        elif kind == "return":
            t = lowered.returns[rest[0]]
            bound[name] = np.zeros(shape_of(t), scalar_of(t).dtype)
        else:
            bound[name] = 7
    if device is None:
        interp.run_reference(lowered.func, bound)
    else:
        interp.run_reference(
            legalize(eliminate_bounds_checks(lowered.func), caps), bound, compute=device
        )
    values = [bound[f"return.{k}"] for k in range(len(lowered.returns))]
    shown = [v.item() if v.ndim == 0 else v for v in values]
    return tuple(shown) if lowered.returns_tuple else shown[0] if shown else None
