"""Sums leave the loop that computes what they add, which hands that on in an array.

    parallel 0, n, 0, m {(i, j) g = f(i, j, ...); for k { atomic_add x[i, k], g * w[k, j] } }
becomes
    parallel 0, n, 0, m {(i, j) g = f(i, j, ...); temp[i, j] = g }
    parallel 0, n, 0, m {(i, j) for k { atomic_add x[i, k], temp[i, j] * w[k, j] } }

Why: `distribute` and `gather` turn a loop of sums so that no two iterations meet, for which what is
added is computed many times over. Where that takes a loop, or memory that the iteration overwrites
(gradients of layers and convolutions with an activation, of norms), they cannot, and every sum is
an atomic. Behind this pass it is a load. This is loop distribution with scalar expansion.

Why that is right:

- Iterations of a `parallel` may run in any order and at once, and what they add up has no order. So
  sums may be done when all else is, if nobody in the loop asks for what stands there
  (`Shifts.are_unasked`).
- A value that is handed on has a slot for each iteration, and each round of the counted loops
  around it. It is written where the value is made, and read where it was used: under the same
  branches, whose conditions are handed on or done again as well.
- What is done again gives the same: it is pure, or loads what nothing in the loop writes
  (`analysis.handing`, which chooses).

Owns: this form. Must not know: what becomes of the sums (it asks `distribute` and `gather` whether
they would take them), which sums may be moved (`analysis.shifts`).

    >>> expand(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod

from vkchi.analysis.access import Write
from vkchi.analysis.footprint import element_under
from vkchi.analysis.handing import Cut, cut_for, lengths_of, volume
from vkchi.analysis.mixing import may_mix
from vkchi.analysis.shifts import Shifts, is_global
from vkchi.ir.builder import Builder
from vkchi.ir.clone import Cloner
from vkchi.ir.control import axes_of, control_of
from vkchi.ir.core import Func, Op, Param, Region, Value, used_in
from vkchi.ir.names import TEMP
from vkchi.ir.ops import READS
from vkchi.ir.rebuild import rebuild_loops
from vkchi.passes import distribute, gather
from vkchi.passes.cost_model import ATOMIC, LOADED, SAVED, is_worth_expanding
from vkchi.passes.memo import Memo
from vkchi.target.caps import Caps
from vkchi.types import Array, Scalar, Tensor, i32, row_major, scalar_of, shape_of, u1, with_scalar
from vkchi.types.attributes import MOST_ALIGNED, Attributes

MOST_BYTES = 1 << 27  # of the arrays that hand on what a loop computes
ALIGNED = Attributes(aligned=MOST_ALIGNED)
Slots = Mapping[Value, Param]  # values that are handed on, and their arrays


def expand(fn: Func, caps: Caps, memo: Memo | None = None) -> Func:
    """The Func with sums in loops of their own, where that is right and worth it. Parameters whose
    names begin with `TEMP` are arrays that a launch must provide."""
    used, temps, known = used_in(fn.body), list[Param](), memo or Memo()

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if not (may_mix(op) and gather.adds_floats(op, used)):
            return None
        cut = find_cut(known.shifts(fn.body, op, used), caps)
        if cut is None:
            return None
        slots = slots_for(cut, len(temps))
        temps.extend(slots.values())
        Head(b, cut, slots).build()
        Tail(b, cut, slots).build()
        return ()

    new = rebuild_loops(fn, visit)
    return new if new is fn else Func(fn.name, (*fn.params, *temps), new.body, fn.span)


# --- which sums ----------------------------------------------------------------------------------


def find_cut(shifts: Shifts, caps: Caps) -> Cut | None:
    """How a loop's sums leave it; None where they stay."""
    wanted = sums_that_may_leave(shifts)
    costs = costs_in(shifts, caps) if wanted else {}
    rest = [op for op in wanted if op not in costs]
    for sums in (wanted, rest) if len(rest) < len(wanted) else (wanted,):
        cut = try_cut(shifts, sums, costs, caps) if sums else None
        if cut is not None:
            return cut
    return None


def try_cut(
    shifts: Shifts, sums: Sequence[Op], before: Mapping[Op, float], caps: Caps
) -> Cut | None:
    """How some sums leave a loop, where that is worth it: all of them that `distribute` and
    `gather` take then, and those in no serial loop, for what they add is at hand there."""
    cut = cut_for(shifts, sums)
    if cut is None or not cut.handed:
        return None
    after = costs_behind(cut, caps)
    chosen = [op for op in sums if op in after or not shifts.survey.loops[op]]
    if after and len(chosen) < len(sums):
        cut = cut_for(shifts, chosen)
    if not after or cut is None or not cut.handed:
        return None
    return cut if is_worth_it(cut, before, after, caps) else None


def sums_that_may_leave(shifts: Shifts) -> list[Op]:
    """The sums at places that iterations meet in, which can be done behind the loop."""
    return [
        write.op
        for base, writes in shifts.survey.writes.items()
        if is_global(base) and not are_own(shifts, base, writes)
        for write in writes
        if shifts.is_sum(write.op) and is_known(shifts, write) and shifts.are_unasked([write.op])
    ]


def are_own(shifts: Shifts, base: Value, writes: Sequence[Write]) -> bool:
    """Whether each iteration has places of its own in an array."""
    return shifts.survey.have_own(base, [element_under(write.op.args[0]) for write in writes])


def is_known(shifts: Shifts, write: Write) -> bool:
    """Whether indices of loops tell the place of a sum."""
    return shifts.read_inner(write) is not None or len(shifts.read(write)) > 0


def costs_in(shifts: Shifts, caps: Caps) -> dict[Op, float]:
    """What those sums of a loop cost that `distribute` and `gather` take out of it."""
    costs: dict[Op, float] = {}
    for taker in (distribute, gather):
        for sums in taker.groups_in(shifts, caps):
            ops = {one.op for one in sums}
            repeated = taker.repeated_for(shifts, sums)
            rounds = max(volume(shifts, op) for op in ops)
            costs.update(dict.fromkeys(ops, cost_of(repeated, rounds) / len(ops)))
    return costs


def costs_behind(cut: Cut, caps: Caps) -> dict[Op, float]:
    """What they would cost, were they in a loop of their own."""
    tail = Tail(Builder(), cut, slots_for(cut, 0))
    with tail.b.region() as region:
        loop = tail.build()
    found = costs_in(Shifts(loop, used_in(region)), caps)
    return {tail.original[op]: cost for op, cost in found.items()}


def cost_of(ops: Collection[Op], rounds: int) -> float:
    """What it costs to do ops in so many rounds, in nanoseconds."""
    return rounds * sum(LOADED if op.kind in READS else SAVED for op in ops)


def is_worth_it(
    cut: Cut, before: Mapping[Op, float], after: Mapping[Op, float], caps: Caps
) -> bool:
    """Whether what sums cost less is worth the numbers that are handed on, which the device can
    keep in memory."""
    types = [slot_type(cut, v) for v in cut.handed]
    if not all(caps.can_store(t.stored.name) for t in types):
        return False
    numbers = [prod(t.shape or ()) * t.scalars_per_element for t in types]
    sizes = [n * t.stored.size_bytes for n, t in zip(numbers, types, strict=True)]
    alone = {op: ATOMIC * volume(cut.shifts, op) for op in cut.sums}
    old, new = (sum(known.get(op, alone[op]) for op in cut.sums) for known in (before, after))
    return sum(sizes) <= MOST_BYTES and is_worth_expanding(old, new, sum(numbers), caps)


def slots_for(cut: Cut, first: int) -> dict[Value, Param]:
    """The arrays that hand on values, numbered from `first` on."""
    return {
        v: Param(slot_type(cut, v), f"{TEMP}{first + k}", ALIGNED) for k, v in enumerate(cut.handed)
    }


def slot_type(cut: Cut, v: Value) -> Array:
    """The type of such an array. Truth values are numbers there."""
    t, shape = v.type, tuple(lengths_of(cut.shifts, v))
    assert isinstance(t, Scalar | Tensor)
    kept = with_scalar(t, i32) if scalar_of(t) is u1 else t
    return Array.of(kept, len(shape), shape, row_major(shape, prod(shape_of(t))))


# --- form ----------------------------------------------------------------------------------------


class Half(Cloner):
    """One of the two loops, appended to the region open in `b`."""

    def __init__(self, b: Builder, cut: Cut, slots: Slots) -> None:
        super().__init__(b)
        self.cut, self.slots, self.loop = cut, slots, cut.shifts.loop

    def build(self) -> Op:
        """The loop."""
        b, old = self.b, self.loop.regions[0]
        params = [Param(p.type, p.name) for p in old.params]
        b.span = self.loop.span
        with b.region(*params) as body:
            self.inline(old, params)
            b.emit("yield")
        return b.parallel(self.loop.args, body)

    def place(self, v: Value) -> Value:
        """The slot of a value, for this iteration and round."""
        loops = (self.loop, *self.cut.shifts.survey.loops[v])
        axes = [axis for op in loops for axis in axes_of(op)]
        return self.b.emit("elem", self.slots[v], *[self.count(a.param, a.begin) for a in axes])

    def count(self, index: Value, begin: Value) -> Value:
        """Which of its indices an index is."""
        t = scalar_of(index.type)
        v = self.b.emit("sub", self.get(index), self.get(begin))
        return v if t is i32 else self.b.emit("cast", v, type=i32)


class Head(Half):
    """What the loop does besides its sums, and hands on."""

    def visit(self, op: Op) -> None:
        """An op, and what it hands on."""
        if op not in self.cut.sums:
            super().visit(op)
            self.keep(op.results)

    def inline(self, region: Region, values: Sequence[Value]) -> list[Value]:
        """Parameters are handed on where the region begins."""
        self.map.update(zip(region.params, values, strict=True))
        self.keep(region.params)
        return super().inline(region, values)

    def keep(self, values: Iterable[Value]) -> None:
        """Store those of these values that are handed on."""
        for v in values:
            if v in self.slots:
                new, kept = self.get(v), self.slots[v].type
                assert isinstance(kept, Array)
                if new.type is not kept.elem:
                    new = self.b.emit("cast", new, type=kept.elem)
                self.b.emit("store", self.place(v), new)


class Tail(Half):
    """The sums, and what they need that is not handed on. `original` are the sums, by their
    copies."""

    def __init__(self, b: Builder, cut: Cut, slots: Slots) -> None:
        super().__init__(b, cut, slots)
        self.original: dict[Op, Op] = {}

    def visit(self, op: Op) -> None:
        """An op, if it is needed, and what it handed on."""
        if op in self.cut.sums:
            self.original[self.copy(op)] = op
        elif op in self.cut.around:
            self.open(op)
        elif op in self.cut.repeated:
            self.copy(op)
        self.bring(op.results)

    def open(self, op: Op) -> None:
        """A control op around sums, which carries nothing here."""
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
        """Load those of these values that are handed on."""
        for v in values:
            if v in self.slots:
                new = self.b.emit("load", self.place(v), name=v.name)
                self.map[v] = new if new.type is v.type else self.b.emit("cast", new, type=v.type)
