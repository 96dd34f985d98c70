"""Thread coarsening: an invocation runs a strip of an axis along which atomics update one element.

    parallel 0, n, 0, m {(i, j) atomic_add r[i], x[i, j]}        becomes
    parallel 0, n, 0, strips {(i, s) for k in 0..trips { j = s + k * strips; ... }}

Then `reduce` merges the atomics of a strip into one, and `licm` hoists values that depend only on
other axes. One strip is enough if the other axes keep the device busy. Then the atomic may become a
plain store (`demote_all_atomics`). So a matrix product written as `c[i, j] += a[i, k] * b[k, j]`
over three axes becomes a serial loop over k. Strips are interleaved, so that adjacent invocations
access adjacent elements.

Atomics to an element that is invariant along all axes are left to `reduce`, which partitions the
whole loop.

    >>> coarsen(fn, caps)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from vkchi.analysis.dataflow import Flow
from vkchi.analysis.memory.alias import reducible
from vkchi.analysis.parallel_loops import AxisDependence, may_interleave
from vkchi.analysis.values.host_numbers import axis_length, host_length
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, constant_int, used_in, walk
from vkchi.ir.iteration_space import as_i32
from vkchi.ir.ops import axes_of
from vkchi.ir.rebuild import Cloner, rebuild_loops
from vkchi.opt.cost_model import least_threads
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.target.remarks import Log, Refusal, Verdict, record_refusal
from vkchi.types import i32, scalar_of

UNKNOWN = Refusal("the host cannot compute its bounds")
SHORT = Refusal("strips that keep the device busy would have too few iterations")


def coarsen(fn: Func, caps: Caps, log: Log | None = None) -> Func:
    """Strip-mine an axis of each loop with atomics whose addresses are invariant along that axis,
    where profitable."""

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        axis = choose_axis(op) if len(op.args) > 2 else None
        if axis is None:
            return None
        verdict = may_coarsen(op) and is_worth_it(op, axis, caps)
        record_refusal(log, "thread coarsening", op.span, verdict, fn.name)
        if not verdict:
            return None
        build_strips(b, op, args, axis, least_threads(caps))
        return ()

    return rebuild_loops(fn, visit)


# --- when ----------------------------------------------------------------------------------------


def may_coarsen(op: Op) -> Verdict:
    """True if one invocation may run several iterations of a `parallel`, its bounds are i32, and
    the host can compute its trip count."""
    is_known = all(scalar_of(v.type) is i32 for v in op.args) and host_length(op) is not None
    return (is_known or UNKNOWN) and may_interleave(op)


def choose_axis(op: Op) -> int | None:
    """Return the axis along which the addresses of most atomics are invariant, on a tie the last
    one; None if there are no such atomics.

    Atomics count if they are `reducible`, and their address varies along another axis but not in
    serial loops.
    """
    body = op.regions[0]
    turning = Flow(body, [p for x in walk(body) for region in x.regions for p in region.params])
    sums = [
        x
        for same in reducible(walk(body), used_in(body)).values()
        for x in same
        if x.args[0] not in turning.found  # its address is invariant in serial loops
    ]
    found = [AxisDependence(body, axis.param).found for axis in axes_of(op)]
    counts = [
        sum(x.args[0] not in f and any(x.args[0] in g for g in found if g is not f) for x in sums)
        for f in found
    ]
    best = max(counts, default=0)
    return len(counts) - 1 - counts[::-1].index(best) if best else None


def is_worth_it(op: Op, axis: int, caps: Caps) -> Verdict:
    """True if strips have at least COARSEN_STRIP iterations, or if the length of some axis is known
    only at launch.

    Refused if the host cannot compute an axis's length, or it may exceed i32.
    """
    lengths = [axis_length(a) for a in axes_of(op)]
    if any(n is None or n.hi >= 1 << 31 for n in lengths):
        return UNKNOWN
    if any(n is not None and n.lo != n.hi for n in lengths):
        return True
    sizes = [n.hi for n in lengths if n is not None]
    others = prod(n for k, n in enumerate(sizes) if k != axis)
    strips = max(1, -(-least_threads(caps) // max(1, others)))
    return sizes[axis] >= tuning.COARSEN_STRIP * strips or SHORT


# --- form ----------------------------------------------------------------------------------------


def build_strips(b: Builder, op: Op, args: Sequence[Value], axis: int, least: int) -> None:
    """Append the `parallel` with these bounds, in which an axis over strips replaces axis `axis`.
    If there is one strip, the axis is removed."""
    ends, count = args[2 * axis : 2 * axis + 2], count_strips(b, args, axis, least)
    is_one = constant_int(count) == 1
    params = [Param(p.type, p.name) for p in op.regions[0].params]
    outer: dict[Value, Value] = dict(zip(op.regions[0].params, params, strict=True))
    bounds = list(args)
    bounds[2 * axis : 2 * axis + 2] = () if is_one else (b.const(0, i32), count)
    if is_one:
        del params[axis]
    with b.region(*params) as body:
        build_loop(b, op, outer, axis, (*ends, count))
        b.emit("yield")
    b.parallel(bounds, body)


def count_strips(b: Builder, args: Sequence[Value], axis: int, least: int) -> Value:
    """Append code for the number of strips, and return it: enough for `least` invocations in all,
    at most the length of the axis."""
    known = [n for n in map(constant_int, args) if n is not None]
    if len(known) == len(args):
        sizes = [max(0, last - first) for first, last in zip(known[::2], known[1::2])]
        others = prod(n for k, n in enumerate(sizes) if k != axis)
        return b.const(min(sizes[axis], (least - 1) // max(1, others) + 1), i32)
    one, zero = b.const(1, i32), b.const(0, i32)
    lengths = [
        b.emit("max", b.emit("sub", args[k + 1], args[k]), zero) for k in range(0, len(args), 2)
    ]
    total: Value = one
    for k, n in enumerate(lengths):
        if k != axis:
            total = b.emit("max", b.emit("mul", total, n), one)
    wanted = b.emit("floordiv", b.const(least - 1, i32), total)
    return b.emit("min", b.emit("add", wanted, one), lengths[axis])


def build_loop(
    b: Builder, op: Op, outer: dict[Value, Value], axis: int, strips: Sequence[Value]
) -> None:
    begin, end, count = strips
    index = op.regions[0].params[axis]
    k = Param(i32, index.name)
    trips, start = (begin, end), None
    if constant_int(count) != 1:
        start = b.emit("add", begin, outer[index])
        trips = b.const(0, i32), count_trips(b, (begin, end, count), start)
    with b.region(k) as strip:
        i: Value = k
        if start is not None:
            i = b.emit("add", start, b.emit("mul", k, count))
        Cloner(b, {**outer, index: i}).body(op.regions[0])
    b.for_(*trips, (), strip)


def count_trips(b: Builder, strips: Sequence[Value], start: Value) -> Value:
    """Append code for the trip count of the strip that begins at `start`, and return it. It is a
    constant if constant bounds give all strips the same length."""
    known = [n for n in map(constant_int, strips) if n is not None]
    if len(known) == len(strips):
        begin, end, count = known
        if end >= begin and (end - begin) % count == 0:
            return b.const((end - begin) // count, i32)
    return as_i32(b, b.emit("trip_count", start, *strips[1:]))
