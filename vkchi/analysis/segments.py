"""A Func's body in pieces that run one after the other, and which loads in them may see a write of
their own invocation.

Owns: `Segment`, `find_segments`, `find_late`; `Order`, which has both of a Func. Must not know:
what is asked of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vkchi.ir.core import Func, Op, Value, base_of, walk
from vkchi.ir.ops import LOOPS, WRITES
from vkchi.tuples import NamedTuple


class Segment(NamedTuple):
    """Ops of the body that run together; `loop` is the `parallel` if it is one."""

    number: int
    ops: tuple[Op, ...]
    loop: Op | None

    def walk(self) -> Iterator[Op]:
        """Every op of it."""
        for op in self.ops:
            yield op
            for region in op.regions:
                yield from walk(region)


def find_segments(fn: Func) -> tuple[Segment, ...]:
    """The body in pieces: a `parallel` each, and what stands between."""
    found: list[Segment] = []
    run: list[Op] = []
    for op in fn.body.ops:
        if op.kind not in ("parallel", "yield"):
            run.append(op)
            continue
        if run:
            found.append(Segment(len(found), tuple(run), None))
            run = []
        if op.kind == "parallel":
            found.append(Segment(len(found), (op,), op))
    return tuple(found)


class Order:
    """A Func in segments: the `number` of the one that an op stands in, and the loads that are
    `late`: before them, a write of their root may have come in it."""

    def __init__(self, fn: Func) -> None:
        self.segments = find_segments(fn)
        self.number = {op: s.number for s in self.segments for op in s.walk()}
        self.late = {op for s in self.segments for op in find_late(s.ops)}


def find_late(ops: Sequence[Op]) -> set[Op]:
    """The loads before which a write of the same root may have come, in the same invocation."""
    late: set[Op] = set()
    find_late_in(ops, set(), late)
    return late


def find_late_in(ops: Sequence[Op], dirty: set[Value], late: set[Op]) -> None:
    """Go through ops in order; `dirty` are the roots written so far."""
    for op in ops:
        if op.kind in LOOPS:  # an iteration may read what another one wrote
            dirty |= {base_of(x.args[0]) for r in op.regions for x in walk(r) if x.kind in WRITES}
        if op.kind == "load" and base_of(op.args[0]) in dirty:
            late.add(op)
        if op.kind in WRITES:
            dirty.add(base_of(op.args[0]))
        if op.kind == "local":
            dirty.add(op)
        before = set(dirty)
        for inner in op.regions:
            arm = set(before)
            find_late_in(inner.ops, arm, late)
            dirty |= arm
