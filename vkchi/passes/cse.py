"""Common subexpressions: of equal pure ops, the later one is the earlier one's value.

An op is merged with an equal one that stands before it in its region or in one around it. Operands
of commutative ops count in both orders (of floats too: IEEE sums and products commute; `min` and
`max` of zeros do not, so there only for integers). `forward` merges reads; `local`s stay apart.

Drivers do this too; here it lets the other passes see by identity that two places are one.
`simplify` does it on the way, with the same table; this pass is for when nothing else is wanted.

Owns: the table of what is available. Must not know: what ops mean.

    %b = add %x, %y        %d = add %y, %x: every use of %d is one of %b
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value
from vkchi.ir.ops import CHOICES, COMMUTATIVE, TABLE, Effect
from vkchi.ir.rebuild import Rebuilder, Visit
from vkchi.passes.match import kind_of
from vkchi.types import Type

PURE = frozenset(kind for kind, row in TABLE.items() if row.effect is Effect.PURE)
Key = tuple[Any, ...]


class Available:
    """Which ops stand before, by what they compute, in the regions that are open."""

    def __init__(self) -> None:
        self.values: dict[Key, Value] = {}
        self.entered: list[Key] = []

    def swapped(self, kind: str, args: tuple[Value, ...], attr: Any, t: Type) -> Value | None:
        """The value of a commutative op that computes this with its operands exchanged."""
        return None if not may_swap(kind, args) else self.values.get((kind, args[::-1], attr, t))

    def enter(self, key: Key, op: Op) -> None:
        """An op that computes this stands here now."""
        self.values[key] = op
        self.entered.append(key)

    def leave(self, mark: int) -> None:
        """What was entered since `entered` had `mark` items stands here no longer. Regions around
        are left after an interrupt in here, too."""
        for key in self.entered[mark:]:
            self.values.pop(key, None)
        del self.entered[mark:]


def may_swap(kind: str, args: tuple[Value, ...]) -> bool:
    """Whether a commutative op gives the same bits for its operands exchanged."""
    return kind not in CHOICES or kind_of(args[0].type) != "f"


class Scope:
    """A region that is open inside a `with`, and what it makes available."""

    __slots__ = ("available", "mark", "opened")

    def __init__(self, available: Available, opened: AbstractContextManager[Region]) -> None:
        self.available, self.opened, self.mark = available, opened, 0

    def __enter__(self) -> Region:
        self.mark = len(self.available.entered)
        return self.opened.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.opened.__exit__(*error)
        self.available.leave(self.mark)


class ScopedRebuilder(Rebuilder):
    """A Rebuilder that knows what is available where it stands."""

    def __init__(self, visit: Visit) -> None:
        super().__init__(visit)
        self.available = Available()

    def inside(self, *params: Param) -> AbstractContextManager[Region]:
        """Open a new region; what it makes available ends with it."""
        return Scope(self.available, self.b.region(*params))

    def merge(self, op: Op, args: tuple[Value, ...]) -> tuple[Value, ...]:
        """Append a pure op, unless an equal one is available; what stands for its results."""
        available, key = self.available, (op.kind, args, op.attr, op.type)
        found = available.values.get(key)
        if found is None and op.kind in COMMUTATIVE:
            found = available.swapped(*key)
        if found is not None:
            return (found,)
        new = op if args is op.args else self.copy(op, args, ())
        available.values[key] = new
        available.entered.append(key)
        self.b.ops.append(new)
        return (new,)


def merge_equal_ops(fn: Func) -> Func:
    """The Func with every op that repeats an available one replaced by it."""

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        return walk.merge(op, args) if op.kind in PURE else None

    walk = ScopedRebuilder(visit)
    return walk.run(fn)
