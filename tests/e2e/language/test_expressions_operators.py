"""Expressions: conditional ones, short circuits, powers, bits, conversions, small types."""

import math

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.compare import check


@pytest.mark.ours("math-functions")
def test_math_funcs() -> None:
    @ti.kernel
    def k(a: ti.f32) -> ti.f32:
        return math.sqrt(a) + math.exp(0.0) + math.fabs(-a)

    check(k(4.0), 7.0)


def test_np_funcs() -> None:
    @ti.kernel
    def k(a: ti.f32) -> ti.f32:
        return np.sqrt(4.0) + a

    check(k(4.0), 6.0)


def test_ternary_nested() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return 1 if a < 0 else 2 if a < 10 else 3

    check([k(-1), k(5), k(50)], [1, 2, 3])


@pytest.mark.ours("short-circuits")
def test_ternary_side() -> None:
    x = ti.field(ti.i32, 2)

    @ti.func
    def f():
        x[0] += 1
        return 5

    @ti.func
    def g():
        x[1] += 1
        return 6

    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return f() if a else g()

    r = k(1), k(0)
    check([r, x], [[5, 6], [1, 1]])


@pytest.mark.ours("short-circuits")
def test_and_side() -> None:
    x = ti.field(ti.i32, 1)

    @ti.func
    def f():
        x[0] += 1
        return True

    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        r = 0
        if a > 0 and f():
            r = 1
        return r

    check([k(0), k(1), x], [0, 1, [1]])


def test_chained_side() -> None:
    @ti.kernel
    def k(a: ti.i32, b: ti.i32, c: ti.i32) -> ti.i32:
        return a < b < c

    check([k(1, 2, 3), k(1, 3, 2), k(3, 2, 1)], [1, 0, 0])


def test_pow_forms() -> None:
    @ti.kernel
    def k(a: ti.f32, n: ti.i32) -> ti.f32:
        return a**2 + a**n + 2**n + pow(a, 3)

    check(k(1.5, 3), 17.0)


def test_int_pow_neg() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return a**3 - 2**4

    check(k(-3), -43)


def test_bit_ops() -> None:
    @ti.kernel
    def k(a: ti.i32, b: ti.i32) -> ti.i32:
        return (a & b) + (a | b) * 10 + (a ^ b) * 100 + (a << 2) + (b >> 1) + ~a

    check(k(6, 3), 590)


def test_u8_wrap() -> None:
    x = ti.field(ti.u8, 1)
    y = ti.field(ti.i8, 1)

    @ti.kernel
    def k():
        x[0] = 300
        y[0] = 200

    k()
    check([x, y], [[44], [-56]])


def test_cast_call() -> None:
    @ti.kernel
    def k(a: ti.f32) -> ti.i32:
        return ti.i32(a) + ti.cast(a * 2, ti.i32) + ti.cast(a, int)

    check(k(2.7), 9)


def test_f16() -> None:
    x = ti.field(ti.f16, 2)

    @ti.kernel
    def k():
        x[0] = 1.5
        x[1] = x[0] * 2

    k()
    check(x, [1.5, 3.0])
