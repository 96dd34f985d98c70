"""Common subexpression elimination (CSE): a pure op is replaced by an equal op that dominates it.

An op dominates the later ops of its region, and of regions nested in these. Indices of invocations
in serial code are not those of the parallel loops behind it. Operands of commutative ops match in
both orders, for floats too, as IEEE sums and products commute. `min` and `max` of zeros do not, so
there only integers match. Loads are left to `forward`; each `local` is a separate allocation.

Drivers also do CSE. Here it lets other passes test the equality of addresses by identity.
`simplify` applies CSE with the same table; this pass runs CSE alone.

    %b = add %x, %y        %d = add %y, %x: every use of %d becomes one of %b
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value
from vkchi.ir.ops import CHOICES, COMMUTATIVE, PER_INVOCATION, TABLE, Effect
from vkchi.ir.rebuild import Rebuilder, Visit
from vkchi.opt.rewrite.match import scalar_kind_of
from vkchi.types import Type

PURE = frozenset(kind for kind, row in TABLE.items() if row.effect is Effect.PURE)
Key = tuple[Any, ...]


class Available:
    """Available expressions: dominating ops by kind, operands, attr and type."""

    def __init__(self) -> None:
        self.values: dict[Key, Value] = {}
        self.entered: list[Key] = []

    def swapped(self, kind: str, args: tuple[Value, ...], attr: Any, t: Type) -> Value | None:
        return None if not may_swap(kind, args) else self.values.get((kind, args[::-1], attr, t))

    def enter(self, key: Key, op: Op) -> None:
        self.values[key] = op
        self.entered.append(key)

    def leave(self, mark: int) -> None:
        """Remove the entries beyond the first `mark`."""
        for key in self.entered[mark:]:
            self.values.pop(key, None)
        del self.entered[mark:]


def may_swap(kind: str, args: tuple[Value, ...]) -> bool:
    """True if exchanged operands give the same bits, for a commutative op."""
    return kind not in CHOICES or scalar_kind_of(args[0].type) != "f"


class AvailabilityScope:
    """Context manager of an open region: on exit, its expressions become unavailable."""

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
    """A Rebuilder with a table of the available expressions, from which each region removes its own
    at its end."""

    def __init__(self, visit: Visit, kinds: Collection[str] | None = None) -> None:
        super().__init__(visit, kinds)
        self.available, self.has_parallel = Available(), False

    def run(self, fn: Func) -> Func:
        # The invocation of serial code is none of those of a parallel loop behind it.
        self.has_parallel = any(op.kind == "parallel" for op in fn.body.ops)
        return super().run(fn)

    def inside(self, *params: Param) -> AbstractContextManager[Region]:
        return AvailabilityScope(self.available, self.b.region(*params))

    def merge(self, op: Op, args: tuple[Value, ...]) -> tuple[Value, ...]:
        """Append a pure op unless an equal one is available; return the values of its results."""
        available, key = self.available, (op.kind, args, op.attr, op.type)
        found = available.values.get(key)
        if found is None and op.kind in COMMUTATIVE:
            found = available.swapped(*key)
        if found is not None:
            return (found,)
        new = op if args is op.args else self.copy(op, args, ())
        if not (self.has_parallel and op.kind in PER_INVOCATION and self.b.is_at_top):
            available.values[key] = new
            available.entered.append(key)
        self.b.ops.append(new)
        return (new,)


def merge_equal_ops(fn: Func) -> Func:
    """Replace every pure op that repeats an available one: the pass `cse`."""

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        return walk.merge(op, args)

    walk = ScopedRebuilder(visit, PURE)
    return walk.run(fn)
