"""Parts of arrays that a launch surely overwrites, all of them.

Owns: `Covers`, of one Func. A store counts that every iteration of its loops does, where each axis
has an index of its own: one value, a loop's index plus something fixed, or digits of such an index,
as `i // 5` and `i % 5` of who counts himself. Then the stores fill a box, whose ranges `intervals`
finds.

Must not know: gradients, tapes.

    >>> covers.boxes({"t": 3}, {"x": x})         # for i in range(4): x[t, i] = 0.0
    [Covered(segment=0, name="x", box=((3, 3), (0, 3)))]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from vkchi.analysis.footprint import Box, Shaped, is_integer
from vkchi.analysis.intervals import Intervals, axes_in
from vkchi.analysis.segments import Segment
from vkchi.ir.control import axes_of
from vkchi.ir.core import Func, Op, Param, Region, Value, base_of
from vkchi.ir.intervals import Interval
from vkchi.ir.ops import CONVERSIONS, COUNTED, DIVISIONS, LINEAR, REMAINDERS
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Tensor


class Covered(NamedTuple):
    """That a segment stores to every element of a part of an array."""

    segment: int
    name: str
    box: Box


class Sure(NamedTuple):
    """A store to an array that every iteration of these loops does."""

    op: Op
    element: Op
    loops: tuple[Op, ...]
    segment: int


class Digit(NamedTuple):
    """`(loop // divisor) % modulus` of a loop's index; plus something fixed, if `is_moved`."""

    loop: Value
    divisor: int = 1
    modulus: int | None = None
    is_moved: bool = False


class Covers:
    """The sure stores of a Func, in order."""

    def __init__(self, fn: Func, segments: Sequence[Segment]) -> None:
        self.given = [p for p in fn.params if is_integer(p)]
        self.axes = axes_in(fn.body)
        self.stores = [
            Sure(op, element, loops, s.number)
            for s in segments
            for op, loops in sure_ops(s.ops)
            if op.kind == "store" and isinstance(base_of(op.args[0]), Param)
            if (element := element_under(op.args[0])) is not None
        ]
        self.names = frozenset(name_of(s) for s in self.stores)

    def boxes(self, numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> list[Covered]:
        """What a launch with these arguments covers."""
        known: dict[Value, int] = {p: numbers[p.name] for p in self.given if p.name in numbers}
        extents = {(n, k): e for n, a in arrays.items() for k, e in enumerate(a.shape)}
        ranges = Intervals(self.axes, known, extents)
        boxes = [(store, exact_box(store, ranges)) for store in self.stores]
        found = [(s, Covered(s.segment, name_of(s), box)) for s, box in boxes if box is not None]
        return with_all_components(found)


MOST_PARTS = 64  # that are left of an array
T = TypeVar("T")


def with_all_components(found: Sequence[tuple[Sure, T]]) -> list[T]:
    """Of stores and what they cover: what the stores of all components cover."""
    parts: dict[T, set[int]] = {}
    whole = []
    for store, covered in found:
        place, t = store.op.args[0], base_of(store.op.args[0]).type
        assert isinstance(t, Array) and isinstance(place, Op)
        size = t.elem.size if isinstance(t.elem, Tensor) else 1
        stored = parts.setdefault(covered, set())
        stored.update(range(size) if place is store.element else [place.attr])
        if len(stored) == size:
            whole.append(covered)
    return whole


def name_of(store: Sure) -> str:
    """The array's name."""
    root = base_of(store.op.args[0])
    assert isinstance(root, Param)
    return root.name


def element_under(place: Value) -> Op | None:
    """The element that a place is, or is one component of."""
    if isinstance(place, Op) and place.kind == "member":
        place = place.args[0]
    return place if isinstance(place, Op) and place.kind == "elem" else None


def sure_ops(ops: Sequence[Op], loops: tuple[Op, ...] = ()) -> Iterator[tuple[Op, tuple[Op, ...]]]:
    """The ops that every iteration of the loops around does, and these."""
    for op in ops:
        if op.kind in COUNTED:
            region: Region = op.regions[0]
            yield from sure_ops(region.ops, (*loops, op))
        else:
            yield op, loops


def exact_box(store: Sure, ranges: Intervals) -> Box | None:
    """The box that the store fills; None where that is not known."""
    indices: dict[Value, Interval] = {}
    for axis in [axis for loop in store.loops for axis in axes_of(loop)]:
        begin, end = ranges.of(axis.begin), ranges.of(axis.end)
        if begin is None or end is None or begin[0] != begin[1] or end[0] != end[1]:
            return None
        if begin[0] >= end[0]:
            return None
        indices[axis.param] = (begin[0], end[0] - 1)
    digits: dict[Value, list[Digit]] = {}
    box: list[Interval] = []
    for v in store.element.args[1:]:
        found = ranges.of(v)
        if found is None:
            return None
        box.append(found)
        if found[0] == found[1]:
            continue
        digit = digit_of(v, ranges)
        if digit is None or digit.loop not in indices:
            return None
        digits.setdefault(digit.loop, []).append(digit)
    return tuple(box) if all(are_independent(d, indices[v]) for v, d in digits.items()) else None


def digit_of(v: Value, ranges: Intervals) -> Digit | None:
    """A value as the digit of a loop's index."""
    if v in ranges.axes:
        return Digit(v)
    if not isinstance(v, Op) or ranges.of(v) is None:  # it may wrap
        return None
    if v.kind in CONVERSIONS:
        return digit_of(v.args[0], ranges)
    if v.kind == "neg":
        return moved(v.args[0], ranges)
    if v.kind not in LINEAR | DIVISIONS:
        return None
    a, b = (ranges.of(x) for x in v.args)
    if a is None or b is None:
        return None
    if v.kind in LINEAR:
        rest, fixed = (v.args[0], b) if b[0] == b[1] else (v.args[1], a)
        is_whole = fixed in ((1, 1), (-1, -1)) if v.kind == "mul" else fixed[0] == fixed[1]
        return moved(rest, ranges) if is_whole else None
    inner = digit_of(v.args[0], ranges)
    if inner is None or inner.is_moved or inner.modulus is not None:
        return None
    if a[0] < 0 or b[0] != b[1] or b[0] <= 0:
        return None
    if v.kind in REMAINDERS:
        return inner._replace(modulus=b[0])
    return inner._replace(divisor=inner.divisor * b[0])


def moved(v: Value, ranges: Intervals) -> Digit | None:
    """The digit that a value is, plus something, or the negative of it."""
    found = digit_of(v, ranges)
    return found._replace(is_moved=True) if found is not None else None


def are_independent(digits: list[Digit], found: Interval) -> bool:
    """Whether the digits of one index, which has this range, take all their values independently of
    each other."""
    if len(digits) == 1 and digits[0].divisor == 1 and digits[0].modulus is None:
        return True
    if found[0] != 0:
        return False
    digits = sorted(digits, key=lambda d: d.divisor)
    for low, high in pairwise(digits):
        if low.modulus is None or high.divisor % (low.divisor * low.modulus):
            return False
    last, count = digits[-1], found[1] + 1
    if last.modulus is None:
        return count % last.divisor == 0
    return count >= last.divisor * last.modulus


def filled_by(boxes: Sequence[Covered], box: Box, full: Box) -> int | None:
    """The first segment by whose end these, which are in order, have overwritten all of a box, in
    an array of this full box."""
    left: list[Box] = [tuple(b or f for b, f in zip(box or full, full, strict=True))]
    for covered in boxes:
        left = [rest for part in left for rest in without(part, covered.box)]
        if not left:
            return covered.segment
        if len(left) > MOST_PARTS:
            return None
    return None


def without(box: Box, cover: Box) -> list[Box]:
    """What is left of a box, as boxes. No axis is unknown."""
    found: list[Box] = []
    inner = list(box)
    for k, (b, c) in enumerate(zip(box, cover, strict=True)):
        assert b is not None and c is not None
        ends = (b[0], min(b[1], c[0] - 1)), (max(b[0], c[1] + 1), b[1])
        for low, high in ends:
            if low <= high:
                found.append((*inner[:k], (low, high), *box[k + 1 :]))
        if c[1] < b[0] or b[1] < c[0]:
            return [box]
        inner[k] = max(b[0], c[0]), min(b[1], c[1])
    return found


def full_box(shape: Sequence[int], origin: Sequence[int] = ()) -> Box:
    """The box of all elements."""
    first = origin or (0,) * len(shape)
    return tuple((o, o + e - 1) for o, e in zip(first, shape, strict=True))
