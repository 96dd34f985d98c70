"""A number that Python read from an array while a tape records, which knows where it is from.

Owns: `TracedFloat`. A sum knows the places of its summands, all else gives a plain float: so that
`loss[None] += 1` is seen to be a sum with what stood there. Must not know: tapes.

    >>> (1 + TracedFloat(2.0, "here")).places
    frozenset({'here'})
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any


class TracedFloat(float):
    """A float, and the places whose numbers it is the sum of, each once, with constants."""

    places: frozenset[Hashable]

    def __new__(cls, value: float, *places: Hashable) -> TracedFloat:
        made = super().__new__(cls, value)
        made.places = frozenset(places)
        return made

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, int | float):
            return float(self) + other
        total, more = float(self) + float(other), places_of(other)
        if more & self.places:
            return total  # a number twice
        return TracedFloat(total, *self.places, *more)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        total = float(self) - other
        is_constant = isinstance(other, int | float) and not isinstance(other, TracedFloat)
        return TracedFloat(total, *self.places) if is_constant else total

    def __reduce__(self) -> Any:
        return (float, (float(self),))


def places_of(value: Any) -> frozenset[Hashable]:
    """The places that a value is a sum of; none where that is unknown."""
    return value.places if isinstance(value, TracedFloat) else frozenset()
