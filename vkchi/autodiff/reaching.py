"""Reaching definitions for arrays: reads that may observe a write, and values derived from it.

`ReachingWrites` covers one Func. `OutflowAnalysis` computes, per call, the arrays that receive
derivatives, given scalars, shapes, and arrays known to be constant. A write reaches later reads of
its segment, and reads of later segments up to the first that provably overwrites the whole array.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import cache, cached_property

from vkchi.analysis.dataflow import closure
from vkchi.analysis.memory.boxes import Covered, Shaped, first_filling_segment, full_box
from vkchi.analysis.memory.footprint import Footprint
from vkchi.analysis.memory.must_write import ArrayCoverage, MustWrite, name_of, with_all_components
from vkchi.analysis.memory.segments import SegmentOrder
from vkchi.analysis.values.interval_analysis import Guards, guards_of, may_hold
from vkchi.autodiff.primal import ActivityAnalysis, BitDependence, name_under
from vkchi.autodiff.results import DerivativeOutflow, Spans
from vkchi.autodiff.rules import is_smooth
from vkchi.ir.core import Func, Op, Param, Value, base_memory, walk
from vkchi.ir.ops import CONVERSIONS, READS, UPDATES, WRITES
from vkchi.tuples import NamedTuple
from vkchi.types import Array, u1

Spread = tuple[dict[str, Op], set[Value]]


class ArrayShape(NamedTuple):
    shape: tuple[int, ...]


class ReachingWrites:
    """Reads and writes of a Func by segment."""

    def __init__(self, fn: Func) -> None:
        self.fn = fn
        self.order = SegmentOrder(fn)
        self.segments, self.number = self.order.segments, self.order.number
        self.params = {p.name: p for p in fn.params if isinstance(p.type, Array)}
        self.spread, self.read = cache(self._spread), cache(self._readers)
        self.written_of = cache(self._written_of)

    @cached_property
    def must_write(self) -> MustWrite:
        return MustWrite(self.fn, self.segments)

    @cached_property
    def ends(self) -> dict[str, list[int]]:
        """By array name, the segments that provably overwrite it completely, for any arguments."""
        found: dict[str, list[int]] = {}
        stored = [
            (store, (name_of(store), store.segment))
            for store in self.must_write.stores
            if self.whole(name_of(store)).is_stored(store)
        ]
        for name, segment in sorted({*with_all_components(stored), *self.filled()}):
            found.setdefault(name, []).append(segment)
        return found

    def filled(self) -> Iterator[tuple[str, int]]:
        """Arrays of static shape that one segment overwrites by several stores, with the
        segment."""
        types = {name: p.type for name, p in self.params.items()}
        arrays = {name: ArrayShape(t.shape) for name, t in types.items()
                  if isinstance(t, Array) and t.shape is not None}  # fmt: skip
        found: dict[tuple[str, int], list[Covered]] = {}
        for covered in self.must_write.boxes({}, arrays) if arrays else ():
            if covered.name in arrays:
                found.setdefault((covered.name, covered.segment), []).append(covered)
        for (name, segment), boxes in found.items():
            full = self.full(name, arrays[name].shape)
            if first_filling_segment(boxes, full, full) is not None:
                yield name, segment

    def begun(self) -> frozenset[str]:
        """Arrays that the kernel provably overwrites completely before it reads them."""
        return frozenset(
            name for name, ends in self.ends.items()
            if not any(base_memory(op.args[0]) is self.params[name]
                       for segment in self.segments[: min(ends) + 1] for op in segment.walk()
                       if op.kind in (*READS, *UPDATES))
        )  # fmt: skip

    def whole(self, name: str) -> ArrayCoverage:
        param = self.params[name]
        assert isinstance(param.type, Array)
        return ArrayCoverage(
            param, param.type.layout.origin if param.type.layout is not None else ()
        )

    def full(self, name: str, shape: tuple[int, ...]) -> tuple[tuple[int, int] | None, ...]:
        t = self.params[name].type
        assert isinstance(t, Array)
        return full_box(shape, t.layout.origin if t.layout is not None else ())

    def readers(self, op: Op) -> frozenset[Value]:
        """Loads and atomics that may observe a write to memory."""
        return self.read(base_memory(op.args[0]), self.number[op])

    def _readers(self, root: Value, number: int) -> frozenset[Value]:
        ends = self.ends.get(root.name, ()) if isinstance(root, Param) else ()
        end = next((k for k in ends if k > number), len(self.segments))
        return frozenset(
            x
            for x in self.reads_of(root, number, end)
            if self.number[x] > number or x in self.order.late or x.kind in UPDATES
        )

    def reads_of(self, root: Value, first: int, last: int) -> Iterator[Op]:
        """Ops that read memory in the segments from number `first` to `last`, inclusive."""
        for segment in self.segments[first : last + 1]:
            for x in segment.walk():
                if x.kind in READS and base_memory(x.args[0]) is root:
                    yield x

    def stays(self, op: Op) -> bool:
        """True if the value that `op` writes may still be in the array when the kernel ends."""
        root, number = base_memory(op.args[0]), self.number[op]
        assert isinstance(root, Param)
        return all(k <= number for k in self.ends.get(root.name, ()))

    def staying(self, found: Mapping[str, Op]) -> dict[str, Op]:
        return {name: op for name, op in found.items() if self.stays(op)}

    def flow(self, seeds: frozenset[Value]) -> dict[str, Op]:
        """Arrays that receive values which depend smoothly on the seeds, also through other arrays.

        Each maps to an op that writes such a value, preferably one whose value stays.
        """
        return self.spread(seeds, ActivityAnalysis)[0]

    def made_of(self, bits: set[Value]) -> list[Op]:
        return [
            op
            for op in walk(self.fn.body)
            if op.kind in CONVERSIONS and is_smooth(op) and op.args[0] in bits
        ]

    def taken_bits(self, active: Container[Value]) -> list[Op]:
        return [op for op in walk(self.fn.body) if op.kind == "bitcast" and op.args[0] in active]

    def _spread(self, seeds: frozenset[Value], kind: type[ActivityAnalysis]) -> Spread:
        found: dict[str, Op] = {}
        active = kind(self.fn, frozenset(), seeds, readers=self.readers)
        for op in active.writes:
            name = name_under(op)
            if name not in found or (self.stays(op) and not self.stays(found[name])):
                found[name] = op
        return found, active.values

    def lasting(self, active: ActivityAnalysis, skipped: Container[Op] = ()) -> dict[str, Op]:
        """Arrays without gradient that hold active values when the kernel ends, with a write each.

        Arrays that receive values derived from those of another such array count, too. Writes in
        `skipped` do not.
        """
        found: dict[str, Op] = {}
        for op in active.writes:
            if op in skipped:
                continue
            if base_memory(op.args[0]) not in active.sources:
                read = self.readers(op)
                for late in (op, *(self.flow(read).values() if read else ())):
                    if base_memory(late.args[0]) not in active.sources and self.stays(late):
                        found.setdefault(name_under(late), late)
        return found

    def lasting_bits(self, active: ActivityAnalysis) -> dict[str, Op]:
        seeds = self.taken_bits(active)
        return self.staying(self.spread(frozenset(seeds), BitDependence)[0]) if seeds else {}

    def losses(
        self, active: ActivityAnalysis, differentiable: frozenset[str]
    ) -> Iterator[tuple[Op, Op]]:
        """Pairs of writes by which a derivative gets lost.

        The first stores an active value, or one derived from it, in an array without gradient. The
        second stores a value derived from that in a differentiable array.
        """

        def follow(op: Op) -> list[Op]:
            return [late for late in self.later(op) if name_under(late) not in differentiable]

        first = (op for op in active.writes if base_memory(op.args[0]) not in active.sources)
        lost = closure(first, follow)
        seen: dict[frozenset[Value], Op] = {}
        for op in walk(self.fn.body) if lost else ():
            if op in lost:
                seen.setdefault(self.readers(op), op)
        for op in seen.values():
            for late in self.later(op):
                if name_under(late) in differentiable:
                    yield op, late

    def later(self, op: Op) -> list[Op]:
        return self.written_of(self.readers(op))

    def _written_of(self, seeds: frozenset[Value]) -> list[Op]:
        return ActivityAnalysis(self.fn, frozenset(), seeds).writes if seeds else []


NONE: frozenset[Op] = frozenset()


class OutflowAnalysis(ReachingWrites):
    """Arrays that receive derivatives from the arrays `names`, per call."""

    def __init__(self, fn: Func, names: frozenset[str]) -> None:
        super().__init__(fn)
        self.names = names
        self.known: dict[tuple[frozenset[str], frozenset[Op]], DerivativeOutflow] = {}

    @cached_property
    def guards(self) -> dict[Op, Guards]:
        """Writes inside an `if`, with the conditions of all `if`s around them."""
        return {op: g for op, g in guards_of(self.fn.body) if op.kind in WRITES}

    @cached_property
    def footprint(self) -> Footprint:
        return Footprint(self.fn, (), ())

    def of(
        self,
        numbers: Mapping[str, int],
        arrays: Mapping[str, Shaped],
        constant: frozenset[str] = frozenset(),
    ) -> DerivativeOutflow:
        key = constant, self._skipped(numbers, arrays) if self._find(constant).escapes else NONE
        return self._find(*key)

    def _find(
        self, constant: frozenset[str], skipped: frozenset[Op] = frozenset()
    ) -> DerivativeOutflow:
        if (constant, skipped) not in self.known:
            active = ActivityAnalysis(self.fn, self.names, constant=constant | self.begun())
            escapes = self.lasting(active, skipped) if active.escapes else {}
            found = DerivativeOutflow(
                *map(spans_of, (active.stores, escapes, self.lasting_bits(active)))
            )
            self.known[constant, skipped] = found
        return self.known[constant, skipped]

    def _skipped(self, numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> frozenset[Op]:
        """Writes that a call does not execute, because their conditions are provably false."""
        if not self.guards:
            return NONE
        shapes = tuple([(name, array.shape) for name, array in arrays.items()])
        ranges = self.footprint.ranges(numbers, shapes)
        truths = [p for p in self.fn.params if p.type is u1]
        ranges.found |= {p: (numbers[p.name],) * 2 for p in truths if p.name in numbers}
        return frozenset(
            op for op, guards in self.guards.items()
            if not all(may_hold(v, t, ranges) for v, t in guards)
        )  # fmt: skip


def spans_of(ops: Mapping[str, Op]) -> Spans:
    return {name: op.span for name, op in ops.items()}
