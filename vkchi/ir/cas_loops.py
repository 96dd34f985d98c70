"""Expansion of atomics into compare-and-swap loops.

Example:

    emit_cas_loop(b, place, lambda old: updated_value(b, "atomic_mul", old, (v,)))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.core import Param, Value
from vkchi.ir.ops import ATOMICS
from vkchi.types import SCALARS, scalar_of, u1, with_scalar


def updated_value(b: Builder, kind: str, old: Value, values: Sequence[Value]) -> Value:
    """Return the value that an atomic op of this kind stores if the location holds `old`.

    It is computed by ops appended to `b`. `values` are the atomic's operands after the pointer.
    """
    if kind == "atomic_exchange":
        return values[0]
    if kind == "atomic_cas":
        return b.emit("select", same_bits(b, old, values[0]), values[1], old)
    return b.emit(ATOMICS[kind].combine, old, values[0])


def same_bits(b: Builder, x: Value, y: Value) -> Value:
    """Append a comparison of bit patterns, per component. Return the u1, or tensor of u1."""
    elem = scalar_of(x.type)
    if elem.kind == "f":
        t = with_scalar(x.type, SCALARS[f"u{elem.bits}"])
        x, y = b.emit("bitcast", x, type=t), b.emit("bitcast", y, type=t)
    return b.emit("eq", x, y)


def emit_cas_loop(b: Builder, place: Value, update: Callable[[Value], Value]) -> Value:
    """Append a compare-and-swap loop that replaces the scalar at `place`; return its old value.

    `update(old)` appends the ops of the new value and returns it. The loop ends when the swap
    succeeds; attempts are not limited.
    """
    first = b.emit("load", place)
    old, again = Param(first.type, "old"), Param(first.type, "old")
    open_, done = Param(u1, "open"), Param(u1, "open")
    with b.region(old, open_) as cond:
        b.emit("yield", open_)
    with b.region(again, done) as body:
        seen = b.emit("atomic_cas", place, again, update(again))
        b.emit("yield", seen, b.emit("not", same_bits(b, seen, again)))
    return b.while_((first, b.const(True, u1)), cond, body).results[0]
