"""Where a kernel puts derivatives, call by call: with the numbers and shapes that are given, and
where some arrays are known to hold constants.

Owns: `Outflows`, of one Func. Must not know: tapes.
"""

from __future__ import annotations

from collections.abc import Mapping

from vkchi.analysis.conditions import guards_of, may_hold
from vkchi.analysis.footprint import Footprint, Shaped
from vkchi.autodiff.primal import Activity
from vkchi.autodiff.reaching import Reach
from vkchi.ir.core import Func, Op
from vkchi.ir.ops import WRITES
from vkchi.tuples import NamedTuple
from vkchi.types import u1


class Outflow(NamedTuple):
    """The arrays with a gradient that a call puts derivatives into, and the ops that do so; those
    without that hold some afterwards, or bits of such values."""

    stores: Mapping[str, Op]
    escapes: Mapping[str, Op]
    bits: Mapping[str, Op]


class Outflows:
    """The answers for derivatives by the arrays `names`."""

    def __init__(self, fn: Func, names: frozenset[str]) -> None:
        self.fn, self.names, self.reach = fn, names, Reach(fn)
        self.guards = {op: g for op, g in guards_of(fn.body) if op.kind in WRITES}
        self.truths = [p for p in fn.params if p.type is u1]
        self.footprint = Footprint(fn, (), ())
        self.known: dict[tuple[frozenset[str], frozenset[Op]], Outflow] = {}

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
            reach, begun = self.reach, self.reach.begun()
            active = Activity(self.fn, self.names, constant=constant | begun)
            escapes = reach.lasting(active, skipped) if active.escapes else {}
            found = Outflow(active.stores, escapes, reach.lasting_bits(active))
            self.known[constant, skipped] = found
        return self.known[constant, skipped]

    def _skipped(self, numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> frozenset[Op]:
        """The writes that a call does not do, for it does not take their branch."""
        if not self.guards:
            return NONE
        shapes = tuple([(name, array.shape) for name, array in arrays.items()])
        ranges = self.footprint.ranges(numbers, shapes)
        ranges.found |= {p: (numbers[p.name],) * 2 for p in self.truths if p.name in numbers}
        return frozenset(
            op for op, guards in self.guards.items()
            if not all(may_hold(v, t, ranges) for v, t in guards)
        )  # fmt: skip


NONE: frozenset[Op] = frozenset()
