"""Bit-packed numbers in kernels: elements are encoded at writes and decoded at reads.

In the IR such an array holds slots (`types.quantised`), which passes treat as integers.

    x[i] = v        # store %p, (v << 27)
    x[i] += v       # atomic_add %p, (v << 27); a compare-and-swap loop for floats
"""

from __future__ import annotations

from typing import Any

from vkchi.frontend.values import Context, Place
from vkchi.ir.core import Value
from vkchi.ir.num import Num
from vkchi.ir.ops import ATOMICS, BITWISE
from vkchi.ir.swaps import replaced
from vkchi.types import Tensor, shape_of, with_shape
from vkchi.types.quantised import Quantised


class QuantisedPlace(Place):
    """An element whose slot is at `slots`, or a component of one."""

    __slots__ = ("number", "slots")

    def __init__(self, slots: Place, number: Quantised) -> None:
        self.slots, self.number, self.ptr = slots, number, slots.ptr
        self.type = with_shape(number.compute, shape_of(slots.type))

    def part(self, ptr: Value) -> Place:
        return QuantisedPlace(self.slots.part(ptr), self.number)

    def load(self, cx: Context) -> Any:
        return self._decoded(cx, self.slots.load(cx))

    def store(self, cx: Context, v: Value) -> None:
        self.slots.store(cx, self._encoded(cx, v))

    def atomic(self, cx: Context, kind: str, v: Value) -> Any:
        """Apply one atomic op; return the old value.

        Slots that are proportional to their numbers are combined directly. Other results are
        encoded and stored by compare-and-swap.
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
            return self._encoded(cx, replaced(cx.b, kind, self._decoded(cx, slot), (v,)))

        return self._decoded(cx, self.slots.changed(cx, update))

    def _encoded(self, cx: Context, v: Value) -> Value:
        return self.number.encode(Num(cx.b, v)).v

    def _decoded(self, cx: Context, slot: Value) -> Value:
        return self.number.decode(Num(cx.b, slot)).v


def components_of(
    cx: Context, place: QuantisedPlace, v: Value
) -> list[tuple[QuantisedPlace, Value]]:  # fmt: skip
    """Return the components of an element, each with that of the value; a scalar gives one pair."""
    t = place.type
    if not isinstance(t, Tensor):
        return [(place, v)]
    found: list[tuple[QuantisedPlace, Value]] = []
    for k in range(t.size):
        part = place.part(cx.b.emit("member", place.ptr, attr=k))
        assert isinstance(part, QuantisedPlace)
        found.append((part, cx.b.emit("extract", v, attr=k)))
    return found
