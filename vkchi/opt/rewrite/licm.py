"""Loop-invariant code motion (LICM) for `for` and `while` loops.

An op directly in a loop's region (body or condition) is hoisted if

- its arguments are defined outside the loop, or are hoisted too;
- it is PURE, or a load from memory that the loop is proved not to change (`analysis.memory.alias`);
- its proof of being in range, if any, holds outside the loop too (`needs_loop`).

Inner loops are visited first, so ops can leave several loops. Nothing leaves an `if` inside a loop
or a `parallel`; guarded loads stay guarded. Hoisted ops execute speculatively, because the loop may
run zero iterations. That is safe: arithmetic, division and loads cannot trap. Free ops (constants,
extents) move only if a hoisted op needs them.

    for %b, %e {^(%i) %n = load %p; %k = mul %n, %i; ...}    ->    %n = load %p; for %b, %e {...}
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.memory.alias import SideEffects, SideEffectTable, location_of
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Region, Value
from vkchi.ir.ops import FIXED, LOOPS, TABLE, Effect
from vkchi.ir.rebuild import Rebuilder
from vkchi.types import Array

PURE = frozenset(kind for kind, row in TABLE.items() if row.effect is Effect.PURE)


def hoist_invariants(fn: Func) -> Func:
    """Hoist loop-invariant ops before their loops."""
    return InvariantHoister().run(fn)


class InvariantHoister(Rebuilder):
    def __init__(self) -> None:
        super().__init__(self.visit_loop, LOOPS)
        self.changes = SideEffectTable()

    def visit_loop(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        regions = tuple([self.region(r) for r in op.regions])
        changes = self.changes.of(regions)
        slim = tuple([self.hoist_from(r, changes) for r in regions])
        unchanged = args == op.args and slim == op.regions
        return b.insert(op if unchanged else self.copy(op, args, slim)).results

    def hoist_from(self, region: Region, changes: SideEffects) -> Region:
        moved = find_invariants(region, changes)
        if not moved:
            return region
        for op in moved:
            self.b.insert(op)
        return Region(region.params, [op for op in region.ops if op not in moved])


def find_invariants(region: Region, changes: SideEffects) -> dict[Op, None]:
    """Return the loop-invariant ops of a region, and the ops of `FIXED` that they use, in a valid
    order."""
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


def is_invariant(op: Op, inside: set[Value], changes: SideEffects) -> bool:
    """True if an op may leave a loop that defines the values `inside`, with effects `changes`."""
    if op.kind not in PURE and op.kind != "load":
        return False
    if not inside.isdisjoint(op.args) or needs_loop(op):
        return False
    return op.kind != "load" or not changes.may_change(location_of(op.args[0]))


def needs_loop(op: Op) -> bool:
    """True if an access may have been proved in range by a fact that holds only inside the loop.

    Constant indices into a static shape need no such fact. An `address` does not record the proof,
    so it never moves.
    """
    if op.kind != "elem" or op.attr != "inbounds":
        return op.kind == "address"
    t = op.args[0].type
    assert isinstance(t, Array)
    are_constant = all(isinstance(v, Op) and v.kind == "const" for v in op.args[1:])
    return t.shape is None or not are_constant
