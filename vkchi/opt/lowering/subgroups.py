"""Lowering of subgroup operations on narrow or 64-bit scalars to those on 32 bits; warp ballots;
scans by shuffles; exchanges out of range.

See also: `legalize` selects the expansions that a device needs.

    subgroup_shuffle %v : i64, %k    ->    both halves of %v shuffled as u32
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vkchi.analysis.dataflow import Dependence, slot_params
from vkchi.analysis.values.interval_analysis import Intervals, axes_in, may_hold
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Region, Value, bits_of, walk
from vkchi.ir.num import Num
from vkchi.ir.op_table.interval_rules import Interval
from vkchi.ir.op_table.invocation_ops import EXCHANGING, IDENTITIES
from vkchi.ir.ops import COUNTED, LOOPS, axes_of, control_operands, initial_values
from vkchi.types import Scalar, i32, i64, scalar_of, u1, u32, u64

Args = tuple[Value, ...]
WARP = 32  # lanes of a warp
# Scans whose 32-bit identity does not fit the narrow type -> op and limit that clamp it.
LIMITS = {"subgroup_exclusive_min": ("min", 1), "subgroup_exclusive_max": ("max", -1)}


def widen(b: Builder, v: Value) -> Value:
    t = scalar_of(v.type)
    return b.emit("cast", v, type=t.carrier)


def reduce_narrow(b: Builder, op: Op, args: Args) -> Value:
    """Reduce or scan narrow scalars in 32 bits, and cast the result back. Exclusive integer minima
    and maxima are clamped to the narrow type before, as the identity is that of 32 bits."""
    t = scalar_of(op.type)
    result = b.emit(op.kind, widen(b, args[0]))
    if op.kind in LIMITS and t.kind != "f":
        kind, sign = LIMITS[op.kind]
        limit = b.emit("const", attr=_limit(t, sign), type=result.type)
        result = b.emit(kind, result, limit)
    return b.emit("cast", result, type=t)


def _limit(t: Scalar, sign: int) -> int:
    """Bits of the largest (sign 1) or smallest integer of a narrow type, in its wider type."""
    lowest = -(1 << (t.bits - 1)) if t.kind == "i" else 0
    return bits_of(lowest + (1 << t.bits) - 1 if sign > 0 else lowest, t.carrier)


def exchange_narrow(b: Builder, op: Op, args: Args) -> Value:
    t = scalar_of(args[0].type)
    result = b.emit(op.kind, widen(b, args[0]), *args[1:])
    if t is u1:
        return b.emit("ne", result, b.const(0, u32))
    return b.emit("cast", result, type=t)


def compare_narrow(b: Builder, op: Op, args: Args) -> Value:
    return b.emit(op.kind, widen(b, args[0]))


def _halves(b: Builder, v: Value) -> tuple[Value, Value]:
    x = Num(b, v).bits(u64)
    return x.cast(u32).v, (x >> 32).cast(u32).v


def exchange_wide(b: Builder, op: Op, args: Args) -> Value:
    return _exchange_halves(b, op.kind, *args)


def _exchange_halves(b: Builder, kind: str, v: Value, *more: Value) -> Value:
    low, high = (Num(b, b.emit(kind, half, *more)).cast(u64) for half in _halves(b, v))
    both = b.emit("or", low.v, b.emit("shl", high.v, b.const(32, u64)))
    return both if v.type is u64 else b.emit("bitcast", both, type=v.type)


def compare_wide(b: Builder, op: Op, args: Args) -> Value:
    low, high = (b.emit(op.kind, half) for half in _halves(b, args[0]))
    return b.emit("and", low, high)


def ballot_in_subgroup(b: Builder, op: Op, args: Args) -> Value:
    """Emit a warp's ballot as the subgroup's. Precondition: at most 32 lanes in a subgroup."""
    return b.emit("subgroup_ballot", *args)


def ballot_in_half(b: Builder, op: Op, args: Args) -> Value:
    """Emit a warp's ballot if a subgroup has 64 lanes: the half of the subgroup's ballot that
    contains this lane, as a u32."""
    bits = b.emit("subgroup_ballot_wide", *args)
    first = b.emit("and", b.emit("subgroup_index"), b.const(WARP, i32))
    return b.emit("cast", b.emit("shr", bits, b.emit("cast", first, type=u64)), type=u32)


# --- scans by shuffles ---------------------------------------------------------------------------


def scan_by_shuffles(b: Builder, op: Op, args: Args) -> Value:
    """Scan by pointer jumping over the active invocations. Precondition: at most 32 in a subgroup.

    Each invocation holds the combined value of a run of active ones that ends with itself, and
    `before`, the last one before the run. A step prepends the run of `before`, which doubles the
    length. Inactive invocations are never read.
    """
    bits = Num(b, b.emit("subgroup_ballot", b.const(True, u1)))
    lane = Num(b, b.emit("subgroup_index"))
    before = _highest_bit(bits & ((bits.number(1) << lane.cast(u32)) - 1))
    return _jump(b, op, args[0], lane, before, steps=5)


def scan_wide_by_shuffles(b: Builder, op: Op, args: Args) -> Value:
    """`scan_by_shuffles` for subgroups of up to 64 invocations."""
    bits = Num(b, b.emit("subgroup_ballot_wide", b.const(True, u1)))
    lane = Num(b, b.emit("subgroup_index"))
    below = bits & ((bits.number(1) << lane.cast(u64)) - 1)
    low, high = _highest_bit(below.cast(u32)), _highest_bit((below >> 32).cast(u32))
    return _jump(b, op, args[0], lane, (high < 0).where(low, high + 32), steps=6)


def _highest_bit(word: Num) -> Num:
    return 31 - word.op("clz").cast(i32)


def _jump(b: Builder, op: Op, v: Value, lane: Num, before: Num, steps: int) -> Value:
    """Emit the steps of a scan; `before` is the active invocation before this one, or -1."""
    span, _, name = op.kind.removeprefix("subgroup_").rpartition("_")
    t = scalar_of(op.type)
    total = Num(b, widen(b, v) if t.bits < WARP else v)
    previous = before
    for _ in range(steps):
        is_any, at = before >= 0, (before < 0).where(lane, before).cast(u32)
        total = is_any.where(_shuffle(total, at).op(name, total), total)
        before = is_any.where(_shuffle(before, at), before)
    if span == "exclusive":
        at = (previous < 0).where(lane, previous).cast(u32)
        total = (previous < 0).where(IDENTITIES[name](t).item(), _shuffle(total, at))
    if t is u1:
        return (total != 0).v
    return total.cast(t).v


def _shuffle(v: Num, lane: Num) -> Num:
    kind = "subgroup_shuffle"
    if v.type in (i64, u64):
        return Num(v.b, _exchange_halves(v.b, kind, v.v, lane.v))
    return Num(v.b, v.b.emit(kind, v.v, lane.v))


# --- exchanges out of range ----------------------------------------------------------------------
#
# The lane index, distance or mask of an exchange must be below the subgroup size. Exchanges are out
# of range for certain in every execution, or in the first iteration of loops that certainly run.
# Those inside an `if` or loop whose condition or bounds depend on `subgroup_size` are skipped.
#
#     %c16 = const 16 : u32
#     %r = subgroup_shuffle_down %v, %c16      ; out of range for subgroups of 8 or 16


First = Mapping[Value, Interval | None]  # parameters of enclosing loops in their first iteration


def out_of_range_exchanges(fn: Func, size: int) -> Iterator[tuple[Op, Interval]]:
    """Yield exchanges that are certainly out of range for subgroups of `size` invocations.

    Each comes with the interval of its lane index, distance or mask.
    """
    sizes = [op for op in walk(fn.body) if op.kind == "subgroup_size"]
    asked = Dependence(fn.body, sizes).decided if sizes else set()
    axes = axes_in(fn.body)

    def visit(region: Region, first: First) -> Iterator[tuple[Op, Interval]]:
        ranges = Intervals(axes, found=first)
        for op in region.ops:
            if op.kind in EXCHANGING and op not in asked:
                found = ranges.bound(op.args[1])
                if found is not None and size <= found[0] <= found[1]:
                    yield op, found
            for inner in op.regions:
                yield from visit(inner, round_of(op, ranges, first))

    yield from visit(fn.body, {})


def round_of(op: Op, ranges: Intervals, first: First) -> First:
    """Intervals of parameters in the first iteration of a control op and of the loops around it.

    Empty for an `if`, and for a loop that may have no iteration. A `parallel` adds no interval.
    """
    if op.kind not in LOOPS:
        return first if op.kind == "parallel" else {}
    inits = [ranges.of(v) for v in initial_values(op)]
    given = {p: x for k, x in enumerate(inits) for p in slot_params(op, k)}
    if op.kind in COUNTED:
        axis = axes_of(op)[0]
        begin, end = ranges.of(axis.begin), ranges.of(axis.end)
        is_sure = begin is not None and end is not None and begin[1] < end[0]
        return {**first, **given, axis.param: begin} if is_sure else {}
    found = {**first, **given}
    condition = control_operands(op)[0]
    return found if not may_hold(condition, False, Intervals(ranges.axes, found=found)) else {}
