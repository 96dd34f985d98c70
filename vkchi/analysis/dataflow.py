"""Data-flow analysis: transitive closure by a worklist, and flow through structured control.

`closure` computes the least fixpoint of a successor function; each node is expanded once. `Flow` is
the closure over values and memory. A memory node is an array parameter, or the op that allocates
private or workgroup memory. A subclass of `Flow` defines the edges:

- `transfer(op, v)`: successors of operand v of an op; by default the op's results. For a `yield` or
  a loop they are the results and carried parameters that receive v, for an `if` there are none;
- `transfer_memory(op)`: successors of memory that the op accesses; by default the op's results;
- `decide(op)`: successors of a value on which a control op's execution depends; by default none.

    >>> Dependence(fn.body, [x]).found          # %y = add %x, %one; store %p, %y
    {x, y, p's array}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from vkchi.ir.core import Op, Param, Region, Value, base_memory, uses_in, walk
from vkchi.ir.ops import (
    ACCESSES,
    TABLE,
    WRITES,
    Effect,
    bodies_of,
    carried_params,
    control_operands,
    initial_values,
    is_loop,
)
from vkchi.types import Array

Node = TypeVar("Node")


def closure(start: Iterable[Node], follow: Callable[[Node], Iterable[Node]]) -> set[Node]:
    """Return the start nodes and all nodes reachable from them by `follow`."""
    found = set(start)
    todo = list(found)
    while todo:
        for node in follow(todo.pop()):
            if node not in found:
                found.add(node)
                todo.append(node)
    return found


def is_memory(v: Value) -> bool:
    """True if v is memory: an array parameter, or an allocation (`local`, `shared`)."""
    if isinstance(v, Param):
        return isinstance(v.type, Array)
    return isinstance(v, Op) and TABLE[v.kind].effect is Effect.ALLOC


class Flow:
    """Forward closure of `seeds` over the values and memory of a region. `found` is the result,
    which includes the seeds."""

    def __init__(self, body: Region, seeds: Iterable[Value]) -> None:
        self.uses = uses_in(body)
        self.deciding: dict[Value, list[Op]] = {}  # value -> control ops that depend on it
        self.accesses: dict[Value, list[Op]] = {}
        self.owners: dict[Op, Op] = {}  # `yield` of a body -> its control op
        for op in walk(body):
            if op.kind in ACCESSES:
                self.accesses.setdefault(base_memory(op.args[0]), []).append(op)
            if op.regions:
                self.owners.update((r.ops[-1], op) for r in bodies_of(op))
                for v in control_operands(op):
                    self.deciding.setdefault(v, []).append(op)
        self.found = closure(seeds, self.follow)

    def follow(self, v: Value) -> Iterator[Value]:
        if is_memory(v):
            for op in self.accesses.get(v, ()):
                yield from self.transfer_memory(op)
            return
        for op in self.uses.get(v, ()):
            yield from self.transfer(op, v)
        for op in self.deciding.get(v, ()):
            yield from self.decide(op)

    def transfer(self, op: Op, v: Value) -> Iterable[Value]:
        if op.kind == "yield" or op.regions:
            return self.carry(op, v)
        return op.results

    def transfer_memory(self, op: Op) -> Iterable[Value]:
        return op.results

    def decide(self, op: Op) -> Iterable[Value]:
        return ()

    def carry(self, op: Op, v: Value) -> Iterator[Value]:
        """The results and loop-carried parameters that receive v from a control op or `yield`."""
        owner = self.owners.get(op) if op.kind == "yield" else op
        if owner is None or (owner is op and not is_loop(op)):
            return
        for k, x in enumerate(op.args if owner is not op else initial_values(op)):
            if x is v:
                yield owner.results[k]
                if is_loop(owner):
                    yield from slot_params(owner, k)


class Dependence(Flow):
    """Data and control dependence on the seeds.

    If a condition or loop bound depends on the seeds, so do the results of its control op and all
    values defined inside. `decided` is the set of ops inside these control ops. `seen(op)` returns
    the nodes to which a write leads; by default the written memory, hence all loads from it.
    """

    def __init__(
        self,
        body: Region,
        seeds: Iterable[Value],
        seen: Callable[[Op], Iterable[Value]] = lambda op: (base_memory(op.args[0]),),
    ) -> None:
        self.seen = seen
        self.decided: set[Op] = set()
        super().__init__(body, seeds)

    def transfer(self, op: Op, v: Value) -> Iterable[Value]:
        if op.kind in WRITES:
            return (*self.seen(op), *op.results)
        return super().transfer(op, v)

    def decide(self, op: Op) -> Iterator[Value]:
        yield from op.results
        yield from made_inside(op)
        for inner in ops_inside(op):
            self.decided.add(inner)
            if inner.kind in WRITES:
                yield from self.seen(inner)

    def writes(self) -> set[Op]:
        """Writes in `decided` and writes with an operand in `found`.

        Their execution, address or value may depend on the seeds.
        """
        every = (op for ops in self.accesses.values() for op in ops if op.kind in WRITES)
        return {op for op in every if op in self.decided or not self.found.isdisjoint(op.args)}


def ops_inside(op: Op) -> Iterator[Op]:
    for region in op.regions:
        yield from walk(region)


def made_inside(op: Op) -> Iterator[Value]:
    """Values defined in the regions of an op: results and region parameters."""
    for x in (op, *ops_inside(op)):
        yield from (p for region in x.regions for p in region.params)
        if x is not op:
            yield from x.results


def slot_params(loop: Op, k: int) -> Iterator[Value]:
    """The parameter of each region of a loop that holds carried slot k."""
    skip = len(loop.regions[-1].params) - len(carried_params(loop))
    return (r.params[skip + k] for r in loop.regions)
