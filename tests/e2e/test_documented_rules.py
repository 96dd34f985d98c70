"""Rules of numbers and texts that the guide states; expected values are from Python or exact."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti


def test_formats_of_floats(capfd: pytest.CaptureFixture[str]) -> None:
    """docs/language/debugging.md: two formats are Taichi's, not Python's."""

    @ti.kernel
    def show(x: ti.f32):
        print(f"{x:f}|{x:e}|{x:g}|{x:%}|{x:.3}|{x:.3f}|{x:>9.2e}")

    show(0.25)
    ti.sync()
    assert capfd.readouterr().out == f"{0.25:f}|{0.25:e}|{0.25:g}|{0.25:%}|0.250|0.250| 2.50e-01\n"


def test_formats_of_wide_floats(capfd: pytest.CaptureFixture[str], need) -> None:
    need("f64")

    @ti.kernel
    def show(x: ti.f64):
        print(f"{x:f}|{x:e}|{x:.3}|{x:.3f}")

    show(1 / 3)
    ti.sync()
    assert capfd.readouterr().out == f"{1 / 3:.12f}|{1 / 3:.12e}|0.333|{1 / 3:.3f}\n"


def test_constants_are_rounded_by_python_and_values_away_from_zero() -> None:
    @ti.kernel
    def constant() -> ti.types.vector(3, ti.f32):
        return ti.Vector([ti.round(0.5), ti.round(1.5), ti.round(2.5)])

    @ti.kernel
    def value(a: ti.f32, b: ti.f32, c: ti.f32) -> ti.types.vector(3, ti.f32):
        return ti.Vector([ti.round(a), ti.round(b), ti.round(c)])

    assert list(constant()) == [round(0.5), round(1.5), round(2.5)]
    assert list(value(0.5, 1.5, 2.5)) == [1, 2, 3]


def test_integer_constants_have_no_bounds() -> None:
    @ti.kernel
    def remainder() -> ti.i32:
        return (2147483647 + 1) % 5

    @ti.kernel
    def total() -> ti.i32:
        return 2147483647 + 1

    assert remainder() == (2147483647 + 1) % 5
    with pytest.raises(ti.TaichiCompilationError, match="2147483648"):
        total()


def test_a_product_and_a_sum_are_rounded_once_or_twice() -> None:
    """docs/language/math.md: contraction of f32."""
    x = ti.field(ti.f32, 64)
    a = np.float32(1 + 2**-12)

    @ti.kernel
    def fill(a: ti.f32, b: ti.f32):
        for i in x:
            x[i] = a * a + b

    fill(a, -1.0)
    once, twice = np.float32(2**-11 + 2**-24), a * a - np.float32(1)
    assert set(x.to_numpy().tolist()) <= {float(once), float(twice)}
