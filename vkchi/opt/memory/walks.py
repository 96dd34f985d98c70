"""Stride and alignment analysis: the step of accesses along an index, and their start.

>>> stride_along(load_x_i_k, k, AffinePolynomials())      # x[i, k]
1
"""

from __future__ import annotations

from math import prod

from vkchi.analysis.values.polynomials import (
    GREATEST_FACTOR,
    AffinePolynomials,
    PowerOfTwoFactors,
    constant_of,
    factor_of,
    terms_of,
)
from vkchi.ir.core import Op, Param, Value, attributes_of, base_memory, constant_int
from vkchi.target import tuning
from vkchi.types import Array, scalar_of
from vkchi.types.layout import step_of_last


def stride_along(access: Op, index: Param, sums: AffinePolynomials) -> int | None:
    """Return 1 if an access is to the next element when `index` grows by one, 0 for a load that is
    invariant; else None."""
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
    """Return the bits of a scalar of the accessed array in memory; 32 for private variables."""
    t = base_memory(access.args[0]).type
    return t.stored.bits if isinstance(t, Array) else 32


def is_dense(t: Array) -> bool:
    """True if elements are known to be contiguous along the last axis.

    False if scalars have more than 32 bits, or are stored in another width.
    """
    if t.stored.bits > 32 or scalar_of(t.elem).bits != t.stored.bits:
        return False
    if t.layout is None or t.shape is None:
        return True
    return step_of_last(t.shape, t.layout) == t.scalars_per_element


def strides_of(t: Array) -> list[int] | None:
    """Return the stride of each axis in scalars.

    None if a shape of several axes is dynamic, or if the layout has an origin other than 0 or an
    axis without constant stride.
    """
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


class StrideOneAccesses:
    """Stride-one accesses of a serial loop that begins at `begin`."""

    def __init__(self, index: Param, begin: Value) -> None:
        self.index, self.begin = index, begin
        self.sums, self.multiples = AffinePolynomials(), PowerOfTwoFactors()

    def is_walking(self, access: Op) -> bool:
        return stride_along(access, self.index, self.sums) == 1

    def is_aligned(self, access: Op, skipped: int = 0) -> bool:
        """True if a stride-one access is proved to start at a word boundary after `skipped`
        iterations.

        The access must be in global memory and proved in range.
        """
        place = access.args[0]
        assert isinstance(place, Op) and isinstance(place.args[0].type, Array)
        t, base = place.args[0].type, base_memory(place)
        strides = strides_of(t)
        if place.attr != "inbounds" or strides is None or t.space != "global":
            return False
        size = t.stored.size_bytes
        *slow, last = place.args[1:]
        known = [self.multiples.of(v) * n for v, n in zip(slow, strides)]
        known.append(self.first(last, skipped) * strides[-1])
        multiples = [low_bit(n) * size for n in known]
        return min([attributes_of(base).aligned, *multiples]) >= tuning.LANE_WORD

    def first(self, last: Value, skipped: int) -> int:
        """Return the largest power of two that is proved to divide the last index after `skipped`
        iterations."""
        form = self.sums.of(last)
        constant, begin = constant_of(form) + skipped, constant_int(self.begin)
        found = [self.multiples.of(v) * low_bit(n) for v, n in terms_of(form).items()
                 if v is not self.index]  # fmt: skip
        if begin is None:
            found.append(self.multiples.of(self.begin))
        return min([low_bit(constant + (begin or 0)), *found])


def low_bit(n: int) -> int:
    """Largest power of two that divides an integer, at most MOST; MOST for 0."""
    return min(n & -n, GREATEST_FACTOR) or GREATEST_FACTOR
