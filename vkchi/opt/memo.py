"""Memoization of analysis results by op and region identity, within one build.

IR is immutable: a fact about an op or region alone stays valid, whatever passes change elsewhere.

    >>> memo.has(fn, LOOPS)
    False
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from vkchi.ir.core import Func, Op, Region, Value
from vkchi.ir.ops import TABLE, Effect
from vkchi.target.remarks import Log

if TYPE_CHECKING:
    from vkchi.opt.loops.scatter.shifts import ScatterAnalysis

_CONTROL = frozenset(kind for kind, row in TABLE.items() if row.effect is Effect.CONTROL)
_CONTROL -= {"yield"}


class Memo:
    """Memoized facts of one build.

    - `verified`: ops that passed the verifier.
    - `irreducible`: ops that no rule of `simplify` matches.
    - `shifts`: results of `opt.loops.scatter.shifts`, by loop.
    - `log`: receives the decisions of passes; None if nothing reads them.
    """

    __slots__ = ("_kinds", "irreducible", "log", "shifts", "verified")

    def __init__(self, log: Log | None = None) -> None:
        self.log = log
        self.verified: set[Value] = set()
        self.irreducible: set[Value] = set()
        self._kinds: dict[Region, frozenset[str]] = {}
        self.shifts: dict[Op, ScatterAnalysis] = {}

    def kinds(self, region: Region) -> frozenset[str]:
        found = self._kinds.get(region)
        if found is None:
            kinds = {op.kind for op in region.ops}
            if not kinds.isdisjoint(_CONTROL):
                kinds.update(*[self.kinds(r) for op in region.ops for r in op.regions])
            found = self._kinds[region] = frozenset(kinds)
        return found

    def has(self, fn: Func, kinds: Iterable[str]) -> bool:
        return not self.kinds(fn.body).isdisjoint(kinds)
