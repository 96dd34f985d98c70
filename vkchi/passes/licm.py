"""Moves what every iteration computes alike out of `for` and `while` loops.

An op that stands directly in a loop's region (body or condition) goes before the loop if its
arguments come from outside and it is PURE, or a load from a place that nothing in the loop may
change (`alias` says). Inner loops come first, so that ops travel as far out as they can. Nothing
leaves an `if` inside a loop (a guarded load stays guarded) or a `parallel`. The loop may not run at
all: computing, dividing and loading for nothing are harmless by design. What costs nothing
(constants, extents) moves only where it is needed outside.

Owns: the choice. Must not know: which ops there are but by effect.

    for %b, %e {^(%i) %n = load %p; %k = mul %n, %i; ...}    ->    %n = load %p; for %b, %e {...}
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.alias import Changes, ChangeTable, place_of
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Region, Value
from vkchi.ir.ops import FIXED, LOOPS, TABLE, Effect
from vkchi.ir.rebuild import Rebuilder
from vkchi.types import Array

PURE = frozenset(kind for kind, row in TABLE.items() if row.effect is Effect.PURE)


def hoist_invariants(fn: Func) -> Func:
    """The Func with loop-invariant ops before their loops."""
    return Hoister().run(fn)


class Hoister(Rebuilder):
    """One run."""

    def __init__(self) -> None:
        super().__init__(self.visit_loop)
        self.changes = ChangeTable()

    def visit_loop(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """Rewrite a loop's regions, then move what is invariant before it."""
        if op.kind not in LOOPS:
            return None
        regions = tuple([self.region(r) for r in op.regions])
        changes = self.changes.of(regions)
        slim = tuple([self.hoist_from(r, changes) for r in regions])
        unchanged = args == op.args and slim == op.regions
        return b.insert(op if unchanged else self.copy(op, args, slim)).results

    def hoist_from(self, region: Region, changes: Changes) -> Region:
        """Append the region's invariant ops here; the region without them."""
        moved = find_invariants(region, changes)
        if not moved:
            return region
        for op in moved:
            self.b.insert(op)
        return Region(region.params, [op for op in region.ops if op not in moved])


def find_invariants(region: Region, changes: Changes) -> dict[Op, None]:
    """Ops of the region that give the same in every iteration, in order."""
    inside: set[Value] = set(region.params)
    free: set[Value] = set()
    moved: dict[Op, None] = {}
    for op in region.ops:
        if op.kind in FIXED:
            free.add(op)
        elif is_invariant(op, inside, changes):
            moved.update((v, None) for v in op.args if v in free and isinstance(v, Op))
            moved[op] = None
        else:
            inside.update(op.results)
    return moved


def is_invariant(op: Op, inside: set[Value], changes: Changes) -> bool:
    """Whether the op may move out of a loop that makes the values `inside` and these changes."""
    if op.kind not in PURE and op.kind != "load":
        return False
    if not inside.isdisjoint(op.args) or needs_loop(op):
        return False
    return op.kind != "load" or not changes.may_change(place_of(op.args[0]))


def needs_loop(op: Op) -> bool:
    """Whether an access was proved inside by what holds in the loop only: that it runs at all. Of
    an `address` nobody knows any more."""
    if op.kind != "elem" or op.attr != "inside":
        return op.kind == "address"
    t = op.args[0].type
    assert isinstance(t, Array)
    are_constant = all(isinstance(v, Op) and v.kind == "const" for v in op.args[1:])
    return t.shape is None or not are_constant
