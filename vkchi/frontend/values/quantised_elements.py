"""Bit-packed numbers in kernels: elements are encoded at writes and decoded at reads.

An encoded number is in the highest bits of a slot, an integer of 32 or 64 bits
(`types.packed_numbers`). In the IR the array has these slots as elements.

    x[i] = v        # store %p, (v << 27)
    x[i] += v       # atomic_add %p, (v << 27); a compare-and-swap loop for floats
"""

from __future__ import annotations

from typing import Any

from vkchi.frontend.values.references import Context, MemoryTarget
from vkchi.ir.builder import updated_value
from vkchi.ir.core import Value
from vkchi.ir.num import Num
from vkchi.ir.ops import ATOMICS, BITWISE
from vkchi.types import Tensor, shape_of, with_shape
from vkchi.types.packed_numbers import Quantised


class QuantisedTarget(MemoryTarget):
    """Target of a bit-packed element, or of a component of one.

    `slots` is the target of the encoded integers, `number` their encoding.
    """

    __slots__ = ("number", "slots")

    def __init__(self, slots: MemoryTarget, number: Quantised) -> None:
        self.slots, self.number, self.ptr = slots, number, slots.ptr
        self.type = with_shape(number.compute, shape_of(slots.type))

    def part(self, ptr: Value) -> MemoryTarget:
        return QuantisedTarget(self.slots.part(ptr), self.number)

    def load(self, cx: Context) -> Any:
        return self._decoded(cx, self.slots.load(cx))

    def store(self, cx: Context, v: Value) -> None:
        self.slots.store(cx, self._encoded(cx, v))

    def atomic(self, cx: Context, kind: str, v: Value) -> Any:
        """Apply the ops.ATOMICS row `kind`; return the old value.

        Additions and bitwise ops are applied to the encoded integers if `number.adds_slots`. Other
        results are encoded and stored by compare-and-swap, one component at a time.
        """
        combine = ATOMICS[kind].combine
        if self.number.adds_slots and (combine == "add" or combine in BITWISE):
            return self._decoded(cx, self.slots.atomic(cx, kind, self._encoded(cx, v)))
        parts = components_of(cx, self, v)
        olds = [place._swapped(cx, kind, part) for place, part in parts]
        is_tensor = isinstance(self.type, Tensor)
        return cx.b.emit("pack", *olds, type=self.type) if is_tensor else olds[0]

    def _swapped(self, cx: Context, kind: str, v: Value) -> Value:
        def update(slot: Value) -> Value:
            return self._encoded(cx, updated_value(cx.b, kind, self._decoded(cx, slot), (v,)))

        return self._decoded(cx, self.slots.changed(cx, update))

    def _encoded(self, cx: Context, v: Value) -> Value:
        return self.number.encode(Num(cx.b, v)).v

    def _decoded(self, cx: Context, slot: Value) -> Value:
        return self.number.decode(Num(cx.b, slot)).v


def components_of(
    cx: Context, place: QuantisedTarget, v: Value
) -> list[tuple[QuantisedTarget, Value]]:  # fmt: skip
    """Return the components of an element, each with that of the value; a scalar gives one pair."""
    t = place.type
    if not isinstance(t, Tensor):
        return [(place, v)]
    found: list[tuple[QuantisedTarget, Value]] = []
    for k in range(t.size):
        part = place.part(cx.b.emit("member", place.ptr, attr=k))
        assert isinstance(part, QuantisedTarget)
        found.append((part, cx.b.emit("extract", v, attr=k)))
    return found
