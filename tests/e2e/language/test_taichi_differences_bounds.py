"""Differences from Taichi found by comparing programs: bounds in Python, numbers, types."""

import random

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


@pytest.mark.ours("python-bounds")
def test_python_checks_bounds() -> None:
    f = ti.field(ti.i32, shape=4)
    with pytest.raises(IndexError):
        f[4] = 1
    with pytest.raises(IndexError):
        f[-1]  # noqa: B018


@pytest.mark.ours("array-text")
def test_repr_shows_values() -> None:
    f = ti.field(ti.i32, shape=2)
    f[1] = 7
    assert "[0, 7]" in repr(f)


@pytest.mark.ours("wide-arguments")
def test_arguments_that_wrap_warn() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return a

    with pytest.warns(RuntimeWarning, match="2147483653 does not fit i32"):
        check(k(2**31 + 5), 5 - 2**31)


@pytest.mark.ours("functions-of-integers")
def test_functions_take_integers() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.f32:
        return ti.exp(a) + ti.floor(a)

    check(k(0), 1.0)


@pytest.mark.ours("narrow-remainders")
def test_remainders_of_narrow_integers() -> None:
    @ti.kernel
    def k(a: ti.i8, b: ti.i8) -> (ti.i32, ti.i32):
        return a // b, a % b

    check(k(-100, 7), [-15, 5])


@pytest.mark.ours("truth-values-in-sums")
def test_bools_in_sums() -> None:
    @ti.kernel
    def k(a: ti.u8, b: ti.u1) -> ti.i32:
        return a + b

    check(k(3, True), 4)


@pytest.mark.ours("floats-into-integers")
def test_floats_into_integers() -> None:
    x, v = ti.field(ti.i32, 2), ti.Vector.field(2, ti.i32, 2)
    x[0], v[0] = 1.0, [-1.0, 2]
    check([x[0], v[0].to_list()], [1, [-1, 2]])


@pytest.mark.ours("numbers-that-do-not-fit")
def test_numbers_that_do_not_fit() -> None:
    x = ti.field(ti.i32, 2)
    with pytest.raises(TypeError):
        x[0] = 2**40
    check(x[0], 0)


@pytest.mark.ours("lossy-conversions")
def test_lossy_conversions() -> None:
    x = ti.field(ti.i32, 2)

    @ti.kernel
    def k(a: ti.f32):
        x[0] = a * 2

    with pytest.warns(RuntimeWarning, match="the fraction is lost"):
        k(1.3)
    check(x[0], 2)


@pytest.mark.ours("calls-at-compile-time")
def test_calls_at_compile_time() -> None:
    x = ti.field(ti.f32, 2)

    @ti.kernel
    def k(a: ti.f32):
        x[0] = random.random()

    with pytest.warns(RuntimeWarning, match="at compile time"):
        k(1.3)
    check(0 <= x[0] < 1, True)
