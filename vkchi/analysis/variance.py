"""What differs between iterations of one axis of a `parallel` that are done side by side.

Varies: the axis's index, private places, what writes give back, and all that is computed from these
or decided by them. What is left, loads included, is the same in iterations that go through the
body in step: what they load they load at one time, from one place.

Owns: this analysis. Must not know: what copies are for.

    >>> Variance(body, i).found
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vkchi.analysis.dataflow import Flow, is_memory, made_inside, ops_inside
from vkchi.ir.core import Op, Region, Value, base_of, walk
from vkchi.ir.ops import READS, TABLE, Effect


class Dependents(Flow):
    """What is computed from an axis's index, or from what iterations make for themselves (`found`),
    whatever decides whether it is."""

    def __init__(self, body: Region, index: Value) -> None:
        super().__init__(body, [index, *own_values(body)])

    def follow(self, v: Value) -> Iterator[Value]:
        """What follows from a value; from a private place also the places inside it."""
        yield from super().follow(v)
        if is_memory(v):
            for op in self.uses.get(v, ()):
                yield from op.results


class Variance(Dependents):
    """What varies along an axis of the loop with this body: values and private places (`found`),
    and the ops inside control that does not go the same way in all iterations (`decided`)."""

    def __init__(self, body: Region, index: Value) -> None:
        self.decided: set[Op] = set()
        super().__init__(body, index)

    def decide(self, op: Op) -> Iterator[Value]:
        """All that is made inside, and the results."""
        self.decided.update((op, *ops_inside(op)))
        yield from op.results
        yield from made_inside(op)


def own_values(body: Region) -> Iterator[Value]:
    """What each iteration makes for itself: private places, and what it gets for what it writes."""
    for op in walk(body):
        if TABLE[op.kind].effect not in (Effect.PURE, Effect.READ, Effect.CONTROL):
            yield from op.results


def loads_in_loops(body: Region, variance: Variance) -> list[tuple[Op, Op]]:
    """The loads from arrays in serial loops that all iterations go through in step, each with the
    innermost of these loops."""
    found: list[tuple[Op, Op]] = []

    def search(ops: Iterable[Op], loop: Op | None) -> None:
        for op in ops:
            if op in variance.decided:
                continue
            if loop is not None and op.kind in READS and not is_private(base_of(op.args[0])):
                found.append((op, loop))
            for region in op.regions:
                search(region.ops, op if op.kind == "for" else loop)

    search(body.ops, None)
    return found


def is_private(base: Value) -> bool:
    """Whether a base is a place of one invocation."""
    return isinstance(base, Op) and base.kind == "local"
