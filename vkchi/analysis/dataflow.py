"""One solver for what follows from what, and how values flow through structured control.

Owns: `closure`, the least set that holds some nodes and what follows from each (a worklist: every
node is followed once); `largest`, the greatest set whose nodes have what they need in it; `Flow`,
the closure of values and memory under what ops hand on. Memory is a node, too: an array parameter,
or the op that makes a private place. A subclass of `Flow` says what an op hands on:

- `transfer`, an op that has a value as an operand: its results; of a loop what it carries in that
  slot; of a `yield` that slot of its op. A region's ops are followed as all others;
- `transfer_memory`, an op that reads or writes memory which is in: by default its results.

Must not know: what is followed, and what for.

    >>> Flow(fn.body, [x]).found          # %y = add %x, 1; store %p, %y
    {x, y, p's array}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from vkchi.ir.control import bodies_of, carried_params, deciding_values, first_values, is_loop
from vkchi.ir.core import Op, Param, Region, Value, base_of, uses_in, walk
from vkchi.ir.ops import READS, TABLE, WRITES, Effect
from vkchi.types import Array

Node = TypeVar("Node")
MEMORY = frozenset((*READS, *WRITES))


def closure(start: Iterable[Node], follow: Callable[[Node], Iterable[Node]]) -> set[Node]:
    """These nodes, and all that follows."""
    found = set(start)
    todo = list(found)
    while todo:
        for node in follow(todo.pop()):
            if node not in found:
                found.add(node)
                todo.append(node)
    return found


def is_memory(v: Value) -> bool:
    """Whether v is memory: an array, or a private place."""
    if isinstance(v, Param):
        return isinstance(v.type, Array)
    return isinstance(v, Op) and TABLE[v.kind].effect is Effect.ALLOC


class Flow:
    """What follows from some values and memory in a region: `found`."""

    def __init__(self, body: Region, seeds: Iterable[Value]) -> None:
        self.uses = uses_in(body)
        self.deciding: dict[Value, list[Op]] = {}  # value -> the control ops that it decides
        self.accesses: dict[Value, list[Op]] = {}
        self.owners: dict[Op, Op] = {}  # the `yield` of a body -> its control op
        for op in walk(body):
            if op.kind in MEMORY:
                self.accesses.setdefault(base_of(op.args[0]), []).append(op)
            if op.regions:
                self.owners.update((r.ops[-1], op) for r in bodies_of(op))
                for v in deciding_values(op):
                    self.deciding.setdefault(v, []).append(op)
        self.found = closure(seeds, self.follow)

    def follow(self, v: Value) -> Iterator[Value]:
        """What follows from a value, or from memory."""
        if is_memory(v):
            for op in self.accesses.get(v, ()):
                yield from self.transfer_memory(op)
            return
        for op in self.uses.get(v, ()):
            yield from self.transfer(op, v)
        for op in self.deciding.get(v, ()):
            yield from self.decide(op)

    def transfer(self, op: Op, v: Value) -> Iterable[Value]:
        """What an op hands on of an operand."""
        if op.kind == "yield" or op.regions:
            return self.carry(op, v)
        return op.results

    def transfer_memory(self, op: Op) -> Iterable[Value]:
        """What an op hands on that finds memory."""
        return op.results

    def decide(self, op: Op) -> Iterable[Value]:
        """What follows from that a control op goes some way."""
        return ()

    def carry(self, op: Op, v: Value) -> Iterator[Value]:
        """The slots of a control op that it, or its `yield`, puts v in."""
        owner = self.owners.get(op) if op.kind == "yield" else op
        if owner is None or (owner is op and not is_loop(op)):
            return
        for k, x in enumerate(op.args if owner is not op else first_values(op)):
            if x is v:
                yield owner.results[k]
                if is_loop(owner):
                    yield from slot_params(owner, k)


class Dependence(Flow):
    """What depends on some values and memory, by what is computed from them and by what they
    decide: of a control op that depends on them, everything inside (`decided`), and its results.
    `seen` gives what sees a write: all that reads the memory, if nothing else is said."""

    def __init__(
        self,
        body: Region,
        seeds: Iterable[Value],
        seen: Callable[[Op], Iterable[Value]] = lambda op: (base_of(op.args[0]),),
    ) -> None:
        self.seen = seen
        self.decided: set[Op] = set()
        super().__init__(body, seeds)

    def transfer(self, op: Op, v: Value) -> Iterable[Value]:
        """Results, and what sees a write."""
        if op.kind in WRITES:
            return (*self.seen(op), *op.results)
        return super().transfer(op, v)

    def decide(self, op: Op) -> Iterator[Value]:
        """All that is made inside."""
        yield from op.results
        yield from made_inside(op)
        for inner in ops_inside(op):
            self.decided.add(inner)
            if inner.kind in WRITES:
                yield from self.seen(inner)

    def writes(self) -> set[Op]:
        """The writes of which it depends whether, where or what they write."""
        every = (op for ops in self.accesses.values() for op in ops if op.kind in WRITES)
        return {op for op in every if op in self.decided or not self.found.isdisjoint(op.args)}


def ops_inside(op: Op) -> Iterator[Op]:
    """The ops in an op's regions, however deep."""
    for region in op.regions:
        yield from walk(region)


def made_inside(op: Op) -> Iterator[Value]:
    """The values that stand in an op's regions: what ops give, and parameters."""
    for x in (op, *ops_inside(op)):
        yield from (p for region in x.regions for p in region.params)
        if x is not op:
            yield from x.results


def slot_params(loop: Op, k: int) -> Iterator[Value]:
    """What stands for a carried value in a loop's regions."""
    skip = len(loop.regions[-1].params) - len(carried_params(loop))
    return (r.params[skip + k] for r in loop.regions)
