"""Reordering legality of `parallel` iterations: dependence on order, neighbours or invocation.

Iterations of a `parallel` may run in any order and concurrently, so every interleaving is legal by
default. Exceptions are ops that read the invocation's id, use its random stream or workgroup
memory, synchronize, report to the host, or end the invocation.

    >>> may_interleave(loop)       # reports in its body
    False
"""

from __future__ import annotations

from vkchi.ir.core import Func, Op, Region, has_kind, walk
from vkchi.ir.ops import GROUPED, ORDERED, SYNCS, TIED, Trait, kinds_with

_NUMBERED = GROUPED | {"thread_index"}
_WAITING = SYNCS - kinds_with(Trait.WAITLESS)


def keeps_order(body: Region) -> bool:
    """True if the body contains an op that must keep its order relative to others."""
    return has_kind(body, ORDERED)


def may_interleave(loop: Op) -> bool:
    """True if one invocation may run several iterations, in sequence or interleaved.

    That requires no demanded workgroup size, no ordered op, no use of the invocation's id, no
    random numbers and no workgroup memory.
    """
    return loop.attr is None and not has_kind(loop.regions[0], TIED | ORDERED)


def may_partition(loop: Op) -> bool:
    """True if any invocation may run any iteration.

    That requires no demanded workgroup size, no use of the invocation's id and no workgroup memory.
    """
    return loop.attr is None and not has_kind(loop.regions[0], _NUMBERED)


def is_numbered(loop: Op) -> bool:
    """True if results may depend on the linear number of an iteration, hence on the order of the
    axes.

    That is so if the body uses the invocation's id, random numbers or workgroup memory.
    """
    return has_kind(loop.regions[0], TIED)


def depends_on_neighbours(loop: Op) -> bool:
    """True if results may depend on which iterations share a workgroup or subgroup."""
    return has_kind(loop.regions[0], GROUPED | _WAITING)


def depends_on_invocation(loop: Op) -> bool:
    """True if results may depend on the invocation that runs an iteration, or on its other
    iterations.

    That is so with a demanded workgroup size, ops of `GROUPED` (ids, workgroup memory), or
    synchronization.
    """
    return loop.attr is not None or has_kind(loop.regions[0], GROUPED | SYNCS)


def depends_on_tiling(fn: Func) -> bool:
    """True if results of a Func may depend on a workgroup size that the compiler chooses."""
    loops = [op for op in walk(fn.body) if op.kind == "parallel"]
    return any(loop.attr is None and depends_on_neighbours(loop) for loop in loops)
