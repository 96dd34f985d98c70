"""Full unrolling of serial loops with a constant trip count.

Unroller(b, known, chosen).rounds(loop)
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.core import Op, Value, constant_int
from vkchi.ir.ops import constant_trip_count
from vkchi.ir.rebuild import Cloner
from vkchi.types import Scalar


def unrolled_size(ops: Sequence[Op], chosen: Collection[Op]) -> int:
    """Return the number of ops after unrolling the `chosen` loops, including nested ones and each
    `yield`."""
    total = 0
    for op in ops:
        inside = sum(unrolled_size(region.ops, chosen) for region in op.regions)
        total += inside * (constant_trip_count(op) or 0) if op in chosen else 1 + inside
    return total


class Unroller(Cloner):
    """Copies ops, and unrolls the `chosen` loops among them. The `elem` ops `unproved` lose the
    proof of being in range."""

    def __init__(
        self, b: Builder, known: dict[Value, Value], chosen: set[Op], unproved: Container[Op] = ()
    ) -> None:
        super().__init__(b, known)
        self.chosen, self.unproved = chosen, unproved

    def visit(self, op: Op) -> None:
        if op in self.chosen:
            self.rounds(op)
        else:
            super().visit(op)

    def copy(self, op: Op, *args: Value) -> Op:
        if op not in self.unproved:
            return super().copy(op, *args)
        new = self.map[op] = self.b.emit("elem", *map(self.get, op.args), name=op.name)
        return new

    def rounds(self, op: Op) -> Sequence[Value]:
        """Append all iterations of a loop, map its results, and return them."""
        body, begin = op.regions[0], constant_int(op.args[0])
        t = body.params[0].type
        assert begin is not None and isinstance(t, Scalar)
        values = [self.get(v) for v in op.args[2:]]
        for k in range(constant_trip_count(op) or 0):
            self.b.span = op.span
            values = self.inline(body, (self.b.const(begin + k, t), *values))
        self.map.update(zip(op.results, values, strict=True))
        return values
