"""Full unrolling on CPUs of short serial loops whose loads are invariant in an enclosing loop.

    while c { for k in 0..3 { f(load w[k]) } }                                       becomes
    while c { f(load w[0]); f(load w[1]); f(load w[2]) }

Then `licm` hoists the loads out of the outer loop. A load qualifies if

- its address depends only on the indices of short loops and on values invariant in the outer loop;
- the outer loop is proved not to write its location;
- it is not under an `if`.

Nested short loops are unrolled together if an address needs all of their indices. Addresses lose
the proof of being in range, because that may hold only inside the outer loop. `bounds` runs again
at their new position.

Guarantees: the order of floating-point operations is unchanged.

See also: `cost_model` decides about profitability.

    >>> unroll_loads(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from math import prod

from vkchi.analysis.dataflow import made_inside
from vkchi.analysis.memory.alias import SideEffects, SideEffectTable, location_of
from vkchi.analysis.memory.footprint import element_under
from vkchi.analysis.parallel_loops import AxisVariance, is_private
from vkchi.ir.core import Func, Op, find_parallel, walk
from vkchi.ir.ops import LOOPS, TABLE, Effect, axes_of, constant_trip_count
from vkchi.ir.rebuild import rebuild_chosen
from vkchi.opt.cost_model import RepeatedLoads, is_worth_hoisting_loads
from vkchi.opt.loops.serial.transform import Unroller, unrolled_size
from vkchi.opt.loops.serial.unroll import registers_of
from vkchi.target.caps import Caps
from vkchi.tuples import NamedTuple

Loops = tuple[Op, ...]


def unroll_loads(fn: Func, caps: Caps) -> Func:
    """Unroll short loops whose loads can then be hoisted."""
    chosen = LoadUnrollSelector(fn, caps).chosen()
    return rebuild_chosen(
        fn, "for", lambda loop: chosen if loop in chosen.loops else None,
        lambda r, op, args, chosen: Unroller(r.b, dict(r.map), *chosen).unroll(op),
    )  # fmt: skip


class UnrollPlan(NamedTuple):
    """The loops to unroll, and the `elem` ops of the loads to hoist."""

    loops: set[Op]
    places: set[Op]


# --- selection -----------------------------------------------------------------------------------


class InvariantLoad(NamedTuple):
    """A load whose address is invariant in an outer loop, except for the indices of `loops`.

    Outer loops come first.
    """

    op: Op
    loops: Loops

    @property
    def rounds(self) -> int:
        """Maximum number of distinct addresses that it loads from."""
        return prod(constant_trip_count(loop) or 0 for loop in self.loops)


class LoadUnrollSelector:
    """Selects the loops of a dispatch to unroll."""

    def __init__(self, fn: Func, caps: Caps) -> None:
        self.fn, self.caps, self.changes = fn, caps, SideEffectTable()
        self.loops: set[Op] = set()  # chosen so far, for any outer loop
        self.size = unrolled_size(fn.body.ops, ())

    def chosen(self) -> UnrollPlan:
        loads = [
            load
            for outer in walk(self.fn.body)
            if outer.kind in LOOPS and constant_trip_count(outer) != 1
            for load in self.loads_for(outer)
        ]
        places = {e for load in loads if (e := element_under(load.op.args[0])) is not None}
        return UnrollPlan(self.loops, places)

    def loads_for(self, outer: Op) -> list[InvariantLoad]:
        """Return the loads worth hoisting out of an outer loop, and add the loops to unroll for
        them to `loops`.

        Groups that need the fewest registers come first, as long as all fit together.
        """
        if not any(op.kind in LOOPS for region in outer.regions for op in region.ops):
            return []
        chosen: list[InvariantLoad] = []
        found = InvariantLoadFinder(outer, self.changes.of(outer.regions)).found
        for loads in sorted(by_nest(found), key=numbers_of):
            loops = {loop for load in loads for loop in load.loops} | self.loops
            if copies_loops(loops):
                continue
            repeated = RepeatedLoads(
                numbers_of([*chosen, *loads]),
                max(load.rounds for load in loads),
                unrolled_size(self.fn.body.ops, loops) - self.size,
                is_alike=all(map(self.is_alike, loads)),
            )
            if is_worth_hoisting_loads(repeated, self.caps):
                chosen += loads
                self.loops = loops
        return chosen

    def is_alike(self, load: InvariantLoad) -> bool:
        """True if a load's address and execution are proved not to vary along the fastest axis.

        Also true if there is no such axis (one invocation).
        """
        varying = self.varying
        if varying is None:
            return True
        return load.op not in varying.decided and load.op.args[0] not in varying.found

    @cached_property
    def varying(self) -> AxisVariance | None:
        """Analysis of the values that vary along the fastest axis; None for a dispatch of one
        invocation."""
        grid = find_parallel(self.fn)
        return None if grid is None else AxisVariance(grid.regions[0], axes_of(grid)[-1].param)


def copies_loops(loops: Collection[Op]) -> bool:
    """True if unrolling would copy inner loops, each of which a driver then unrolls again."""
    inside = (op for loop in loops for region in loop.regions for op in walk(region))
    return any(op.kind in LOOPS and op not in loops for op in inside)


def by_nest(loads: Sequence[InvariantLoad]) -> Sequence[Sequence[InvariantLoad]]:
    found: dict[Op, list[InvariantLoad]] = {}
    for load in loads:
        found.setdefault(load.loops[0], []).append(load)
    return [*found.values()]


def numbers_of(loads: Sequence[InvariantLoad]) -> int:
    """Return the number of 32-bit registers that the loads of all unrolled iterations fill."""
    return sum(registers_of(load.op) * load.rounds for load in loads)


class InvariantLoadFinder:
    """Finds the loads in inner loops of an outer loop that access the same elements in each of its
    iterations (`found`)."""

    def __init__(self, outer: Op, changes: SideEffects) -> None:
        self.made, self.changes = frozenset(made_inside(outer)), changes
        self.found: list[InvariantLoad] = []
        for region in outer.regions:
            for op in region.ops:
                if op.kind in LOOPS:
                    self.search(op, (op,))

    def search(self, loop: Op, around: Loops) -> None:
        for op in (op for region in loop.regions for op in region.ops):
            if op.kind == "load" and not is_private(op):
                loops = self.needed(op, around)
                if loops:
                    self.found.append(InvariantLoad(op, loops))
            elif op.kind in LOOPS:
                self.search(op, (*around, op))

    def needed(self, load: Op, around: Loops) -> Loops | None:
        """Return the loops in `around` whose indices determine a load's address, outer ones first.
        The result is empty for an invariant address.

        Returns None if the address depends on other values of the outer loop, the outer loop may
        write the location, or a trip count is not constant.
        """
        if self.changes.may_change(location_of(load.args[0])):
            return None
        indices = {loop.regions[0].params[0]: loop for loop in around if loop.kind == "for"}
        pending, used = [load.args[0]], set()
        while pending:
            v = pending.pop()
            if v in indices:
                used.add(indices[v])
            elif v in self.made:
                if not isinstance(v, Op) or TABLE[v.kind].effect is not Effect.PURE:
                    return None
                pending += v.args
        if any(constant_trip_count(loop) is None for loop in used):
            return None
        return tuple([loop for loop in around if loop in used])
