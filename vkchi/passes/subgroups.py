"""Subgroup operations on numbers of other widths than 32 bits, which devices need not have.

Owns: how they are done with 32-bit numbers. Must not know: which devices need it (`legalize`).

    subgroup_shuffle %v : i64, %k    ->    both halves of %v shuffled as u32
"""

from __future__ import annotations

from vkchi.ir.builder import Builder
from vkchi.ir.core import Op, Value, bits_of
from vkchi.ir.num import Num
from vkchi.types import SCALARS, Scalar, f32, i32, scalar_of, u1, u32, u64

Args = tuple[Value, ...]
WARP = 32  # invocations
WIDER = {"i": i32, "u": u32, "f": f32}
# Scans whose identity is a number that the narrow type has not -> what limits them to it.
LIMITS = {"subgroup_exclusive_min": ("min", 1), "subgroup_exclusive_max": ("max", -1)}


def widen(b: Builder, v: Value) -> Value:
    """A narrow number as the same number in 32 bits."""
    t = scalar_of(v.type)
    return b.emit("cast", v, type=WIDER.get(t.kind, u32))


def reduce_narrow(b: Builder, op: Op, args: Args) -> Value:
    """A reduction or scan of narrow numbers in 32 bits: sums and products wrap when cast back."""
    t = scalar_of(op.type)
    result = b.emit(op.kind, widen(b, args[0]))
    if op.kind in LIMITS and t.kind != "f":
        kind, sign = LIMITS[op.kind]
        limit = b.emit("const", attr=_limit(t, sign), type=result.type)
        result = b.emit(kind, result, limit)
    return b.emit("cast", result, type=t)


def _limit(t: Scalar, sign: int) -> int:
    """Bits of the largest (sign 1) or smallest integer of a narrow type, in its wider one."""
    lowest = -(1 << (t.bits - 1)) if t.kind == "i" else 0
    return bits_of(lowest + (1 << t.bits) - 1 if sign > 0 else lowest, WIDER[t.kind])


def exchange_narrow(b: Builder, op: Op, args: Args) -> Value:
    """A narrow number from another invocation, in 32 bits."""
    t = scalar_of(args[0].type)
    result = b.emit(op.kind, widen(b, args[0]), *args[1:])
    if t is u1:
        return b.emit("ne", result, b.const(0, u32))
    return b.emit("cast", result, type=t)


def compare_narrow(b: Builder, op: Op, args: Args) -> Value:
    """Whether narrow numbers are all equal."""
    return b.emit(op.kind, widen(b, args[0]))


def _halves(b: Builder, v: Value) -> tuple[Value, Value]:
    x = Num(b, v).bits(u64)
    return x.cast(u32).v, (x >> 32).cast(u32).v


def exchange_wide(b: Builder, op: Op, args: Args) -> Value:
    """A 64-bit integer from another invocation, in two halves."""
    t = SCALARS[str(args[0].type)]
    low, high = (Num(b, b.emit(op.kind, half, *args[1:])).cast(u64) for half in _halves(b, args[0]))
    both = b.emit("or", low.v, b.emit("shl", high.v, b.const(32, u64)))
    return both if t is u64 else b.emit("bitcast", both, type=t)


def compare_wide(b: Builder, op: Op, args: Args) -> Value:
    """Whether 64-bit integers are all equal: both halves are."""
    low, high = (b.emit(op.kind, half) for half in _halves(b, args[0]))
    return b.emit("and", low, high)


def ballot_in_subgroup(b: Builder, op: Op, args: Args) -> Value:
    """A warp's ballot where a subgroup is no more than one warp."""
    return b.emit("subgroup_ballot", *args)


def ballot_in_half(b: Builder, op: Op, args: Args) -> Value:
    """A warp's ballot where a subgroup is several: the 32 bits with this invocation's own."""
    bits = b.emit("subgroup_ballot_wide", *args)
    first = b.emit("and", b.emit("subgroup_index"), b.const(WARP, i32))
    return b.emit("cast", b.emit("shr", bits, b.emit("cast", first, type=u64)), type=u32)
