"""What a loop hands on to its sums, where these are done in another loop behind it.

The sums need values: of their places, of what they add, of the branches and loops that they stand
in. In the second loop an op can be done again if it is pure, or loads what nothing in the loop
writes; any other number is handed on, in an array with a slot for each iteration, and for each
round of the counted loops around it. Which values are handed on is a least cut (`least_cut`)
between what cannot be done again and the sums: through a value at the price of a store and its
loads, through an op at that of doing it in each round of the sums.

Owns: `Cut`, `cut_for`. Must not know: which sums may leave, what becomes of them.

    parallel 0, n {(i) g = f(load y[i]); store y[i], 0; for k { atomic_add x[k], g * w[i, k] } }
    cut_for(shifts, sums).handed == [g]         # y is written: what stood there is gone
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from functools import cached_property
from math import prod

from vkchi.analysis.alias import may_share
from vkchi.analysis.dataflow import closure
from vkchi.analysis.least_cut import Network
from vkchi.analysis.shifts import Shifts, is_global
from vkchi.ir.constants import constant_int
from vkchi.ir.control import axes_of, control_of
from vkchi.ir.core import Op, Param, Result, Value, base_of
from vkchi.ir.ops import READS, TABLE, Effect
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, scalar_of, shape_of

STORE, LOAD, FLOAT, INTEGER = 8.0, 1.0, 0.1, 0.02  # in loads; integers go into addresses
MOST_OPS = 1024  # of a loop: searches for a cut take the square of that
SOURCE, SINK = "source", "sink"


class Cut(NamedTuple):
    """A loop, the sums that leave it, the control ops around these; values that are handed on, and
    ops that are done again."""

    shifts: Shifts
    sums: Set[Op]
    around: Set[Op]
    handed: Sequence[Value]
    repeated: Set[Op]


def cut_for(shifts: Shifts, sums: Sequence[Op]) -> Cut | None:
    """How a loop is cut between its sums and all else; None where something that they need can
    neither be handed on nor be done again."""
    return Cutter(shifts, sums).cut()


def lengths_of(shifts: Shifts, v: Value) -> list[int]:
    """The lengths of the axes of the loop, and of the serial loops around a value; zeros where they
    are not known."""
    loops = [shifts.loop, *shifts.survey.loops[v]]
    if any(control_of(op).tests for op in loops):
        return [0]
    axes = [axis for op in loops for axis in axes_of(op)]
    ends = [(constant_int(axis.begin), constant_int(axis.end)) for axis in axes]
    return [max(0, e - b) if b is not None and e is not None else 0 for b, e in ends]


def volume(shifts: Shifts, v: Value) -> int:
    """How often a value is made, by all iterations; 0 if that is not known."""
    return prod(lengths_of(shifts, v))


class Cutter:
    """The network of what sums need: an edge into each op, which costs to do it again, one through
    each value, which costs to hand it on, and free ones to those that use it."""

    def __init__(self, shifts: Shifts, sums: Sequence[Op]) -> None:
        self.shifts, self.sums = shifts, sums
        self.around = {c for op in sums for c in self.control_around(op)}
        self.rounds: Counter[Value] = Counter()  # of the sums that need a value
        self.network = Network()
        self.known: dict[Value, bool] = {}  # whether a value is a node; others are at hand

    def control_around(self, op: Op) -> Iterator[Op]:
        """The control ops that an op stands in."""
        owner = self.shifts.parents.get(op)
        while owner is not None:
            yield owner
            owner = self.shifts.parents.get(owner)

    @cached_property
    def written(self) -> list[Value]:
        """The arrays that the loop writes."""
        return list(self.shifts.survey.writes)

    def cut(self) -> Cut | None:
        """A least cut."""
        is_long = len(self.shifts.number) > MOST_OPS
        if is_long or any(control_of(op).tests for op in self.around):
            return None
        needed = {op: self.needed_by(op) for op in self.sums}
        for op, values in needed.items():
            rounds = volume(self.shifts, op)
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
        return Cut(self.shifts, set(self.sums), self.around, handed, repeated)

    def place_in_body(self, v: Value) -> int:
        """Which op makes a value; parameters come first."""
        op = maker_of(v)
        return self.shifts.number[op] if isinstance(op, Op) else -1

    def needed_by(self, op: Op) -> list[Value]:
        """The values that a sum, and the control ops around it, take."""
        around = self.control_around(op)
        return [*op.args, *(v for c in around for v in c.args[: control_of(c).fixed])]

    def made_of(self, v: Value) -> Sequence[Value]:
        """What an op takes that might be done again."""
        return v.args if isinstance(v, Op) and self.can_repeat(v) else ()

    def find(self, v: Value) -> bool:
        """Whether a value is a node of the network, which it is with all that it is made of."""
        found = self.known.get(v)
        if found is None:
            found = self.known[v] = self.is_made_here(v)
            if found:
                self.add(v)
        return found

    def is_made_here(self, v: Value) -> bool:
        """Whether a value is made in the loop, and is no index that is at hand."""
        if isinstance(v, Param):
            owner = self.shifts.parents.get(v)
            indices = axes_of(owner) if owner in self.around else ()
            return owner is not None and all(axis.param is not v for axis in indices)
        return maker_of(v) in self.shifts.number

    def add(self, v: Value) -> None:
        """Append the edges of a node."""
        self.network.add((v, "in"), (v, "out"), self.price_of_slot(v))
        self.network.add(SOURCE, (v, "in"), self.price_of_op(v))
        for arg in self.made_of(v):
            if self.find(arg):
                self.network.add((arg, "out"), (v, "in"), math.inf)

    def price_of_slot(self, v: Value) -> float:
        """What it costs to hand a value on."""
        made = volume(self.shifts, v) if isinstance(v.type, Scalar | Tensor) else 0
        if not made:
            return math.inf
        return (STORE * made + LOAD * self.rounds[v]) * prod(shape_of(v.type))

    def price_of_op(self, v: Value) -> float:
        """What it costs to make a value again in each round of the sums."""
        if not isinstance(v, Op) or not self.can_repeat(v):
            return math.inf
        if not isinstance(v.type, Scalar | Tensor):
            return INTEGER * self.rounds[v]  # a pointer
        each = LOAD if v.kind in READS else FLOAT if scalar_of(v.type).kind == "f" else INTEGER
        return each * self.rounds[v] * prod(shape_of(v.type))

    def can_repeat(self, op: Op) -> bool:
        """Whether an op gives the same behind the loop."""
        if op.kind not in READS:
            return TABLE[op.kind].effect is Effect.PURE
        base = base_of(op.args[0])
        return (
            op.kind == "load"
            and is_global(base)
            and not any(may_share(base, other) for other in self.written)
        )


def maker_of(v: Value) -> Value:
    """The op whose result a value is; a parameter is its own."""
    return v.op if isinstance(v, Result) else v
