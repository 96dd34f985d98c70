"""Address lowering: layouts turn array indices into offsets, addresses and accesses.

`LayoutAccess` is the protocol; `lower_access.access_of` selects an implementation by the array's
type. Elements of `Scalars` are at the offset given by the layout (`types.layout`). Elements of
`Packed` layouts are a few bits of a word. Another implementation needs a class and a row in
`lower_access.ACCESSES`.

Out-of-range indices:

- By default, an access whose element offset is not below the limit goes to a spare element behind
  the array. The comparison is unsigned, so negative indices are out of range too. The allocator of
  the array provides the spare element.
- Without a spare element, each index is compared with its extent. The result is an operand of the
  address. That is so for arrays interleaved with others, packed arrays, and memory of other
  libraries (a `noguard` array).
- In a `noguard` array of dynamic shape, the element offset is compared instead.

Offsets have 32 bits if the array is not wide (`needs_wide`) and, for dynamic shapes, no index value
has 64 bits. Otherwise they have 64.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from vkchi.ir.core import Op, Value, attributes_of, is_wide
from vkchi.ir.op_table.memory_ops import WIDEST
from vkchi.ir.ops import ATOMICS
from vkchi.opt.lowering.offsets import NOTHING, ArithmeticBuilder, Offset, OffsetExpr, as_offset
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


class ElementLocation(NamedTuple):
    """Location of an element, or of some of its components, before its address is formed.

    `stored` scalars of `array` begin at `offset` plus each of `components`. `width`, u32 or u64, is
    the type of the offset. If `ok` is false at run time, the access has no effect; None needs no
    check. `type` is that of the value. In packed layouts `components` are bit positions, and `bit`
    is added to each.
    """

    access: LayoutAccess
    array: Value
    stored: Scalar
    width: Scalar
    offset: Offset
    ok: Value | None
    components: tuple[int, ...]
    type: Scalar | Tensor
    bit: Offset = NOTHING


class LayoutAccess(Protocol):
    """Protocol of a layout's accesses. All methods append ops to `w`."""

    def locate(
        self, w: ArithmeticBuilder, root: IndexedArray, indices: Sequence[Value], *, inside: bool
    ) -> ElementLocation:  # fmt: skip
        """Return the location of an element. `inside`: the indices are proved to be in range."""

    def part_at(self, w: ArithmeticBuilder, place: ElementLocation, k: Value) -> ElementLocation:
        """Return the location of one component, selected by a run-time index that is clamped."""

    def load(self, w: ArithmeticBuilder, place: ElementLocation) -> Value:
        """Load the value at a location."""

    def store(self, w: ArithmeticBuilder, place: ElementLocation, value: Value) -> None:
        """Store a value at a location."""

    def update(
        self, w: ArithmeticBuilder, place: ElementLocation, kind: str, values: Sequence[Value]
    ) -> Value:
        """Emit an atomic op of this kind; return the old value."""

    def word(self, w: ArithmeticBuilder, place: ElementLocation) -> tuple[Value, Value]:
        """Return the address of the 32-bit word that holds a narrow scalar, and its first bit."""


class IndexedArray(NamedTuple):
    """An array to be indexed.

    `array` is the base of its addresses, `stored` the scalar type in memory, `shaped` the array
    that provides its shape.
    """

    type: Array
    array: Value
    stored: Scalar
    shaped: Value


# --- places --------------------------------------------------------------------------------------


def component(place: ElementLocation, k: int) -> ElementLocation:
    return place._replace(components=(place.components[k],), type=scalar_of(place.type))


def component_offset(
    w: ArithmeticBuilder, components: tuple[int, ...], k: Value, t: Scalar
) -> Offset:
    """Return the offset of component `k` from the first component, in the unit of `components`. The
    run-time index `k` is clamped."""
    last = w.number(len(components) - 1, i32)
    k = w.op("max", w.op("min", k, last, type=i32), w.number(0, i32), type=i32)
    first, step = components[0], components[1] - components[0] if len(components) > 1 else 0
    if components == tuple(first + step * j for j in range(len(components))):
        return w.times(w.index(k, t), step, t)
    return w.index(_pick(w, components, k), t)


def _pick(w: ArithmeticBuilder, components: tuple[int, ...], k: Value) -> Value:
    """Offset of component k from the first, for components at irregular distances."""
    result = w.number(components[-1] - components[0], i32)
    for j in range(len(components) - 2, -1, -1):
        is_it = w.op("eq", k, w.number(j, i32), type=u1)
        away = w.number(components[j] - components[0], i32)
        result = w.op("select", is_it, away, result, type=i32)
    return result


@lru_cache(maxsize=4096)
def runs_of(components: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return the runs of consecutive components, of at most `WIDEST`, as pairs of first offset and
    count. Cached."""
    runs: list[tuple[int, int]] = []
    for c in components:
        if runs and c == sum(runs[-1]) and runs[-1][1] < WIDEST:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((c, 1))
    return tuple(runs)


def address(w: ArithmeticBuilder, place: ElementLocation, first: int, t: Scalar | Tensor) -> Value:
    """Append the `address` of a value of type `t` that begins `first` behind the location's offset.
    It has the location's bounds check, if any, as an operand."""
    assert isinstance(place.array.type, Array)
    value, constant = place.offset.value, place.offset.constant + first
    ok = () if place.ok is None else (place.ok,)
    if value is None and ok:
        value, constant = w.number(constant, place.width), 0
    args = (place.array, *(() if value is None else (value,)), *ok)
    return w.op("address", *args, attr=constant, type=Ptr.of(t, place.array.type.space))


# --- stored form of scalars ----------------------------------------------------------------------


def from_stored(w: ArithmeticBuilder, v: Value, t: Scalar) -> Value:
    """Decode a scalar of type t from its stored form, which holds its bits in the low bits."""
    stored = scalar_of(v.type)
    if stored is t:
        return v
    if t is u1:
        return w.op("cast", v, type=u1)
    if t.bits < stored.bits:
        v = w.op("cast", v, type=scalar_named(f"u{t.bits}"))
    return w.bits(v, t)


def to_stored(w: ArithmeticBuilder, v: Value, stored: Scalar) -> Value:
    """Encode a scalar in its stored form."""
    t = scalar_of(v.type)
    if stored is t:
        return v
    if t is not u1:
        v = w.bits(v, scalar_named(f"u{t.bits}"))
    return w.op("cast", v, type=stored) if t.bits < stored.bits else w.bits(v, stored)


def split_components(w: ArithmeticBuilder, v: Value) -> list[Value]:
    t = v.type
    if not isinstance(t, Tensor):
        return [v]
    if isinstance(v, Op) and v.kind == "pack":
        return list(v.args)
    return [w.op("extract", v, attr=k, type=t.elem) for k in range(t.size)]


def from_components(w: ArithmeticBuilder, parts: list[Value], t: Scalar | Tensor) -> Value:
    return w.op("pack", *parts, type=t) if isinstance(t, Tensor) else parts[0]


# --- plain scalars -------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def layout_of(t: Array) -> Layout:
    assert t.shape is not None
    return t.layout or row_major(t.shape, t.scalars_per_element)


@lru_cache(maxsize=4096)
def is_row(t: Array) -> bool:
    """True if an array of static shape has one axis with a constant stride. Cached."""
    return t.ndim == 1 and t.shape is not None and step_of_last(t.shape, layout_of(t)) is not None


@lru_cache(maxsize=4096)
def has_spare(t: Array) -> bool:
    """True if the memory of an array of static shape ends with a spare element. Cached.

    That is so if its mixed-radix layout fills the memory without gaps. In a group of fields, cells
    are larger than one field (`fields.trees.tree_layout`). False for layouts without digits.
    """
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
    """Elements stored as plain scalars, at the layout's offsets.

    Arrays of dynamic shape are row-major.
    """

    def locate(
        self, w: ArithmeticBuilder, root: IndexedArray, indices: Sequence[Value], *, inside: bool
    ) -> ElementLocation:  # fmt: skip
        t, ok = root.type, None
        if t.shape is None:
            wide = is_wide(root.array) or any(scalar_of(v.type).bits == 64 for v in indices)
            width, components = u64 if wide else u32, tuple(range(t.scalars_per_element))
            offset, ok = _dynamic_offset(w, root, indices, width, inside)
        else:
            layout = layout_of(t)
            width, components = u64 if is_wide(root.array) else u32, layout.components
            if inside or attributes_of(root.array).noguard or not has_spare(t):
                offset = layout_offset(w, layout, indices, width)
                ok = None if inside else bounds_check(w, t, indices, width)
            else:
                offset = _spare_offset(w, t, indices, width)
        return ElementLocation(self, root.array, root.stored, width, offset, ok, components, t.elem)

    def part_at(self, w: ArithmeticBuilder, place: ElementLocation, k: Value) -> ElementLocation:
        moved = component_offset(w, place.components, k, place.width)
        offset, first = w.plus(place.offset, moved, place.width), place.components[:1]
        return place._replace(offset=offset, components=first, type=scalar_of(place.type))

    def load(self, w: ArithmeticBuilder, place: ElementLocation) -> Value:
        t, elem = place.type, scalar_of(place.type)
        if is_whole(place):
            return w.b.insert(load_op(address(w, place, place.components[0], t), w))
        parts: list[Value] = []
        for first, s in _chunks(place):
            found = w.b.insert(load_op(address(w, place, first, s), w))
            parts += [from_stored(w, v, elem) for v in split_components(w, found)]
        return from_components(w, parts, t)

    def store(self, w: ArithmeticBuilder, place: ElementLocation, value: Value) -> None:
        if is_whole(place):
            store_op(address(w, place, place.components[0], place.type), value, w)
            return
        at, parts = 0, [to_stored(w, v, place.stored) for v in split_components(w, value)]
        for first, s in _chunks(place):
            count = s.size if isinstance(s, Tensor) else 1
            store_op(address(w, place, first, s), from_components(w, parts[at : at + count], s), w)
            at += count

    def update(
        self, w: ArithmeticBuilder, place: ElementLocation, kind: str, values: Sequence[Value]
    ) -> Value:
        """See `LayoutAccess`.

        Exchange and compare-and-swap of floats operate on their bits as unsigned integers, so
        floats are equal if their bits are.
        """
        elem, olds = scalar_of(place.type), []
        is_bitwise = elem.kind == "f" and kind not in ATOMICS
        word = scalar_named(f"u{elem.bits}") if is_bitwise else elem
        columns = zip(place.components, *[split_components(w, v) for v in values], strict=True)
        for c, *parts in columns:
            args = (address(w, place, c, word), *[w.bits(v, word) for v in parts])
            old = w.b.insert(Op(kind, args, None, word, w.b.span))
            olds.append(w.bits(old, elem))
        return from_components(w, olds, place.type)

    def word(self, w: ArithmeticBuilder, place: ElementLocation) -> tuple[Value, Value]:
        at = address(w, place, place.components[0], place.stored)
        if place.stored.bits == u32.bits:
            return at, w.number(0, u32)
        assert isinstance(at.type, Ptr)
        word = w.op("word", at, type=Ptr.of(u32, at.type.space))
        return word, w.op("word_shift", at, type=u32)


SCALARS = Scalars()


def load_op(at: Value, w: ArithmeticBuilder) -> Op:
    assert isinstance(at.type, Ptr)
    return Op("load", (at,), None, at.type.elem, w.b.span)


def store_op(at: Value, value: Value, w: ArithmeticBuilder) -> None:
    w.b.insert(Op("store", (at, value), None, None, w.b.span))


def is_whole(place: ElementLocation) -> bool:
    """True if the value is stored contiguously in its own type and fits one access."""
    if not isinstance(place.type, Tensor):
        return place.stored is place.type
    return may_be_vectors(place) and len(runs_of(place.components)) == 1


def may_be_vectors(place: ElementLocation) -> bool:
    assert isinstance(place.array.type, Array)
    return place.stored is scalar_of(place.type) and place.array.type.space == "global"


def _chunks(place: ElementLocation) -> list[tuple[int, Scalar | Tensor]]:
    """Return the accesses that make up a location, as pairs of first component offset and type."""
    if not may_be_vectors(place):
        return [(c, place.stored) for c in place.components]
    runs, stored = runs_of(place.components), place.stored
    return [(c, Tensor.of(stored, (n,)) if n > 1 else stored) for c, n in runs]


def layout_offset(
    w: ArithmeticBuilder, layout: Layout, indices: Sequence[Value], t: Scalar
) -> Offset:  # fmt: skip
    counted = [axis_index(w, layout, axis, v, t) for axis, v in enumerate(indices)]
    return as_offset(layout.offset([OffsetExpr(w, index, t) for index in counted]))


def axis_index(w: ArithmeticBuilder, layout: Layout, axis: int, v: Value, t: Scalar) -> Offset:
    """Append an index as an offset of type t, relative to the first index of its axis.

    If t is u32, a 64-bit index that does not fit saturates at the largest u32, which is out of
    range.
    """
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


def _spare_offset(
    w: ArithmeticBuilder, t: Array, indices: Sequence[Value], width: Scalar
) -> Offset:
    """Offset of an element, or of the spare element if it is out of range.

    With a single axis the index itself is clamped, because its product with the stride may wrap.
    """
    layout = layout_of(t)
    if is_row(t):
        assert t.shape is not None
        index, limit = axis_index(w, layout, 0, indices[0], width), t.shape[0]
        step = t.scalars_per_element
    else:
        index, limit, step = layout_offset(w, layout, indices, width), layout.size, 1
    if index.value is not None or not 0 <= index.constant < limit:
        last = w.number(limit, width)
        index = Offset(w.op("min", w.whole(index, width), last, type=width), 0)
    return w.times(index, step, width)


def bounds_check(
    w: ArithmeticBuilder, t: Array, indices: Sequence[Value], width: Scalar
) -> Value | None:
    """Append a test that every index is in range, and return its bool; None if all are constants in
    range."""
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
    w: ArithmeticBuilder, root: IndexedArray, indices: Sequence[Value], t: Scalar, inside: bool
) -> tuple[Offset, Value | None]:  # fmt: skip
    """Return the offset of an element in an array of dynamic shape, and its bounds check or None.

    Unless `inside`, the offset is clamped to the spare element. A `noguard` array has none, so its
    offset is checked instead.
    """
    n, offset, ok = root.type.scalars_per_element, NOTHING, None
    for axis, v in enumerate(indices):
        if offset != NOTHING:
            extent = _extent(w, root, axis, t)
            offset = Offset(w.op("mul", w.whole(offset, t), extent, type=t), 0)
        offset = w.plus(offset, w.index(v, t), t)
    if not inside and indices:
        limit, place = _element_limit(w, root, t), w.whole(offset, t)
        if attributes_of(root.array).noguard:
            ok = w.op("lt", place, limit, type=u1)
        else:
            offset = Offset(w.op("min", place, limit, type=t), 0)
    return w.times(offset, n, t), ok


def _extent(w: ArithmeticBuilder, root: IndexedArray, axis: int, t: Scalar) -> Value:
    extent = w.op("shape", root.shaped, attr=axis, type=i32)
    return w.bits(extent, t) if t is u32 else w.op("cast", extent, type=t)


def _element_limit(w: ArithmeticBuilder, root: IndexedArray, t: Scalar) -> Value:
    if root.type.ndim == 1:
        return _extent(w, root, 0, t)
    size, n = w.op("size", root.array, type=t), root.type.scalars_per_element
    return size if n == 1 else w.op("floordiv", size, w.number(n, t), type=t)
