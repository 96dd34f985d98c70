"""The forward sweep: a kernel's code done again where its gradient is computed, on memory of its
own, keeping what the reverse sweep will ask for.

Owns: `Sweep`, one run of an invocation's ops. What it keeps (`kept`, values the reverse sweep could
not compute again) becomes
- an extra result of every `if` around the value, up to the loop or invocation they stand in;
- in a loop, one entry per iteration of a buffer `.save.N[position, invocation]`: position is the
  loop's `base`, how often it went round before in this invocation, plus the iteration's number.
Buffers are sized from trip counts at launch; `count.N` cells, which `CountingSweep` fills, say how
many there are.

Must not know: adjoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkchi.analysis.dataflow import MEMORY
from vkchi.analysis.segments import Segment
from vkchi.autodiff.emit import as_i32, capped, place_in, trip_count, zero
from vkchi.autodiff.primal import Primal
from vkchi.autodiff.versions import Memory, Versions
from vkchi.ir.axes import number_of
from vkchi.ir.builder import Builder
from vkchi.ir.clone import Cloner
from vkchi.ir.core import Op, Param, Region, Value, base_of
from vkchi.ir.names import SAVE
from vkchi.ir.ops import LOOPS, PLACES, WRITES, Effect, effect_of
from vkchi.types import Array, Scalar, Tensor, Type, i32, scalar_of, u1, u32


class Kept:
    """The primal values that must outlive the forward sweep, and their buffers."""

    def __init__(self, primal: Primal) -> None:
        self.primal = primal
        self.in_loop: dict[Op, list[Value]] = {}
        self.in_if: dict[Op, list[Value]] = {}
        self.buffers: dict[Value, Param] = {}
        self.values: dict[Value, None] = {}

    def keep(self, v: Value) -> None:
        """Note that v is asked for outside the region it stands in."""
        if v in self.values:
            return
        self.values[v] = None
        for op in reversed(self.primal.around[self.primal.home[v]]):
            if op.kind in LOOPS:
                self.in_loop.setdefault(op, []).append(v)
            if op.kind != "if":
                return
            self.in_if.setdefault(op, []).append(v)

    def buffer(self, v: Value) -> Param:
        """Where v of every iteration is saved."""
        found = self.buffers.get(v)
        if found is None:
            t = saved_type(v.type)
            found = self.buffers[v] = Param(t, f"{SAVE}{len(self.buffers)}")
        return found


def saved_type(t: Type) -> Array:
    """Of a buffer of such values: [positions, invocations]."""
    assert isinstance(t, Scalar | Tensor)
    return Array.of(t, 2, stored=u32 if scalar_of(t) is u1 else None)


class Sweep(Cloner):
    """One run through an invocation's ops, appended to the region open in `b`. `map` leads from
    primal values to what stands for them; `invocation` is its number among all."""

    more_names = "trips"

    def __init__(
        self, b: Builder, primal: Primal, kept: Kept, memory: Memory, invocation: Value
    ) -> None:
        super().__init__(b)
        self.primal, self.kept, self.memory = primal, kept, memory
        self.invocation = invocation
        self.counters: dict[Op, Value] = {}
        self.before: dict[Op, Value] = {}  # loop -> how often it went round before
        self.top = b.current

    def visit(self, op: Op) -> None:
        """Do an op. What was printed and checked once is not again; places are made where they are
        used."""
        if op.kind == "local":
            self.local(op)
        elif op.kind in MEMORY:
            self.access(op)
        elif op.kind not in PLACES and effect_of(op.kind) is not Effect.REPORT:
            super().visit(op)

    # --- memory

    def local(self, op: Op) -> None:
        """A private place."""
        place = self.b.emit("local", self.get(op.args[0]), name=op.name)
        self.map[op] = self.memory.early[op] = self.memory.late[op] = place

    def access(self, op: Op) -> None:
        """A load, store or atomic."""
        root = base_of(op.args[0])
        if op.kind in WRITES and root in self.primal.invariant:
            return
        is_early = op.kind == "load" and op not in self.primal.late
        arrays = self.memory.early if is_early else self.memory.late
        place = place_in(self.b, op.args[0], arrays.get(root, root), self.get)
        self.copy(op, place, *map(self.get, op.args[1:]))

    # --- control: what is kept of an `if` are results of their own; loops count, and save

    def carry(self, op: Op) -> Sequence[Value]:
        """A `while` counts how often it goes round."""
        if op.kind in LOOPS:
            self.before[op] = self.base(op)
        return (self.b.const(0, i32),) if op.kind == "while" else ()

    def end(self, op: Op, region: Region, more: Sequence[Param]) -> Sequence[Value]:
        """What is kept of an arm; of a loop's iteration it is saved."""
        if op.kind == "if":
            kept = self.kept.in_if.get(op, ())
            given = [self.map.get(v) or zero(self.b, v.type) for v in kept]
            for v in kept:
                self.map.pop(v, None)
            return given
        if op.kind == "while":
            self.save(op, self.before[op], more[0])
            return (self.b.emit("add", more[0], self.b.const(1, i32)),)
        index, begin = self.get(region.params[0]), self.get(op.args[0])
        self.save(op, self.before[op], self.b.emit("sub", index, begin))
        return ()

    def finish(self, op: Op, more: Sequence[Value]) -> None:
        """What was kept, or how often the loop went round."""
        if op.kind == "if":
            self.map.update(zip(self.kept.in_if.get(op, ()), more, strict=True))
        elif op.kind == "while":
            self.map[self.primal.trips[op]] = more[0]
            self.count(op, self.before[op], more[0])
        else:
            begin, end = map(self.get, op.args[:2])
            self.count(op, self.before[op], trip_count(self.b, begin, end))

    # --- saving

    def base(self, op: Op) -> Value:
        """How often a loop went round before in this invocation."""
        pseudo = self.primal.base.get(op)
        if pseudo is None:
            return self.b.const(0, i32)
        if op not in self.counters:
            with self.b.within(self.top):
                self.counters[op] = self.b.emit("local", self.b.const(0, i32), name="rounds")
        self.map[pseudo] = self.b.emit("load", self.counters[op])
        return self.map[pseudo]

    def count(self, op: Op, base: Value, trips: Value) -> None:
        """Note that a loop has gone round so often."""
        if op in self.primal.base:
            total = self.b.emit("add", base, as_i32(self.b, trips))
            self.b.emit("store", self.counters[op], total)

    def save(self, op: Op, base: Value, step: Value) -> None:
        """Put what is kept of an iteration into its buffers."""
        for v in self.kept.in_loop.get(op, []):
            position = self.b.emit("add", base, as_i32(self.b, step))
            place = self.b.emit("elem", self.kept.buffer(v), position, self.invocation)
            self.b.emit("store", place, self.get(v))


class CountingSweep(Sweep):
    """A sweep that keeps nothing, and finds how large the buffers of some loops must be."""

    def __init__(
        self, b: Builder, primal: Primal, memory: Memory, invocation: Value, cells: dict[Op, Param]
    ) -> None:
        super().__init__(b, primal, Kept(primal), memory, invocation)
        self.cells = cells

    def count(self, op: Op, base: Value, trips: Value) -> None:
        """The most that any invocation needs."""
        if op not in self.primal.base and op not in self.cells:
            return
        b = self.b
        total = capped(b, b.emit("add", base, capped(b, trips)))
        if op in self.primal.base:
            b.emit("store", self.counters[op], total)
        if op in self.cells:
            b.emit("atomic_max", b.emit("elem", self.cells[op]), total)


Make = Callable[[Memory, Value], Sweep]


def run_segment(outer: Sweep, segment: Segment, versions: Versions, make: Make) -> Sequence[Value]:
    """Append what a segment does, on the next versions of memory; the bounds of a loop."""
    memory = outer.memory = versions.advance(segment.ops)
    if segment.loop is not None:
        return run_parallel(outer, segment.loop, lambda n: make(memory, n))
    outer.run(segment.ops)
    versions.now.update(memory.late)
    return ()


def run_parallel(
    outer: Sweep,
    op: Op,
    make: Callable[[Value], Sweep],
    then: Callable[[Sweep], None] = lambda sweep: None,
) -> list[Value]:
    """Append a `parallel` over the same indices in which every iteration is done by the sweep that
    `make` gives for its number, and `then` what comes after; the bounds."""
    b, (region,) = outer.b, op.regions
    bounds = [outer.get(v) for v in op.args]
    indices = [Param(p.type, p.name) for p in region.params]
    with b.region(*indices) as body:
        inner = make(number_of(b, bounds, indices))
        inner.map = {**outer.map, **dict(zip(region.params, indices, strict=True))}
        inner.run(region.ops)
        then(inner)
        b.emit("yield")
    b.parallel(bounds, body, op.attr)
    return bounds
