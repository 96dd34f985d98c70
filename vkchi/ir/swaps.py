"""Atomic operations as compare-and-swap: what they put in the place of what stood there, tried
again until nobody came between.

Owns: `replaced`, `same_bits`, and `swap_until_done`, the only loop around compare-and-swap. Must
not know: which operations a device has.

    swap_until_done(b, place, lambda old: replaced(b, "atomic_mul", old, (v,)))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.core import Param, Value
from vkchi.ir.ops import ATOMICS
from vkchi.types import SCALARS, scalar_of, u1, with_scalar


def replaced(b: Builder, kind: str, old: Value, values: Sequence[Value]) -> Value:
    """What an atomic op of a kind puts in the place of `old`."""
    if kind == "atomic_exchange":
        return values[0]
    if kind == "atomic_cas":
        return b.emit("select", same_bits(b, old, values[0]), values[1], old)
    return b.emit(ATOMICS[kind].combine, old, values[0])


def same_bits(b: Builder, x: Value, y: Value) -> Value:
    """Whether two values have the same bits, per component."""
    elem = scalar_of(x.type)
    if elem.kind == "f":
        t = with_scalar(x.type, SCALARS[f"u{elem.bits}"])
        x, y = b.emit("bitcast", x, type=t), b.emit("bitcast", y, type=t)
    return b.emit("eq", x, y)


def swap_until_done(b: Builder, place: Value, update: Callable[[Value], Value]) -> Value:
    """Put `update` of what stands at a place there, again until nobody came between; the old value.
    It is the only loop around compare-and-swap."""
    first = b.emit("load", place)
    old, again = Param(first.type, "old"), Param(first.type, "old")
    open_, done = Param(u1, "open"), Param(u1, "open")
    with b.region(old, open_) as cond:
        b.emit("yield", open_)
    with b.region(again, done) as body:
        seen = b.emit("atomic_cas", place, again, update(again))
        b.emit("yield", seen, b.emit("not", same_bits(b, seen, again)))
    return b.while_((first, b.const(True, u1)), cond, body).results[0]
