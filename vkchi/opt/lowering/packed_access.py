"""Bit-packed numbers: accesses to elements that share a word (`PackedNumbers`, a `LayoutAccess`).

Each element is a slot (`types.packed_numbers`): the number in the highest bits of an integer, zeros
below. A load extracts the slot from its word. A store is a compare-and-swap loop, because other
invocations may write other bits of the word. An element that is alone in its word is stored
directly. The components of a vector are in one word and are written together.

An index that may be out of range gets a bounds check, because packed arrays have no spare element.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce

from vkchi.errors import InternalError
from vkchi.ir.builder import Builder, emit_cas_loop, updated_value
from vkchi.ir.core import Value, is_wide
from vkchi.ir.num import Num
from vkchi.opt.lowering.layouts import (
    ElementLocation,
    IndexedArray,
    address,
    axis_index,
    bounds_check,
    component_offset,
    layout_offset,
    load_op,
    store_op,
)
from vkchi.opt.lowering.offsets import ArithmeticBuilder, Offset, OffsetExpr, as_offset
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Tensor, scalar_of, u32, u64
from vkchi.types.packed_numbers import Packed


class PackedNumbers:
    """Accesses to bit-packed numbers, one or more to a word."""

    def locate(
        self, w: ArithmeticBuilder, root: IndexedArray, indices: Sequence[Value], *, inside: bool
    ) -> ElementLocation:  # fmt: skip
        t, layout = root.type, root.type.layout
        assert isinstance(layout, Packed)
        width = u64 if is_wide(root.array) else u32
        counted = [
            OffsetExpr(w, axis_index(w, layout, k, v, width), width) for k, v in enumerate(indices)
        ]
        offset, bit = layout_offset(w, layout, indices, width), as_offset(layout.bit(counted))
        ok = None if inside else bounds_check(w, t, indices, width)
        return ElementLocation(
            self, root.array, root.stored, width, offset, ok, layout.starts, t.elem, bit
        )

    def part_at(self, w: ArithmeticBuilder, place: ElementLocation, k: Value) -> ElementLocation:
        moved = component_offset(w, place.components, k, place.width)
        bit, first = w.plus(place.bit, moved, place.width), place.components[:1]
        return place._replace(bit=bit, components=first, type=scalar_of(place.type))

    def load(self, w: ArithmeticBuilder, place: ElementLocation) -> Value:
        bits = bits_of(w, place)
        return bits.take(w.b.insert(load_op(word_at(w, place), w)))

    def store(self, w: ArithmeticBuilder, place: ElementLocation, value: Value) -> None:
        at, bits = word_at(w, place), bits_of(w, place)
        word = bits.put(value)
        if bits.is_all:
            store_op(at, word.v, w)
        else:
            kept = bits.others()
            emit_cas_loop(w.b, at, lambda old: (Num(w.b, old) & kept | word).v)

    def update(
        self, w: ArithmeticBuilder, place: ElementLocation, kind: str, values: Sequence[Value]
    ) -> Value:
        bits = bits_of(w, place)
        kept = bits.others()

        def changed(word: Value) -> Value:
            new = updated_value(w.b, kind, bits.take(word), values)
            return (Num(w.b, word) & kept | bits.put(new)).v

        return bits.take(emit_cas_loop(w.b, word_at(w, place), changed))

    def word(self, w: ArithmeticBuilder, place: ElementLocation) -> tuple[Value, Value]:
        """Raise InternalError: an element's integer has at least 32 bits."""
        raise InternalError("slots of packed numbers are 32 bits wide or more")


PACKED = PackedNumbers()


class BitPositions(NamedTuple):
    """Bit positions of a location's components in its word: each begins at one of `shifts`.

    `is_all`: no other element has bits in the word. Ops are emitted without reuse, because they may
    be inside a loop.
    """

    b: Builder
    layout: Packed
    type: Scalar | Tensor
    shifts: tuple[Num | int, ...]
    is_all: bool

    def take(self, word: Value) -> Value:
        whole = Num(self.b, word)
        slots = [self.layout.take(whole, k).v for k in self.shifts]
        return self.b.emit("pack", *slots, type=self.type) if self.is_tensor else slots[0]

    def put(self, slots: Value) -> Num:
        whole, count = Num(self.b, slots), len(self.shifts)
        parts = [whole.part(k) for k in range(count)] if self.is_tensor else [whole]
        return reduce(operator.or_, map(self.layout.put, parts, self.shifts))

    def others(self) -> Num:
        t, layout = self.layout.word, self.layout
        known = [layout.ones << k for k in self.shifts if isinstance(k, int)]
        if len(known) == len(self.shifts):
            kept = ((1 << t.bits) - 1) ^ reduce(operator.or_, known)
            return Num(self.b, self.b.const(kept, t))
        ones = Num(self.b, self.b.const(layout.ones, t))
        return ~reduce(operator.or_, [ones << k for k in self.shifts])

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.type, Tensor)


def word_at(w: ArithmeticBuilder, place: ElementLocation) -> Value:
    return address(w, place, 0, place.stored)


def bits_of(w: ArithmeticBuilder, place: ElementLocation) -> BitPositions:
    assert isinstance(place.array.type, Array)
    layout = place.array.type.layout
    assert isinstance(layout, Packed)
    shifts = tuple([shift_of(w, place.bit, c, place) for c in place.components])
    is_all = layout.is_alone and len(shifts) == len(layout.starts)
    return BitPositions(w.b, layout, place.type, shifts, is_all)


def shift_of(w: ArithmeticBuilder, bit: Offset, first: int, place: ElementLocation) -> Num | int:
    if bit.value is None:
        return bit.constant + first
    moved = w.whole(bit._replace(constant=bit.constant + first), place.width)
    if place.stored is not place.width:
        moved = w.op("cast", moved, type=place.stored)
    return Num(w.b, moved)
