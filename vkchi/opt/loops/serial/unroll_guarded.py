"""Full unrolling on CPUs of short loops with branches, with contiguous loads before all branches.

    for k in 0..4 { j = next[i, k]; if d[j] < 0 { d[j] = 1 } }                       becomes
    j = next[i, 0]; k = next[i, 1]; ...; if d[j] < 0 { d[j] = 1 }; if d[k] < 0 { d[k] = 1 }; ...

`neighbours` merges the loads into words, which it cannot do across branches. The loads are executed
by every iteration, have stride one and an aligned start, and their array is not written in the
loop. `unroll` serves loops without branches.

Guarantees: the order of floating-point operations is unchanged.

    >>> unroll_guarded(fn, caps)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.memory.alias import SideEffects, SideEffectTable, location_of
from vkchi.analysis.parallel_loops import is_private, keeps_order
from vkchi.ir.core import Func, Op, Value, constant_int, has_kind, walk
from vkchi.ir.ops import LOOPS, axes_of, constant_trip_count
from vkchi.ir.rebuild import Cloner, Rebuilder, rebuild_chosen
from vkchi.opt.loops.serial.broadcast import Slice
from vkchi.opt.memory.walks import StrideOneAccesses
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.types import i32

Loads = dict[Op, list[Op]]  # each with the ops in the loop that compute its address


def unroll_guarded(fn: Func, caps: Caps) -> Func:
    """Unroll the loops with such loads, on CPUs."""
    if not caps.scalar_lanes:
        return fn
    changes = SideEffectTable()
    return rebuild_chosen(fn, "for", lambda loop: find_loads(loop, changes), unroll)


def find_loads(loop: Op, changes: SideEffectTable) -> Loads:
    """Return the loads to execute before all branches; none if the loop is not to be unrolled."""
    (axis,), body = axes_of(loop), loop.regions[0]
    trips, size = constant_trip_count(loop), sum(1 for _ in walk(body))
    if trips is None or not 2 <= trips <= tuning.UNROLL_GUARDED or axis.param.type is not i32:
        return {}
    if trips * size > tuning.UNROLL_WORD_OPS or not any(op.regions for op in body.ops):
        return {}
    if has_kind(body, LOOPS) or keeps_order(body):
        return {}
    walks = StrideOneAccesses(axis.param, axis.begin)
    made = changes.of(loop.regions)
    found: Loads = {}
    for op in body.ops:
        if op.kind == "load" and not is_private(op) and is_steady(op, made):
            needed = Slice(body, axis.param, op)
            if needed.is_whole and walks.is_walking(op) and walks.is_aligned(op):
                found[op] = needed.ops
    return found


def is_steady(load: Op, made: SideEffects) -> bool:
    """True if no iteration may change the array of a load."""
    return not made.may_change(location_of(load.args[0])._replace(indices=()))


def unroll(r: Rebuilder, loop: Op, args: Sequence[Value], loads: Loads) -> Sequence[Value]:
    """Append all iterations, and return the results of the last one."""
    (index, *carried), ops = loop.regions[0].params, loop.regions[0].ops
    begin = constant_int(args[0]) or 0
    iterations: list[dict[Value, Value]] = []
    for k in range(constant_trip_count(loop) or 0):
        known = {**r.map, index: r.b.const(begin + k, i32)}
        Cloner(r.b, known).run(dict.fromkeys(x for load in loads for x in (*loads[load], load)))
        iterations.append(known)
    values = list(args[2:])
    for known in iterations:
        known.update(zip(carried, values, strict=True))
        copy = Cloner(r.b, known)
        copy.run(op for op in ops if op not in loads)
        values = [copy.get(v) for v in loop.regions[0].yielded]
    return values
