"""What the passes of one build need not find out again.

IR is immutable: what is true of an op or a region by itself stays true as long as that object is
there, whatever a pass changed elsewhere. So results are kept by identity, and no pass says what it
preserves: what it left is what it preserved. What depends on where an op stands or on who uses it
is kept for one body alone.

Owns: these tables. Must not know: passes.

    >>> memo.has(fn, LOOPS)
    False
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from vkchi.ir.core import Func, Op, Region, Value
from vkchi.ir.ops import TABLE, Effect

if TYPE_CHECKING:
    from vkchi.analysis.shifts import Shifts

_CONTROL = frozenset(kind for kind, row in TABLE.items() if row.effect is Effect.CONTROL)
_CONTROL -= {"yield"}


class Memo:
    """Of one build: `verified` ops are valid by themselves, no rule of `simplify` fits those that
    are `irreducible`; `shifts` tells of the sums of a loop in a body, until another body is asked
    about."""

    __slots__ = ("_body", "_kinds", "_shifts", "irreducible", "verified")

    def __init__(self) -> None:
        self.verified: set[Value] = set()
        self.irreducible: set[Value] = set()
        self._kinds: dict[Region, frozenset[str]] = {}
        self._body: Region | None = None
        self._shifts: dict[Op, Shifts] = {}

    def kinds(self, region: Region) -> frozenset[str]:
        """The kinds of the ops in a region and in those inside."""
        found = self._kinds.get(region)
        if found is None:
            kinds = {op.kind for op in region.ops}
            if not kinds.isdisjoint(_CONTROL):
                kinds.update(*[self.kinds(r) for op in region.ops for r in op.regions])
            found = self._kinds[region] = frozenset(kinds)
        return found

    def shifts(self, body: Region, loop: Op, used: set[Value]) -> Shifts:
        """What is known of the sums of a loop, in a body that uses these values."""
        if self._body is not body:
            self._body, self._shifts = body, {}
        if loop not in self._shifts:
            from vkchi.analysis.shifts import Shifts  # few kernels ask

            self._shifts[loop] = Shifts(loop, used)
        return self._shifts[loop]

    def has(self, fn: Func, kinds: Iterable[str]) -> bool:
        """Whether an op of one of these kinds stands in a Func."""
        return not self.kinds(fn.body).isdisjoint(kinds)
