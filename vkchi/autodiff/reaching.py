"""Where what a kernel puts into arrays goes on: which reads may see it, what depends on those.

Owns: `Reach`, of one Func. What is written is seen by later reads of its segment, and by those of
later segments up to the first that is proved to overwrite the whole array (`whole`).

Must not know: gradients, tapes.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import cached_property

from vkchi.analysis.must_write import (
    Covered,
    Covers,
    filled_by,
    full_box,
    name_of,
    with_all_components,
)
from vkchi.analysis.segments import Segment, find_late, find_segments
from vkchi.analysis.whole import Whole
from vkchi.autodiff.primal import Activity, Bits
from vkchi.autodiff.rules import is_smooth
from vkchi.ir.core import Func, Op, Param, Value, base_of, walk
from vkchi.ir.ops import CONVERSIONS, READS, UPDATES, WRITES
from vkchi.tuples import NamedTuple
from vkchi.types import Array

Spread = tuple[dict[str, Op], set[Value]]


class Extents(NamedTuple):
    """The shape of an array."""

    shape: tuple[int, ...]


class Reach:
    """Reads and writes of a Func in the order in which they can follow each other."""

    def __init__(self, fn: Func) -> None:
        self.fn = fn
        self.segments = find_segments(fn)
        self.number = {op: s.number for s in self.segments for op in ops_in(s)}
        self.late = {op for s in self.segments for op in find_late(s.ops)}
        self.params = {p.name: p for p in fn.params if isinstance(p.type, Array)}
        self.known: dict[tuple[frozenset[Value], type[Activity]], Spread] = {}
        self.read: dict[tuple[Value, int], frozenset[Value]] = {}

    @cached_property
    def covers(self) -> Covers:
        """What is surely overwritten."""
        return Covers(self.fn, self.segments)

    @cached_property
    def ends(self) -> dict[str, list[int]]:
        """The segments that overwrite an array, whatever the arguments are."""
        found: dict[str, list[int]] = {}
        stored = [
            (store, (name_of(store), store.segment))
            for store in self.covers.stores
            if self.whole(name_of(store)).is_stored(store)
        ]
        for name, segment in sorted({*with_all_components(stored), *self.filled()}):
            found.setdefault(name, []).append(segment)
        return found

    def filled(self) -> Iterator[tuple[str, int]]:
        """The arrays of known shape that a segment overwrites part by part."""
        types = {name: p.type for name, p in self.params.items()}
        arrays = {name: Extents(t.shape) for name, t in types.items()
                  if isinstance(t, Array) and t.shape is not None}  # fmt: skip
        found: dict[tuple[str, int], list[Covered]] = {}
        for covered in self.covers.boxes({}, arrays) if arrays else ():
            if covered.name in arrays:
                found.setdefault((covered.name, covered.segment), []).append(covered)
        for (name, segment), boxes in found.items():
            full = self.full(name, arrays[name].shape)
            if filled_by(boxes, full, full) is not None:
                yield name, segment

    def begun(self) -> frozenset[str]:
        """The arrays that the kernel overwrites before it reads them: what they held is nothing to
        it."""
        return frozenset(
            name for name, ends in self.ends.items()
            if not any(base_of(op.args[0]) is self.params[name]
                       for segment in self.segments[: min(ends) + 1] for op in ops_in(segment)
                       if op.kind in (*READS, *UPDATES))
        )  # fmt: skip

    def whole(self, name: str) -> Whole:
        """An array, of whatever shape."""
        param = self.params[name]
        assert isinstance(param.type, Array)
        return Whole(param, param.type.layout.origin if param.type.layout is not None else ())

    def full(self, name: str, shape: tuple[int, ...]) -> tuple[tuple[int, int] | None, ...]:
        """All of an array."""
        t = self.params[name].type
        assert isinstance(t, Array)
        return full_box(shape, t.layout.origin if t.layout is not None else ())

    def readers(self, op: Op) -> frozenset[Value]:
        """The loads, and atomics that return something, that may see what a write puts into an
        array."""
        key = base_of(op.args[0]), self.number[op]
        if key not in self.read:
            self.read[key] = self._readers(*key)
        return self.read[key]

    def _readers(self, root: Value, number: int) -> frozenset[Value]:
        ends = self.ends.get(root.name, ()) if isinstance(root, Param) else ()
        end = next((k for k in ends if k > number), len(self.segments))
        return frozenset(
            x
            for x in self.reads_of(root, number, end)
            if self.number[x] > number or x in self.late or x.kind in UPDATES
        )

    def reads_of(self, root: Value, first: int, last: int) -> Iterator[Op]:
        """What reads memory in these segments."""
        for segment in self.segments[first : last + 1]:
            for x in ops_in(segment):
                if x.kind in READS and base_of(x.args[0]) is root:
                    yield x

    def stays(self, op: Op) -> bool:
        """Whether what a write puts into an array may be there when the kernel ends."""
        root, number = base_of(op.args[0]), self.number[op]
        assert isinstance(root, Param)
        return all(k <= number for k in self.ends.get(root.name, ()))

    def flow(self, seeds: frozenset[Value]) -> dict[str, Op]:
        """The arrays that something is put into which depends smoothly on these values, directly or
        through other arrays; the op that does so, one that stays if any does."""
        return self.spread(seeds, Activity)[0]

    def made_of(self, bits: set[Value]) -> list[Op]:
        """The numbers that are made of bits."""
        return [
            op
            for op in walk(self.fn.body)
            if op.kind in CONVERSIONS and is_smooth(op) and op.args[0] in bits
        ]

    def taken_bits(self, active: Container[Value]) -> list[Op]:
        """Where the bits of active values are taken."""
        return [op for op in walk(self.fn.body) if op.kind == "bitcast" and op.args[0] in active]

    def spread(self, seeds: frozenset[Value], kind: type[Activity]) -> Spread:
        """Where values of a kind go on, through arrays too: the arrays and the values."""
        key = (seeds, kind)
        if key not in self.known:
            self.known[key] = self._spread(*key)
        return self.known[key]

    def _spread(self, seeds: frozenset[Value], kind: type[Activity]) -> Spread:
        found: dict[str, Op] = {}
        active = kind(self.fn, frozenset(), seeds, readers=self.readers)
        for op in self.writes(active):
            name = name_under(op)
            if name not in found or (self.stays(op) and not self.stays(found[name])):
                found[name] = op
        return found, active.values

    def writes(self, active: Activity) -> list[Op]:
        """The ops that put active values into arrays."""
        return [
            op
            for op in walk(self.fn.body)
            if op.kind in WRITES and isinstance(base_of(op.args[0]), Param)
            if not active.values.isdisjoint(op.args[1:])
        ]

    def lasting(self, active: Activity, skipped: Container[Op] = ()) -> dict[str, Op]:
        """The arrays without gradient that hold an active value when the kernel ends, or what was
        made of one that went through such an array; and an op that puts it there, none of those
        that are `skipped`."""
        found: dict[str, Op] = {}
        for op in self.writes(active):
            if op in skipped:
                continue
            if base_of(op.args[0]) not in active.sources:
                read = self.readers(op)
                for late in (op, *(self.flow(read).values() if read else ())):
                    if base_of(late.args[0]) not in active.sources and self.stays(late):
                        found.setdefault(name_under(late), late)
        return found

    def lasting_bits(self, active: Activity) -> dict[str, Op]:
        """The arrays that hold bits of active values when the kernel ends."""
        seeds = self.taken_bits(active)
        found = self.spread(frozenset(seeds), Bits)[0] if seeds else {}
        return {name: op for name, op in found.items() if self.stays(op)}

    def losses(self, active: Activity, differentiable: frozenset[str]) -> Iterator[tuple[Op, Op]]:
        """Pairs of writes: an active value is put into an array without gradient, and what was read
        out of it into one of those that have one."""
        todo = [op for op in self.writes(active) if base_of(op.args[0]) not in active.sources]
        done: set[frozenset[Value]] = set()
        while todo:
            op = todo.pop(0)
            read = self.readers(op)
            if read and read not in done:
                done.add(read)
                for late in self.writes(Activity(self.fn, frozenset(), read)):
                    if name_under(late) in differentiable:
                        yield op, late
                    else:
                        todo.append(late)


def name_under(op: Op) -> str:
    """The name of the array that an op writes to."""
    root = base_of(op.args[0])
    assert isinstance(root, Param)
    return root.name


def ops_in(segment: Segment) -> Iterator[Op]:
    """Every op of a segment."""
    for op in segment.ops:
        yield op
        for region in op.regions:
            yield from walk(region)
