"""Must-write analysis: boxes of arrays that a launch certainly overwrites completely.

`MustWrite` considers the stores that every iteration of their loops executes. `whole` proves that
such a store fills the box whose ranges `interval_analysis` computes.

    >>> MustWrite(fn, segments).boxes({"t": 3}, {"x": x})         # for i in range(4): x[t, i] = 0.0
    [Covered(segment=0, name="x", box=((3, 3), (0, 3)))]
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from vkchi.analysis.memory.boxes import Box, Covered, Shaped
from vkchi.analysis.memory.segments import Segment
from vkchi.analysis.memory.whole import CoverageProof, MustStore
from vkchi.analysis.values.forms import ExactPolynomials
from vkchi.analysis.values.interval_analysis import Intervals, axes_in
from vkchi.analysis.values.sums import constant_polynomial, is_integer
from vkchi.interrupts.weak import insert_bounded
from vkchi.ir.core import Func, Op, Param, Region, Value, base_memory
from vkchi.ir.ops import COUNTED
from vkchi.types import Array, Tensor


class MustWrite:
    """The unconditional stores to array parameters of a Func, in program order.

    A store in a loop counts if every iteration executes it.
    """

    def __init__(self, fn: Func, segments: Sequence[Segment]) -> None:
        self.given = [p for p in fn.params if is_integer(p)]
        self.axes = axes_in(fn.body)
        self.stores = [
            MustStore(op, element, loops, s.number)
            for s in segments
            for op, loops in sure_ops(s.ops)
            if op.kind == "store" and isinstance(base_memory(op.args[0]), Param)
            if (element := element_under(op.args[0])) is not None
        ]
        self.names = frozenset(name_of(s) for s in self.stores)
        self.known: dict[Hashable, list[Covered]] = {}

    def boxes(self, numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> list[Covered]:
        """The boxes that a launch with these arguments certainly overwrites, in program order;
        memoized."""
        shapes = tuple([(name, array.shape) for name, array in arrays.items()])
        key = tuple(numbers.items()), shapes
        if key not in self.known:
            insert_bounded(self.known, key, self._boxes(numbers, arrays), MOST_KNOWN)
        return self.known[key]

    def _boxes(self, numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> list[Covered]:
        known: dict[Value, int] = {p: numbers[p.name] for p in self.given if p.name in numbers}
        extents = {(n, k): e for n, a in arrays.items() for k, e in enumerate(a.shape)}
        ranges = Intervals(self.axes, known, extents)
        forms = ExactPolynomials(ranges)
        boxes = [(store, exact_box(store, forms)) for store in self.stores]
        found = [(s, Covered(s.segment, name_of(s), box)) for s, box in boxes if box is not None]
        return with_all_components(found)


MOST_KNOWN = 1000  # cached results, by launch arguments
T = TypeVar("T")


def with_all_components(found: Sequence[tuple[MustStore, T]]) -> list[T]:
    """Filter pairs (store, value), in order.

    A value is kept where the stores paired with it so far write all components of the elements.
    """
    parts: dict[T, set[int]] = {}
    whole = []
    for store, covered in found:
        place, t = store.op.args[0], base_memory(store.op.args[0]).type
        assert isinstance(t, Array) and isinstance(place, Op)
        size = t.elem.size if isinstance(t.elem, Tensor) else 1
        stored = parts.setdefault(covered, set())
        stored.update(range(size) if place is store.element else [place.attr])
        if len(stored) == size:
            whole.append(covered)
    return whole


def name_of(store: MustStore) -> str:
    root = base_memory(store.op.args[0])
    assert isinstance(root, Param)
    return root.name


def element_under(place: Value) -> Op | None:
    """The `elem` op of a pointer to an element or to a constant component of one, or None."""
    if isinstance(place, Op) and place.kind == "member":
        place = place.args[0]
    return place if isinstance(place, Op) and place.kind == "elem" else None


def sure_ops(ops: Sequence[Op], loops: tuple[Op, ...] = ()) -> Iterator[tuple[Op, tuple[Op, ...]]]:
    """Ops that every iteration of the enclosing counted loops executes, each with these loops.

    An `if` or `while` is yielded itself, without its contents.
    """
    for op in ops:
        if op.kind in COUNTED:
            region: Region = op.regions[0]
            yield from sure_ops(region.ops, (*loops, op))
        else:
            yield op, loops


def exact_box(store: MustStore, forms: ExactPolynomials) -> Box | None:
    """The box of the store's subscripts if the store certainly fills it, otherwise None."""
    box = tuple(map(forms.ranges.of, store.element.args[1:]))
    known = [r for r in box if r is not None and r[0] <= r[1]]
    spans = [(constant_polynomial(low), constant_polynomial(high + 1 - low)) for low, high in known]
    is_filled = len(known) == len(box) and CoverageProof(forms).reaches(store, spans)
    return box if is_filled else None
