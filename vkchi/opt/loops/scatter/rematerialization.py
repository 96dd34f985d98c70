"""Rematerialization for loop distribution: a minimum cut between stored and recomputed values.

Reductions move to a second loop behind the first. They need values for their subscripts, operands,
and enclosing branches and loops. Each of these values is passed in one of two ways:

- Its op is recomputed (rematerialization). The op must be pure, or a load from an array parameter
  that the first loop does not write.
- It is stored in an array with one slot per iteration (scalar expansion), and per iteration of
  enclosing counted loops. The number of its executions must be a compile-time constant.

The choice is a minimum cut (`Network`) between non-recomputable values and the reductions.
Cutting a value costs one store and its loads. Cutting an op costs its execution in each iteration
of the reductions.

    parallel 0, 64 {(i) g = f(load y[i]); store y[i], 0; for k { atomic_add x[k], g * w[i, k] } }
    plan_rematerialization(shifts, sums).handed == [g]         # the loop overwrites y
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Hashable, Iterator, Sequence, Set
from functools import cached_property
from math import prod

from vkchi.analysis.dataflow import closure
from vkchi.analysis.memory.alias import bases_may_alias
from vkchi.ir.core import Op, Param, Result, Value, base_memory
from vkchi.ir.ops import READS, TABLE, Effect, axes_of, control_of
from vkchi.opt.loops.scatter.shifts import ScatterAnalysis, is_global
from vkchi.target import tuning
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, scalar_of, shape_of

SOURCE, SINK = "source", "sink"


class RematerializationPlan(NamedTuple):
    """Loop distribution plan.

    `sums` leave the loop; `around` are the control ops around them. `handed` values are stored,
    `repeated` ops are recomputed.
    """

    shifts: ScatterAnalysis
    sums: Set[Op]
    around: Set[Op]
    handed: Sequence[Value]
    repeated: Set[Op]


def plan_rematerialization(
    shifts: ScatterAnalysis, sums: Sequence[Op]
) -> RematerializationPlan | None:
    """Split a loop between the reductions `sums` and all other ops.

    None if the reductions need a value that can neither be stored nor recomputed. Also None if one
    of them is in a `while`, or if the loop has more than CUT_OPS ops.
    """
    return RematerializationCut(shifts, sums).cut()


def lengths_of(shifts: ScatterAnalysis, v: Value) -> list[int]:
    """Lengths of the loop's axes and of the serial loops around a value; 0 where unknown.

    [0] for a value in a `while`.
    """
    loops = [shifts.loop, *shifts.survey.loops[v]]
    if any(control_of(op).tests for op in loops):
        return [0]
    return [axis.length or 0 for op in loops for axis in axes_of(op)]


def executions_of(shifts: ScatterAnalysis, v: Value) -> int:
    """Number of times that a launch of the loop computes a value; 0 also if unknown."""
    return prod(lengths_of(shifts, v))


class RematerializationCut:
    """Flow network of the values that the reductions need.

    Capacities: source to op, its recomputation; through a value, its store and loads; value to
    user, infinite.
    """

    def __init__(self, shifts: ScatterAnalysis, sums: Sequence[Op]) -> None:
        self.shifts, self.sums = shifts, sums
        self.around = {c for op in sums for c in self.control_around(op)}
        self.rounds: Counter[Value] = Counter()  # iterations of the reductions that need a value
        self.network = Network()
        self.known: dict[Value, bool] = {}  # value -> is a node; other values are available

    def control_around(self, op: Op) -> Iterator[Op]:
        """Control ops around an op within the loop, innermost first."""
        owner = self.shifts.parents.get(op)
        while owner is not None:
            yield owner
            owner = self.shifts.parents.get(owner)

    @cached_property
    def written(self) -> list[Value]:
        return list(self.shifts.survey.writes)

    def cut(self) -> RematerializationPlan | None:
        is_long = len(self.shifts.number) > tuning.CUT_OPS
        if is_long or any(control_of(op).tests for op in self.around):
            return None
        needed = {op: self.needed_by(op) for op in self.sums}
        for op, values in needed.items():
            rounds = executions_of(self.shifts, op)
            self.rounds.update(dict.fromkeys(closure(values, self.made_of), rounds))
        for v in dict.fromkeys(v for values in needed.values() for v in values):
            if self.find(v):
                self.network.add((v, "out"), SINK, math.inf)
        near = self.network.near_side(SOURCE, SINK)
        if near is None:
            return None
        nodes = [v for v, is_node in self.known.items() if is_node]
        handed = [v for v in nodes if (v, "in") in near and (v, "out") not in near]
        repeated = {v for v in nodes if (v, "in") not in near and isinstance(v, Op)}
        handed.sort(key=self.place_in_body)
        return RematerializationPlan(self.shifts, set(self.sums), self.around, handed, repeated)

    def place_in_body(self, v: Value) -> int:
        """Position in the body of the op that defines a value; parameters come first."""
        op = maker_of(v)
        return self.shifts.number[op] if isinstance(op, Op) else -1

    def needed_by(self, op: Op) -> list[Value]:
        """Operands of a reduction, and conditions and bounds of the control ops around it."""
        around = self.control_around(op)
        return [*op.args, *(v for c in around for v in c.args[: control_of(c).fixed])]

    def made_of(self, v: Value) -> Sequence[Value]:
        """Operands of an op if it can be recomputed; () for other values."""
        return v.args if isinstance(v, Op) and self.can_repeat(v) else ()

    def find(self, v: Value) -> bool:
        """True if the loop computes a value. On the first call, adds it and its operands to the
        network."""
        found = self.known.get(v)
        if found is None:
            found = self.known[v] = self.is_made_here(v)
            if found:
                self.add(v)
        return found

    def is_made_here(self, v: Value) -> bool:
        """True if the loop body computes a value, carried values and inner indices included.

        False for the indices of the loop and of the serial loops around the reductions.
        """
        if isinstance(v, Param):
            owner = self.shifts.parents.get(v)
            indices = axes_of(owner) if owner in self.around else ()
            return owner is not None and all(axis.param is not v for axis in indices)
        return maker_of(v) in self.shifts.number

    def add(self, v: Value) -> None:
        self.network.add((v, "in"), (v, "out"), self.price_of_slot(v))
        self.network.add(SOURCE, (v, "in"), self.price_of_op(v))
        for arg in self.made_of(v):
            if self.find(arg):
                self.network.add((arg, "out"), (v, "in"), math.inf)

    def price_of_slot(self, v: Value) -> float:
        """Cost of storing and reloading a value.

        Infinite for pointers, and for values whose number of executions is unknown or 0.
        """
        made = executions_of(self.shifts, v) if isinstance(v.type, Scalar | Tensor) else 0
        if not made:
            return math.inf
        return (tuning.CUT_STORE * made + tuning.CUT_LOAD * self.rounds[v]) * prod(shape_of(v.type))

    def price_of_op(self, v: Value) -> float:
        """Cost of recomputing a value in each iteration of the reductions; infinite if that is not
        possible."""
        if not isinstance(v, Op) or not self.can_repeat(v):
            return math.inf
        if not isinstance(v.type, Scalar | Tensor):
            return tuning.CUT_INTEGER * self.rounds[v]  # a pointer
        each = (
            tuning.CUT_LOAD
            if v.kind in READS
            else tuning.CUT_FLOAT
            if scalar_of(v.type).kind == "f"
            else tuning.CUT_INTEGER
        )
        return each * self.rounds[v] * prod(shape_of(v.type))

    def can_repeat(self, op: Op) -> bool:
        """True if an op has the same result behind the loop.

        It must be pure, or a load from an array parameter that the loop does not write.
        """
        if op.kind not in READS:
            return TABLE[op.kind].effect is Effect.PURE
        base = base_memory(op.args[0])
        return (
            op.kind == "load"
            and is_global(base)
            and not any(bases_may_alias(base, other) for other in self.written)
        )


def maker_of(v: Value) -> Value:
    """The op that defines a value; a parameter is its own."""
    return v.op if isinstance(v, Result) else v


# --- minimum cut of a flow network ---------------------------------------------------------------
#
# The algorithm of Edmonds and Karp. Each edge has a capacity; `math.inf` marks edges that cannot be
# cut. By the max-flow min-cut theorem (Ford and Fulkerson), the nodes reachable in the residual
# network form one side of a minimum cut. Augmenting paths are shortest first, so the bound on their
# number does not depend on capacities.
#
#     >>> net = Network(); net.add("s", "a", 2.0); net.add("a", "t", 1.0)
#     >>> net.near_side("s", "t")
#     {'s', 'a'}


SMALLEST = 1e-9  # residual capacity; less is rounding error


class Network:
    """Flow network with residual capacities."""

    def __init__(self) -> None:
        self.left: dict[Hashable, dict[Hashable, float]] = {}

    def add(self, a: Hashable, b: Hashable, capacity: float) -> None:
        """Increase the capacity of the edge from a to b."""
        ahead = self.left.setdefault(a, {})
        ahead[b] = ahead.get(b, 0.0) + capacity
        self.left.setdefault(b, {}).setdefault(a, 0.0)

    def near_side(self, source: Hashable, sink: Hashable) -> set[Hashable] | None:
        """The nodes on the source's side of a minimum cut; None if every cut is infinite.

        Subtracts the maximum flow from the network's capacities, so call it once.
        """
        while True:
            came_from = self.search(source, sink)
            if sink not in came_from:
                return set(came_from)
            path = [sink]
            while path[-1] != source:
                path.append(came_from[path[-1]])
            edges = list(zip(path[1:], path))
            least = min(self.left[a][b] for a, b in edges)
            if least == math.inf:
                return None
            for a, b in edges:
                self.left[a][b] -= least
                self.left[b][a] += least

    def search(self, source: Hashable, sink: Hashable) -> dict[Hashable, Hashable]:
        """Breadth-first search in the residual network, until `sink` is reached.

        Maps each reached node to its predecessor, and `source` to itself.
        """
        came_from: dict[Hashable, Hashable] = {source: source}
        waiting = deque([source])
        while waiting and sink not in came_from:
            a = waiting.popleft()
            for b, capacity in self.left.get(a, {}).items():
                if b not in came_from and capacity > SMALLEST:
                    came_from[b] = a
                    waiting.append(b)
        return came_from
