"""Speculative code motion on CPUs: loop-invariant loads leave the branches of a serial loop.

    for k { if near(k) { s += x[j(k)] - x[i] } }        becomes
    v = x[i]; for k { if near(k) { s += x[j(k)] - v } }

`licm` leaves guarded loads in place. Drivers that execute loads lane by lane take longer for one
load per iteration in a branch than for one before the loop, unless the branch is never taken. The
moved loads lose the proof of being in range that held in the branch, and are clamped.

Candidates are loads from arrays that the loop does not change, in loops without loops, up to
SPECULATED_LOADS for a loop.

    >>> speculate_loads(fn, caps)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vkchi.analysis.memory.alias import SideEffectTable, location_of
from vkchi.analysis.parallel_loops import is_private
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value, has_kind, walk
from vkchi.ir.ops import LOOPS, TABLE, Effect
from vkchi.ir.rebuild import Rebuilder
from vkchi.target import tuning
from vkchi.target.caps import Caps


def speculate_loads(fn: Func, caps: Caps) -> Func:
    """Move guarded invariant loads before their loops, on CPUs."""
    return Speculator().run(fn) if caps.is_cpu else fn


class Speculator(Rebuilder):
    def __init__(self) -> None:
        super().__init__(self.answer)
        self.changes = SideEffectTable()
        self.moved: dict[Op, Op] = {}

    def answer(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """Replace a moved op; before a loop, append the ops that leave it."""
        if op in self.moved:
            return [self.moved[op]]
        if op.kind in LOOPS:
            for inner in self.guarded_invariants(op):
                attr = None if inner.kind == "elem" else inner.attr
                new = Op(inner.kind, self.args(inner), attr, inner.type, inner.span, inner.name)
                self.map[inner] = self.moved[inner] = b.insert(new)
        return None

    def guarded_invariants(self, loop: Op) -> list[Op]:
        """Return the loads in branches of a loop that may leave it, and the ops that compute their
        addresses; in order. Empty if there are too many."""
        if any(has_kind(r, LOOPS) for r in loop.regions):
            return []
        made = self.changes.of(loop.regions)
        inside = set(values_of(loop))
        fixed: dict[Op, None] = {}
        loads = []
        for op in branched_ops(loop):
            is_load = op.kind == "load" and not is_private(op)
            if not (is_load or is_pure(op)) or any(v in inside and v not in fixed for v in op.args):
                continue
            if is_load and made.may_change(location_of(op.args[0])):
                continue
            fixed[op] = None
            if is_load:
                loads.append(op)
        if not 0 < len(loads) <= tuning.SPECULATED_LOADS:
            return []
        needed: set[Value] = set(loads)
        for op in reversed(fixed):
            if op in needed:
                needed.update(op.args)
        return [op for op in fixed if op in needed]


def is_pure(op: Op) -> bool:
    return TABLE[op.kind].effect is Effect.PURE and not op.regions


def values_of(loop: Op) -> Iterator[Value]:
    """Yield the values that are defined in a loop."""
    for region in loop.regions:
        yield from region.params
        for op in walk(region):
            yield from op.results
            for inner in op.regions:
                yield from inner.params


def branched_ops(loop: Op) -> Iterator[Op]:
    """Yield the ops in the branches of a loop, in order; of the ops beside them, those without
    arguments."""
    for region in loop.regions:
        for op in region.ops:
            if not op.args and not op.regions:
                yield op
            for inner in op.regions:
                yield from walk(inner)
