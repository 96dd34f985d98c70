"""How indices become accesses: layouts, which write IR.

`Access` is the protocol; `access.access_of` chooses by an array's type. Elements are `Scalars`, at
the place that the layout's arithmetic gives (`types.layout`), whatever that is, or a few bits of a
word (`packed`). What else there may be (cells behind pointers, bitmasks) is sketched in
docs/design.md, and needs a class and a row in `access.ACCESSES`.

An access with an index that may be outside goes to a spare element behind the array where the
element's offset is not below the limit, as unsigned numbers: negative indices are outside too.
Whoever makes the memory of an array adds that element (one instruction per access; selecting
another address instead costs half the speed on software drivers). Where other arrays' elements are
in between, each index is judged, and the address gets the verdict. Memory of other libraries (a
`bare` array) has no such element: there the address gets the verdict on the element's offset.

Offsets are 32 bits wide where the array is not wide (`needs_wide`) and, if it is dynamic, all its
index values are 32 bits wide; else 64.

Owns: places of elements, the types of what stands in memory. Must not know: which op asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from vkchi.ir.core import Op, Value, attributes_of, is_wide
from vkchi.ir.memory_ops import WIDEST
from vkchi.ir.ops import ATOMICS
from vkchi.passes.offsets import NOTHING, Offset, Sum, Writer, offset_of
from vkchi.tuples import NamedTuple
from vkchi.types import (
    Array,
    Layout,
    Ptr,
    Scalar,
    Tensor,
    i32,
    row_major,
    scalar_named,
    scalar_of,
    u1,
    u32,
    u64,
)  # fmt: skip
from vkchi.types.layout import step_of_last


class Place(NamedTuple):
    """An element, or some of its components: `stored` scalars of `array` that begin at `offset`
    plus each of `components`, a u32 or u64; harmless where `ok` is false. `type` is that of the
    value. Of numbers that share a word, `components` are bits of it, which `bit` is added to."""

    access: Access
    array: Value
    stored: Scalar
    width: Scalar
    offset: Offset
    ok: Value | None
    components: tuple[int, ...]
    type: Scalar | Tensor
    bit: Offset = NOTHING


class Access(Protocol):
    """What a layout does: all of it appends ops to `w`."""

    def locate(
        self, w: Writer, root: Root, indices: Sequence[Value], *, inside: bool
    ) -> Place:  # fmt: skip
        """The place of an element. `inside`: the indices are proved to be in range."""

    def part_at(self, w: Writer, place: Place, k: Value) -> Place:
        """One component by an index that is clamped."""

    def load(self, w: Writer, place: Place) -> Value:
        """The value that stands there."""

    def store(self, w: Writer, place: Place, value: Value) -> None:
        """Put a value there."""

    def update(self, w: Writer, place: Place, kind: str, values: Sequence[Value]) -> Value:
        """An atomic op; the old value."""

    def word(self, w: Writer, place: Place) -> tuple[Value, Value]:
        """The place of the 32-bit word in which a narrow number stands, and at which bit."""


class Root(NamedTuple):
    """An array to be indexed: its type, the value that addresses are formed from, the scalar that
    stands there, and the array whose extents it has."""

    type: Array
    array: Value
    stored: Scalar
    shaped: Value


# --- places --------------------------------------------------------------------------------------


def component(place: Place, k: int) -> Place:
    """One component, known now."""
    return place._replace(components=(place.components[k],), type=scalar_of(place.type))


def way_to(w: Writer, components: tuple[int, ...], k: Value, t: Scalar) -> Offset:
    """How far component k, which is clamped, lies behind the first."""
    last = w.number(len(components) - 1, i32)
    k = w.op("max", w.op("min", k, last, type=i32), w.number(0, i32), type=i32)
    first, step = components[0], components[1] - components[0] if len(components) > 1 else 0
    if components == tuple(first + step * j for j in range(len(components))):
        return w.times(w.index(k, t), step, t)
    return w.index(_pick(w, components, k), t)


def _pick(w: Writer, components: tuple[int, ...], k: Value) -> Value:
    """How far component k lies behind the first, for components at irregular distances."""
    result = w.number(components[-1] - components[0], i32)
    for j in range(len(components) - 2, -1, -1):
        is_it = w.op("eq", k, w.number(j, i32), type=u1)
        away = w.number(components[j] - components[0], i32)
        result = w.op("select", is_it, away, result, type=i32)
    return result


@lru_cache(maxsize=4096)
def runs_of(components: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Runs of consecutive components, of as many as are accessed at once, as (first offset,
    count)."""
    runs: list[tuple[int, int]] = []
    for c in components:
        if runs and c == sum(runs[-1]) and runs[-1][1] < WIDEST:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((c, 1))
    return tuple(runs)


def address(w: Writer, place: Place, first: int, t: Scalar | Tensor) -> Value:
    """The address of a value of type t that begins at component offset `first`."""
    assert isinstance(place.array.type, Array)
    value, constant = place.offset.value, place.offset.constant + first
    ok = () if place.ok is None else (place.ok,)
    if value is None and ok:
        value, constant = w.number(constant, place.width), 0
    args = (place.array, *(() if value is None else (value,)), *ok)
    return w.op("address", *args, attr=constant, type=Ptr.of(t, place.array.type.space))


# --- what stands in memory -----------------------------------------------------------------------


def from_stored(w: Writer, v: Value, t: Scalar) -> Value:
    """A number of type t from the scalar that stands for it: its bits, in the lowest of a word."""
    stored = scalar_of(v.type)
    if stored is t:
        return v
    if t is u1:
        return w.op("cast", v, type=u1)
    if t.bits < stored.bits:
        v = w.op("cast", v, type=scalar_named(f"u{t.bits}"))
    return w.bits(v, t)


def to_stored(w: Writer, v: Value, stored: Scalar) -> Value:
    """The scalar that stands for a number."""
    t = scalar_of(v.type)
    if stored is t:
        return v
    if t is not u1:
        v = w.bits(v, scalar_named(f"u{t.bits}"))
    return w.op("cast", v, type=stored) if t.bits < stored.bits else w.bits(v, stored)


def parts_of(w: Writer, v: Value) -> list[Value]:
    """The components of a number or tensor."""
    t = v.type
    if not isinstance(t, Tensor):
        return [v]
    if isinstance(v, Op) and v.kind == "pack":
        return list(v.args)
    return [w.op("extract", v, attr=k, type=t.elem) for k in range(t.size)]


def whole_of(w: Writer, parts: list[Value], t: Scalar | Tensor) -> Value:
    """A number or tensor of its components."""
    return w.op("pack", *parts, type=t) if isinstance(t, Tensor) else parts[0]


# --- plain scalars -------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def layout_of(t: Array) -> Layout:
    """The layout of an array of static shape."""
    assert t.shape is not None
    return t.layout or row_major(t.shape, t.scalars_per_element)


@lru_cache(maxsize=4096)
def is_row(t: Array) -> bool:
    """Whether an array of static shape has one axis, and equal steps along it."""
    return t.ndim == 1 and t.shape is not None and step_of_last(t.shape, layout_of(t)) is not None


@lru_cache(maxsize=4096)
def has_spare(t: Array) -> bool:
    """Whether the memory of an array of static shape has a spare element at its end: where the
    array fills its memory from the first scalar to the last, nothing else is there
    (`fields.cells`: in company, cells are larger than one of their fields)."""
    layout, step = layout_of(t), t.scalars_per_element
    axes = None if t.shape is None else layout.digits(t.shape)
    if axes is None or layout.components != tuple(range(step)):
        return False
    digits = [(digit.stride, digit.values) for digits in axes for digit in digits]
    for stride, count in sorted(digits):
        if count > 1 and stride != step:
            return False
        step *= count
    return all(stride <= step for stride, _ in digits)


class Scalars:
    """Elements whose scalars stand in memory as they are, where the array's layout puts them;
    row-major where the shape is known at launch only."""

    def locate(
        self, w: Writer, root: Root, indices: Sequence[Value], *, inside: bool
    ) -> Place:  # fmt: skip
        """See `Access`."""
        t, ok = root.type, None
        if t.shape is None:
            wide = is_wide(root.array) or any(scalar_of(v.type).bits == 64 for v in indices)
            width, components = u64 if wide else u32, tuple(range(t.scalars_per_element))
            offset, ok = _dynamic_offset(w, root, indices, width, inside)
        else:
            layout = layout_of(t)
            width, components = u64 if is_wide(root.array) else u32, layout.components
            if inside or attributes_of(root.array).bare or not has_spare(t):
                offset = offset_in(w, layout, indices, width)
                ok = None if inside else verdict_on(w, t, indices, width)
            else:
                offset = _spare_offset(w, t, indices, width)
        return Place(self, root.array, root.stored, width, offset, ok, components, t.elem)

    def part_at(self, w: Writer, place: Place, k: Value) -> Place:
        """See `Access`."""
        moved = way_to(w, place.components, k, place.width)
        offset, first = w.plus(place.offset, moved, place.width), place.components[:1]
        return place._replace(offset=offset, components=first, type=scalar_of(place.type))

    def load(self, w: Writer, place: Place) -> Value:
        """See `Access`."""
        t, elem = place.type, scalar_of(place.type)
        if is_whole(place):
            return w.b.insert(load_op(address(w, place, place.components[0], t), w))
        parts: list[Value] = []
        for first, s in _chunks(place):
            found = w.b.insert(load_op(address(w, place, first, s), w))
            parts += [from_stored(w, v, elem) for v in parts_of(w, found)]
        return whole_of(w, parts, t)

    def store(self, w: Writer, place: Place, value: Value) -> None:
        """See `Access`."""
        if is_whole(place):
            store_op(address(w, place, place.components[0], place.type), value, w)
            return
        at, parts = 0, [to_stored(w, v, place.stored) for v in parts_of(w, value)]
        for first, s in _chunks(place):
            count = s.size if isinstance(s, Tensor) else 1
            store_op(address(w, place, first, s), whole_of(w, parts[at : at + count], s), w)
            at += count

    def update(self, w: Writer, place: Place, kind: str, values: Sequence[Value]) -> Value:
        """See `Access`. Floats are exchanged and compared as the unsigned integers of their bits:
        two values are the same where their bits are."""
        elem, olds = scalar_of(place.type), []
        is_bitwise = elem.kind == "f" and kind not in ATOMICS
        word = scalar_named(f"u{elem.bits}") if is_bitwise else elem
        columns = zip(place.components, *[parts_of(w, v) for v in values], strict=True)
        for c, *parts in columns:
            args = (address(w, place, c, word), *[w.bits(v, word) for v in parts])
            old = w.b.insert(Op(kind, args, None, word, w.b.span))
            olds.append(w.bits(old, elem))
        return whole_of(w, olds, place.type)

    def word(self, w: Writer, place: Place) -> tuple[Value, Value]:
        """See `Access`."""
        at = address(w, place, place.components[0], place.stored)
        if place.stored.bits == u32.bits:
            return at, w.number(0, u32)
        assert isinstance(at.type, Ptr)
        word = w.op("word", at, type=Ptr.of(u32, at.type.space))
        return word, w.op("word_shift", at, type=u32)


SCALARS = Scalars()


def load_op(at: Value, w: Writer) -> Op:
    assert isinstance(at.type, Ptr)
    return Op("load", (at,), None, at.type.elem, w.b.span)


def store_op(at: Value, value: Value, w: Writer) -> None:
    w.b.insert(Op("store", (at, value), None, None, w.b.span))


def is_whole(place: Place) -> bool:
    """Whether the value stands in memory as it is, one component behind the other, and is accessed
    at once."""
    if not isinstance(place.type, Tensor):
        return place.stored is place.type
    return may_be_vectors(place) and len(runs_of(place.components)) == 1


def may_be_vectors(place: Place) -> bool:
    """Whether several scalars are accessed at once: not where they are converted on their way, nor
    in workgroup memory."""
    assert isinstance(place.array.type, Array)
    return place.stored is scalar_of(place.type) and place.array.type.space == "global"


def _chunks(place: Place) -> list[tuple[int, Scalar | Tensor]]:
    """What is accessed at once, as (first offset, type)."""
    if not may_be_vectors(place):
        return [(c, place.stored) for c in place.components]
    runs, stored = runs_of(place.components), place.stored
    return [(c, Tensor.of(stored, (n,)) if n > 1 else stored) for c, n in runs]


def offset_in(
    w: Writer, layout: Layout, indices: Sequence[Value], t: Scalar
) -> Offset:  # fmt: skip
    """Where the layout puts the element."""
    counted = [axis_index(w, layout, axis, v, t) for axis, v in enumerate(indices)]
    return offset_of(layout.offset([Sum(w, index, t) for index in counted]))


def axis_index(w: Writer, layout: Layout, axis: int, v: Value, t: Scalar) -> Offset:
    """An index value counted from the first index of its axis. What 32 bits do not hold stays
    outside in them: the largest u32."""
    origin = layout.origin[axis] if layout.origin else 0
    if scalar_of(v.type).bits <= t.bits:
        index = w.index(v, t)
        return index._replace(constant=index.constant - origin)
    index = w.index(v, u64)
    index = index._replace(constant=index.constant - origin)
    if index.value is None:
        return index
    most = w.number((1 << t.bits) - 1, u64)
    kept = w.op("min", w.whole(index, u64), most, type=u64)
    return Offset(w.op("cast", kept, type=t), 0)


def _spare_offset(w: Writer, t: Array, indices: Sequence[Value], width: Scalar) -> Offset:
    """The offset of an element, or of the spare one behind the array. Of a single axis, the index
    itself is judged: its multiples may wrap."""
    layout = layout_of(t)
    if is_row(t):
        assert t.shape is not None
        index, limit = axis_index(w, layout, 0, indices[0], width), t.shape[0]
        step = t.scalars_per_element
    else:
        index, limit, step = offset_in(w, layout, indices, width), layout.size, 1
    if index.value is not None or not 0 <= index.constant < limit:
        last = w.number(limit, width)
        index = Offset(w.op("min", w.whole(index, width), last, type=width), 0)
    return w.times(index, step, width)


def verdict_on(w: Writer, t: Array, indices: Sequence[Value], width: Scalar) -> Value | None:
    """Whether every index is one of its axis; None where that is known."""
    assert t.shape is not None
    inside: Value | None = None
    for axis, (v, extent) in enumerate(zip(indices, t.shape, strict=True)):
        index = axis_index(w, layout_of(t), axis, v, width)
        if index.value is None and 0 <= index.constant < extent:
            continue
        one = w.op("lt", w.whole(index, width), w.number(extent, width), type=u1)
        inside = one if inside is None else w.op("and", inside, one, type=u1)
    return inside


def _dynamic_offset(
    w: Writer, root: Root, indices: Sequence[Value], t: Scalar, inside: bool
) -> tuple[Offset, Value | None]:  # fmt: skip
    """The offset of an element, or of the spare one; a verdict where there is none."""
    n, offset, ok = root.type.scalars_per_element, NOTHING, None
    for axis, v in enumerate(indices):
        if offset != NOTHING:
            extent = _extent(w, root, axis, t)
            offset = Offset(w.op("mul", w.whole(offset, t), extent, type=t), 0)
        offset = w.plus(offset, w.index(v, t), t)
    if not inside and indices:
        limit, place = _element_limit(w, root, t), w.whole(offset, t)
        if attributes_of(root.array).bare:
            ok = w.op("lt", place, limit, type=u1)
        else:
            offset = Offset(w.op("min", place, limit, type=t), 0)
    return w.times(offset, n, t), ok


def _extent(w: Writer, root: Root, axis: int, t: Scalar) -> Value:
    extent = w.op("shape", root.shaped, attr=axis, type=i32)
    return w.bits(extent, t) if t is u32 else w.op("cast", extent, type=t)


def _element_limit(w: Writer, root: Root, t: Scalar) -> Value:
    """How many elements an array of dynamic shape has."""
    if root.type.ndim == 1:
        return _extent(w, root, 0, t)
    size, n = w.op("size", root.array, type=t), root.type.scalars_per_element
    return size if n == 1 else w.op("floordiv", size, w.number(n, t), type=t)
