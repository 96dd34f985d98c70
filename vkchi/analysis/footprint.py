"""Which part of an array a launch touches: one range per axis, for the arguments of that launch.

Owns: `Footprint`, the parts of all arrays that a Func reads or writes; `Accesses`, the places of
one array that it touches; the interval arithmetic that bounds their indices. A range is (least,
greatest); an axis of unknown range is None. Needed to know that a step which reads `x[t - 1, i]`
and writes `x[t, i]` overwrites nothing it has read.

Must not know: gradients, tapes.

    >>> footprint.boxes({"t": 3}, {"x": x})
    {"x": ((2, 2), (0, 3))}
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from vkchi.ir.core import Func, Op, Param, Region, Value, base_of, constant_array, walk
from vkchi.ir.ops import COUNTED
from vkchi.span import Span
from vkchi.target.shader import trip_count
from vkchi.types import Array, Scalar, Tensor

Range = tuple[int, int]
Box = tuple["Range | None", ...]
MOST_KNOWN = 10_000  # boxes of calls with different numbers that are remembered


class Shaped(Protocol):
    """An array, of which only this counts here."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""


class Footprint:
    """What ops of some kinds touch of arrays, given as parameters of a Func."""

    def __init__(self, fn: Func, roots: Iterable[Param], kinds: Container[str]) -> None:
        self.accesses = {p.name: Accesses(fn, p, kinds) for p in roots}
        self.known: dict[tuple[Any, ...], dict[str, Box]] = {}
        self.fixed: dict[tuple[Any, ...], dict[Value, Range | None]] = {}
        self.given = [p for p in fn.params if is_integer(p)]
        self.loops = loops_of(fn.body)

    def boxes(self, numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> dict[str, Box]:
        """Which part of each array a launch with these arguments touches, if any."""
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
    ) -> Ranges:
        """Those of a launch; what does not depend on its numbers is found once."""
        extents = {(name, k): e for name, shape in shapes for k, e in enumerate(shape)}
        if shapes not in self.fixed:
            self.fixed.clear()
            ranges = Ranges(self.loops, {}, extents)
            for accesses in self.accesses.values():
                accesses.box(ranges)
            self.fixed[shapes] = {v: r for v, r in ranges.found.items() if r is not None}
        known: dict[Value, int] = {p: numbers[p.name] for p in self.given if p.name in numbers}
        return Ranges(self.loops, known, extents, self.fixed[shapes])

    def span_of(self, name: str) -> Span | None:
        """Where an array is touched first."""
        return self.accesses[name].elements[0].span


class Accesses:
    """The places of `root` at which ops of some kinds stand in a Func."""

    def __init__(self, fn: Func, root: Param, kinds: Container[str]) -> None:
        assert isinstance(root.type, Array)
        found = [op for op in walk(fn.body) if op.kind in kinds and base_of(op.args[0]) is root]
        self.elements = list(dict.fromkeys(element_of(op.args[0]) for op in found))

    def box(self, values: Ranges) -> Box | None:
        """The ranges that hold all indices; None if nothing is touched."""
        box: Box | None = None
        for element in self.elements:
            ranges = tuple([values.of(v) for v in element.args[1:]])
            box = ranges if box is None else tuple(map(joined, box, ranges))
        return box


def element_of(ptr: Value) -> Op:
    """The `elem` that a place in an array is made of."""
    while isinstance(ptr, Op) and ptr.kind != "elem":
        ptr = ptr.args[0]
    assert isinstance(ptr, Op)
    return ptr


def loops_of(region: Region) -> dict[Value, Op]:
    """The index parameters of all loops, with their loop."""
    ops = [op for op in walk(region) if op.kind in COUNTED]
    return {op.regions[0].params[0]: op for op in ops}


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


class Ranges:
    """Ranges of integer values for given arguments; each is found once."""

    def __init__(
        self,
        loops: dict[Value, Op],
        numbers: Mapping[Value, int],
        extents: Mapping[tuple[str, int], int],
        found: Mapping[Value, Range | None] = MappingProxyType({}),
    ) -> None:
        self.loops, self.numbers, self.extents = loops, numbers, extents
        self.found: dict[Value, Range | None] = dict(found)

    def of(self, v: Value) -> Range | None:
        """What v lies in, if its type holds that; None if nothing is known."""
        if v not in self.found:
            found = self._index(v) if isinstance(v, Param) else self._op(v)
            self.found[v] = found if found is not None and fits(found, v) else None
        return self.found[v]

    def _index(self, v: Param) -> Range | None:
        loop = self.loops.get(v)
        if loop is None:
            number = self.numbers.get(v)
            return None if number is None else (number, number)
        begin, end = self.of(loop.args[0]), self.of(loop.args[1])
        return (begin[0], end[1] - 1) if begin is not None and end is not None else None

    def _op(self, v: Value) -> Range | None:
        if not isinstance(v, Op):
            return None
        if v.kind == "shape":
            extent = self.extents.get((v.args[0].name, v.attr))
            return None if extent is None else (extent, extent)
        if v.kind == "const":
            number = int(constant_array(v)) if is_integer(v) else None
            return None if number is None else (number, number)
        rule = _RULES.get(v.kind)
        args = [self.of(x) for x in v.args] if rule is not None and is_integer(v) else [None]
        return None if rule is None or None in args else rule(*args)


def is_integer(v: Value) -> bool:
    """Whether v is an integer number."""
    return isinstance(v.type, Scalar) and v.type.kind in "iu"


def fits(found: Range, v: Value) -> bool:
    """Whether the type of v holds the range without wrapping."""
    t: Any = v.type
    assert isinstance(t, Scalar | Tensor)
    bits = t.bits if isinstance(t, Scalar) else 32
    signed = isinstance(t, Scalar) and t.kind == "i"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return low <= found[0] and found[1] <= high


def _around(*ends: int) -> Range:
    return min(ends), max(ends)


def _divide(a: Range, b: Range) -> Range | None:
    if b[0] <= 0 or a[0] < 0:
        return None
    return a[0] // b[1], a[1] // b[0]


def _remainder(a: Range, b: Range) -> Range | None:
    if b[0] <= 0:
        return None
    if a[0] == a[1] and b[0] == b[1] and a[0] >= 0:
        return a[0] % b[0], a[0] % b[0]
    return (0, min(a[1], b[1] - 1)) if a[0] >= 0 else None


def _modulo(a: Range, b: Range) -> Range | None:
    return _remainder(a, b) or ((0, b[1] - 1) if b[0] > 0 else None)


def _trips(begin: Range, end: Range, step: Range) -> Range | None:
    if step[0] > 0:
        return trip_count(begin[1], end[0], step[1]), trip_count(begin[0], end[1], step[0])
    if step[1] < 0:
        return trip_count(begin[0], end[1], step[0]), trip_count(begin[1], end[0], step[1])
    return None


_RULES: dict[str, Callable[..., Range | None]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": lambda a, b: _around(a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1]),
    "neg": lambda a: (-a[1], -a[0]),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "floordiv": _divide,
    "truncdiv": _divide,
    "rem": _remainder,
    "mod": _modulo,
    "trip_count": _trips,
    "cast": lambda a: a,
    "bitcast": lambda a: a,
}
