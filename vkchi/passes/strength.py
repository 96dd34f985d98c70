"""Rewrites ops into forms that a device computes faster but that analyses do not read.

- The rows of `rules.STRENGTH`: division and remainder by powers of two become shifts and masks,
  exact for Python's rounding down.
- Of natural numbers (never negative: extents, constants, indices of loops that begin at such, and
  what division, remainder, `min`, `and` and shifts make of them) Python's division is C's, which
  devices have, and by powers of two both are shifts and masks.

Runs after everything that reads index arithmetic. Ops beside a `parallel` stay: they tell the host
how many iterations there are. Owns: where rules apply, what is natural.

    floordiv %i, 8    ->    shr %i, 3
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value, find_parallel, has_kind
from vkchi.passes.match import constant_int
from vkchi.passes.rules import STRENGTH
from vkchi.passes.simplify import Simplifier, ruleset
from vkchi.types import Scalar

KINDS = frozenset(row.pattern.split()[0] for row in STRENGTH) | {"truncdiv", "rem"}
# What a natural number divided by another is the same as: by a power of two, and by any.
SHIFTED = {"truncdiv": "floordiv", "rem": "mod"}
DIVIDED = {"floordiv": "truncdiv", "mod": "rem"}
COUNTS = frozenset({"shape", "thread_index", "local_index", "group_index", "group_size"})
NATURAL_IF_ALL = frozenset({"truncdiv", "floordiv", "rem", "mod", "min", "shr"})
NATURAL_IF_ANY = frozenset({"max", "and"})


def reduce_strength(fn: Func) -> Func:
    """The Func with the rules applied where the device computes."""
    return Strengthener(fn).run(fn) if has_kind(fn.body, KINDS) else fn


class Strengthener(Simplifier):
    """One run."""

    def __init__(self, fn: Func) -> None:
        super().__init__(ruleset("strength"))
        self.on_host = set(fn.body.ops) if find_parallel(fn) else set()
        self.naturals: dict[Value, bool] = {}

    def visit(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """What stands for the op's results, or None to keep it."""
        if op.kind in ("for", "parallel"):
            self.naturals[op.regions[0].params[0]] = self.is_natural(args[0])
        if op.kind not in KINDS or op in self.on_host:
            return None
        self.name = op.name
        if all(map(self.is_natural, args)):
            v = self.divide_naturals(op, args)
        else:
            v = self.find(op.kind, args, None, op.type)
        return None if v is None else (v,)

    def divide_naturals(self, op: Op, args: tuple[Value, ...]) -> Value | None:
        """A quotient or remainder of natural numbers."""
        v = self.find(SHIFTED.get(op.kind, op.kind), args, None, op.type)
        if v is None and op.kind in DIVIDED:
            v = self.result(DIVIDED[op.kind], *args)
        return v

    def is_natural(self, v: Value) -> bool:
        """Whether an integer is surely not negative."""
        found = self.naturals.get(v)
        if found is None:
            found = self.naturals[v] = self._find_natural(v)
        return found

    def _find_natural(self, v: Value) -> bool:
        if not isinstance(v, Op) or not isinstance(v.type, Scalar):
            return False
        number = constant_int(v)
        if number is not None or v.kind in COUNTS:
            return number is None or number >= 0
        if v.kind in NATURAL_IF_ALL:
            return all(map(self.is_natural, v.args))
        return v.kind in NATURAL_IF_ANY and any(map(self.is_natural, v.args))
