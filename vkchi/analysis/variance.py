"""Variance analysis along one axis of a `parallel` loop, for unroll-and-jam.

A value varies if it depends, by data or control, on the axis's index, on memory allocated in the
body, or on results of atomics and other side effects. All other values are invariant along the
axis, loads from invariant addresses of arrays included. Iterations that execute the body in
lockstep therefore load them at the same time, from the same address.

    >>> AxisVariance(body, i).found
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vkchi.analysis.dataflow import Flow, is_memory, made_inside, ops_inside
from vkchi.ir.core import Op, Region, Value, base_memory, walk
from vkchi.ir.ops import READS, TABLE, Effect


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
