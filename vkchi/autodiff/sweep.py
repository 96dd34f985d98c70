"""Forward sweep of reverse mode: recompute the kernel, saving values for the reverse sweep.

It runs on copies of the memory that the kernel writes: `MemoryVersions` makes a copy of each root
per segment that writes it. Saved values (`kept`) are those that the
reverse sweep cannot recompute. Such a value becomes

- an extra result of every enclosing `if`, up to its loop or invocation;
- in a loop, one entry per iteration in a buffer `.save.N[position, invocation]`. The position is
  the number of iterations that the loop has executed before in this invocation.

Buffers are sized at launch from trip counts. If the host cannot compute them, `CountingSweep`
stores them in `.count.N` cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from vkchi.analysis.memory.alias import kinds_of_writes
from vkchi.analysis.memory.segments import Segment
from vkchi.autodiff.emit import as_i32, copy_array, place_in, saturated_i32, trip_count, zero
from vkchi.autodiff.primal import PrimalAnalysis
from vkchi.ir.builder import Builder
from vkchi.ir.core import SAVE, SCRATCH, Op, Param, Region, Value, base_memory
from vkchi.ir.iteration_space import linear_iteration
from vkchi.ir.ops import ACCESSES, LOOPS, PLACES, WRITES, Effect, effect_of
from vkchi.ir.rebuild import Cloner
from vkchi.types import Array, Scalar, Tensor, Type, i32, scalar_of, u1, u32


class SegmentMemory:
    """Memory in place of each root: `early` from before a segment, `late` as it changes it."""

    def __init__(self, early: dict[Value, Value], late: dict[Value, Value]) -> None:
        self.early, self.late = early, late


class MemoryVersions:
    """The current version of each root that the kernel writes.

    Every segment that writes a root gets a copy, except of invariant arrays. Unread copies are
    removed later.
    """

    def __init__(self, b: Builder, primal: PrimalAnalysis) -> None:
        self.b, self.primal = b, primal
        self.now: dict[Value, Value] = {}
        self.copies: dict[str, str] = {}
        self.params: list[Param] = []

    def advance(self, ops: Iterable[Op]) -> SegmentMemory:
        """Make new versions of the roots that these ops write; return the segment's memory."""
        found, late = dict(self.now), self.copy_written(ops, self.now)
        self.now.update(late)
        return SegmentMemory(found, late)

    def copy_written(self, ops: Iterable[Op], found: dict[Value, Value]) -> dict[Value, Value]:
        """Copies of the roots that these ops write, except of invariant arrays and the ops' own
        `local`s."""
        late = {}
        for root in kinds_of_writes(ops):
            is_outer = isinstance(root, Param) or root in found
            if is_outer and root not in self.primal.invariant:
                late[root] = self.copy(root, found.get(root, root))
        return late

    def copy(self, root: Value, source: Value) -> Value:
        if isinstance(root, Op) and root.kind == "shared":
            return source  # each loop has its own, without contents at the beginning
        if isinstance(root, Op):
            return self.b.emit("local", self.b.emit("load", source), name=root.name)
        assert isinstance(root, Param)
        param = root.companion(f"{SCRATCH}{len(self.copies)}")
        self.copies[param.name] = root.name
        self.params.append(param)
        copy_array(self.b, source, param)
        return param


class SavedValues:
    """Primal values saved by the forward sweep, and their buffers."""

    def __init__(self, primal: PrimalAnalysis) -> None:
        self.primal = primal
        self.in_loop: dict[Op, list[Value]] = {}
        self.in_if: dict[Op, list[Value]] = {}
        self.buffers: dict[Value, Param] = {}
        self.values: dict[Value, None] = {}

    def keep(self, v: Value) -> None:
        """Record that the sweep must save v, because it is needed outside its region."""
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
        """The buffer that holds v of every iteration, created at first use."""
        found = self.buffers.get(v)
        if found is None:
            t = saved_type(v.type)
            found = self.buffers[v] = Param(t, f"{SAVE}{len(self.buffers)}")
        return found


def saved_type(t: Type) -> Array:
    assert isinstance(t, Scalar | Tensor)
    return Array.of(t, 2, stored=u32 if scalar_of(t) is u1 else None)


class ForwardSweep(Cloner):
    """Recomputation of an invocation's ops, appended to the open region of `b`.

    `map` maps primal values to new ones. `invocation` is the invocation's number.
    """

    more_names = "trips"

    def __init__(
        self,
        b: Builder,
        primal: PrimalAnalysis,
        kept: SavedValues,
        memory: SegmentMemory,
        invocation: Value,
    ) -> None:
        super().__init__(b)
        self.primal, self.kept, self.memory = primal, kept, memory
        self.invocation = invocation
        self.counters: dict[Op, Value] = {}
        self.before: dict[Op, Value] = {}  # loop -> number of earlier iterations
        self.top = b.current

    def visit(self, op: Op) -> None:
        """Copy an op, except prints and checks. Pointers are rebuilt at their uses."""
        if op.kind == "local":
            self.local(op)
        elif op.kind == "shared":
            self.memory.early[op] = self.memory.late[op] = self.copy(op)
        elif op.kind in ACCESSES:
            self.access(op)
        elif op.kind not in PLACES and effect_of(op.kind) is not Effect.REPORT:
            super().visit(op)

    # --- memory

    def local(self, op: Op) -> None:
        place = self.b.emit("local", self.get(op.args[0]), name=op.name)
        self.map[op] = self.memory.early[op] = self.memory.late[op] = place

    def access(self, op: Op) -> None:
        """Case of a load, store or atomic. Writes to invariant arrays are omitted."""
        root = base_memory(op.args[0])
        if op.kind in WRITES and root in self.primal.invariant:
            return
        is_early = op.kind == "load" and op not in self.primal.late
        arrays = self.memory.early if is_early else self.memory.late
        place = place_in(self.b, op.args[0], arrays.get(root, root), self.get)
        self.copy(op, place, *map(self.get, op.args[1:]))

    # --- control: an `if` yields saved values as extra results; loops count and save

    def carry(self, op: Op) -> Sequence[Value]:
        if op.kind in LOOPS:
            self.before[op] = self.base(op)
        return (self.b.const(0, i32),) if op.kind == "while" else ()

    def end(self, op: Op, region: Region, more: Sequence[Param]) -> Sequence[Value]:
        """Values that a region yields in addition: saved values of an arm, the counter of a
        `while`.

        For a loop, also stores the saved values of the iteration in buffers.
        """
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
        """Number of iterations that a loop has executed before in this invocation."""
        pseudo = self.primal.base.get(op)
        if pseudo is None:
            return self.b.const(0, i32)
        if op not in self.counters:
            with self.b.within(self.top):
                self.counters[op] = self.b.emit("local", self.b.const(0, i32), name="rounds")
        self.map[pseudo] = self.b.emit("load", self.counters[op])
        return self.map[pseudo]

    def count(self, op: Op, base: Value, trips: Value) -> None:
        if op in self.primal.base:
            total = self.b.emit("add", base, as_i32(self.b, trips))
            self.b.emit("store", self.counters[op], total)

    def save(self, op: Op, base: Value, step: Value) -> None:
        for v in self.kept.in_loop.get(op, []):
            position = self.b.emit("add", base, as_i32(self.b, step))
            place = self.b.emit("elem", self.kept.buffer(v), position, self.invocation)
            self.b.emit("store", place, self.get(v))


class CountingSweep(ForwardSweep):
    """A sweep that saves nothing and computes the buffer sizes of the loops in `cells`."""

    def __init__(
        self,
        b: Builder,
        primal: PrimalAnalysis,
        memory: SegmentMemory,
        invocation: Value,
        cells: dict[Op, Param],
    ) -> None:
        super().__init__(b, primal, SavedValues(primal), memory, invocation)
        self.cells = cells

    def count(self, op: Op, base: Value, trips: Value) -> None:
        if op not in self.primal.base and op not in self.cells:
            return
        b = self.b
        total = saturated_i32(b, b.emit("add", base, saturated_i32(b, trips)))
        if op in self.primal.base:
            b.emit("store", self.counters[op], total)
        if op in self.cells:
            b.emit("atomic_max", b.emit("elem", self.cells[op]), total)


Make = Callable[[SegmentMemory, Value], ForwardSweep]


def run_segment(
    outer: ForwardSweep, segment: Segment, versions: MemoryVersions, make: Make
) -> Sequence[Value]:
    """Emit a segment on the next versions of memory; return the bounds of a loop, otherwise ()."""
    memory = outer.memory = versions.advance(segment.ops)
    if segment.loop is not None:
        return run_parallel(outer, segment.loop, lambda n: make(memory, n))
    outer.run(segment.ops)
    versions.now.update(memory.late)
    return ()


def run_parallel(
    outer: ForwardSweep,
    op: Op,
    make: Callable[[Value], ForwardSweep],
    then: Callable[[ForwardSweep], None] = lambda sweep: None,
) -> list[Value]:
    """Emit a `parallel` over the same indices; return its bounds.

    In its body, the sweep `make(number)` recomputes an iteration, then `then(sweep)` is called.
    """
    b, (region,) = outer.b, op.regions
    bounds = [outer.get(v) for v in op.args]
    indices = [Param(p.type, p.name) for p in region.params]
    with b.region(*indices) as body:
        inner = make(linear_iteration(b, bounds, indices))
        inner.map = {**outer.map, **dict(zip(region.params, indices, strict=True))}
        inner.run(region.ops)
        then(inner)
        b.emit("yield")
    b.parallel(bounds, body, op.attr, op.name)
    return bounds
