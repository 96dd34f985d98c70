"""Helpers that emit IR for gradients and instrumented kernels."""

from __future__ import annotations

from collections.abc import Callable

from vkchi.ir.builder import Builder
from vkchi.ir.core import Op, Param, Value
from vkchi.ir.iteration_space import INT_MAX
from vkchi.ir.ops import PLACES
from vkchi.types import Array, Ptr, Scalar, Tensor, Type, i32, u32


def place_in(b: Builder, ptr: Value, root: Value, get: Callable[[Value], Value]) -> Value:
    """The location in `root` at the indices and component of primal pointer `ptr`."""
    if not isinstance(ptr, Op) or ptr.kind not in PLACES:
        return root
    inner = place_in(b, ptr.args[0], root, get)
    indices = [get(v) for v in ptr.args[1:]]
    return b.emit(ptr.kind, inner, *indices, attr=ptr.attr, name=ptr.name)


def trip_count(b: Builder, begin: Value, end: Value) -> Value:
    assert isinstance(begin.type, Scalar)
    return b.emit("trip_count", begin, end, b.const(1, begin.type))


def as_i32(b: Builder, v: Value) -> Value:
    """Convert an integer to i32, keeping the low bits."""
    if v.type is i32:
        return v
    return b.emit("bitcast" if v.type is u32 else "cast", v, type=i32)


def saturated_i32(b: Builder, v: Value) -> Value:
    """A count as i32, at most INT_MAX.

    An i32 operand is a sum of two counts; it is negative if it wrapped.
    """
    if v.type is i32:
        v = b.emit("bitcast", v, type=u32)
    assert isinstance(v.type, Scalar)
    return as_i32(b, b.emit("min", v, b.const(INT_MAX, v.type)))


def zero(b: Builder, t: Type) -> Value:
    assert isinstance(t, Scalar | Tensor)
    return b.const(0, t)


def add_derivatives(b: Builder, x: Value | None, y: Value | None) -> Value | None:
    return y if x is None else x if y is None else b.emit("add", x, y)


def places_at(b: Builder, place: Value) -> list[Value]:
    assert isinstance(place.type, Ptr)
    t = place.type.elem
    return [b.emit("member", place, attr=k) for k in range(t.size)] if isinstance(
        t, Tensor) else [place]  # fmt: skip


def store_if(b: Builder, cond: Value, place: Value, v: Value) -> None:
    with b.when(cond):
        b.emit("store", place, v)


def exchange_with_zero(b: Builder, place: Value, t: Scalar | Tensor) -> Value:
    """Exchange a value with 0, by one atomic per component, and return the old value."""
    if isinstance(t, Scalar):
        return b.emit("atomic_exchange", place, zero(b, t))
    parts = [b.emit("member", place, attr=k) for k in range(t.size)]
    return b.emit("pack", *[exchange_with_zero(b, p, t.elem) for p in parts], type=t)


# --- loops over arrays ---------------------------------------------------------------------------


def copy_array(b: Builder, source: Value, target: Value, *, adds: bool = False) -> None:
    """Emit code that copies all elements, or adds them to those of the target."""

    def put(*keys: Value) -> None:
        place, value = b.emit("elem", target, *keys), b.emit("load", b.emit("elem", source, *keys))
        b.emit("store", place, b.emit("add", b.emit("load", place), value) if adds else value)

    for_each_element(b, source, put)


def for_each_element(b: Builder, array: Value, put: Callable[..., None]) -> None:
    """Emit a parallel loop over all elements of an array; `put`, called with its indices, emits the
    body.

    For an array without axes, emit the body without a loop.
    """
    t = array.type
    assert isinstance(t, Array)
    if t.ndim == 0:
        put()
        return
    origin = (t.layout.origin if t.layout is not None else ()) or (0,) * t.ndim
    bounds: list[Value] = []
    for k, first in enumerate(origin):
        begin, extent = b.const(first, i32), b.emit("shape", array, attr=k)
        bounds += [begin, b.emit("add", begin, extent) if first else extent]
    keys = [Param(i32, name) for name in index_names(t.ndim)]
    with b.region(*keys) as body:
        put(*keys)
        b.emit("yield")
    b.parallel(bounds, body)


def index_names(count: int) -> list[str]:
    return [chr(ord("i") + k) for k in range(count)]
