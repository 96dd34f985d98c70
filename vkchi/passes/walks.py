"""How accesses step through memory along an index, and where they begin.

Owns: whether an access moves on from one number to the next, and whether it surely begins where a
processor's word does. Must not know: what is done about it.

    >>> step_of(load_x_i_k, k)      # x[i, k]
    1
"""

from __future__ import annotations

from math import prod

from vkchi.analysis.multiples import MOST, Multiples
from vkchi.analysis.sums import Sums, constant_of, factor_of, terms_of
from vkchi.ir.constants import constant_int
from vkchi.ir.core import Op, Param, Value, attributes_of, base_of
from vkchi.types import Array, scalar_of
from vkchi.types.layout import step_of_last

WORD = 8  # bytes that a processor's lane loads at once


def step_of(access: Op, index: Param, sums: Sums) -> int | None:
    """How many elements an access moves on with an index: 0, 1, or None for anything else."""
    place = access.args[0]
    if access.kind not in ("load", "store") or not isinstance(place, Op) or place.kind != "elem":
        return None
    found = [factor_of(index, sums.of(v)) for v in place.args[1:]]
    t = place.args[0].type
    assert isinstance(t, Array)
    if not any(found):
        return 0 if access.kind == "load" else None
    return 1 if found == [0] * (len(found) - 1) + [1] and is_dense(t) else None


def bits_at(access: Op) -> int:
    """The bits of a number where an access is, in memory that others see too."""
    t = base_of(access.args[0]).type
    return t.stored.bits if isinstance(t, Array) else 32


def is_dense(t: Array) -> bool:
    """Whether elements that follow each other along the last axis lie so, of numbers of 32 bits or
    less that are kept as they are."""
    if t.stored.bits > 32 or scalar_of(t.elem).bits != t.stored.bits:
        return False
    if t.layout is None or t.shape is None:
        return True
    return step_of_last(t.shape, t.layout) == t.scalars_per_element


def strides_of(t: Array) -> list[int] | None:
    """The scalars from an element to the next along each axis; None where they are not known, or
    differ."""
    if t.ndim == 1 and t.layout is None:
        return [t.scalars_per_element]
    if t.shape is None:
        return None
    if t.layout is None:
        return [prod(t.shape[k + 1 :]) * t.scalars_per_element for k in range(t.ndim)]
    digits = t.layout.digits(t.shape)
    if digits is None or any(len(axis) != 1 or axis[0].divisor != 1 for axis in digits):
        return None
    if any(t.layout.origin or ()):
        return None
    return [axis[0].stride for axis in digits]


class Walks:
    """The accesses of a serial loop which move on by one element a round, and where they begin if
    the loop begins at `begin`."""

    def __init__(self, index: Param, begin: Value) -> None:
        self.index, self.begin = index, begin
        self.sums, self.multiples = Sums(), Multiples()

    def is_walking(self, access: Op) -> bool:
        """Whether an access moves on by one element a round."""
        return step_of(access, self.index, self.sums) == 1

    def is_aligned(self, access: Op, skipped: int = 0) -> bool:
        """Whether an access that walks, and is proved to be inside its array, does so from a word's
        beginning on if the loop begins so many rounds later."""
        place = access.args[0]
        assert isinstance(place, Op) and isinstance(place.args[0].type, Array)
        t, base = place.args[0].type, base_of(place)
        strides = strides_of(t)
        if place.attr != "inside" or strides is None or t.space != "global":
            return False
        size = t.stored.size_bytes
        *slow, last = place.args[1:]
        known = [self.multiples.of(v) * n for v, n in zip(slow, strides)]
        known.append(self.first(last, skipped) * strides[-1])
        return min([attributes_of(base).aligned, *[n * size for n in known]]) >= WORD

    def first(self, last: Value, skipped: int) -> int:
        """A power of two that divides the last index where the loop begins."""
        form = self.sums.of(last)
        constant, begin = constant_of(form) + skipped, constant_int(self.begin)
        found = [self.multiples.of(v) * low_bit(n) for v, n in terms_of(form).items()
                 if v is not self.index]  # fmt: skip
        if begin is None:
            found.append(self.multiples.of(self.begin))
        return min([low_bit(constant + (begin or 0)), *found])


def low_bit(n: int) -> int:
    """The power of two that divides an integer; MOST at most."""
    return min(n & -n, MOST) or MOST
