"""Analysis of the kernel to differentiate: positions of values, written memory, activity analysis.

`PrimalAnalysis` holds a simplified Func that is not split into dispatches yet, and the results.
Terms:

- a *root* is memory: an array parameter, the `local` op of a kernel-level variable, or the `shared`
  op of a workgroup array;
- a *segment* is a maximal serial part of the Func's body, or one `parallel` (`segments`);
- an *invocation* is the Func's body itself, or the body of a `parallel`;
- a load is *early* if it reads its root as it was at the beginning of the segment. No earlier op of
  its invocation in the segment may have written the loaded location;
- a value is *active* if it may depend smoothly on memory that has a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from vkchi.analysis.dataflow import Flow, is_memory
from vkchi.analysis.memory.segments import SegmentOrder
from vkchi.autodiff.results import GradientRequest
from vkchi.autodiff.rules import MEMORY, NONDIFF, is_smooth, rule_of
from vkchi.ir.core import Func, Op, Param, Region, Result, Value, base_memory, walk, walk_ops
from vkchi.ir.ops import ACCESSES, LOOPS, TABLE, WRITES, Effect
from vkchi.types import Array, Scalar, Tensor, i32, scalar_of


class PrimalAnalysis:
    """A Func with its segments and their order, and its analysis results.

    The gradient does not repeat writes to `invariant` arrays. The kernel overwrites the arrays
    `begun` before it reads them.
    """

    def __init__(
        self, fn: Func, request: GradientRequest, order: SegmentOrder, begun: frozenset[str]
    ) -> None:
        self.fn, self.differentiable = fn, request.differentiable
        self.invariant: set[Value] = {p for p in fn.params if p.name in request.invariant}
        self.home: dict[Value, Region] = {}
        self.around: dict[Region, tuple[Op, ...]] = {}  # control ops, outermost first
        self.base: dict[Op, Param] = {}  # inner loop -> position of its first saved iteration
        self.trips: dict[Op, Param] = {}  # while -> its trip count
        self._place(fn.body, ())
        self.segments, self.late = order.segments, order.late
        self.settled = {op for s in order.segments if s.loop for op in find_settled(s.loop)}
        self.written = {base_memory(op.args[0]) for op in walk(fn.body) if op.kind in WRITES}
        self.active = ActivityAnalysis(fn, self.differentiable, constant=begun | request.constant)

    def _place(self, region: Region, around: tuple[Op, ...]) -> None:
        self.around[region] = around
        is_in_loop = any(op.kind in LOOPS for op in around)
        self.home.update(dict.fromkeys(region.params, region))
        for op in region.ops:
            for v in op.results:
                self.home[v] = region
            if op.kind in LOOPS and is_in_loop:
                self.base[op] = self._count(f"base.{len(self.base)}", region)
            if op.kind == "while":
                self.trips[op] = self._count(f"trips.{len(self.trips)}", region)
            for inner in op.regions:
                self._place(inner, (*around, op))

    def _count(self, name: str, region: Region) -> Param:
        param = Param(i32, name)
        self.home[param] = region
        return param

    def is_fixed(self, root: Value) -> bool:
        return root not in self.written and isinstance(root, Param)

    def is_repeatable(self, v: Value) -> bool:
        op = v.op if isinstance(v, Result) else v
        return isinstance(op, Op) and self.can_repeat(op)

    def can_repeat(self, op: Op) -> bool:
        """True if an op can be recomputed later from its operands.

        It is pure, a load from an array that the kernel does not write, a load of `find_settled`,
        or an `if` that contains only these.
        """
        if op.kind == "load":
            return self.is_fixed(base_memory(op.args[0])) or op in self.settled
        if op.kind == "if":
            return all(self.can_repeat(x) for r in op.regions for x in r.ops if x.kind != "yield")
        return TABLE[op.kind].effect is Effect.PURE


def find_settled(loop: Op) -> Iterator[Op]:
    """Loads from shared arrays that only follow, after a barrier, the last write to the array.

    The array keeps its contents to the end of the iteration.
    """
    ops = loop.regions[0].ops
    barriers = [k for k, op in enumerate(ops) if op.kind == "barrier"]
    last: dict[Value, int] = {}
    for k, op in enumerate(ops if barriers else ()):
        last.update((base_memory(x.args[0]), k) for x in walk_ops([op]) if x.kind in WRITES)
    for root, k in last.items():
        after = next((n for n in barriers if n > k), None)
        if after is not None and isinstance(root, Op) and root.kind == "shared":
            for x in walk_ops(ops[after:]):
                if x.kind == "load" and base_memory(x.args[0]) is root:
                    yield x


class ActivityAnalysis(Flow):
    """Activity analysis: values and roots that may depend smoothly on the sources.

    - `values`, `roots`: the active ones, from `seeds` and the arrays `sources` that are not
      `constant`;
    - `writes`: ops that store active values in arrays;
    - `stores`, `escapes`: array with or without gradient -> its first store of an active value;
    - `readers(op)`: reads that observe a write to an array without gradient.
    """

    def __init__(
        self,
        fn: Func,
        sources: frozenset[str],
        seeds: frozenset[Value] = frozenset(),
        constant: frozenset[str] = frozenset(),
        readers: Callable[[Op], Iterable[Value]] = lambda op: (),
    ) -> None:
        given = [p for p in fn.params if p.name in sources and is_smooth_array(p)]
        self.sources: frozenset[Value] = frozenset(given)
        self.readers = readers
        super().__init__(fn.body, {*seeds, *(p for p in given if p.name not in constant)})
        self.roots = set(filter(is_memory, self.found))
        self.values = self.found - self.roots
        self.writes = [
            op for op in walk(fn.body)
            if op.kind in WRITES and isinstance(base_memory(op.args[0]), Param)
            if not self.values.isdisjoint(op.args[1:])
        ]  # fmt: skip
        self.escapes: dict[str, Op] = {}
        self.stores: dict[str, Op] = {}
        for op in self.writes:
            found = self.stores if base_memory(op.args[0]) in self.sources else self.escapes
            found.setdefault(name_under(op), op)

    def __contains__(self, v: object) -> bool:
        return v in self.values

    def transfer(self, op: Op, v: Value) -> Iterable[Value]:
        if op.kind == "local":
            return (op,)
        if op.kind not in ACCESSES:
            is_passed = op.kind == "yield" or op.regions or self._may_be_active(op)
            return super().transfer(op, v) if is_passed else ()
        if v not in op.args[1:]:
            return ()
        root = base_memory(op.args[0])
        return (root,) if isinstance(root, Op) or root in self.sources else self.readers(op)

    def transfer_memory(self, op: Op) -> Iterable[Value]:
        return op.results if op.results and self._is_kind(op) else ()

    def _is_kind(self, v: Value) -> bool:
        return is_smooth(v)

    def _may_be_active(self, op: Op) -> bool:
        return bool(op.results) and self._is_kind(op) and rule_of(op) not in (NONDIFF, MEMORY)


class FloatDependence(ActivityAnalysis):
    """Floats that depend on the seeds by any op, differentiable or not."""

    def _may_be_active(self, op: Op) -> bool:
        return bool(op.results) and self._is_kind(op)


class BitDependence(FloatDependence):
    """Integers that hold bits of the seeds, or depend on such integers."""

    def _is_kind(self, v: Value) -> bool:
        t: Any = v.type
        return isinstance(t, Scalar | Tensor) and scalar_of(t).kind in "iu"


def name_under(op: Op) -> str:
    """The name of the array that an op accesses."""
    root = base_memory(op.args[0])
    assert isinstance(root, Param)
    return root.name


def is_smooth_array(p: Param) -> bool:
    return isinstance(p.type, Array) and p.type.stored.kind == "f"


def is_number(v: Value) -> bool:
    return isinstance(v.type, Scalar | Tensor)
