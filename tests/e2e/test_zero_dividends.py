"""Quotients of a constant 0: NaN by 0 and by NaN, also where a driver would fold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.runtime import current_runtime

DIVISORS = [0.0, -0.0, np.nan, 2.0, -2.0, np.inf, -np.inf]


def run(dtype: Any, of_numpy: Any, function: Any, rows: int) -> Any:
    if dtype is ti.f64 and not current_runtime().device.caps.float64:
        pytest.skip("the device has no f64")
    x, y = ti.field(dtype, len(DIVISORS)), ti.field(dtype, (rows, len(DIVISORS)))
    x.from_numpy(np.array(DIVISORS, of_numpy))
    f = ti.func(function)

    @ti.kernel
    def kernel():
        for i in x:
            found = f(x[i], i)
            for k in ti.static(range(rows)):
                y[k, i] = found[k]

    kernel()
    return y.to_numpy()


def quotients(of_numpy: Any, *dividends: float) -> Any:
    with np.errstate(all="ignore"):
        return np.array([of_numpy(a) / np.array(DIVISORS, of_numpy) for a in dividends])


def check(found: Any, want: Any) -> None:
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(
        np.signbit(found)[~np.isnan(want)], np.signbit(want)[~np.isnan(want)]
    )


TYPES = [("f32", np.float32), ("f64", np.float64)]


@pytest.mark.parametrize(("name", "of_numpy"), TYPES)
def test_zero_dividend_scalars(name: str, of_numpy: Any) -> None:
    dtype = getattr(ti, name)

    def both(x, i):
        zero = ti.cast(0.0, dtype)
        return ti.Vector([zero / x, ti.cast(-0.0, dtype) / x])

    check(run(dtype, of_numpy, both, 2), quotients(of_numpy, 0.0, -0.0))


@pytest.mark.parametrize(("name", "of_numpy"), TYPES)
def test_zero_dividend_components(name: str, of_numpy: Any) -> None:
    dtype = getattr(ti, name)

    def unit(x, i):
        return ti.Vector([0.0, 1.0, -0.0], dtype) / x

    def partly(x, i):
        return ti.Vector([0.0, 3 + i, 0.0], dtype) / x

    check(run(dtype, of_numpy, unit, 3), quotients(of_numpy, 0.0, 1.0, -0.0))
    by_index = quotients(of_numpy, *(3.0 + np.arange(len(DIVISORS)))).diagonal()
    want = quotients(of_numpy, 0.0, 0.0, 0.0)
    want[1] = by_index
    check(run(dtype, of_numpy, partly, 3), want)


@pytest.mark.parametrize(("name", "of_numpy"), TYPES)
def test_angle_of_a_nan(name: str, of_numpy: Any) -> None:
    dtype = getattr(ti, name)

    def angle(x, i):
        return ti.Vector([ti.atan2(ti.cast(0.0, dtype), x)])

    want = np.arctan2(0.0, np.array(DIVISORS, of_numpy))[None]
    np.testing.assert_allclose(run(dtype, of_numpy, angle, 1), want, rtol=1e-6)


def test_integers_are_divided_as_floats() -> None:
    n, y = ti.field(ti.i32, 3), ti.field(ti.f32, 3)
    n.from_numpy(np.array([0, 1, -2], np.int32))

    @ti.kernel
    def kernel():
        for i in n:
            y[i] = 0 / n[i]

    kernel()
    check(y.to_numpy(), np.array([np.nan, 0.0, -0.0], np.float32))
