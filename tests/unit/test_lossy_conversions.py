"""Numbers that a type does not hold, against Python's exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from vkchi.types import SCALARS, integer_range
from vkchi.types.losses import CHUNK, bounds_of, find_losses

TYPES = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "f32", "f64"]
GIVEN = ["i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]


def interesting(dtype: np.dtype[Any]) -> Any:
    """Numbers of a type near the ends of all types, with fractions, infinities and NaN."""
    if dtype.kind == "f":
        powers = [s * 2.0**k for s in (1, -1) for k in (-3, 7, 8, 15, 16, 31, 32, 63, 64, 100, 200)]
        near = [x * f for x in powers for f in (1, 1 - 2**-11, 1 + 2**-10, 1 - 2**-24, 1 + 2**-23)]
        numbers = [*near, 0.0, -0.0, 0.5, -0.5, -0.99, 65504, 65519.9, 65520, math.inf, -math.inf]
        with np.errstate(all="ignore"):
            return np.array(
                [*numbers, math.nan, 3.4028235677973362e38, 3.4028235677973366e38], dtype
            )
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    ends = [
        s * (1 << k) + d for s in (1, -1) for k in (7, 8, 15, 16, 31, 32, 63) for d in (-1, 0, 1)
    ]
    return np.array([n for n in (*ends, 0, low, high, 65519, 65520) if low <= n <= high], dtype)


def loss_of(x: Any, name: str) -> str:
    """The loss of one number, by exact arithmetic."""
    t = SCALARS[name]
    if t.kind == "f":
        if not math.isfinite(x):
            return ""
        with np.errstate(all="ignore"):
            return "" if np.isfinite(np.asarray(x).astype(t.dtype)) else "beyond"
    if not math.isfinite(x):
        return "beyond"
    low, high = integer_range(t)
    exact = Fraction(x)
    if not low - (low == 0) < exact < high + 1 if low == 0 else not low <= exact < high + 1:
        return "beyond"
    return "" if exact.denominator == 1 else "fraction"


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("given", GIVEN)
def test_every_loss_is_found_and_no_other(given: str, name: str) -> None:
    values = interesting(np.dtype(given))
    losses = [loss_of(x, name) for x in values.tolist()]
    found = find_losses(values, bounds_of(SCALARS[name]))
    if not any(losses):
        assert found is None
        return
    first = next(k for k, loss in enumerate(losses) if loss)
    assert found is not None
    assert (found.fractions, found.beyond) == (losses.count("fraction"), losses.count("beyond"))
    assert found.place == first
    assert found.number == values[first].item() or math.isnan(found.number)


@pytest.mark.parametrize("order", ["C", "F", "reversed"])
def test_the_first_element_is_found_in_rows_over_several_chunks(order: str) -> None:
    base = np.zeros((3, CHUNK))
    values = {"C": base, "F": np.asfortranarray(base), "reversed": base[::-1, ::-1]}[order]
    values[1, CHUNK - 1], values[2, 5], values[2, 6] = 0.5, 2.0**40, 1.5
    found = find_losses(values, bounds_of(SCALARS["i32"]))
    assert found is not None
    assert (found.fractions, found.beyond, found.place) == (2, 1, 2 * CHUNK - 1)


def test_empty_arrays_lose_nothing() -> None:
    assert find_losses(np.zeros((0, 3)), bounds_of(SCALARS["i32"])) is None
