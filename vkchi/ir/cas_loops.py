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

    `values` are the op's operands after the pointer.
    """
    if kind == "atomic_exchange":
        return values[0]
    if kind == "atomic_cas":
        return b.emit("select", same_bits(b, old, values[0]), values[1], old)
    return b.emit(ATOMICS[kind].combine, old, values[0])


def same_bits(b: Builder, x: Value, y: Value) -> Value:
    """Append a comparison of bit patterns, per component; return the bool or tensor of bools."""
    elem = scalar_of(x.type)
    if elem.kind == "f":
        t = with_scalar(x.type, SCALARS[f"u{elem.bits}"])
        x, y = b.emit("bitcast", x, type=t), b.emit("bitcast", y, type=t)
    return b.emit("eq", x, y)


def emit_cas_loop(b: Builder, place: Value, update: Callable[[Value], Value]) -> Value:
    """Emit a compare-and-swap loop that stores `update(old)` at `place`; return the old value.

    `place` points to a scalar. The loop has no limit of attempts.
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
