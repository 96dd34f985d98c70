"""Reordering legality of `parallel` iterations: dependence on order, neighbours or invocation.

Iterations of a `parallel` may run in any order and concurrently, so every interleaving is legal by
default. Exceptions are ops that synchronize, report to the host, or end the invocation. Others read
ids or sizes of invocations and workgroups, or use random numbers or workgroup memory.

    >>> may_interleave(loop)       # reports in its body
    False
"""

from __future__ import annotations

from vkchi.ir.core import Func, Op, Region, has_kind, walk
from vkchi.ir.ops import GROUPED, ORDERED, SYNCS, TIED, Trait, kinds_with
from vkchi.target.remarks import Refusal, Verdict

_NUMBERED = GROUPED | {"thread_index"}
_WAITING = SYNCS - kinds_with(Trait.WAITLESS)
TIED_ITERATIONS = Refusal(
    "iterations synchronize, report, draw random numbers, or depend on invocations or workgroups"
)
GROUPED_ITERATIONS = Refusal("iterations depend on invocations or workgroups")


def keeps_order(body: Region) -> bool:
    """True if the body synchronizes, reports to the host, or ends the invocation."""
    return has_kind(body, ORDERED)


def may_interleave(loop: Op) -> Verdict:
    """True if one invocation may run several iterations, in sequence or interleaved.

    False if the loop demands a workgroup size, or its body has one of these: ids or sizes of
    invocations and workgroups, random numbers, workgroup memory, synchronization, reports.
    """
    return (loop.attr is None and not has_kind(loop.regions[0], TIED | ORDERED)) or TIED_ITERATIONS


def may_partition(loop: Op) -> Verdict:
    """True if any invocation may run any iteration.

    False if the loop demands a workgroup size, or its body has ids or sizes of invocations and
    workgroups, or workgroup memory.
    """
    return (loop.attr is None and not has_kind(loop.regions[0], _NUMBERED)) or GROUPED_ITERATIONS


def is_numbered(loop: Op) -> bool:
    """True if results may depend on the linear number of an iteration, hence on the order of the
    axes.

    Reasons are ids or sizes of invocations and workgroups, random numbers and workgroup memory.
    """
    return has_kind(loop.regions[0], TIED)


def depends_on_neighbours(loop: Op) -> bool:
    """True if results may depend on which iterations share a workgroup or subgroup.

    Reasons are ids and sizes of workgroups, subgroups or the grid, workgroup memory, and
    synchronization that waits for other invocations.
    """
    return has_kind(loop.regions[0], GROUPED | _WAITING)


def depends_on_invocation(loop: Op) -> bool:
    """True if the loop demands a workgroup size, synchronizes, or depends on the grouping of
    invocations.

    The latter are ops of `GROUPED`: ids and sizes of workgroups, subgroups or the grid, and
    workgroup memory. `thread_index` and `random` do not count.
    """
    return loop.attr is not None or has_kind(loop.regions[0], GROUPED | SYNCS)


def depends_on_tiling(fn: Func) -> bool:
    """True if results may depend on the workgroup size that the compiler chooses for a loop of the
    Func."""
    loops = [op for op in walk(fn.body) if op.kind == "parallel"]
    return any(loop.attr is None and depends_on_neighbours(loop) for loop in loops)
