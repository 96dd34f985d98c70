"""Loop blocking on CPUs: an invocation executes a strip of iterations of the axis that rivals the
lanes' axis.

    parallel 0, n, 0, m {(i, j) b[j, i] = a[i, j]}        becomes
    parallel 0, n / 256, 0, m {(s, j) for r in 0..256 { i = 256 * s + r; b[j, i] = a[i, j] }}

Lanes take the last axis, along which some accesses step within a cache line. Accesses that step
within a line along another axis only, as in a transpose, otherwise use one element of each line
before it is evicted. In a strip, they use whole lines. The strip also takes a line per iteration
and array along the lanes' axis, the rest of which serves the next lanes.

Profitable if the last axis is so long that lines are evicted: from the second cache, whose sets
lines at a distance of large powers of two share, or from the table of page addresses.

Candidates are loops without serial loops, whose axes have constant lengths. Legality is
`may_interleave`.

    >>> block_rivals(fn, caps)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import gcd, inf, prod

from vkchi.analysis.memory.footprint import element_under
from vkchi.analysis.parallel_loops import is_private, may_interleave
from vkchi.analysis.values.polynomials import AffinePolynomials, factor_of
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, has_kind, walk
from vkchi.ir.ops import ACCESSES, LOOPS, LoopAxis, axes_of
from vkchi.ir.rebuild import Cloner, rebuild_loops
from vkchi.opt.cost_model import least_threads, subgroup_width
from vkchi.opt.memory.walks import strides_of
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.tuples import NamedTuple
from vkchi.types import Array, i32, scalar_of

MOST = 1 << 30  # iterations of an axis: begins of strips fit an i32


class Strips(NamedTuple):
    """Strips of an axis: their number, and the iterations of each; the last may have fewer."""

    axis: int
    number: int
    length: int


def block_rivals(fn: Func, caps: Caps) -> Func:
    """Strip-mine the rival axis of each loop that has one, on CPUs."""
    if not caps.costly_invocations:
        return fn

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        plan = choose_strips(op, caps)
        if plan is not None:
            build_strips(b, op, args, plan)
        return None if plan is None else ()

    return rebuild_loops(fn, visit)


# --- when ----------------------------------------------------------------------------------------


def choose_strips(op: Op, caps: Caps) -> Strips | None:
    """Return strips of the rival axis; None without one, and if they would be too short to use
    cache lines or too few to keep the device busy."""
    axes = axes_of(op)
    lengths = [axis.length for axis in axes]
    known = [n for n in lengths if n is not None]
    if len(axes) == 1 or len(known) < len(axes) or known[-1] < subgroup_width(caps):
        return None
    if max(known) > MOST or any(scalar_of(v.type) is not i32 for v in op.args):
        return None
    if has_kind(op.regions[0], LOOPS) or not may_interleave(op):
        return None
    axis = rival_of(steps_of(op, axes), known[-1])
    if axis is None:
        return None
    most = min(tuning.RIVAL_STRIP, known[axis], prod(known) // least_threads(caps))
    return even_strips(axis, known[axis], most) if most >= tuning.LEAST_RIVAL_STRIP else None


def steps_of(op: Op, axes: Sequence[LoopAxis]) -> list[list[int]]:
    """Return the bytes by which each access to global memory moves along each axis. Leaves out
    arrays without constant strides."""
    sums, found = AffinePolynomials(), []
    for access in walk(op.regions[0]):
        if access.kind not in ACCESSES or is_private(access):
            continue
        element = element_under(access.args[0])
        array = element.args[0].type if element is not None else None
        if element is None or not isinstance(array, Array) or array.space != "global":
            continue
        strides = strides_of(array)
        if strides is not None:
            forms = [sums.of(v) for v in element.args[1:]]
            size = array.stored.size_bytes
            found.append(
                [
                    abs(sum(factor_of(axis.param, f) * n for f, n in zip(forms, strides)) * size)
                    for axis in axes
                ]
            )
    return found


def rival_of(steps: Sequence[Sequence[int]], lanes: int) -> int | None:
    """Return the axis but the last along which most accesses step within a cache line, of those
    whose lines are evicted within `lanes` iterations of the last axis.

    None if there is no such access, or if none steps within a line along the last axis.
    """
    rivals = Counter(
        axis
        for found in steps
        for axis, step in enumerate(found[:-1])
        if 0 < step < tuning.CACHE_LINE and lanes >= lines_kept(found[-1])
    )
    if not rivals or not any(0 < found[-1] < tuning.CACHE_LINE for found in steps):
        return None
    return max(rivals, key=lambda axis: rivals[axis])


def lines_kept(step: int) -> float:
    """Return the number of cache lines at this distance in bytes that a CPU keeps in its second
    cache and can address without a page walk; infinity for accesses within a line."""
    if step < tuning.CACHE_LINE:
        return inf
    in_cache = tuning.CACHE_BYTES // max(gcd(step, tuning.CACHE_WAY), tuning.CACHE_LINE)
    return min(in_cache, tuning.PAGES * max(1, tuning.PAGE // step))


def even_strips(axis: int, n: int, most: int) -> Strips:
    """Return strips of at most `most` of `n` iterations, and of at least half as many; of equal
    length if there are such."""
    least = -(-n // most)
    count = next((k for k in range(least, 2 * least) if n % k == 0), least)
    return Strips(axis, count, -(-n // count))


# --- form ----------------------------------------------------------------------------------------


def build_strips(b: Builder, op: Op, args: Sequence[Value], plan: Strips) -> None:
    """Append the `parallel` with these bounds, over the strips of an axis."""
    old = op.regions[0].params
    begin, length = args[2 * plan.axis], axes_of(op)[plan.axis].length
    zero, long = b.const(0, i32), b.const(plan.length, i32)
    params = [Param(p.type, p.name) for p in old]
    r = Param(i32, old[plan.axis].name)
    with b.region(*params) as body:
        start = b.emit("mul", params[plan.axis], long)
        trips: Value = long
        if plan.number * plan.length != length:
            trips = b.emit("min", long, b.emit("sub", b.const(length or 0, i32), start))
        with b.region(r) as strip:
            i = b.emit("add", begin, b.emit("add", start, r))
            known: dict[Value, Value] = dict(zip(old, params, strict=True))
            Cloner(b, {**known, old[plan.axis]: i}).body(op.regions[0])
        b.for_(zero, trips, (), strip)
        b.emit("yield")
    bounds = list(args)
    bounds[2 * plan.axis : 2 * plan.axis + 2] = zero, b.const(plan.number, i32)
    b.parallel(bounds, body, name=op.name)
