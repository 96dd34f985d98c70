"""Common subexpressions: of equal pure ops, the later one is the earlier one's value.

Drivers do this too; here it lets the other passes see by identity that two places are one. An op is
merged with an equal one that stands before it in its region or in one around it. Operands of
commutative ops count in both orders (of floats too: IEEE sums and products commute; `min` and
`max` of zeros do not, so there only for integers). `forward` merges reads; `local`s stay apart.

Owns: the table of what is available. Must not know: what ops mean.

    %b = add %x, %y        %d = add %y, %x: every use of %d is one of %b
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value
from vkchi.ir.ops import TABLE, Effect
from vkchi.ir.rebuild import Rebuilder
from vkchi.passes.match import COMMUTATIVE, kind_of

PURE = frozenset(kind for kind, row in TABLE.items() if row.effect is Effect.PURE)
Key = tuple[Any, ...]


def merge_equal_ops(fn: Func) -> Func:
    """The Func with every op that repeats an available one replaced by it."""
    body = Merger().walk.region(fn.body)
    return fn if body is fn.body else Func(fn.name, fn.params, body, fn.span)


class Merger:
    """One run. `available` leads from what an op computes to the value that stands for it."""

    def __init__(self) -> None:
        self.walk = Rebuilder(self.visit)
        self.available: dict[Key, Value] = {}
        self.entered: list[Key] = []

    def visit(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """The earlier value, or None to keep the op."""
        if op.kind not in PURE:
            return self.visit_control(op, args) if op.regions else None
        key = (op.kind, args, op.attr, op.type)
        found = self.available.get(key)
        if found is None and op.kind in COMMUTATIVE:
            found = self.find_swapped(op, args)
        if found is not None:
            return (found,)
        new = op if args is op.args else self.walk.copy(op, args, ())
        self.available[key] = b.insert(new)
        self.entered.append(key)
        return new.results

    def find_swapped(self, op: Op, args: tuple[Value, ...]) -> Value | None:
        """The value of the same op with its operands exchanged."""
        if op.kind in ("min", "max") and kind_of(args[0].type) == "f":
            return None
        return self.available.get((op.kind, args[::-1], op.attr, op.type))

    def visit_control(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """Keep the op; what its regions make available ends with them."""
        regions = []
        for region in op.regions:
            mark = len(self.entered)
            regions.append(self.walk.region(region))
            for key in self.entered[mark:]:
                del self.available[key]
            del self.entered[mark:]
        unchanged = args == op.args and all(a is b for a, b in zip(regions, op.regions))
        new = op if unchanged else self.walk.copy(op, args, tuple(regions))
        self.walk.b.insert(new)
        return new.results
