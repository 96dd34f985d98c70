"""Segments of a Func, which run one after another, and loads that may follow a write to their
location.

A segment is a `parallel` or a run of serial ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vkchi.analysis.memory.alias import MemoryLocation, are_disjoint, location_of
from vkchi.ir.core import Func, Op, Value, base_memory, walk, walk_ops
from vkchi.ir.ops import LOOPS, WRITES
from vkchi.tuples import NamedTuple

MOST_PLACES = 64  # written locations of one array that a load is compared with
Dirty = dict[Value, set[MemoryLocation]]


class Segment(NamedTuple):
    """Ops of the body that run together; `loop` is the `parallel` if the segment is one, otherwise
    None."""

    number: int
    ops: tuple[Op, ...]
    loop: Op | None

    def walk(self) -> Iterator[Op]:
        """All ops of the segment, including those in regions."""
        return walk_ops(self.ops)


def find_segments(fn: Func) -> tuple[Segment, ...]:
    """Split the body into segments: each `parallel`, and each maximal run of other ops."""
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


class SegmentOrder:
    """A Func in segments.

    `number` maps each op to its segment number. `late` is the set of loads before which, in their
    segment, the same invocation may write the same location.
    """

    def __init__(self, fn: Func) -> None:
        self.segments = find_segments(fn)
        self.number = {op: s.number for s in self.segments for op in s.walk()}
        self.late = {op for s in self.segments for op in find_late(s.ops)}


def find_late(ops: Sequence[Op]) -> set[Op]:
    """Loads before which the same invocation may write the same location.

    Allocating a `local` counts as a write. Writes to another base are ignored, even if it may
    alias.
    """
    return LateLoads(ops).found


class LateLoads:
    """Forward traversal that collects the loads of `find_late` in `found`.

    Two locations count as equal unless constants, or offsets from one value defined outside all
    regions, distinguish them. Values defined in regions are in `moving`.
    """

    def __init__(self, ops: Sequence[Op]) -> None:
        inner = [x for op in ops for region in op.regions for x in walk(region)]
        regions = [r for op in (*ops, *inner) for r in op.regions]
        self.moving: set[Value] = {v for op in inner for v in op.results}
        self.moving |= {p for r in regions for p in r.params}
        self.found: set[Op] = set()
        self.visit(ops, {})

    def visit(self, ops: Sequence[Op], dirty: Dirty) -> None:
        """Visit ops in order, and add loads from written locations to `found`. `dirty` holds the
        locations written so far, by base, and is extended in place."""
        for op in ops:
            if op.kind in LOOPS:  # an iteration may read the writes of an earlier one
                for x in (x for r in op.regions for x in walk(r) if x.kind in WRITES):
                    self.note(x, dirty)
            if op.kind == "load" and self.is_dirty(op, dirty):
                self.found.add(op)
            if op.kind in WRITES:
                self.note(op, dirty)
            if op.kind == "local":  # uninitialized
                dirty.setdefault(op, set()).add(location_of(op))
            arms = [{root: set(places) for root, places in dirty.items()} for _ in op.regions]
            for inner, arm in zip(op.regions, arms, strict=True):
                self.visit(inner.ops, arm)
                for root, places in arm.items():
                    dirty.setdefault(root, set()).update(places)

    def is_fixed(self, v: Value) -> bool:
        return v not in self.moving

    def note(self, write: Op, dirty: Dirty) -> None:
        dirty.setdefault(base_memory(write.args[0]), set()).add(location_of(write.args[0]))

    def is_dirty(self, load: Op, dirty: Dirty) -> bool:
        """True if the loaded location may have been written. Also true beyond MOST_PLACES written
        locations."""
        places = dirty.get(base_memory(load.args[0]), ())
        if len(places) > MOST_PLACES:
            return True
        place = location_of(load.args[0])
        return not all(are_disjoint(place, other, self.is_fixed) for other in places)
