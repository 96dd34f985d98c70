"""Rewrites ops into forms that a device computes faster but that analyses do not read.

Division and remainder by powers of two become shifts and masks (exact for Python's rounding down),
a float's division by one a multiplication. Runs after everything that reads index arithmetic.
Ops beside a `parallel` stay: they tell the host how many iterations there are.

Owns: where the rules apply; they are `rules.STRENGTH`. Must not know: the rules.

    floordiv %i, 8    ->    shr %i, 3
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value, find_parallel
from vkchi.passes.rules import STRENGTH
from vkchi.passes.simplify import Simplifier, ruleset

KINDS = frozenset(row.pattern.split()[0] for row in STRENGTH)


def reduce_strength(fn: Func) -> Func:
    """The Func with the rules applied where the device computes."""
    on_host = set(fn.body.ops) if find_parallel(fn) else set()
    s = Simplifier(ruleset("strength"))

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op.kind not in KINDS or op in on_host:
            return None
        return s.visit(b, op, args)

    s.walk.visit = visit
    return s.run(fn)
