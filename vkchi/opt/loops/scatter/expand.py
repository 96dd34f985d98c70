"""Loop distribution with scalar expansion: scatter-adds move to a second loop, via stored values.

    parallel 0, n, 0, m {(i, j) g = f(i, j, ...); for k { atomic_add x[i, k], g * w[k, j] } }
becomes
    parallel 0, n, 0, m {(i, j) g = f(i, j, ...); temp[i, j] = g }
    parallel 0, n, 0, m {(i, j) for k { atomic_add x[i, k], temp[i, j] * w[k, j] } }

Motivation: `distribute` and `gather` transform loops of scatter-adds so that iterations do not
conflict, at the price of recomputing the added values. They cannot do so if the values need a loop,
or memory that the iteration overwrites. Examples are gradients of norms, and of layers and
convolutions with an activation. In the second loop, the added values are cheap to recompute from
the stored ones.

Legality:

- Iterations of a `parallel` run in any order, and atomic additions commute. So additions may run
  after the rest of the loop, if the loop does not access their elements otherwise
  (`ScatterAnalysis.are_unasked`).
- A stored value has an element for each iteration of the loop and of the counted loops around the
  value. It is stored after its definition, and loaded at its uses under the same branches. The
  conditions of these are stored or recomputed as well.
- Recomputed ops give the same values: they are pure, or load memory that the loop does not write
  (`opt.loops.scatter.rematerialization`, which chooses the cut).

Profitability compares costs before and after; `distribute` and `gather` transform both versions.

    >>> expand_scalars(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod

from vkchi.analysis.memory.dependence import WriteAccess
from vkchi.analysis.memory.footprint import element_under
from vkchi.ir.builder import Builder
from vkchi.ir.core import TEMP, Func, Op, Param, Region, Value
from vkchi.ir.ops import READS, axes_of, control_of
from vkchi.ir.rebuild import Cloner, rebuild_loops
from vkchi.opt.cost_model import is_worth_expanding
from vkchi.opt.loops.scatter import distribute, gather
from vkchi.opt.loops.scatter.rematerialization import (
    RematerializationPlan,
    executions_of,
    lengths_of,
    plan_rematerialization,
)
from vkchi.opt.loops.scatter.shifts import ScatterAnalysis, find_scatter_adds, is_global
from vkchi.opt.memo import Memo
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.target.remarks import Decision, record, record_refusal
from vkchi.types import Array, Scalar, Tensor, i32, row_major, scalar_of, shape_of, u1, with_scalar
from vkchi.types.core import MOST_ALIGNED, Attributes

EXPANDED = "updates run in a second loop, from stored values (scalar expansion)"
ALIGNED = Attributes(aligned=MOST_ALIGNED)
Slots = Mapping[Value, Param]  # stored values and their temporary arrays


def transform_scatter_adds(fn: Func, caps: Caps, memo: Memo) -> Func:
    """Apply `expand`, `distribute` and `gather` to all parallel loops, where legal and profitable:
    fewer iterations conflict, so that fewer atomics remain. Records in the log of `memo` why others
    remain.

    Expansion is profitable if one of the others transforms its second loop, so it runs first.
    """
    for transform in (expand_scalars, distribute.distribute, gather.scatter_to_gather):
        fn = transform(fn, caps, memo)
    if memo.log is not None:
        for loop in fn.body.ops:
            if loop.kind == "parallel":
                analysis = ScatterAnalysis(loop)
                for writes in analysis.survey.writes.values():
                    for write in writes:
                        verdict = analysis.verdict(write)
                        record_refusal(memo.log, "scatter to gather", write.op.span, verdict)
    return fn


def expand_scalars(fn: Func, caps: Caps, memo: Memo | None = None) -> Func:
    """Move scatter-adds to a second loop, where legal and profitable. Adds parameters for the
    temporary arrays, named `TEMP` plus a number; a launch must allocate them."""
    temps, memo = list[Param](), memo or Memo()

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        shifts = find_scatter_adds(op, memo.shifts)
        cut = find_cut(shifts, caps) if shifts is not None else None
        if cut is None:
            return None
        slots = slots_for(cut, len(temps))
        temps.extend(slots.values())
        record(memo.log, Decision("changed", op.span, EXPANDED))
        Head(b, cut, slots).build()
        Tail(b, cut, slots).build()
        return ()

    new = rebuild_loops(fn, visit)
    return new if new is fn else Func(fn.name, (*fn.params, *temps), new.body, fn.span)


# --- which sums ----------------------------------------------------------------------------------


def find_cut(shifts: ScatterAnalysis, caps: Caps) -> RematerializationPlan | None:
    """Return a profitable cut for all scatter-adds that may leave the loop, else for those that
    `distribute` and `gather` cannot transform. None if there is no such cut, or if there is one
    scatter-add only, outside of serial loops."""
    wanted = sums_that_may_leave(shifts)
    if len(wanted) == 1 and not shifts.survey.loops[wanted[0]]:
        return None
    costs = costs_in(shifts, caps) if wanted else {}
    rest = [op for op in wanted if op not in costs]
    for sums in (wanted, rest) if len(rest) < len(wanted) else (wanted,):
        cut = try_cut(shifts, sums, costs, caps) if sums else None
        if cut is not None:
            return cut
    return None


def try_cut(
    shifts: ScatterAnalysis, sums: Sequence[Op], before: Mapping[Op, float], caps: Caps
) -> RematerializationPlan | None:
    """Return a profitable cut for the given scatter-adds, or None.

    It moves those that `distribute` or `gather` transforms in the second loop. It also moves those
    in no serial loop, as their values are available there.
    """
    cut = plan_rematerialization(shifts, sums)
    if cut is None or not cut.handed:
        return None
    after = costs_behind(cut, caps)
    chosen = [op for op in sums if op in after or not shifts.survey.loops[op]]
    if after and len(chosen) < len(sums):
        cut = plan_rematerialization(shifts, chosen)
    if not after or cut is None or not cut.handed:
        return None
    return cut if is_worth_it(cut, before, after, caps) else None


def sums_that_may_leave(shifts: ScatterAnalysis) -> list[Op]:
    """Return the conflicting scatter-adds that may run after the loop."""
    return [
        write.op
        for base, writes in shifts.survey.writes.items()
        if is_global(base) and not are_own(shifts, base, writes)
        for write in writes
        if shifts.is_sum(write.op) and is_known(shifts, write) and shifts.are_unasked([write.op])
    ]


def are_own(shifts: ScatterAnalysis, base: Value, writes: Sequence[WriteAccess]) -> bool:
    return shifts.survey.have_own(base, [element_under(write.op.args[0]) for write in writes])


def is_known(shifts: ScatterAnalysis, write: WriteAccess) -> bool:
    return shifts.read_inner(write) is not None or len(shifts.read(write)) > 0


def costs_in(shifts: ScatterAnalysis, caps: Caps) -> dict[Op, float]:
    """Return the cost, in nanoseconds, of each scatter-add that `distribute` or `gather` moves out
    of the loop."""
    costs: dict[Op, float] = {}
    for taker in (distribute, gather):
        for sums in taker.groups_in(shifts, caps):
            ops = {one.op for one in sums}
            repeated = taker.repeated_for(shifts, sums)
            rounds = max(executions_of(shifts, op) for op in ops)
            costs.update(dict.fromkeys(ops, cost_of(repeated, rounds) / len(ops)))
    return costs


def costs_behind(cut: RematerializationPlan, caps: Caps) -> dict[Op, float]:
    """Return the result of `costs_in` for the second loop of a cut, by original op."""
    tail = Tail(Builder(), cut, slots_for(cut, 0))
    with tail.b.region():
        loop = tail.build()
    found = costs_in(ScatterAnalysis(loop), caps)
    return {tail.original[op]: cost for op, cost in found.items()}


def cost_of(ops: Collection[Op], rounds: int) -> float:
    return rounds * sum(tuning.RUN_LOAD if op.kind in READS else tuning.RUN_OP for op in ops)


def is_worth_it(
    cut: RematerializationPlan, before: Mapping[Op, float], after: Mapping[Op, float], caps: Caps
) -> bool:
    """True if the saved time exceeds the cost of the stored values. The device must support their
    types, and they must fit in EXPAND_BYTES."""
    types = [slot_type(cut, v) for v in cut.handed]
    if not all(caps.can_store(t.stored.name) for t in types):
        return False
    numbers = [prod(t.shape or ()) * t.scalars_per_element for t in types]
    sizes = [n * t.stored.size_bytes for n, t in zip(numbers, types, strict=True)]
    alone = {op: tuning.RUN_ATOMIC * executions_of(cut.shifts, op) for op in cut.sums}
    old, new = (sum(known.get(op, alone[op]) for op in cut.sums) for known in (before, after))
    return sum(sizes) <= tuning.EXPAND_BYTES and is_worth_expanding(old, new, sum(numbers), caps)


def slots_for(cut: RematerializationPlan, first: int) -> dict[Value, Param]:
    return {
        v: Param(slot_type(cut, v), f"{TEMP}{first + k}", ALIGNED) for k, v in enumerate(cut.handed)
    }


def slot_type(cut: RematerializationPlan, v: Value) -> Array:
    """Return the type of a temporary array, with an axis for each axis of the loops around the
    value. Bools are stored as i32."""
    t, shape = v.type, tuple(lengths_of(cut.shifts, v))
    assert isinstance(t, Scalar | Tensor)
    kept = with_scalar(t, i32) if scalar_of(t) is u1 else t
    return Array.of(kept, len(shape), shape, row_major(shape, prod(shape_of(t))))


# --- form ----------------------------------------------------------------------------------------


class Half(Cloner):
    """Emits one of the two loops."""

    def __init__(self, b: Builder, cut: RematerializationPlan, slots: Slots) -> None:
        super().__init__(b)
        self.cut, self.slots, self.loop = cut, slots, cut.shifts.loop

    def build(self) -> Op:
        """Append the loop and return it."""
        self.b.span = self.loop.span
        return self.b.parallel(self.loop.args, self.region(self.loop, self.loop.regions[0]))

    def place(self, v: Value) -> Value:
        loops = (self.loop, *self.cut.shifts.survey.loops[v])
        axes = [axis for op in loops for axis in axes_of(op)]
        return self.b.emit("elem", self.slots[v], *[self.count(a.param, a.begin) for a in axes])

    def count(self, index: Value, begin: Value) -> Value:
        t = scalar_of(index.type)
        v = self.b.emit("sub", self.get(index), self.get(begin))
        return v if t is i32 else self.b.emit("cast", v, type=i32)


class Head(Half):
    """The first loop: all but the scatter-adds, and stores of values for the second loop."""

    def visit(self, op: Op) -> None:
        if op not in self.cut.sums:
            super().visit(op)
            self.keep(op.results)

    def inline(self, region: Region, values: Sequence[Value]) -> list[Value]:
        self.map.update(zip(region.params, values, strict=True))
        self.keep(region.params)
        return super().inline(region, values)

    def keep(self, values: Iterable[Value]) -> None:
        for v in values:
            if v in self.slots:
                new, kept = self.get(v), self.slots[v].type
                assert isinstance(kept, Array)
                if new.type is not kept.elem:
                    new = self.b.emit("cast", new, type=kept.elem)
                self.b.emit("store", self.place(v), new)


class Tail(Half):
    """The second loop: scatter-adds and recomputed ops. `original` maps copies of scatter-adds to
    the originals."""

    def __init__(self, b: Builder, cut: RematerializationPlan, slots: Slots) -> None:
        super().__init__(b, cut, slots)
        self.original: dict[Op, Op] = {}

    def visit(self, op: Op) -> None:
        if op in self.cut.sums:
            self.original[self.copy(op)] = op
        elif op in self.cut.around:
            self.open(op)
        elif op in self.cut.repeated:
            self.copy(op)
        self.bring(op.results)

    def open(self, op: Op) -> None:
        """Copy a control op around scatter-adds, without its carried values and results."""
        control = control_of(op)
        args = tuple([self.get(v) for v in op.args[: control.fixed]])
        regions = []
        for region in op.regions:
            params = [Param(p.type, p.name) for p in region.params[: control.index_params]]
            with self.b.region(*params) as new:
                self.map.update(zip(region.params, params))
                self.bring(region.params)
                self.run(region.ops)
                self.b.emit("yield")
            regions.append(new)
        self.b.insert(Op(op.kind, args, op.attr, None, op.span, op.name, tuple(regions)))

    def bring(self, values: Iterable[Value]) -> None:
        for v in values:
            if v in self.slots:
                new = self.b.emit("load", self.place(v), name=v.name)
                self.map[v] = new if new.type is v.type else self.b.emit("cast", new, type=v.type)
