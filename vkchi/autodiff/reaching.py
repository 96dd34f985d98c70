"""Where what a kernel puts into arrays goes on: which reads may see it, what depends on those.

Owns: `Reach`, of one Func; `Outflows`, where it puts derivatives, call by call: with the numbers
and shapes that are given, and where some arrays are known to hold constants. What is written is
seen by later reads of its segment, and by those of later segments up to the first that is proved to
overwrite the whole array (`whole`).

Must not know: how gradients are built, tapes.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import cache, cached_property

from vkchi.analysis.boxes import Covered, Shaped, filled_by, full_box
from vkchi.analysis.conditions import Guards, guards_of, may_hold
from vkchi.analysis.dataflow import closure
from vkchi.analysis.footprint import Footprint
from vkchi.analysis.must_write import MustWrite, name_of, with_all_components
from vkchi.analysis.segments import Order
from vkchi.analysis.whole import Whole
from vkchi.autodiff.answers import Outflow, Spans
from vkchi.autodiff.primal import Activity, Bits, name_under
from vkchi.autodiff.rules import is_smooth
from vkchi.ir.core import Func, Op, Param, Value, base_of, walk
from vkchi.ir.ops import CONVERSIONS, READS, UPDATES, WRITES
from vkchi.tuples import NamedTuple
from vkchi.types import Array, u1

Spread = tuple[dict[str, Op], set[Value]]


class Extents(NamedTuple):
    """The shape of an array."""

    shape: tuple[int, ...]


class Reach:
    """Reads and writes of a Func in the order in which they can follow each other."""

    def __init__(self, fn: Func) -> None:
        self.fn = fn
        self.order = Order(fn)
        self.segments, self.number = self.order.segments, self.order.number
        self.params = {p.name: p for p in fn.params if isinstance(p.type, Array)}
        self.spread, self.read = cache(self._spread), cache(self._readers)
        self.written_of = cache(self._written_of)

    @cached_property
    def must_write(self) -> MustWrite:
        """What is surely overwritten."""
        return MustWrite(self.fn, self.segments)

    @cached_property
    def ends(self) -> dict[str, list[int]]:
        """The segments that overwrite an array, whatever the arguments are."""
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
        """The arrays of known shape that a segment overwrites part by part."""
        types = {name: p.type for name, p in self.params.items()}
        arrays = {name: Extents(t.shape) for name, t in types.items()
                  if isinstance(t, Array) and t.shape is not None}  # fmt: skip
        found: dict[tuple[str, int], list[Covered]] = {}
        for covered in self.must_write.boxes({}, arrays) if arrays else ():
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
                       for segment in self.segments[: min(ends) + 1] for op in segment.walk()
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
        return self.read(base_of(op.args[0]), self.number[op])

    def _readers(self, root: Value, number: int) -> frozenset[Value]:
        ends = self.ends.get(root.name, ()) if isinstance(root, Param) else ()
        end = next((k for k in ends if k > number), len(self.segments))
        return frozenset(
            x
            for x in self.reads_of(root, number, end)
            if self.number[x] > number or x in self.order.late or x.kind in UPDATES
        )

    def reads_of(self, root: Value, first: int, last: int) -> Iterator[Op]:
        """What reads memory in these segments."""
        for segment in self.segments[first : last + 1]:
            for x in segment.walk():
                if x.kind in READS and base_of(x.args[0]) is root:
                    yield x

    def stays(self, op: Op) -> bool:
        """Whether what a write puts into an array may be there when the kernel ends."""
        root, number = base_of(op.args[0]), self.number[op]
        assert isinstance(root, Param)
        return all(k <= number for k in self.ends.get(root.name, ()))

    def staying(self, found: Mapping[str, Op]) -> dict[str, Op]:
        """Those of the writes to arrays of which that is so."""
        return {name: op for name, op in found.items() if self.stays(op)}

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

    def _spread(self, seeds: frozenset[Value], kind: type[Activity]) -> Spread:
        """Where values of a kind go on, through arrays too: the arrays and the values."""
        found: dict[str, Op] = {}
        active = kind(self.fn, frozenset(), seeds, readers=self.readers)
        for op in active.writes:
            name = name_under(op)
            if name not in found or (self.stays(op) and not self.stays(found[name])):
                found[name] = op
        return found, active.values

    def lasting(self, active: Activity, skipped: Container[Op] = ()) -> dict[str, Op]:
        """The arrays without gradient that hold an active value when the kernel ends, or what was
        made of one that went through such an array; and an op that puts it there, none of those
        that are `skipped`."""
        found: dict[str, Op] = {}
        for op in active.writes:
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
        return self.staying(self.spread(frozenset(seeds), Bits)[0]) if seeds else {}

    def losses(self, active: Activity, differentiable: frozenset[str]) -> Iterator[tuple[Op, Op]]:
        """Pairs of writes: an active value is put into an array without gradient, and what was read
        out of it into one of those that have one."""

        def follow(op: Op) -> list[Op]:
            return [late for late in self.later(op) if name_under(late) not in differentiable]

        first = (op for op in active.writes if base_of(op.args[0]) not in active.sources)
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
        """The writes of what is computed from what a write puts into an array."""
        return self.written_of(self.readers(op))

    def _written_of(self, seeds: frozenset[Value]) -> list[Op]:
        return Activity(self.fn, frozenset(), seeds).writes if seeds else []


NONE: frozenset[Op] = frozenset()


class Outflows(Reach):
    """Where a kernel puts derivatives by the arrays `names`, call by call."""

    def __init__(self, fn: Func, names: frozenset[str]) -> None:
        super().__init__(fn)
        self.names = names
        self.known: dict[tuple[frozenset[str], frozenset[Op]], Outflow] = {}

    @cached_property
    def guards(self) -> dict[Op, Guards]:
        """The writes that stand under conditions."""
        return {op: g for op, g in guards_of(self.fn.body) if op.kind in WRITES}

    @cached_property
    def footprint(self) -> Footprint:
        """What numbers are known of a call."""
        return Footprint(self.fn, (), ())

    def of(
        self,
        numbers: Mapping[str, int],
        arrays: Mapping[str, Shaped],
        constant: frozenset[str] = frozenset(),
    ) -> Outflow:
        """That of a call which finds constants in some arrays."""
        key = constant, self._skipped(numbers, arrays) if self._find(constant).escapes else NONE
        return self._find(*key)

    def _find(self, constant: frozenset[str], skipped: frozenset[Op] = frozenset()) -> Outflow:
        if (constant, skipped) not in self.known:
            active = Activity(self.fn, self.names, constant=constant | self.begun())
            escapes = self.lasting(active, skipped) if active.escapes else {}
            found = Outflow(*map(spans_of, (active.stores, escapes, self.lasting_bits(active))))
            self.known[constant, skipped] = found
        return self.known[constant, skipped]

    def _skipped(self, numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> frozenset[Op]:
        """The writes that a call does not do, for it does not take their branch."""
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
    """Where these ops stand."""
    return {name: op.span for name, op in ops.items()}
