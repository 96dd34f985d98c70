"""Tiered compilation: defer work that does not pay off in a kernel's first launches.

The first version runs in the first launches. The second, with all passes, is compiled once
launches have taken about as long as compilation (`launch.specialization`). A pass may defer only
work for which `opt.opaque` proves equal bits. So both versions give the same bits, except for
the sign of a NaN, flushed subnormals and undefined integer results.

    tier = Tier(fn, options)
    peel(fn, caps, tier) is fn and tier.has_next
"""

from __future__ import annotations

from vkchi.analysis.parallel_loops import depends_on_tiling
from vkchi.ir.core import Func, Op, Region, has_kind, walk
from vkchi.ir.op_table.invocation_ops import REPORTS
from vkchi.opt.opaque import is_bit_exact
from vkchi.target.options import Options

TOLD_APART = frozenset((*REPORTS, "random"))  # ops that depend on the dispatch's number


def size_of(region: Region) -> int:
    return sum(1 for _ in walk(region))


class Tier:
    """The tier for which a Func is compiled.

    `is_first`: passes may defer work. `has_next`: a pass has deferred some.
    """

    __slots__ = ("_exact", "_fn", "has_next", "is_first")

    def __init__(self, fn: Func, options: Options) -> None:
        self._fn, self._exact = fn, not options.fast_math
        self.is_first, self.has_next = options.first_tier, False

    def leaves(self, loop: Op, fn: Func) -> bool:
        """Return True, and record it, if splitting a loop is deferred to the next tier.

        Only the first tier defers. A loop that is less than half of the Func is not deferred,
        because the next tier compiles the whole Func again. Nor is it deferred if the split could
        change results, or with `fast_math`.
        """
        if not (self.is_first and self._exact):
            return False
        if 2 * size_of(loop.regions[0]) < size_of(fn.body) or not is_bit_exact(loop):
            return False
        if has_kind(self._fn.body, TOLD_APART) or depends_on_tiling(self._fn):
            return False
        self.has_next = True
        return True
