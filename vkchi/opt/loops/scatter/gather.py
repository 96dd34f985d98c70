"""Scatter to gather: scatter-adds with shifted subscripts become loops over the destination
elements.

    parallel 1, n - 1 {(i) g = y[i]; atomic_add x[i - 1], g; atomic_add x[i + 1], g * a }
becomes
    parallel 0, n {(q)
        s = -0.0
        if 1 <= q + 1 < n - 1 { s += y[q + 1] }
        if 1 <= q - 1 < n - 1 { s += y[q - 1] * a }
        atomic_add x[q], s
    }
    parallel 1, n - 1 {(i) ... the rest of the loop ... }

Motivation: gradients of stencils and convolutions are such loops, and so are programs that scatter.
Several atomics per iteration become one, which `demote` replaces by a load and a store. The result
is a stencil, to which all stencil optimizations apply.

- A periodic subscript (`x[(i + 1) % n]`) has a periodic inverse.
- If a few neighbors share an element (`x[i // 2]`), the new loop evaluates all of them.
- The added value is recomputed for each element that it is added to, so it must be short.

The additions are unordered atomics, so any order is correct. -0.0 is the neutral element of
addition.

See also: `opt.loops.scatter.shifts` finds the movable additions, `cost_model` decides.

    >>> scatter_to_gather(fn, caps)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import prod

from vkchi.analysis.memory.footprint import element_of
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value, base_memory, constant_int, is_wide, walk
from vkchi.ir.op_table.interval_rules import Interval
from vkchi.ir.ops import UPDATES, WRITES, LoopAxis, constant_trip_count, is_loop
from vkchi.ir.rebuild import Cloner, Rebuilder, rebuild_loops
from vkchi.opt.cost_model import is_worth_gathering
from vkchi.opt.loops.scatter.shifts import (
    ScatterAdd,
    ScatterAnalysis,
    ScatterTarget,
    SubscriptOffset,
    find_scatter_adds,
    is_global,
)
from vkchi.opt.memo import Memo
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.target.remarks import Decision, record
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Tensor, Type, scalar_of

FARTHEST = 1 << 14  # largest shift or origin, so that 32-bit index arithmetic cannot wrap
GATHERED = "updates are summed per element that they change (scatter to gather)"
FARTHEST_SHARED = 1 << 30  # largest index of an iteration that shares the last element


class ScatterRange(NamedTuple):
    """Range of elements along an axis that scatter-adds may update.

    - by: range of the element's index minus the iteration's. None if it is unknown or exceeds
      FARTHEST, or if several iterations share an element.
    - first: the first index of the array's axis.
    - extent: the axis's extent, or (array, axis) if it is known only at launch.
    """

    by: Interval | None
    first: int
    extent: int | tuple[Value, int]

    @property
    def last(self) -> int | None:
        return self.first + self.extent - 1 if isinstance(self.extent, int) else None

    def may_leave(self, by: Interval | None, every: int, axis: LoopAxis) -> tuple[bool, bool]:
        """Return two bools: iterations that correspond to an element may lie below the loop's axis,
        or above it. False means proved not to.

        The iteration is the element's index times `every` minus a shift within `by`.
        """
        if by is None:
            return True, True
        begin, end = constant_int(axis.begin), constant_int(axis.end)
        is_first = self.by is not None and by[1] <= self.by[0]
        is_last = self.by is not None and by[0] >= self.by[1]
        is_above = begin is not None and every * self.first - by[1] >= begin
        last = self.last
        is_before = end is not None and last is not None and every * last - by[0] < end
        return not (is_first or is_above), not (is_last or is_before)


class Term(NamedTuple):
    """The scatter-adds with the same shifts and serial loops, which one source iteration
    contributes."""

    shifts: tuple[SubscriptOffset, ...]
    loops: tuple[Op, ...]
    sums: tuple[ScatterAdd, ...]


def scatter_to_gather(fn: Func, caps: Caps, memo: Memo | None = None) -> Func:
    """Convert shifted scatter-adds to gathers, where legal and profitable."""
    return move_scatter_adds(
        fn, memo, GATHERED, lambda shifts: groups_in(shifts, caps), build_gather
    )


def move_scatter_adds(
    fn: Func,
    memo: Memo | None,
    remark: str,
    groups_in: Callable[[ScatterAnalysis], list[list[ScatterAdd]]],
    build: Callable[[Builder, ScatterAnalysis, list[ScatterAdd]], None],
) -> Func:
    """Move each of the groups of scatter-adds in a loop to a loop of its own, which `build` emits
    before it. `remark` is recorded for each such loop."""
    memo = memo or Memo()

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        shifts = find_scatter_adds(op, memo.shifts)
        groups = groups_in(shifts) if shifts is not None else []
        if not (shifts and groups):
            return None
        for sums in groups:
            build(b, shifts, sums)
        record(memo.log, Decision("changed", op.span, remark))
        b.insert(without_scatter_adds(op, {one.op for sums in groups for one in sums}))
        return ()

    return rebuild_loops(fn, visit)


# --- which, and where to -------------------------------------------------------------------------


def groups_in(shifts: ScatterAnalysis, caps: Caps) -> list[list[ScatterAdd]]:
    """Return the scatter-adds to convert, one group per new loop."""
    return [sums for sums in group(shifts) if is_worth_it(shifts, sums, caps)]


def group(shifts: ScatterAnalysis) -> list[list[ScatterAdd]]:
    """Group the scatter-adds that one loop can gather."""
    found: dict[tuple[ScatterRange, ...], list[ScatterAdd]] = {}
    for sums in filter(fits, shifts.targets()):
        reach = tuple([reach_of(shifts, sums, k) for k in range(len(shifts.survey.own_axes))])
        found.setdefault(reach, []).extend(sums)
    return list(found.values())


def fits(sums: Sequence[ScatterAdd]) -> bool:
    """True if index arithmetic near the array's bounds surely fits in 32 bits."""
    base = sums[0].place.base
    t = base.type
    assert isinstance(t, Array)
    origin = t.layout.origin if t.layout is not None else ()
    return not is_wide(base) and all(abs(first) <= FARTHEST for first in origin)


def reach_of(shifts: ScatterAnalysis, sums: Sequence[ScatterAdd], k: int) -> ScatterRange:
    """Return the elements along an axis that scatter-adds to one target may update."""
    place = sums[0].place
    index, t = place.axes.index(k), place.base.type
    assert isinstance(t, Array)
    first = t.layout.origin[index] if t.layout is not None and t.layout.origin else 0
    extent = t.shape[index] if t.shape is not None else (place.base, index)
    by = [one.shifts[k] for one in sums]
    ranges = [range_of(shifts, shift) if shift.every == 1 else None for shift in by]
    known = [r for r in ranges if r is not None and -FARTHEST <= r[0] <= r[1] <= FARTHEST]
    if len(known) < len(ranges):
        return ScatterRange(None, first, extent)
    return ScatterRange((min(r[0] for r in known), max(r[1] for r in known)), first, extent)


def range_of(shifts: ScatterAnalysis, shift: SubscriptOffset) -> Interval | None:
    """Return the least and greatest value of a shift, or None if unknown. A periodic shift is (0,
    0): it reaches no other elements."""
    return (0, 0) if shift.modulus is not None else shifts.range_of(shift.by)


def is_worth_it(shifts: ScatterAnalysis, sums: Sequence[ScatterAdd], caps: Caps) -> bool:
    """True if fewer atomics repay the recomputation and, on CPUs, the additional dispatches.

    If iterations share elements, the array must have a static shape, and not more elements than the
    loop has iterations. An unknown number of iterations counts as UNKNOWN_EXTENT.
    """
    known = constant_trip_count(shifts.loop)
    n = tuning.UNKNOWN_EXTENT if known is None else known
    ops = len(repeated_for(shifts, sums))
    is_shared = any(shift.every > 1 for one in sums for shift in one.shifts)
    if is_shared and not has_at_most(sums[0].place.base.type, n):
        return False  # the new loop would visit many elements without contributions
    return is_worth_gathering(len({one.op for one in sums}), ops, n, caps)


def has_at_most(t: Type, n: int) -> bool:
    return isinstance(t, Array) and t.shape is not None and prod(t.shape) <= n


def repeated_for(shifts: ScatterAnalysis, sums: Sequence[ScatterAdd]) -> list[Op]:
    """Return the recomputed ops, once for each source iteration of an element. Neighbors that share
    an element count once."""
    terms = [t for t in terms_of(sums) if not any(shift.nth for shift in t.shifts)]
    return [op for term in terms for op in shifts.copied_for(term.sums)]


def terms_of(sums: Sequence[ScatterAdd]) -> list[Term]:
    found: dict[tuple[tuple[SubscriptOffset, ...], tuple[Op, ...]], list[ScatterAdd]] = {}
    for one in sums:
        found.setdefault((one.shifts, one.loops), []).append(one)
    return [Term(*key, tuple(same)) for key, same in found.items()]


def without_scatter_adds(op: Op, gone: set[Op]) -> Op:
    """Return the loop without these scatter-adds, whose results are unused."""
    walker = Rebuilder(lambda b, x, args: (args[1],) if x in gone else None)
    body = walker.region(op.regions[0])
    return Op(op.kind, op.args, op.attr, None, op.span, op.name, (body,))


# --- form ----------------------------------------------------------------------------------------


def build_gather(b: Builder, shifts: ScatterAnalysis, sums: list[ScatterAdd]) -> None:
    Gathering(b, shifts, sums).build()


class Gathering:
    """Emits one gather loop at the end of the region open in `b`."""

    def __init__(self, b: Builder, shifts: ScatterAnalysis, sums: Sequence[ScatterAdd]) -> None:
        self.b, self.shifts, self.sums = b, shifts, sums
        self.axes: list[LoopAxis] = shifts.survey.own_axes
        self.reach = [reach_of(shifts, sums, k) for k in range(len(self.axes))]
        self.places = list(dict.fromkeys(one.place for one in sums))
        self.made: dict[Value, Value] = {}  # invariant values of the old loop -> of this one

    def build(self) -> None:
        b, indices = self.b, [Param(axis.param.type, axis.param.name) for axis in self.axes]
        ends = [v for k in range(len(self.axes)) for v in self.ends(k)]
        with b.region(*indices) as body:
            totals: dict[ScatterTarget, Value] = {}
            for one in self.sums:
                t = one.op.args[1].type
                assert isinstance(t, Scalar | Tensor)
                totals.setdefault(one.place, b.const(-0.0, t))
            for term in terms_of(self.sums):
                b.span = term.sums[0].op.span
                totals.update(self.add(term, indices, totals))
            for place in self.places:
                one = self.sum_of(place)
                b.span = one.op.span
                b.emit("atomic_add", self.pointer(one, indices), totals[place])
            b.emit("yield")
        b.parallel(ends, body)

    def sum_of(self, place: ScatterTarget) -> ScatterAdd:
        return next(one for one in self.sums if one.place == place)

    def ends(self, k: int) -> tuple[Value, Value]:
        """Append the bounds of axis k of the new loop, and return begin and end. They include all
        elements that scatter-adds may update: the whole axis of the array if `by` is None."""
        b, axis, (by, first, extent) = self.b, self.axes[k], self.reach[k]
        t = scalar_of(axis.param.type)

        def moved(v: Value, n: int) -> Value:
            return b.emit("add", v, b.const(n, t)) if n else v

        if isinstance(extent, int):
            last: Value = b.const(first + extent, t)
        else:
            last = moved(b.emit("shape", extent[0], attr=extent[1], type=t), first)
        if by is None:
            return b.const(first, t), last
        begin = b.emit("max", axis.begin, b.const(first - by[0], t))
        end = b.emit("min", axis.end, moved(last, -by[1]))
        end = b.emit("max", end, b.const(first - by[1], t))
        return moved(begin, by[0]), moved(end, by[1])

    def pointer(self, one: ScatterAdd, indices: Sequence[Value]) -> Value:
        element = element_of(one.op.args[0])
        place = zip(one.place.axes, element.args[1:], strict=True)
        args = [self.steady(v) if axis is None else indices[axis] for axis, v in place]
        ptr: Value = self.b.emit("elem", one.place.base, *args, type=element.type)
        if one.place.component is not None:
            ptr = self.b.emit("member", ptr, attr=one.place.component, type=one.op.args[0].type)
        return ptr

    # --- one term

    def add(
        self, term: Term, indices: Sequence[Value], totals: Mapping[ScatterTarget, Value]
    ) -> dict[ScatterTarget, Value]:
        places = list(dict.fromkeys(one.place for one in term.sums))
        values = self.rounds(term, indices, 0, [totals[p] for p in places], places)
        return dict(zip(places, values, strict=True))

    def rounds(
        self, term: Term, indices: Sequence[Value], depth: int, values: Sequence[Value],
        places: Sequence[ScatterTarget],
    ) -> Sequence[Value]:  # fmt: skip
        """Append a term's serial loops from `depth` inward; return the totals."""
        if depth == len(term.loops):
            return self.guarded(term, indices, values, places)
        op, b = term.loops[depth], self.b
        old = op.regions[0].params[0]
        new, carried = Param(old.type, old.name), [Param(v.type, "sum") for v in values]
        begin, end = map(self.steady, op.args)
        with b.region(new, *carried) as body:
            self.made[old] = new
            b.emit("yield", *self.rounds(term, indices, depth + 1, carried, places))
        return b.for_(begin, end, values, body).results

    def guarded(
        self, term: Term, indices: Sequence[Value], values: Sequence[Value],
        places: Sequence[ScatterTarget],
    ) -> Sequence[Value]:  # fmt: skip
        """Append the body for a source iteration, guarded by tests that the iteration exists."""
        b = self.b
        less = [self.less(q, shift) for q, shift in zip(indices, term.shifts, strict=True)]
        guards = [g for k, p in enumerate(less) for g in self.guards(term, k, indices[k], p)]
        if not guards:
            return self.copied(term, less, values, places)
        condition = guards[0]
        for guard in guards[1:]:
            condition = b.emit("and", condition, guard)
        with b.region() as then:
            b.emit("yield", *self.copied(term, less, values, places))
        with b.region() as orelse:
            b.emit("yield", *values)
        return b.if_(condition, then, orelse).results

    def less(self, q: Value, shift: SubscriptOffset) -> Value:
        """Append the source iteration's index: the element's index times `every`, minus the
        shift."""
        t = scalar_of(q.type)
        if shift.every != 1:
            q = self.b.emit("mul", q, self.b.const(shift.every, t))
        for monomial, factor in self.shifts.ordered[shift.by].items():
            if not monomial:
                q = self.b.emit("add", q, self.b.const(-factor, t))
                continue
            ((s, _),) = monomial
            assert isinstance(s, Value)
            v = self.steady(s)
            v = v if v.type is t else self.b.emit("bitcast", v, type=t)
            if abs(factor) != 1:
                v = self.b.emit("mul", v, self.b.const(abs(factor), t))
            q = self.b.emit("sub" if factor > 0 else "add", q, v)
        return q

    def guards(self, term: Term, k: int, q: Value, p: Value) -> Iterator[Value]:
        """Yield the tests that a source iteration exists along an axis, without those that always
        hold.

        For element index q, p is the iteration's index. A test against the loop's axis is left out
        if `ScatterRange.may_leave` proves it.
        """
        axis, shift, reach = self.axes[k], term.shifts[k], self.reach[k]
        asked = q if shift.modulus is not None else p
        by = range_of(self.shifts, shift)
        may_be_below, may_be_behind = reach.may_leave(by, shift.every, axis)
        if may_be_below:
            yield self.b.emit("le", axis.begin, asked)
        if may_be_behind:
            yield self.b.emit("lt", asked, axis.end)
        t = scalar_of(q.type)
        if shift.low is not None and shift.low > reach.first:
            yield self.b.emit("le", self.b.const(shift.low, t), q)
        is_asked = (
            shift.every == 1 or reach.last is None or shift.every * reach.last > FARTHEST_SHARED
        )
        if is_asked and shift.high is not None and (reach.last is None or shift.high < reach.last):
            yield self.b.emit("le", q, self.b.const(shift.high, t))
        if shift.at is not None:
            yield self.b.emit("eq", q, self.b.const(shift.at, t))

    def copied(
        self,
        term: Term,
        less: Sequence[Value],
        values: Sequence[Value],
        places: Sequence[ScatterTarget],
    ) -> Sequence[Value]:
        """Append the body of a source iteration, which adds to `values`, one total per target in
        `places`. Returns the new totals."""
        own = dict(self.made)
        for axis, p, shift in zip(self.axes, less, term.shifts, strict=True):
            own[axis.param] = p if shift.modulus is None else self.wrapped(p, shift.modulus)
        needed = self.shifts.copied_for(term.sums)
        slots = {one.op: places.index(one.place) for one in term.sums}
        copy = SummedIteration(self.b, own, slots, term.loops, needed, values)
        copy.run(self.shifts.body.ops)
        return copy.totals

    def wrapped(self, p: Value, modulus: Value) -> Value:
        return self.b.emit("mod", p, self.steady(modulus))

    def steady(self, v: Value) -> Value:
        """Return a loop-invariant value in the new loop: its recorded new value, itself if it is
        defined outside the old loop, else a copy that is appended."""
        if v in self.made or v not in self.shifts.survey.loops:
            return self.made.get(v, v)
        assert isinstance(v, Op)
        args = tuple(map(self.steady, v.args))
        return self.b.insert(Op(v.kind, args, v.attr, v.type, v.span, v.name))


class IterationCopy(Cloner):
    """Copies the `needed` ops of a body for one iteration of the loops `opened`. It writes only
    private memory, and the `sums`."""

    def __init__(
        self, b: Builder, known: dict[Value, Value], sums: Collection[Op], opened: Sequence[Op],
        needed: set[Op],
    ) -> None:  # fmt: skip
        super().__init__(b, known)
        self.sums, self.opened, self.needed = sums, opened, needed

    def visit(self, op: Op) -> None:
        """Copy the needed ops. Writes to global memory are omitted; an atomic's result is replaced
        by a load."""
        if op in self.opened:
            self.run(op.regions[0].ops)
        elif op in self.sums:
            self.add(op)
        elif op not in self.needed:
            return
        elif op.kind not in WRITES or not is_global(base_memory(op.args[0])):
            super().visit(op)
        elif op.kind in UPDATES:
            self.map[op] = self.b.emit("load", self.get(op.args[0]))

    def add(self, op: Op) -> None:
        """Append one of the `sums`."""
        self.copy(op)


class SummedIteration(IterationCopy):
    """An iteration that adds values to `totals` instead of memory; `slots` gives each of the sums
    its total. Control ops carry the totals."""

    more_names = "sum"

    def __init__(
        self, b: Builder, known: dict[Value, Value], slots: Mapping[Op, int], opened: Sequence[Op],
        needed: set[Op], totals: Sequence[Value],
    ) -> None:  # fmt: skip
        super().__init__(b, known, slots.keys(), opened, needed)
        self.slots, self.totals = slots, list(totals)
        self.before: list[list[Value]] = []

    def add(self, op: Op) -> None:
        k = self.slots[op]
        self.totals[k] = self.b.emit("add", self.totals[k], self.get(op.args[1]))

    def carries(self, op: Op) -> bool:
        return any(x in self.slots for region in op.regions for x in walk(region))

    def carry(self, op: Op) -> Sequence[Value]:
        """Return the totals as initial values of a loop that contains scatter-adds; nothing for
        other ops."""
        return self.totals if is_loop(op) and self.carries(op) else ()

    def control(self, op: Op) -> Op:
        """Copy a control op; all its regions begin with the current totals."""
        self.before.append(list(self.totals))
        new = super().control(op)
        self.before.pop()
        return new

    def begin(self, op: Op, region: Region, more: Sequence[Param]) -> None:
        self.totals = list(more) if more else list(self.before[-1])

    def end(self, op: Op, region: Region, more: Sequence[Param]) -> Sequence[Value]:
        return self.totals if self.carries(op) else ()

    def finish(self, op: Op, more: Sequence[Value]) -> None:
        self.totals = list(more) if more else list(self.before[-1])
