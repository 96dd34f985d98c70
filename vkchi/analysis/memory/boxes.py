"""Boxes: axis-aligned parts of arrays, one range (least, greatest) per axis.

An axis of unknown range is None. See also: `footprint` (boxes that are accessed), `must_write`
(boxes that are overwritten).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from vkchi.tuples import NamedTuple

Range = tuple[int, int]
Box = tuple["Range | None", ...]
MOST_PARTS = 64  # uncovered boxes of an array


class Shaped(Protocol):
    """Interface of objects with an array shape."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the axes."""


class Covered(NamedTuple):
    """A box of the array `name` of which segment number `segment` overwrites all elements."""

    segment: int
    name: str
    box: Box


def range_hull(a: Range | None, b: Range | None) -> Range | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def boxes_may_intersect(a: Box, b: Box) -> bool:
    pairs = zip(a, b)
    return all(x is None or y is None or (x[0] <= y[1] and y[0] <= x[1]) for x, y in pairs)


def is_inside(a: Box, b: Box) -> bool:
    """True if box a certainly lies within box b. An unknown axis of b is unbounded."""
    pairs = zip(a, b)
    return all(y is None or (x is not None and y[0] <= x[0] and x[1] <= y[1]) for x, y in pairs)


def rows_of(boxes: Iterable[Box], shape: tuple[int, ...]) -> Range | None:
    """Return the hull of the boxes' ranges on the first axis; None if it is the whole axis.

    Also None if a box has no axis, has an unknown or empty one, or exceeds the shape: accesses
    outside are clamped into the array. Precondition: at least one box.
    """
    whole: Box = tuple([(0, extent - 1) for extent in shape])
    found: list[Range] = []
    for box in boxes:
        if not box or not is_inside(box, whole) or any(r is None or r[0] > r[1] for r in box):
            return None
        assert box[0] is not None
        found.append(box[0])
    rows = min(r[0] for r in found), max(r[1] for r in found)
    return None if rows == whole[0] else rows


def first_filling_segment(boxes: Sequence[Covered], box: Box, full: Box) -> int | None:
    """Number of the segment with which the union of `boxes` first contains `box`, or None.

    `boxes` are in program order, with known axes. `full` is the box of the whole array; it replaces
    unknown axes of `box`. Also None once more than MOST_PARTS parts are uncovered.
    """
    left: list[Box] = [with_known_axes(box, full)]
    for covered in boxes:
        left = [rest for part in left for rest in without(part, covered.box)]
        if not left:
            return covered.segment
        if len(left) > MOST_PARTS:
            return None
    return None


def is_covered(box: Box, covers: Iterable[Box], full: Box) -> bool:
    """True if the union of `covers` contains `box`; `full` is the box of the whole array.

    An unknown axis, also of a cover, counts as the whole axis. False if more than MOST_PARTS
    uncovered parts occur on the way.
    """
    found = [Covered(0, "", with_known_axes(cover, full)) for cover in covers]
    return first_filling_segment(found, box, full) is not None


def with_known_axes(box: Box, full: Box) -> Box:
    """The box with unknown axes replaced by those of the full box; the full box for ()."""
    return tuple([b or f for b, f in zip(box or full, full, strict=True)])


def box_intersection(a: Box, b: Box) -> Box | None:
    """The intersection of two boxes with known axes; None if it is empty."""
    pairs = zip(a, b, strict=True)
    found = [(max(x[0], y[0]), min(x[1], y[1])) for x, y in pairs if x and y]
    return tuple(found) if all(low <= high for low, high in found) else None


def add_box(boxes: list[Box], box: Box) -> None:
    """Append a box with known axes to the list `boxes`, in place.

    As long as `continued` can merge the box with the last one of the list, their union replaces
    both.
    """
    while boxes and (longer := continued(boxes[-1], box)) is not None:
        boxes.pop()
        box = longer
    boxes.append(box)


def continued(a: Box, b: Box) -> Box | None:
    """Union of two boxes that are equal, or differ along one axis and overlap or touch there.

    None for other boxes, even if one contains the other.
    """
    apart = [k for k, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    if not apart:
        return a
    k, (x, y) = apart[0], (a[apart[0]], b[apart[0]])
    if len(apart) > 1 or x is None or y is None or x[1] + 1 < y[0] or y[1] + 1 < x[0]:
        return None
    return (*a[:k], range_hull(x, y), *a[k + 1 :])


def without(box: Box, cover: Box) -> list[Box]:
    """The difference of two boxes as a list of disjoint boxes. Precondition: all axes are known."""
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
    """The box of all elements; `origin` is the index of the first one."""
    first = origin or (0,) * len(shape)
    return tuple((o, o + e - 1) for o, e in zip(first, shape, strict=True))
