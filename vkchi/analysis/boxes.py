"""Parts of arrays: one range per axis, (least, greatest); an axis of unknown range is None.

Must not know: IR, of which `footprint` finds boxes and `must_write` those that are overwritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from vkchi.tuples import NamedTuple

Range = tuple[int, int]
Box = tuple["Range | None", ...]
MOST_PARTS = 64  # that are left of an array


class Shaped(Protocol):
    """An array, of which only this counts here."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""


class Covered(NamedTuple):
    """That a segment stores to every element of a part of an array."""

    segment: int
    name: str
    box: Box


def joined(a: Range | None, b: Range | None) -> Range | None:
    """The range that holds both."""
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def may_meet(a: Box, b: Box) -> bool:
    """Whether two boxes may have an element in common."""
    pairs = zip(a, b)
    return all(x is None or y is None or (x[0] <= y[1] and y[0] <= x[1]) for x, y in pairs)


def is_inside(a: Box, b: Box) -> bool:
    """Whether all of a box is known to lie in another."""
    pairs = zip(a, b)
    return all(y is None or (x is not None and y[0] <= x[0] and x[1] <= y[1]) for x, y in pairs)


def rows_of(boxes: Iterable[Box], shape: tuple[int, ...]) -> Range | None:
    """The indices of the first axis that some boxes hold; None if they may be all, or if a box is
    not known to lie in the array, for there the index that counts is another."""
    whole: Box = tuple([(0, extent - 1) for extent in shape])
    found: list[Range] = []
    for box in boxes:
        if not box or not is_inside(box, whole) or any(r is None or r[0] > r[1] for r in box):
            return None
        assert box[0] is not None
        found.append(box[0])
    rows = min(r[0] for r in found), max(r[1] for r in found)
    return None if rows == whole[0] else rows


def filled_by(boxes: Sequence[Covered], box: Box, full: Box) -> int | None:
    """The first segment by whose end these, which are in order, have overwritten all of a box, in
    an array of this full box."""
    left: list[Box] = [within(box, full)]
    for covered in boxes:
        left = [rest for part in left for rest in without(part, covered.box)]
        if not left:
            return covered.segment
        if len(left) > MOST_PARTS:
            return None
    return None


def is_covered(box: Box, covers: Iterable[Box], full: Box) -> bool:
    """Whether some boxes together hold all of a box, in an array of this full box."""
    found = [Covered(0, "", within(cover, full)) for cover in covers]
    return filled_by(found, box, full) is not None


def within(box: Box, full: Box) -> Box:
    """The same box, its axes known: where one is not, it is all of that of an array's full box."""
    return tuple([b or f for b, f in zip(box or full, full, strict=True)])


def meeting(a: Box, b: Box) -> Box | None:
    """What two boxes of known axes have in common."""
    pairs = zip(a, b, strict=True)
    found = [(max(x[0], y[0]), min(x[1], y[1])) for x, y in pairs if x and y]
    return tuple(found) if all(low <= high for low, high in found) else None


def add_box(boxes: list[Box], box: Box) -> None:
    """Note one more box of known axes. What continues the last one becomes one box with it: so
    elements that are written in order stay few boxes."""
    while boxes and (longer := continued(boxes[-1], box)) is not None:
        boxes.pop()
        box = longer
    boxes.append(box)


def continued(a: Box, b: Box) -> Box | None:
    """Two boxes as one, where that holds nothing else: they differ along one axis at most, and meet
    or touch there."""
    apart = [k for k, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    if not apart:
        return a
    k, (x, y) = apart[0], (a[apart[0]], b[apart[0]])
    if len(apart) > 1 or x is None or y is None or x[1] + 1 < y[0] or y[1] + 1 < x[0]:
        return None
    return (*a[:k], joined(x, y), *a[k + 1 :])


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
