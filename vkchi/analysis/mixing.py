"""What a loop's iterations depend on: their order, their neighbours, the invocation that runs them.

Iterations of a `parallel` may run in any order and at once, so every order of their ops is one that
may happen. But some ops tell which invocation theirs is, wait for others, report to the host, or
may end the invocation.

Owns: these questions, for all that moves iterations about. Must not know: who asks.

    >>> may_mix(loop)       # reports in its body
    False
"""

from __future__ import annotations

from vkchi.ir.core import Func, Op, Region, has_kind, walk
from vkchi.ir.ops import GROUPED, ORDERED, SYNCS, TIED, Trait, kinds_with

_NUMBERED = GROUPED | {"thread_index"}
_WAITING = SYNCS - kinds_with(Trait.WAITLESS)


def keeps_order(body: Region) -> bool:
    """Whether something in an iteration keeps its place among all that it does."""
    return has_kind(body, ORDERED)


def may_mix(loop: Op) -> bool:
    """Whether one invocation may do several iterations, after each other or their ops side by side:
    no workgroup is demanded, nothing keeps its place or asks which invocation it is in."""
    return loop.attr is None and not has_kind(loop.regions[0], TIED | ORDERED)


def may_partition(loop: Op) -> bool:
    """Whether it does not matter which invocation runs which iteration."""
    return loop.attr is None and not has_kind(loop.regions[0], _NUMBERED)


def is_numbered(loop: Op) -> bool:
    """Whether iterations know their number, which says how the axes follow each other."""
    return has_kind(loop.regions[0], TIED)


def depends_on_neighbours(loop: Op) -> bool:
    """Whether it matters which iterations run beside which."""
    return has_kind(loop.regions[0], GROUPED | _WAITING)


def is_tied(loop: Op) -> bool:
    """Whether it matters which invocation runs an iteration, and what else that runs."""
    return loop.attr is not None or has_kind(loop.regions[0], GROUPED | SYNCS)


def depends_on_tiling(fn: Func) -> bool:
    """Whether what a Func does depends on which iterations are one workgroup where the compiler
    decides that: no loop demands a size."""
    loops = [op for op in walk(fn.body) if op.kind == "parallel"]
    return any(loop.attr is None and depends_on_neighbours(loop) for loop in loops)
