"""Footprint analysis: the parts of arrays that a launch may access, given its arguments.

`Footprint` covers several arrays of a Func, `Accesses` one. A part has one range (least, greatest)
per axis, None if unknown. For example, a step that reads `x[t - 1, i]` and writes `x[t, i]`
overwrites nothing that it reads.

    >>> footprint.boxes({"t": 3}, {"x": x})
    {"x": ((2, 2), (0, 3))}
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from vkchi.analysis.memory.boxes import Box, Shaped, range_hull
from vkchi.analysis.values.interval_analysis import Intervals, axes_in
from vkchi.analysis.values.polynomials import is_integer
from vkchi.ir.core import Func, Op, Param, Value, base_memory, constant_int, walk
from vkchi.ir.op_table.interval_rules import Interval
from vkchi.ir.ops import PLACES
from vkchi.span import Span
from vkchi.types import Array, scalar_of

MOST_KNOWN = 10_000  # cached results, by launch arguments


class Footprint:
    """Parts of the array parameters `roots` that ops of the given kinds may access."""

    def __init__(self, fn: Func, roots: Iterable[Param], kinds: Container[str]) -> None:
        self.accesses = {p.name: Accesses(fn, p, kinds) for p in roots}
        self.known: dict[tuple[Any, ...], dict[str, Box]] = {}
        self.fixed: dict[tuple[Any, ...], dict[Value, Interval | None]] = {}
        self.given = [p for p in fn.params if is_integer(p)]
        self.axes = axes_in(fn.body)
        self.varying = made_of(self.given, fn)

    def boxes(self, numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> dict[str, Box]:
        """Map array names to bounding boxes of the elements that a launch with these arguments may
        access.

        Arrays without accesses are absent. Results are memoized, up to MOST_KNOWN.
        """
        shapes = tuple([(name, array.shape) for name, array in arrays.items()])
        key = (*numbers.items(), shapes)
        found = self.known.get(key)
        if found is None:
            ranges = self.ranges(numbers, shapes)
            boxes = {name: a.box(ranges) for name, a in self.accesses.items()}
            found = {name: box for name, box in boxes.items() if box is not None}
            if len(self.known) < MOST_KNOWN:
                self.known[key] = found
        return found

    def ranges(
        self, numbers: Mapping[str, int], shapes: tuple[tuple[str, tuple[int, ...]], ...]
    ) -> Intervals:
        """Intervals for a launch. Those of values that no integer argument affects are cached for
        the latest shapes."""
        extents = {(name, k): e for name, shape in shapes for k, e in enumerate(shape)}
        if shapes not in self.fixed:
            self.fixed.clear()
            ranges = Intervals(self.axes, {}, extents)
            for accesses in self.accesses.values():
                accesses.box(ranges)
            self.fixed[shapes] = {v: r for v, r in ranges.found.items() if v not in self.varying}
        known: dict[Value, int] = {p: numbers[p.name] for p in self.given if p.name in numbers}
        return Intervals(self.axes, known, extents, self.fixed[shapes])

    def span_of(self, name: str) -> Span | None:
        return self.accesses[name].elements[0].span


def made_of(given: Iterable[Param], fn: Func) -> set[Value]:
    """These parameters and all values computed from them, except through memory and `yield`s."""
    found: set[Value] = set(given)
    for op in walk(fn.body):
        if not found.isdisjoint(op.args):
            found.update(op.results)
            found.update(p for r in op.regions for p in r.params)
    return found


class Accesses:
    """Elements of `root` that ops of the given kinds access in a Func."""

    def __init__(self, fn: Func, root: Param, kinds: Container[str]) -> None:
        assert isinstance(root.type, Array)
        found = [op for op in walk(fn.body) if op.kind in kinds and base_memory(op.args[0]) is root]
        self.elements = list(dict.fromkeys(element_of(op.args[0]) for op in found))

    def box(self, values: Intervals) -> Box | None:
        """The bounding box of all indices, with None for unknown axes; None without accesses."""
        box: Box | None = None
        for element in self.elements:
            ranges = tuple([values.of(v) for v in element.args[1:]])
            box = ranges if box is None else tuple(map(range_hull, box, ranges))
        return box


def element_of(ptr: Value) -> Op:
    while isinstance(ptr, Op) and ptr.kind != "elem":
        ptr = ptr.args[0]
    assert isinstance(ptr, Op)
    return ptr


def element_under(ptr: Value) -> Op | None:
    while isinstance(ptr, Op) and ptr.kind in PLACES and ptr.kind != "elem":
        ptr = ptr.args[0]
    return ptr if isinstance(ptr, Op) and ptr.kind == "elem" else None


def strip_clamps(v: Value) -> tuple[Value, int | None, int | None]:
    """Strip `min` and `max` with constants from a signed index.

    Returns the inner value, the lower and the upper limit. A limit is None if there is no clamp on
    that side.
    """
    low = high = None
    while isinstance(v, Op) and v.kind in ("min", "max") and scalar_of(v.type).kind == "i":
        limit, rest = constant_int(v.args[1]), v.args[0]
        if limit is None:
            limit, rest = constant_int(v.args[0]), v.args[1]
        if limit is None:
            break
        if v.kind == "max":
            low = limit if low is None else max(low, limit)
        else:
            high = limit if high is None else min(high, limit)
        v = rest
    return v, low, high
