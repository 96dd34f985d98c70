"""Tiered compilation: what a kernel's first code leaves out, for a launch or two do not repay it.

The first code of a kernel runs in its first launches; the second one, with all passes, is made
once launches have worked for about as long as compiling takes (`launch.shapes`). Both give the same
bits (`analysis.opaque`): a pass leaves out what it can prove to be so.

Owns: `Tier`. Must not know: passes, and when the second code is made.

    tier = Tier(fn, options)
    peel(fn, caps, tier) is fn and tier.has_next
"""

from __future__ import annotations

from vkchi.analysis.mixing import depends_on_tiling
from vkchi.analysis.opaque import gives_the_same_bits
from vkchi.ir.core import Func, Op, Region, has_kind, walk
from vkchi.ir.report_ops import REPORTS
from vkchi.target.options import Options

TOLD_APART = frozenset((*REPORTS, "random"))  # what dispatches do under their number


def size_of(region: Region) -> int:
    """How many ops stand in a region."""
    return sum(1 for _ in walk(region))


class Tier:
    """Which code of a Func is made. `is_first`: passes may leave work to the next; `has_next`: one
    has."""

    __slots__ = ("_exact", "_fn", "has_next", "is_first")

    def __init__(self, fn: Func, options: Options) -> None:
        self._fn, self._exact = fn, not options.fast_math
        self.is_first, self.has_next = options.first_tier, False

    def leaves(self, loop: Op, fn: Func) -> bool:
        """Whether the edges and middle of a loop of the Func, as passes have it now, are left to
        the next code; notes that. Not of one that is less than half of it: all is compiled then."""
        if not (self.is_first and self._exact):
            return False
        if 2 * size_of(loop.regions[0]) < size_of(fn.body) or not gives_the_same_bits(loop):
            return False
        if has_kind(self._fn.body, TOLD_APART) or depends_on_tiling(self._fn):
            return False
        self.has_next = True
        return True
