"""Unroll-and-jam: an invocation runs several adjacent iterations of an axis in lockstep.

    parallel 0, n {(i) s = for q { s + a[i, q] * b[q] }; c[i] = s }        becomes
    parallel 0, n / 4 {(g)
      s, t, u, v = for q { w = b[q]; s + a[4g, q] * w, ..., v + a[4g + 3, q] * w }
      c[4g] = s; ...; c[4g + 3] = v }

Loads and other ops that are invariant along the axis are executed once (`analysis.parallel_loops`).
Atomics to an invariant element are merged into one. The axis is the one along which serial loops
save most loads per iteration. That must be a quarter of the loads or more, and enough invocations
to keep the device busy must remain. The pass unrolls by four, then once more by two. The second
step gives two-axis blocks (register tiles), or serves loops that carry too much for four. If the
trip count may not be a multiple, a branch runs the last iterations one by one.

CPUs have higher tiles: eight by two, if loads still cost more than the arithmetic that they feed
(`SharedLoads`). There, loads that lanes share cost less than others (`broadcast`).

Straight-line code that accesses contiguous memory along the last axis is also unrolled, from
an aligned iteration. Its adjacent loads and stores become vector accesses, or on CPUs words
(`neighbours`). `jam_reductions` does the same for code that only loads and reduces.

Legality: iterations of a `parallel` may run concurrently in any order, so every interleaving is
allowed. Loops are skipped if they demand a workgroup size, or if their iterations read invocation
numbers, synchronize, report, draw random numbers or may end their invocation.

    >>> jam(fn, caps)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import reduce
from math import prod

from vkchi.analysis.dataflow import Flow
from vkchi.analysis.parallel_loops import AxisVariance, is_private, loads_in_loops, may_interleave
from vkchi.analysis.values.host_numbers import axis_length
from vkchi.analysis.values.polynomials import AffinePolynomials, factor_of
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value, constant_int, has_kind, used_in, walk
from vkchi.ir.ops import (
    ACCESSES,
    ATOMICS,
    Effect,
    LoopAxis,
    axes_of,
    bodies_of,
    control_of,
    effect_of,
    initial_values,
    is_loop,
)
from vkchi.ir.rebuild import Cloner, rebuild_loops
from vkchi.opt.cost_model import least_threads, subgroup_width, words_per_iteration
from vkchi.opt.loops.serial.broadcast import is_long
from vkchi.opt.loops.serial.transform import begin_of_tile
from vkchi.opt.mapping.axis_order import find_order
from vkchi.opt.memory.walks import bits_at, stride_along
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.target.remarks import Log, Refusal, Verdict, record_refusal
from vkchi.tuples import NamedTuple
from vkchi.types import Ptr, Tensor, Type, bf16, f16, scalar_of


def jam(fn: Func, caps: Caps, log: Log | None = None) -> Func:
    """Unroll-and-jam by four, then by two, where profitable. Records in `log` why loops are left
    by both."""
    old, variances = fn, AxisVariances()
    for factor in tuning.JAM_FACTORS:
        fn = jam_by(fn, factor, caps, variances, log if fn is old else None)
    return fn


def jam_reductions(fn: Func, caps: Caps) -> Func:
    """Unroll-and-jam reductions over contiguous memory, on CPUs. It runs before `reduce`, which
    moves the reductions out of the loop; afterwards their terms are not adjacent."""
    if not caps.scalar_lanes:
        return fn
    return jam_loops(fn, lambda op: choose_terms(op, caps))


def jam_by(
    fn: Func, factor: int, caps: Caps, variances: AxisVariances, log: Log | None = None
) -> Func:
    def choose(op: Op) -> JamPlan | Verdict:
        plan = choose_axis(op, factor, caps, variances)
        if isinstance(plan, JamPlan):
            return plan
        other = choose_neighbours(op, factor, caps, variances)
        return plan if isinstance(plan, Refusal) and not isinstance(other, JamPlan) else other

    return jam_loops(fn, choose, log)


def jam_loops(
    fn: Func, choose: Callable[[Op], JamPlan | Verdict | None], log: Log | None = None
) -> Func:
    """Unroll-and-jam each loop for which `choose` returns a plan, if it satisfies `may_jam` and its
    iteration order is the source order (`find_order`)."""

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        choice = may_jam(op) and choose(op)
        if choice and find_order(op):
            choice = TRANSPOSED
        record_refusal(log, "unroll-and-jam", op.span, choice, fn.name)
        if not isinstance(choice, JamPlan):
            return None
        build_jammed(b, op, args, choice)
        return ()

    return rebuild_loops(fn, visit)


# --- when ----------------------------------------------------------------------------------------

LONG = Refusal("its body is too long")
TRANSPOSED = Refusal("its iterations run in another order of axes")
FEW = Refusal("too few invocations would be left to keep the device busy")
CARRIED = Refusal("its serial loops carry too many values")
UNSHARED = Refusal("adjacent iterations share too few loads of its serial loops")
UNALIGNED = Refusal("its first iteration is not aligned, or its length no known multiple")
SCATTERED = Refusal("too few of its accesses are contiguous along the last axis")


class AxisVariances(dict[tuple[Region, int], AxisVariance]):
    """Variance along an axis by body and number of the axis, computed once."""

    def __missing__(self, key: tuple[Region, int]) -> AxisVariance:
        body, k = key
        found = self[key] = AxisVariance(body, body.params[k])
        return found


class JamPlan(NamedTuple):
    """Plan of an unroll-and-jam: the axis, the values that vary along it, and the unroll factor.
    `missing`: iterations that the first group lacks, so that the others are aligned."""

    axis: int
    variance: AxisVariance
    factor: int
    missing: int = 0


def may_jam(op: Op) -> Verdict:
    """True if a loop may be transformed. No reason is given for loops that depend on invocations,
    such as those that `reduce` made."""
    return bool(may_interleave(op)) and (has_small_body(op, 4 * tuning.JAM_OPS) or LONG)


def has_small_body(op: Op, most: int) -> bool:
    count, todo = 0, [op.regions[0]]
    while todo and count <= most:
        region = todo.pop()
        count += len(region.ops)
        for inner in region.ops:
            todo += inner.regions
    return count <= most


def choose_axis(op: Op, factor: int, caps: Caps, variances: AxisVariances) -> JamPlan | Verdict:
    """Return a plan for the axis along which most loads are shared, if there is a profitable one.

    On a tie, an axis that shares more of the loads that differ between lanes wins, then an outer
    one. On GPUs, adjacent lanes load adjacent elements along the last axis. So that axis is chosen
    only if no load in a serial loop varies along it.
    """
    body = op.regions[0]
    if not has_kind(body, ("for",)):
        return False
    has_long_body = not has_small_body(op, tuning.JAM_OPS)
    is_second = caps.scalar_lanes and factor == tuning.JAM_FACTORS[1]
    if has_long_body and not (is_second and has_small_loops(body)):
        return LONG
    axes, refusal = axes_of(op), FEW
    best: tuple[tuple[float, int], JamPlan] | None = None
    for k, axis in enumerate(axes):
        if not has_enough(op, k, factor, caps):
            continue
        if factor != tuning.JAM_FACTORS[0] and not is_multiple(axis, factor):
            refusal = UNALIGNED
            continue  # would need a remainder loop
        variance, lanes = variances[body, k], variances[body, len(axes) - 1]
        shared = SharedLoads(loads_in_loops(body, variance), axis.param, variance, lanes, caps)
        carried = carried_scalars(body, variance)
        if carried * factor > tuning.JAM_CARRIED:
            refusal = CARRIED
            continue
        refusal = UNSHARED
        if k == len(axes) - 1 and not shared.is_complete and not caps.scalar_lanes:
            continue
        if not shared.is_quarter or (has_long_body and not shared.is_worth_doubling(1)):
            continue
        score = (
            shared.saved,
            sum(x in lanes.found and x not in variance.found for x, _ in shared.loads),
        )
        if best is None or score > best[0]:
            best = score, JamPlan(k, variance, factor)
            if (
                factor == tuning.JAM_FACTORS[0]
                and 4 * factor * carried <= tuning.JAM_CARRIED
                and has_tall_groups(op, k, caps)
                and shared.is_worth_doubling(factor)
            ):
                best = score, JamPlan(k, variance, 2 * factor)
    return best[1] if best is not None else refusal


def choose_neighbours(
    op: Op, factor: int, caps: Caps, variances: AxisVariances
) -> JamPlan | Verdict:
    """Return a plan for the last axis if most accesses of straight-line code are contiguous along
    it, so that `neighbours` can vectorize them.

    There is none if the first iteration is not aligned, or if a GPU would need a remainder.
    """
    body, last = op.regions[0], len(op.args) // 2 - 1
    axis = axes_of(op)[last]
    first = constant_int(axis.begin)
    if factor != elements_per_access(op, caps):
        return False
    if not has_enough(op, last, factor, caps):
        return FEW
    if first is None or (first % factor and factor == tuning.JAM_FACTORS[1]):
        return UNALIGNED  # a branch for partial groups costs more than pairs of words gain
    if not caps.scalar_lanes and (first % factor or not is_multiple(axis, factor)):
        return UNALIGNED  # on GPUs it always does
    if not caps.scalar_lanes and (
        len(body.ops) > tuning.JAM_STRAIGHT_OPS or not has_small_body(op, tuning.JAM_OPS)
    ):
        return LONG
    if not is_mostly_contiguous(op):
        return SCATTERED
    return JamPlan(last, variances[body, last], factor, first % factor)


def elements_per_access(op: Op, caps: Caps) -> int | None:
    """Return the number of elements per access: 4; on CPUs 2, or 4 if the narrowest accessed scalar
    has less than 32 bits.

    None for such scalars on GPUs. None on CPUs if the unrolled body would exceed 2 * JAM_WORD_OPS
    ops.
    """
    bits = min((bits_at(x) for x in op.regions[0].ops if x.kind in ACCESSES), default=32)
    wide, narrow = tuning.JAM_FACTORS
    if not caps.scalar_lanes:
        return wide if bits >= 32 else None
    if not has_small_body(op, tuning.JAM_WORD_OPS):
        return None
    return narrow if bits >= 32 else wide


def is_mostly_contiguous(op: Op) -> bool:
    """True for straight-line code whose accesses are mostly contiguous along the last axis.

    At least three quarters of the accesses must be contiguous, and at least two must exist.
    Accesses that are invariant along the axis, and accesses to private memory, do not count.
    """
    body, index = op.regions[0], axes_of(op)[-1].param
    if not has_small_body(op, tuning.JAM_WORD_OPS) or not all(map(is_straight, body.ops)):
        return False
    sums = AffinePolynomials()
    steps = [
        stride_along(x, index, sums) for x in body.ops if x.kind in ACCESSES and not is_private(x)
    ]
    moving = [step for step in steps if step != 0]
    return len(moving) >= 2 and 4 * sum(step == 1 for step in moving) >= 3 * len(moving)


def choose_terms(op: Op, caps: Caps) -> JamPlan | None:
    """Return a plan for the last axis if straight-line code reduces contiguous loads along it.

    All reductions must go to elements that are invariant along the axis, or all to elements that
    depend on the loads (`bins`).
    """
    body, last, factor = op.regions[0], len(op.args) // 2 - 1, elements_per_access(op, caps)
    axis = axes_of(op)[last]
    first = constant_int(axis.begin)
    if factor is None or first is None or first % factor or not is_multiple(axis, factor):
        return None
    if any(x.regions for x in body.ops) or not has_enough(op, last, factor, caps):
        return None
    variance, used = AxisVariance(body, axis.param), used_in(body)
    accesses = [x for x in body.ops if x.kind in ACCESSES]
    told = Flow(body, [x for x in accesses if x.kind == "load"]).found
    sums_of = AffinePolynomials()
    steps = {stride_along(x, axis.param, sums_of) for x in accesses if x.kind not in ATOMICS}
    sums = [x for x in accesses if x.kind in ATOMICS]
    are_common = sums and all(is_common_sum(x, variance, used) for x in sums)
    are_told = sums and all(is_free_sum(x, used) and x.args[0] in told for x in sums)
    is_plain = all(x.kind == "load" or x.kind in ATOMICS for x in accesses)
    if not ((are_common or are_told) and is_plain and steps == {1}):
        return None
    return JamPlan(last, variance, factor * words_of(op, factor) if are_common else factor)


def words_of(op: Op, factor: int) -> int:
    """Return the best number of words of each array to reduce at once, where a word holds `factor`
    elements.

    It is a power of two up to JAM_WORDS, and leaves no remainder. For n > 1 words, the body has at
    most JAM_OPS / n ops.
    """
    axes, most = axes_of(op), tuning.JAM_WORDS
    lengths = [axis_length(axis) for axis in axes]
    total = prod(n.lo if n is not None and n.lo == n.hi else 0 for n in lengths)
    while most > 1 and not (
        is_multiple(axes[-1], most * factor) and has_small_body(op, tuning.JAM_OPS // most)
    ):
        most //= 2
    loads = sum(x.kind == "load" for x in op.regions[0].ops)
    return words_per_iteration(most, loads, total // factor)


def is_common_sum(op: Op, variance: AxisVariance, used: Collection[Value]) -> bool:
    """True for an atomic with an unused result, not of 16-bit floats, whose address is invariant
    along the axis."""
    return is_free_sum(op, used) and op.args[0] not in variance.found


def is_free_sum(op: Op, used: Collection[Value]) -> bool:
    """True for an atomic with an unused result. 16-bit floats are excluded, as their sums must be
    rounded once only."""
    return op.kind in ATOMICS and op not in used and scalar_of(op.args[1].type) not in (f16, bf16)


def is_straight(op: Op) -> bool:
    """True for an op without loops whose branches access only private memory."""
    if not op.regions:
        return True
    inner = [x for region in op.regions for x in walk(region)]
    accesses = [x for x in inner if x.kind in ACCESSES]
    has_loops = any(is_loop(x) for x in (op, *inner))
    return not has_loops and all(is_private(x) for x in accesses)


def saving(load: Op, loop: Op, index: Param, variance: AxisVariance) -> float:
    """Return the share of a load in a loop that unroll-and-jam saves.

    It is 1 if the load, or an atomic's address, is invariant along the axis. It is slightly less if
    the next iteration of one copy loads the element of another copy, which `commoning` exploits.
    Otherwise it is 0.
    """
    if load not in variance.found:
        return 1.0
    if load.kind in ATOMICS:
        return 0.0 if load.args[0] in variance.found else 1.0
    place = load.args[0]
    assert isinstance(place, Op)
    if load.kind != "load" or place.kind != "elem":
        return 0.0
    forms, (axis,) = map(AffinePolynomials().of, place.args[1:]), axes_of(loop)
    steps = {(factor_of(index, f), factor_of(axis.param, f)) for f in forms} - {(0, 0)}
    return 0.9 if steps and all(a == b for a, b in steps) else 0.0


class SharedLoads:
    """Loads and atomics in the serial loops of a body, and the costs that unroll-and-jam along an
    axis saves.

    A load costs 1, and JAM_UNIFORM on CPUs if lanes share it (`broadcast`). `total`: the cost of
    all; `saved`: of those that the copies share.
    """

    def __init__(
        self, loads: Sequence[tuple[Op, Op]], index: Param, variance: AxisVariance,
        lanes: AxisVariance, caps: Caps,
    ) -> None:  # fmt: skip
        self.loads = loads
        shares = [saving(load, loop, index, variance) for load, loop in loads]
        width = subgroup_width(caps)
        costs = [
            tuning.JAM_UNIFORM
            if caps.scalar_lanes and load not in lanes.found and is_long(loop, width)
            else 1.0
            for load, loop in loads
        ]
        self.total, self.saved = sum(costs), sum(c * share for c, share in zip(costs, shares))
        self.is_complete = sum(shares) >= len(loads)
        self.is_quarter = 4 * sum(shares) >= len(loads) > 0

    def is_worth_doubling(self, factor: int) -> bool:
        """True if groups of twice `factor` iterations are noticeably faster than groups of
        `factor`."""
        loops = dict.fromkeys(loop for _, loop in self.loads)
        ops = sum(is_work(x) for loop in loops for x in loop.regions[0].ops)
        before = ops + tuning.JAM_LOAD * (self.total - self.saved + self.saved / factor)
        return tuning.JAM_LOAD * self.saved / (2 * factor) >= tuning.JAM_GAIN * before


def is_work(op: Op) -> bool:
    """True for an op that computes values, not addresses and constants."""
    has_value = any(not isinstance(v.type, Ptr) for v in op.results)
    return has_value and op.kind != "const" and op.kind not in ACCESSES


def has_small_loops(body: Region) -> bool:
    """True if the serial loops of a body have at most JAM_OPS ops, without constants and accesses
    to private memory."""
    inside = {x for op in walk(body) if is_loop(op) for region in op.regions for x in walk(region)}
    count = sum(x.kind != "const" and not (x.kind in ACCESSES and is_private(x)) for x in inside)
    return count <= tuning.JAM_OPS


def has_tall_groups(op: Op, k: int, caps: Caps) -> bool:
    """True on CPUs if groups of twice JAM_FACTORS[0] are enough, and leave no remainder or one that
    is short against the trip count."""
    height = 2 * tuning.JAM_FACTORS[0]
    n = axes_of(op)[k].length
    is_even = n is None or n % height == 0 or n >= height * height
    return caps.scalar_lanes and is_even and has_enough(op, k, height, caps)


def has_enough(op: Op, k: int, factor: int, caps: Caps) -> bool:
    """True if an axis may have two full groups and, as far as is known, unrolling it keeps the
    device busy. False if its trip count may exceed i32, or the host cannot compute it."""
    lengths = [axis_length(axis) for axis in axes_of(op)]
    own = lengths[k]
    if own is None or not 2 * factor <= own.hi < 1 << 31:
        return False
    total = 1
    for length in lengths:
        total *= max(0, length.hi) if length is not None else 1 << 31
    return total >= factor * least_threads(caps)


def is_multiple(axis: LoopAxis, factor: int) -> bool:
    return axis.length is not None and axis.length % factor == 0


def carried_scalars(region: Region, variance: AxisVariance) -> int:
    """Return the most scalars that a serial loop carries or updates in private variables, and that
    vary along the axis."""
    most = 0
    for op in walk(region):
        if op.kind == "for" and op not in variance.decided:
            types = [v.type for v in op.results if v in variance.found]
            updated = {
                x.args[0] for x in walk(op.regions[0]) if x.kind == "store" and is_private(x)
            }
            types += [x.type.elem for x in updated if isinstance(x.type, Ptr)]
            most = max(most, sum(map(scalars, types)))
    return most


def scalars(t: Type) -> int:
    return t.size if isinstance(t, Tensor) else 1


# --- form ----------------------------------------------------------------------------------------


def build_jammed(b: Builder, op: Op, args: Sequence[Value], choice: JamPlan) -> None:
    k, _, factor, missing = choice
    axis = axes_of(op)[k]
    begin, end = axis.begin, axis.end
    t = scalar_of(begin.type)
    zero, one, step = (b.const(n, t) for n in (0, 1, factor))
    if missing:
        begin = b.const((constant_int(begin) or 0) - missing, t)
    is_even = is_multiple(axis, factor) and not missing
    groups: Value
    if axis.length is not None and is_even:
        groups = b.const(axis.length // factor, t)
    else:
        length = b.emit("max", b.emit("sub", end, begin), zero)
        groups = b.emit("add", b.emit("floordiv", b.emit("sub", length, one), step), one)
    params = [Param(p.type, p.name) for p in op.regions[0].params]
    with b.region(*params) as body:
        start = begin_of_tile(b, begin, params[k], step)
        outer: dict[Value, Value] = dict(zip(op.regions[0].params, params, strict=True))
        if is_even:
            copy_jammed(b, op, start, outer, choice)
        else:
            copy_guarded(b, op, (start, end), outer, choice)
        b.emit("yield")
    bounds = list(args)
    bounds[2 * k : 2 * k + 2] = zero, groups
    b.parallel(bounds, body)


def copy_guarded(
    b: Builder, op: Op, ends: tuple[Value, Value], outer: dict[Value, Value], choice: JamPlan
) -> None:
    """Append a branch: the jammed body for a full group, otherwise the iterations of a partial
    one."""
    start, end = ends
    t, first = scalar_of(start.type), axes_of(op)[choice.axis].begin
    is_full = b.emit("ge", b.emit("sub", end, start), b.const(choice.factor, t))
    with b.region() as then:
        copy_jammed(b, op, start, outer, choice)
        b.emit("yield")
    old = op.regions[0].params[choice.axis]
    with b.region() as orelse:
        if choice.factor == 2 and not choice.missing:  # one iteration is left
            Cloner(b, {**outer, old: start}).body(op.regions[0])
        else:
            if choice.missing:
                last = b.emit("add", start, b.const(choice.factor, t))
                start, end = b.emit("max", start, first), b.emit("min", end, last)
            new = Param(old.type, old.name)
            with b.region(new) as rest:
                Cloner(b, {**outer, old: new}).body(op.regions[0])
            b.for_(start, end, (), rest)
            b.emit("yield")
    if choice.missing:
        is_full = b.emit("and", is_full, b.emit("ge", ends[0], first))
    b.if_(is_full, then, orelse)


def copy_jammed(
    b: Builder, op: Op, start: Value, outer: dict[Value, Value], choice: JamPlan
) -> None:
    body = op.regions[0]
    index = body.params[choice.axis]
    copies: list[dict[Value, Value]] = []
    for k in range(choice.factor):
        own = (
            b.emit("add", start, b.const(k, scalar_of(start.type)), name=index.name) if k else start
        )
        copies.append({**outer, index: own})
    Jammer(b, body, choice.variance, copies).ops(body.ops[:-1])


class Jammer:
    """Copies ops in lockstep; `maps` holds the new values of each copy."""

    def __init__(
        self, b: Builder, body: Region, variance: AxisVariance, maps: list[dict[Value, Value]]
    ) -> None:
        self.b, self.variance, self.maps = b, variance, maps
        self.used = used_in(body)

    def ops(self, ops: Sequence[Op]) -> None:
        """Append ops: invariant ones once, others once per copy. Control ops are jammed."""
        for op in ops:
            if op.regions and op not in self.variance.decided:
                self.b.span = op.span
                self.control(op)
            elif self.is_sum(op):
                self.sum(op)
            elif self.is_own(op):
                for map in self.maps:
                    Cloner(self.b, map).run([op])
            else:
                once = self.maps[0]
                Cloner(self.b, once).run([op])
                for map in self.maps[1:]:
                    map.update((v, once[v]) for v in op.results)

    def is_own(self, op: Op) -> bool:
        """True if an op must be copied: it has an effect other than a read, it has regions, or its
        results vary along the axis."""
        effect = effect_of(op.kind)
        return (
            effect not in (Effect.PURE, Effect.READ)
            or bool(op.regions)
            or not self.variance.found.isdisjoint(op.results)
        )

    def is_sum(self, op: Op) -> bool:
        return is_common_sum(op, self.variance, self.used)

    def sum(self, op: Op) -> None:
        b, combine = self.b, ATOMICS[op.kind].combine
        values = [map.get(op.args[1], op.args[1]) for map in self.maps]
        total = reduce(lambda x, y: b.emit(combine, x, y), values)
        b.emit(op.kind, self.maps[0].get(op.args[0], op.args[0]), total)

    def each(self, values: Sequence[Value], slots: Sequence[Value]) -> list[Value]:
        """Return the new values of `values`: one per copy if the value's slot varies, otherwise
        one."""
        out: list[Value] = []
        for v, slot in zip(values, slots, strict=True):
            maps = self.maps if slot in self.variance.found else self.maps[:1]
            out += [map.get(v, v) for map in maps]
        return out

    def split(self, slots: Sequence[Value], values: Sequence[Value]) -> None:
        """Map each slot to its new value or values, in the order that `each` returned them."""
        left = iter(values)
        for slot in slots:
            if slot in self.variance.found:
                for map in self.maps:
                    map[slot] = next(left)
            else:
                new = next(left)
                for map in self.maps:
                    map[slot] = new

    def control(self, op: Op) -> None:
        """Append one control op for all copies. Precondition: its condition or bounds are
        invariant."""
        fixed = [self.maps[0].get(v, v) for v in op.args[: control_of(op).fixed]]
        first = self.each(initial_values(op), op.results if op.kind != "if" else ())
        regions = tuple([self.region(op, region) for region in op.regions])
        types = [v.type for v in regions[-1].yielded]
        new = Op(op.kind, (*fixed, *first), op.attr, None, op.span, op.name, regions, tuple(types))
        self.b.insert(new)
        self.split(op.results, new.results)

    def region(self, op: Op, region: Region) -> Region:
        """Return the jammed region of a control op, whose yields are in the order of `each`."""
        params: list[Param] = []
        for p in region.params:
            count = len(self.maps) if p in self.variance.found else 1
            params += [Param(p.type, p.name) for _ in range(count)]
        self.split(region.params, params)
        with self.b.region(*params) as new:
            self.ops(region.ops[:-1])
            slots = op.results if region in bodies_of(op) else region.yielded
            self.b.emit("yield", *self.each(region.yielded, slots))
        return new
