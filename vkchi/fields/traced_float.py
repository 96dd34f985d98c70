"""Floats that carry their origin while a tape records.

A sum carries the origins of its summands, a difference with a constant those of its first operand.
Any other operation gives a plain float, as does a sum with the same origin twice. So the tape
recognizes the value written by `loss[None] += 1` as the old value plus a constant.

    >>> (1 + TracedFloat(2.0, "here")).places
    frozenset({'here'})
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any


class TracedFloat(float):
    """A float that is the sum of the values at `places`, each once, and constants."""

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
            return total  # the same place twice
        return TracedFloat(total, *self.places, *more)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        total = float(self) - other
        is_constant = isinstance(other, int | float) and not isinstance(other, TracedFloat)
        return TracedFloat(total, *self.places) if is_constant else total

    def __reduce__(self) -> Any:
        return (float, (float(self),))


def places_of(value: Any) -> frozenset[Hashable]:
    """The places whose values, plus a constant, sum to this value; empty if unknown."""
    return value.places if isinstance(value, TracedFloat) else frozenset()
