"""Loop fission (distribution) of very long parallel loops into independent loops.

Motivation: drivers' compile time grows faster than the number of memory accesses in a shader.

- A loop with more than FISSION_ACCESSES accesses is split into parts of FISSION_PART or more, the
  last one perhaps less.
- Ops are dependent if one uses the other's value, or if both access the same memory and one writes
  it. Elements of one array are disjoint if a subscript, or the component, is constant in all
  accesses and differs; this holds between all iterations. Dependent ops stay in one part, in order.
  Parts are independent across all iterations, so they may run in any order.
- Pure ops, and loads of memory that the loop does not write, are recomputed in each part if that
  takes at most FISSION_RECOMPUTED ops.
- Loops are not split if they synchronize, report, draw random numbers, read invocation numbers or
  use workgroup memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from vkchi.analysis.memory.alias import (
    MemoryLocation,
    alias_classes,
    kinds_of_writes,
    location_of,
)
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value, base_memory, walk, walk_ops
from vkchi.ir.ops import ACCESSES, PER_INVOCATION, READS, TABLE, WRITES, Effect
from vkchi.ir.rebuild import Rebuilder, rebuild_loops
from vkchi.target import tuning
from vkchi.target.cell_lists import listed_activity

PLAIN = (Effect.PURE, Effect.READ, Effect.WRITE, Effect.ATOMIC, Effect.CONTROL)
Access = tuple[
    int, Op, MemoryLocation
]  # index of the top-level op in the loop's body, access, location


def cut_long_loops(fn: Func) -> Func:
    """Split very long parallel loops; returns `fn` itself if there are none."""

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if not is_long(op) or changes_own_list(op):
            return None
        parts = FissionLoop(op.regions[0]).parts()
        if len(parts) < 2:
            return None
        for part in parts:
            b.parallel(args, part, op.attr, op.name)
        return ()

    return rebuild_loops(fn, visit)


def is_long(loop: Op) -> bool:
    ops = list(walk(loop.regions[0]))
    accesses = sum(op.kind in ACCESSES for op in ops)
    return accesses > tuning.FISSION_ACCESSES and all(is_plain(op) for op in ops)


def changes_own_list(loop: Op) -> bool:
    """True if a loop reads an active list and writes its activity array. Lists are rebuilt between
    dispatches, so its parts would iterate over different cells."""
    found = kinds_of_writes(loop.regions[0].ops)
    written = {base.name for base in found if isinstance(base, Param)}
    read = {base_memory(op.args[0]) for op in walk(loop.regions[0]) if op.kind in READS}
    return any(isinstance(x, Param) and listed_activity(x.name) in written for x in read)


def is_plain(op: Op) -> bool:
    """True if an op only computes, controls flow or accesses memory, and does not depend on the
    invocation."""
    if op.kind in PER_INVOCATION or op.kind == "random":
        return False
    return op.kind == "local" or TABLE[op.kind].effect in PLAIN


class FissionLoop:
    """The body of a long loop, and the dependences between its top-level ops (union-find)."""

    def __init__(self, body: Region) -> None:
        self.body, self.ops = body, body.ops[:-1]
        self.makers = {v: k for k, op in enumerate(self.ops) for v in op.results}
        self.accesses = list(self.find_accesses())
        self.memory = alias_classes({place.base for _, _, place in self.accesses})
        self.written = {
            self.memory[place.base] for _, op, place in self.accesses if op.kind in WRITES
        }
        self.repeats: dict[Value, int] = {}  # recomputable ops, with the number of ops to recompute
        for op in self.ops:
            self.note_repeat(op)
        self.leader = list(range(len(self.ops)))

    def find_accesses(self) -> Iterator[Access]:
        for k, op in enumerate(self.ops):
            for inner in walk_ops([op]):
                if inner.kind in ACCESSES:
                    yield k, inner, location_of(inner.args[0])

    def note_repeat(self, op: Op) -> None:
        """Record an op that parts may recompute, with the number of ops that this takes."""
        is_read = op.kind == "load" and not self.is_written(location_of(op.args[0]))
        if op.regions or not (is_read or TABLE[op.kind].effect is Effect.PURE):
            return
        made_here = [v for v in op.args if v in self.makers]
        if all(v in self.repeats for v in made_here):
            size = 1 + sum(self.repeats[v] for v in made_here)
            if size <= tuning.FISSION_RECOMPUTED:
                self.repeats[op] = size

    def is_written(self, place: MemoryLocation) -> bool:
        return self.memory[place.base] in self.written

    # --- what hangs together

    def find(self, k: int) -> int:
        while self.leader[k] != k:
            self.leader[k] = k = self.leader[self.leader[k]]
        return k

    def join(self, ops: Sequence[int]) -> None:
        for k in ops[1:]:
            self.leader[self.find(k)] = self.find(ops[0])

    def join_users(self) -> None:
        """Unite ops with a def-use dependence, except those that parts may recompute."""
        for k, op in enumerate(self.ops):
            for v in used_by(op):
                if v in self.makers and v not in self.repeats and op not in self.repeats:
                    self.join((k, self.makers[v]))

    def join_memory(self) -> None:
        """Unite ops with a memory dependence."""
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
        """Return the bodies of the parts; an empty list if there is only one."""
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
            if filled >= tuning.FISSION_PART:
                part, filled = part + 1, 0
            part_of[group] = part
            filled += sizes[group]
        chosen: list[list[Op]] = [[] for _ in range(part + 1)]
        for k, op in enumerate(self.ops):
            if op not in self.repeats:
                chosen[part_of[self.find(k)]].append(op)
        if len(chosen) < 2:
            return []
        return [FissionPart(self).make(ops) for ops in chosen]


class FissionPart(Rebuilder):
    """Emits the body of one part."""

    def __init__(self, loop: FissionLoop) -> None:
        super().__init__()
        self.loop = loop
        self.made: set[Value] = set()

    def make(self, ops: Sequence[Op]) -> Region:
        """Return a body with these ops and the ops that they need recomputed."""
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
        if v in self.loop.repeats and v not in self.made:
            assert isinstance(v, Op)
            self.made.add(v)
            for arg in v.args:
                self.bring(arg)
            self.b.insert(self.copy(v, self.args(v), ()))


def used_by(op: Op) -> list[Value]:
    return [v for inner in walk_ops([op]) for v in inner.args]


def coordinates(place: MemoryLocation) -> tuple[object, ...]:
    """Return the constant subscripts of a location, then its component; None for computed ones, and
    for the whole element."""
    indices = [i.offset if i.root is None else None for i in place.indices]
    return (*indices, place.component if isinstance(place.component, int) else None)


def fixed_axes(places: Sequence[MemoryLocation]) -> list[int]:
    """Return the indices of the `coordinates` that are constant in all locations; none if the
    locations have several bases."""
    if any(place.base is not places[0].base for place in places):
        return []  # arrays that may alias at any offset
    columns = zip(*[coordinates(place) for place in places], strict=True)
    return [axis for axis, column in enumerate(columns) if None not in column]
