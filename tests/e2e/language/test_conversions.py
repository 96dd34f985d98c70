"""Conversions: rounding and truncation from one type to another."""

from collections.abc import Callable

import pytest

import vkchi as ti
from tests.e2e.language.compare import check

Lacks = Callable[[str], bool]


def test_a_float_passes_through_f16() -> None:
    @ti.kernel
    def k(a: ti.f32) -> (ti.f32, ti.f64):
        x = ti.cast(a, ti.f16)
        return ti.cast(x, ti.f32), ti.cast(x, ti.f64)

    check(k(0.1), [0.0999755859375, 0.0999755859375])
    check(k(1e5), [float("inf"), float("inf")])


def test_a_double_passes_through_f32() -> None:
    @ti.kernel
    def k(a: ti.f64) -> ti.f64:
        return (ti.cast(ti.cast(a, ti.f32), ti.f64) - a) * 1e9

    check(k(0.1), 1.490116119384766)


def test_an_integer_passes_through_floats() -> None:
    @ti.kernel
    def k(a: ti.i32) -> (ti.f64, ti.f64):
        return ti.cast(ti.cast(a, ti.f32), ti.f64), ti.cast(ti.cast(a, ti.f16), ti.f64)

    check(k(16777217), [16777216.0, float("inf")])
    check(k(2049), [2049.0, 2048.0], rtol=0)


def test_floats_wrap_in_narrow_integers() -> None:
    @ti.kernel
    def k(a: ti.f32) -> ti.types.vector(4, ti.i32):
        x, y = ti.cast(a, ti.u8), ti.cast(a, ti.i8)
        z, w = ti.cast(a, ti.u16), ti.cast(a, ti.i16)
        return ti.Vector([ti.i32(x), ti.i32(y), ti.i32(z), ti.i32(w)])

    check(k(300.7), [44, 44, 300, 300])
    check(k(-3.5), [253, -3, 65533, -3])
    check(k(70000.0), [112, 112, 4464, 4464])


def test_fields_of_narrow_integers_wrap_floats() -> None:
    f = ti.field(ti.u8, 2)
    g = ti.field(ti.i8, 2)

    @ti.kernel
    def k(a: ti.f32):
        f[0] = ti.cast(a, ti.u8)
        g[0] = ti.cast(a, ti.i8)
        f[1] += 3
        g[1] -= 3

    k(-3.7)
    check([f[0], f[1], g[0], g[1]], [253, 3, -3, -3])
    k(300.0)
    check([f[0], f[1], g[0], g[1]], [44, 6, 44, -6])


@pytest.mark.ours("cast-literals")
def test_a_literal_that_is_cast_is_of_that_type(lacks: Lacks) -> None:
    if lacks("f64") or lacks("i64"):
        pytest.skip("the device has no f64")
    captured = 0.1

    @ti.kernel
    def k() -> ti.types.vector(3, ti.f64):
        return ti.Vector([ti.cast(0.1, ti.f64), ti.f64(0.1), ti.cast(captured, ti.f64)])

    assert k().to_list() == [0.1, 0.1, 0.1]


@pytest.mark.ours("truth-values-returned")
def test_bools_that_kernels_return_are_python_bools() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.u1:
        return a > 2

    assert [k(1), k(3)] == [False, True] and type(k(3)) is bool


@pytest.mark.ours("nan-compared")
def test_nan_is_not_itself() -> None:
    @ti.kernel
    def k(x: ti.f32) -> ti.i32:
        return x != x

    assert [k(1.0), k(float("nan"))] == [0, 1]
