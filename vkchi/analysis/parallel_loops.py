"""Facts about the iterations of a `parallel`: legality of reordering, variance along one axis.

Iterations of a `parallel` may run in any order and concurrently, so every interleaving is legal by
default. Exceptions are ops that synchronize, report to the host, or end the invocation. Others read
ids or sizes of invocations and workgroups, or use random numbers or workgroup memory.

    >>> may_interleave(loop)       # reports in its body
    False
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vkchi.analysis.dataflow import Flow, is_memory, made_inside, ops_inside
from vkchi.ir.core import Func, Op, Region, Value, base_memory, has_kind, walk
from vkchi.ir.ops import GROUPED, ORDERED, READS, SYNCS, TABLE, TIED, Effect, Trait, kinds_with
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


# --- variance along an axis ----------------------------------------------------------------------
#
# Variance analysis along one axis of a `parallel` loop, for unroll-and-jam.
#
# A value varies if it depends, by data or control, on the axis's index, on memory allocated in the
# body, or on results of atomics and other side effects. All other values are invariant along the
# axis, loads from invariant addresses of arrays included. Iterations that execute the body in
# lockstep therefore load them at the same time, from the same address.
#
#     >>> AxisVariance(body, i).found


class AxisDependence(Flow):
    """Values that depend by data on `index`, an axis's index, or on per-iteration values: `found`.

    Control dependence is ignored. Per-iteration values are those of `own_values`.
    """

    def __init__(self, body: Region, index: Value) -> None:
        super().__init__(body, [index, *own_values(body)])

    def follow(self, v: Value) -> Iterator[Value]:
        yield from super().follow(v)
        if is_memory(v):
            for op in self.uses.get(v, ()):
                yield from op.results


class AxisVariance(AxisDependence):
    """Values, and memory allocated in the body, that vary along an axis: `found`.

    `decided` holds the control ops that iterations may execute differently, and all ops inside
    these.
    """

    def __init__(self, body: Region, index: Value) -> None:
        self.decided: set[Op] = set()
        super().__init__(body, index)

    def decide(self, op: Op) -> Iterator[Value]:
        self.decided.update((op, *ops_inside(op)))
        yield from op.results
        yield from made_inside(op)


def own_values(body: Region) -> Iterator[Value]:
    """Per-iteration values: memory allocated in the body, and results of ops with side effects."""
    for op in walk(body):
        if TABLE[op.kind].effect not in (Effect.PURE, Effect.READ, Effect.CONTROL):
            yield from op.results


def loads_in_loops(body: Region, variance: AxisVariance) -> list[tuple[Op, Op]]:
    """Loads and atomics of array or workgroup elements in `for` loops, without ops in `decided`.

    Iterations execute these in lockstep. Each is paired with its innermost `for`.
    """
    found: list[tuple[Op, Op]] = []

    def search(ops: Iterable[Op], loop: Op | None) -> None:
        for op in ops:
            if op in variance.decided:
                continue
            if loop is not None and op.kind in READS and not is_private(op):
                found.append((op, loop))
            for region in op.regions:
                search(region.ops, op if op.kind == "for" else loop)

    search(body.ops, None)
    return found


def is_private(access: Op) -> bool:
    """True if an op accesses private memory of one invocation (`local`)."""
    base = base_memory(access.args[0])
    return isinstance(base, Op) and base.kind == "local"
