"""Short serial loops that load the same in each round of a loop around them are written out.

    while c { for k in 0..3 { f(load w[k]) } }                                       becomes
    while c { f(load w[0]); f(load w[1]); f(load w[2]) }

and `licm` takes the loads out of the outer loop, where each has a place that only the index of the
short loop tells, and values that the outer loop does not change, and nothing in the outer loop may
write it. Loads under an `if` stay in the loop.

What a round computes, and the order of sums, stay. Places are no longer said to be inside their
arrays, for that may be true only because the outer loop runs: `bounds` looks again where they are
then. Several short loops, one inside another, are written out together if a place needs all of
their indices.

Owns: this form, and which loads are so. Must not know: what is worth it (`cost_model`).

    >>> unroll_loads(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from math import prod

from vkchi.analysis.alias import Changes, ChangeTable, place_of
from vkchi.analysis.dataflow import made_inside
from vkchi.analysis.footprint import element_under
from vkchi.analysis.variance import Variance, is_private
from vkchi.ir.builder import Builder
from vkchi.ir.control import axes_of
from vkchi.ir.core import Func, Op, Value, base_of, find_parallel, walk
from vkchi.ir.ops import LOOPS, TABLE, Effect
from vkchi.ir.rebuild import rebuild_chosen
from vkchi.passes.cost_model import Repeated, is_worth_keeping
from vkchi.passes.full_unroll import Unroller, rounds_of, size_of
from vkchi.passes.unroll import words
from vkchi.target.caps import Caps
from vkchi.tuples import NamedTuple

Loops = tuple[Op, ...]


def unroll_loads(fn: Func, caps: Caps) -> Func:
    """The Func with such loops written out."""
    chosen = Finder(fn, caps).chosen()
    return rebuild_chosen(
        fn, "for", lambda loop: chosen if loop in chosen.loops else None,
        lambda r, op, args, chosen: Writer(r.b, dict(r.map), chosen).results(op),
    )  # fmt: skip


class Chosen(NamedTuple):
    """The loops that are to be written out, and the places that are to be found before others."""

    loops: set[Op]
    places: set[Op]


class Writer(Unroller):
    """Writes loops out, and says of no such place that it is inside its array."""

    def __init__(self, b: Builder, known: dict[Value, Value], chosen: Chosen) -> None:
        super().__init__(b, known, chosen.loops)
        self.places = chosen.places

    def copy(self, op: Op, *args: Value) -> Op:
        """An op without regions, on the values that stand for its arguments, or on these."""
        if op not in self.places:
            return super().copy(op, *args)
        args = tuple([self.get(v) for v in op.args])
        new = self.map[op] = self.b.insert(Op(op.kind, args, None, op.type, op.span, op.name))
        return new


# --- which ---------------------------------------------------------------------------------------


class Load(NamedTuple):
    """A load whose place is the same in all rounds of a loop around it, but for the indices of
    these loops, outer ones first."""

    op: Op
    loops: Loops

    @property
    def rounds(self) -> int:
        """The places that it loads from, at most."""
        return prod(rounds_of(loop) or 0 for loop in self.loops)


class Finder:
    """Finds the loops of a dispatch that are worth it."""

    def __init__(self, fn: Func, caps: Caps) -> None:
        self.fn, self.caps, self.changes = fn, caps, ChangeTable()
        self.loops: set[Op] = set()  # chosen so far, for whatever loop around them
        self.size = size_of(fn.body.ops, ())

    def chosen(self) -> Chosen:
        """The loops that are to be written out, for the loads in them."""
        loads = [
            load
            for outer in walk(self.fn.body)
            if outer.kind in LOOPS and (outer.kind == "while" or rounds_of(outer) != 1)
            for load in self.loads_for(outer)
        ]
        places = {e for load in loads if (e := element_under(load.op.args[0])) is not None}
        return Chosen(self.loops, places)

    def loads_for(self, outer: Op) -> list[Load]:
        """The loads that are worth keeping for an outer loop: what needs fewest numbers first, as
        long as they may be kept together."""
        if not any(op.kind in LOOPS for region in outer.regions for op in region.ops):
            return []
        chosen: list[Load] = []
        found = Loads(outer, self.changes.of(outer.regions)).found
        for loads in sorted(by_nest(found), key=numbers_of):
            loops = {loop for load in loads for loop in load.loops} | self.loops
            if copies_loops(loops):
                continue
            repeated = Repeated(
                numbers_of([*chosen, *loads]),
                max(load.rounds for load in loads),
                size_of(self.fn.body.ops, loops) - self.size,
                is_alike=all(map(self.is_alike, loads)),
            )
            if is_worth_keeping(repeated, self.caps):
                chosen += loads
                self.loops = loops
        return chosen

    def is_alike(self, load: Load) -> bool:
        """Whether the invocations side by side are all there, and load from one place."""
        varying = self.varying
        if varying is None:
            return True
        return load.op not in varying.decided and load.op.args[0] not in varying.found

    @cached_property
    def varying(self) -> Variance | None:
        """What varies between invocations side by side; None where there is one alone."""
        grid = find_parallel(self.fn)
        return None if grid is None else Variance(grid.regions[0], axes_of(grid)[-1].param)


def copies_loops(loops: Collection[Op]) -> bool:
    """Whether loops stand in these that would be copied as they are: a driver writes out each of
    the copies once more."""
    inside = (op for loop in loops for region in loop.regions for op in walk(region))
    return any(op.kind in LOOPS and op not in loops for op in inside)


def by_nest(loads: Sequence[Load]) -> Sequence[Sequence[Load]]:
    """Loads by the outermost loop that is written out for them."""
    found: dict[Op, list[Load]] = {}
    for load in loads:
        found.setdefault(load.loops[0], []).append(load)
    return [*found.values()]


def numbers_of(loads: Sequence[Load]) -> int:
    """The numbers of 32 bits that all rounds load."""
    return sum(words(load.op) * load.rounds for load in loads)


class Loads:
    """The loads in an outer loop that find the same in each of its rounds (`found`)."""

    def __init__(self, outer: Op, changes: Changes) -> None:
        self.made, self.changes = frozenset(made_inside(outer)), changes
        self.found: list[Load] = []
        for region in outer.regions:
            for op in region.ops:
                if op.kind in LOOPS:
                    self.search(op, (op,))

    def search(self, loop: Op, around: Loops) -> None:
        """Look at what stands in a loop, whatever else is asked there; `around` ends with it."""
        for op in (op for region in loop.regions for op in region.ops):
            if op.kind == "load" and not is_private(base_of(op.args[0])):
                loops = self.needed(op, around)
                if loops:
                    self.found.append(Load(op, loops))
            elif op.kind in LOOPS:
                self.search(op, (*around, op))

    def needed(self, load: Op, around: Loops) -> Loops | None:
        """The loops whose indices tell a load's place; None if other things do that the outer loop
        makes or changes, or these have unknown numbers of rounds."""
        if self.changes.may_change(place_of(load.args[0])):
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
        if any(rounds_of(loop) is None for loop in used):
            return None
        return tuple([loop for loop in around if loop in used])
