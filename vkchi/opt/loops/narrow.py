"""Straight-line code for loops over narrow elements, on CPUs: full unrolling and if-conversion.

    parallel i, j { s = for k in 0..3 { s + x[i, j + k] }; y[i, j] = c == 3 or x[i, j] == 1 }
    becomes
    parallel i, j { s = x[i, j] + x[i, j + 1] + x[i, j + 2]; v = x[i, j]; ... }

CPU drivers take as long for a byte as for a word. `jam` unrolls straight-line code whose accesses
are contiguous, and `neighbours` makes words of them. So short serial loops are unrolled, and
branches with few loads are if-converted, if `jam` accepts the result. The loads that become
unconditional must be proved in range.

Preconditions: runs before `jam`, and before `indices`.

    >>> straighten_narrow(fn, caps, memo)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.parallel_loops import is_private, may_interleave
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, find_parallel, has_kind, walk
from vkchi.ir.ops import ACCESSES, LOOPS, constant_trip_count
from vkchi.ir.rebuild import rebuild_loops
from vkchi.opt.control.predicate import straighten
from vkchi.opt.loops.jam import AxisVariances, JamPlan, choose_neighbours
from vkchi.opt.loops.serial.transform import Unroller, unrolled_size
from vkchi.opt.memo import Memo
from vkchi.opt.memory.walks import bits_at
from vkchi.opt.rewrite.bounds import eliminate_bounds_checks
from vkchi.opt.rewrite.dce import remove_dead
from vkchi.opt.rewrite.simplify import simplify
from vkchi.target import tuning
from vkchi.target.caps import Caps


def straighten_narrow(fn: Func, caps: Caps, memo: Memo) -> Func:
    """Unroll and if-convert a loop over narrow elements, if `jam` then accepts it."""
    loop = find_parallel(fn)
    if loop is None or not caps.scalar_lanes or not may_be_straight(loop):
        return fn
    new = remove_dead(simplify(unroll_short_loops(fn), memo))
    new = eliminate_bounds_checks(straighten(new))
    made = find_parallel(new)
    if made is None:  # it did nothing
        return fn
    is_proved = count_unproved(made) <= count_unproved(loop)
    plan = choose_neighbours(made, tuning.JAM_FACTORS[0], caps, AxisVariances())
    return new if is_proved and isinstance(plan, JamPlan) else fn


def may_be_straight(op: Op) -> bool:
    """True for a loop with narrow accesses, with branches or short serial loops, and few ops."""
    inner = list(walk(op.regions[0]))
    narrow = [x for x in inner if x.kind in ACCESSES and not is_private(x) and bits_at(x) < 32]
    if not narrow or not has_kind(op.regions[0], (*LOOPS, "if")) or not may_interleave(op):
        return False
    loops = [x for x in inner if x.kind in LOOPS]
    if not all(map(is_short, loops)):
        return False
    return unrolled_size(op.regions[0].ops, loops) <= 2 * tuning.JAM_WORD_OPS


def is_short(op: Op) -> bool:
    trips = constant_trip_count(op) if op.kind == "for" else None
    return trips is not None and 0 < trips <= tuning.JAM_WORD_OPS


def unroll_short_loops(fn: Func) -> Func:
    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        old = op.regions[0]
        params = [Param(p.type, p.name) for p in old.params]
        chosen = {x for x in walk(old) if x.kind in LOOPS}
        with b.region(*params) as body:
            Unroller(b, dict(zip(old.params, params, strict=True)), chosen).body(old)
        b.parallel(args, body, op.attr, op.name)
        return ()

    return rebuild_loops(fn, visit)


def count_unproved(op: Op) -> int:
    return sum(x.kind == "elem" and x.attr is None for x in walk(op.regions[0]))
