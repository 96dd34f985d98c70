"""Expressions: comparisons, conditions, and/or, integer division, calls of Python's functions."""

import vkchi as ti
from tests.e2e.language.compare import check


def test_chained() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        r = 0
        if 1 < a < 5:
            r += 1
        if 1 < a <= 5 != 6:
            r += 10
        if 1 == a == 1:
            r += 100
        return r

    check([k(i) for i in range(7)], [0, 100, 11, 11, 11, 10, 0])


def test_ternary_mixed() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.f32:
        x = 1 if a > 2 else 2.5
        return x

    check([k(1), k(3)], [2.5, 1.0])


def test_ternary_vec() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        x = ti.Vector([1, 2]) if a > 2 else ti.Vector([3, 4])
        return x[0]

    check([k(1), k(3)], [3, 1])


def test_div_int() -> None:
    @ti.kernel
    def k(a: ti.i32, b: ti.i32) -> ti.f32:
        return a / b

    @ti.kernel
    def m(a: ti.i32, b: ti.i32) -> ti.i32:
        return a // b

    check([k(7, 2), m(7, 2), m(-7, 2), k(1, 3)], [3.5, 3, -4, 0.3333333])


def test_and_or() -> None:
    @ti.kernel
    def k(a: ti.i32, b: ti.i32) -> ti.i32:
        r = 0
        if a and b:
            r += 1
        if a or b:
            r += 10
        if not a:
            r += 100
        return r

    check([k(i, j) for i in (0, 2) for j in (0, 3)], [100, 110, 10, 11])


def test_and_value() -> None:
    @ti.kernel
    def k(a: ti.i32, b: ti.i32) -> ti.i32:
        return a and b

    check([k(i, j) for i in (0, 2) for j in (0, 3)], [0, 0, 0, 3])


def test_or_value() -> None:
    @ti.kernel
    def k(a: ti.i32, b: ti.i32) -> ti.i32:
        return a or b

    check([k(i, j) for i in (0, 2) for j in (0, 3)], [0, 3, 2, 2])


def test_bool_arith() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return (a > 1) + (a > 2) * 10

    check([k(1), k(2), k(3)], [0, 1, 11])


def test_invert() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return ~a + (-a) + (+a)

    check(k(4), -5)


def test_min_max_abs() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return min(a, 3, 5) * 100 + max(a, 1, 2) * 10 + abs(-a)

    check(k(4), 344)


def test_int_float_calls() -> None:
    @ti.kernel
    def k(a: ti.f32) -> ti.f32:
        return int(a) + float(3) + bool(2)

    check(k(2.9), 6.0)


def test_nested_if_return_vals() -> None:
    @ti.func
    def f(x):
        r = 0.0
        if x > 0:
            if x > 10:
                r = 1.0
            else:
                r = 2.0
        else:
            r = 3.0
        return r

    @ti.kernel
    def k(a: ti.i32) -> ti.f32:
        return f(a)

    check([k(20), k(5), k(-1)], [1.0, 2.0, 3.0])


def test_kernel_multi_ret_static() -> None:
    n = 2

    @ti.kernel
    def k() -> ti.i32:
        if ti.static(n == 2):
            return 5
        else:
            return 6

    check(k(), 5)


def test_kernel_ret_mid() -> None:
    @ti.kernel
    def k() -> ti.i32:
        return 1
        return 2

    check(k(), 1)


def test_not_chain() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return 1 if not (a > 1 and a < 5) else 0

    check([k(3), k(7)], [0, 1])


def test_captured_vectors_beside_lists_and_indices() -> None:
    off = ti.Vector([1, 2])
    x = ti.field(ti.f32, (3, 4))

    @ti.kernel
    def run() -> ti.f32:
        s = 0.0
        for i, j in x:
            v = off + [i, j]
            w = [i, j] - off
            s += v.x * w.y
        for I in ti.grouped(x):
            u = (I + off) * 0.5
            s += u.x + u.y
        return s

    pairs = [(i, j) for i in range(3) for j in range(4)]
    expected = sum((1 + i) * (j - 2) + (i + j + 3) * 0.5 for i, j in pairs)
    assert run() == expected
