"""Cuts very long parallel loops whose parts share nothing into several loops.

Why: the time that drivers' compilers take grows with the square of the memory accesses in one
shader (LLVM's scheduler and register allocator): 500 fields, each loaded and stored, take 3 s in
one loop and 0.3 s in four.

- A loop is cut where it has more than MOST accesses, in parts of PART or a little more.
- What an iteration does falls into ops that use each other's values, or the same memory where one
  of them writes it; of one array, what has different constants on an axis (or different components)
  is different memory, in whatever iteration. Ops that hang together stay together, in their order;
  others touch no memory that these write, in no iteration, so it does not matter which run first.
- Index arithmetic, and loads of what the loop does not write, are done again in each part, if they
  take few ops.
- Loops that synchronise, report, draw random numbers or ask which invocation they are stay whole.

Must not know: devices, grids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from vkchi.analysis.alias import Place, memory_of, place_of
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value, walk
from vkchi.ir.ops import PER_INVOCATION, READS, TABLE, WRITES, Effect
from vkchi.ir.rebuild import Rebuilder, rebuild_loops

MOST = 512  # accesses in one loop
PART = 256
LONGEST_REPEAT = 24  # ops
ACCESSES = READS | WRITES
PLAIN = (Effect.PURE, Effect.READ, Effect.WRITE, Effect.ATOMIC, Effect.CONTROL)
Access = tuple[int, Op, Place]  # the op of the loop's body that it is (in), and where


def cut_long_loops(fn: Func) -> Func:
    """The Func with very long parallel loops in parts; `fn` itself if there are none."""

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if not is_long(op):
            return None
        parts = Loop(op.regions[0]).parts()
        if len(parts) < 2:
            return None
        for part in parts:
            b.parallel(args, part, op.attr)
        return ()

    return rebuild_loops(fn, visit)


def is_long(loop: Op) -> bool:
    """Whether a loop has many accesses, and nothing that keeps it whole."""
    ops = list(walk(loop.regions[0]))
    accesses = sum(op.kind in ACCESSES for op in ops)
    return accesses > MOST and all(is_plain(op) for op in ops)


def is_plain(op: Op) -> bool:
    """Whether an op only computes, or reads or writes memory."""
    if op.kind in PER_INVOCATION or op.kind == "random":
        return False
    return op.kind == "local" or TABLE[op.kind].effect in PLAIN


class Loop:
    """The body of a long loop, and what in it hangs together."""

    def __init__(self, body: Region) -> None:
        self.body, self.ops = body, body.ops[:-1]
        self.makers = {v: k for k, op in enumerate(self.ops) for v in op.results}
        self.accesses = list(self.find_accesses())
        self.memory = memory_of({place.base for _, _, place in self.accesses})
        self.written = {
            self.memory[place.base] for _, op, place in self.accesses if op.kind in WRITES
        }
        self.repeats: dict[Value, int] = {}  # ops that parts may do again: how many ops that takes
        for op in self.ops:
            self.note_repeat(op)
        self.leader = list(range(len(self.ops)))

    def find_accesses(self) -> Iterator[Access]:
        for k, op in enumerate(self.ops):
            for inner in walk(Region((), [op])):
                if inner.kind in ACCESSES:
                    yield k, inner, place_of(inner.args[0])

    def note_repeat(self, op: Op) -> None:
        """Note whether an op may be done again."""
        is_read = op.kind == "load" and not self.is_written(place_of(op.args[0]))
        if op.regions or not (is_read or TABLE[op.kind].effect is Effect.PURE):
            return
        made_here = [v for v in op.args if v in self.makers]
        if all(v in self.repeats for v in made_here):
            size = 1 + sum(self.repeats[v] for v in made_here)
            if size <= LONGEST_REPEAT:
                self.repeats[op] = size

    def is_written(self, place: Place) -> bool:
        """Whether the loop may write the array, or the private place, that a place is in."""
        return self.memory[place.base] in self.written

    # --- what hangs together

    def find(self, k: int) -> int:
        """The op that stands for all that hang together with the k-th."""
        while self.leader[k] != k:
            self.leader[k] = k = self.leader[self.leader[k]]
        return k

    def join(self, ops: Sequence[int]) -> None:
        """These hang together."""
        for k in ops[1:]:
            self.leader[self.find(k)] = self.find(ops[0])

    def join_users(self) -> None:
        """Ops that use each other's values."""
        for k, op in enumerate(self.ops):
            for v in used_by(op):
                if v in self.makers and v not in self.repeats and op not in self.repeats:
                    self.join((k, self.makers[v]))

    def join_memory(self) -> None:
        """Ops that use the same memory, where it is written."""
        of: dict[object, list[Access]] = defaultdict(list)
        for access in self.accesses:
            if self.is_written(access[2]):
                of[self.memory[access[2].base]].append(access)
        for accesses in of.values():
            axes = fixed_axes([place for _, _, place in accesses])
            same: dict[tuple[object, ...], list[int]] = defaultdict(list)
            for k, _, place in accesses:
                same[tuple([coordinates(place)[a] for a in axes])].append(k)
            for ops in same.values():
                self.join(ops)

    # --- parts

    def parts(self) -> list[Region]:
        """Bodies that together do what the loop does."""
        self.join_users()
        self.join_memory()
        sizes: dict[int, int] = defaultdict(int)
        for k, _, _ in self.accesses:
            sizes[self.find(k)] += self.ops[k] not in self.repeats
        part_of: dict[int, int] = {}
        part = filled = 0
        for k, op in enumerate(self.ops):
            group = self.find(k)
            if op in self.repeats or group in part_of:
                continue
            if filled >= PART:
                part, filled = part + 1, 0
            part_of[group] = part
            filled += sizes[group]
        chosen: list[list[Op]] = [[] for _ in range(part + 1)]
        for k, op in enumerate(self.ops):
            if op not in self.repeats:
                chosen[part_of[self.find(k)]].append(op)
        if len(chosen) < 2:
            return []
        return [Part(self).make(ops) for ops in chosen]


class Part(Rebuilder):
    """Writes the body of one part."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(lambda b, op, args: None)
        self.loop = loop
        self.made: set[Value] = set()

    def make(self, ops: Sequence[Op]) -> Region:
        """These ops and what they need done again."""
        params = self.loop.body.params
        indices = [Param(old.type, old.name) for old in params]
        self.map.update(zip(params, indices, strict=True))
        with self.inside(*indices) as region:
            for op in ops:
                for v in used_by(op):
                    self.bring(v)
                self.ops([op])
            self.b.emit("yield")
        return region

    def bring(self, v: Value) -> None:
        """Make a value that parts do again, if it is such and not there yet."""
        if v in self.loop.repeats and v not in self.made:
            assert isinstance(v, Op)
            self.made.add(v)
            for arg in v.args:
                self.bring(arg)
            self.b.insert(self.copy(v, self.args(v), ()))


def used_by(op: Op) -> list[Value]:
    """The values that an op and those inside use."""
    return [v for inner in walk(Region((), [op])) for v in inner.args]


def coordinates(place: Place) -> tuple[object, ...]:
    """Constant indices, and the component last; None for what is computed."""
    indices = [i.offset if i.root is None else None for i in place.indices]
    return (*indices, place.component if isinstance(place.component, int) else None)


def fixed_axes(places: Sequence[Place]) -> list[int]:
    """The coordinates that are constant in all places, of one base."""
    if any(place.base is not places[0].base for place in places):
        return []  # arrays that may be the same memory, in whatever way
    columns = zip(*[coordinates(place) for place in places], strict=True)
    return [axis for axis, column in enumerate(columns) if None not in column]
