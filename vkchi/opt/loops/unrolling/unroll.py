"""Partial loop unrolling on GPUs, so that loads of several iterations overlap.

    for k in 0..n { s + x[k] }                                                       becomes
    for g in 0..n / 4 { k = 4 * g; s + x[k] + x[k + 1] + x[k + 2] + x[k + 3] }
    for k in n / 4 * 4..n { s + x[k] }

Drivers unroll only short loops of constant trip count. In other loops each iteration waits for its
loads before the next begins. After unrolling, the loads of several iterations overlap, and adjacent
ones can be vectorized.

Only innermost loops are unrolled, with loads, arithmetic and private accesses only: no other
writes, branches or synchronization. The trip count may be dynamic.

Guarantees: the order of floating-point operations is unchanged.

    >>> unroll(fn, caps)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkchi.analysis.variance import is_private
from vkchi.ir.clone import Cloner
from vkchi.ir.constants import constant_int
from vkchi.ir.control_ops import axes_of
from vkchi.ir.core import Func, Op, Param, Value
from vkchi.ir.ops import READS, TABLE, Effect
from vkchi.ir.rebuild import rebuild_chosen
from vkchi.opt.loops.tiles import split_into_tiles
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, i32, scalar_of


def unroll(fn: Func, caps: Caps) -> Func:
    """Partially unroll serial loops with loads, where `is_worth_it`. Returns `fn` if the device is
    a CPU."""
    if caps.scalar_lanes:
        return fn
    return unroll_loops(
        fn, lambda loop: UnrollFactor(tuning.UNROLL_FACTOR) if is_worth_it(loop) else None
    )


class UnrollFactor(NamedTuple):
    """Unroll factor, and the number of iterations peeled before."""

    rounds: int
    skipped: int = 0


def unroll_loops(fn: Func, choose: Callable[[Op], UnrollFactor | None]) -> Func:
    return rebuild_chosen(
        fn, "for", choose,
        lambda r, op, args, way: build_unrolled(Cloner(r.b, dict(r.map)), op, args, way),
    )  # fmt: skip


# --- profitability -------------------------------------------------------------------------------


def is_worth_it(loop: Op) -> bool:
    """True if partial unrolling of a loop is profitable.

    Its trip count is not a constant up to DRIVERS_UNROLL, and its index is an i32. Its body has at
    most UNROLL_OPS ops, all of them quiet and without regions. It loads from non-private memory, at
    most UNROLL_LOADED registers per iteration.
    """
    ops = loop.regions[0].ops[:-1]
    (axis,) = axes_of(loop)
    begin, end = constant_int(axis.begin), limit_of(axis.end)
    if begin is not None and end is not None and end - begin <= tuning.DRIVERS_UNROLL:
        return False
    if axis.param.type is not i32 or len(ops) > tuning.UNROLL_OPS or any(op.regions for op in ops):
        return False
    loaded = [op for op in ops if op.kind in READS and not is_private(op)]
    return all(map(is_quiet, ops)) and 0 < sum(map(registers_of, loaded)) <= tuning.UNROLL_LOADED


def limit_of(v: Value) -> int | None:
    """Return the constant that `v` is, or the constant operand of a `min` `v`; else None."""
    if isinstance(v, Op) and v.kind == "min":
        return next((n for n in map(constant_int, v.args) if n is not None), None)
    return constant_int(v)


def is_quiet(op: Op) -> bool:
    """True if an op computes, loads, or stores to a private variable."""
    if op.kind == "store":
        return is_private(op)
    return op.kind == "load" or TABLE[op.kind].effect is Effect.PURE


def registers_of(load: Op) -> int:
    """Return the number of 32-bit registers of a loaded value. A component takes at least one."""
    t = load.type
    assert isinstance(t, Scalar | Tensor)
    return (t.size if isinstance(t, Tensor) else 1) * max(1, scalar_of(t).bits // 32)


# --- rewriting -----------------------------------------------------------------------------------


def build_unrolled(
    copy: Cloner, loop: Op, args: Sequence[Value], way: UnrollFactor
) -> Sequence[Value]:
    """Append the peeled iterations, the unrolled loop and the remainder; return the results."""
    b, body, (begin, end, *values) = copy.b, loop.regions[0], args
    for _ in range(way.skipped):
        values = copy.inline(body, (begin, *values))
        begin = b.const((constant_int(begin) or 0) + 1, i32)
    groups, rest = split_into_tiles(b, begin, end, way.rounds)
    index, *carried = [Param(p.type, p.name) for p in body.params]
    with b.region(index, *carried) as region:
        start = b.emit("mul", index, b.const(way.rounds, i32))
        if constant_int(begin) != 0:
            start = b.emit("add", begin, start)
        following: list[Value] = [*carried]
        for k in range(way.rounds):
            at = b.emit("add", start, b.const(k, i32), name=index.name) if k else start
            following = copy.inline(body, (at, *following))
        b.emit("yield", *following)
    found = b.for_(b.const(0, i32), groups, values, region).results
    if rest is None:
        return found
    return b.for_(rest, end, found, copy.region(loop, body)).results
