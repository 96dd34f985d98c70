"""Loops: nested, left early, empty, over ndranges; sums and atomics in them."""

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def test_grouped_0d() -> None:
    x = ti.field(ti.i32, ())

    @ti.kernel
    def k():
        for I in ti.grouped(x):
            x[I] = 5

    k()
    check(x[None], 5)


def test_loop_0d() -> None:
    x = ti.field(ti.i32, ())

    @ti.kernel
    def k():
        for i in x:
            x[None] = 5

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_while_nonstatic_cond() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        c = 0
        while n - c > 3 and c < 100:
            c += 1
        return c

    check(k(10), 7)


def test_collatz() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        x = n
        c = 0
        while x != 1:
            if x % 2 == 0:
                x //= 2
            else:
                x = 3 * x + 1
            c += 1
        return c

    check(k(27), 111)


def test_nested_break() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for _ in range(1):
            for i in range(5):
                for j in range(5):
                    if j > i:
                        break
                    if (i + j) % 2:
                        continue
                    s += i * j
        return s

    check(k(), 41)


def test_if_elif_chain() -> None:
    @ti.kernel
    def k(x: ti.i32) -> ti.i32:
        r = 0
        if x == 0:
            r = 10
        elif x == 1:
            r = 11
        elif x == 2 or x == 3:
            r = 12
        else:
            r = 13
        return r

    check([k(i) for i in range(5)], [10, 11, 12, 12, 13])


def test_float_loop_bounds() -> None:
    @ti.kernel
    def k(n: ti.f32) -> ti.i32:
        s = 0
        for i in range(ti.cast(n, ti.i32)):
            s += i
        return s

    check(k(4.7), 6)


def test_range_float() -> None:
    @ti.kernel
    def k(n: ti.f32) -> ti.i32:
        s = 0
        for i in range(n):
            s += i
        return s

    check(k(4.7), 6)


def test_range_empty() -> None:
    @ti.kernel
    def k(a: ti.i32, b: ti.i32) -> ti.i32:
        s = 0
        for i in range(a, b):
            s += 1
        return s

    check([k(5, 2), k(-3, 2), k(0, 0)], [0, 5, 0])


def test_range_neg_bounds() -> None:
    x = ti.field(ti.i32, 5)

    @ti.kernel
    def k():
        for i in range(-2, 3):
            x[i + 2] = i

    k()
    check(x, [-2, -1, 0, 1, 2])


def test_ndrange_3() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i, j, kk in ti.ndrange(2, 3, (1, 4)):
            s += i * 100 + j * 10 + kk
        return s

    check(k(), 1116)


def test_ndrange_static_inside() -> None:
    x = ti.field(ti.i32, (2, 2))

    @ti.kernel
    def k():
        for i, j in x:
            for di, dj in ti.static(ti.ndrange((-1, 2), (-1, 2))):
                if 0 <= i + di < 2 and 0 <= j + dj < 2:
                    x[i, j] += 1

    k()
    check(x, [[4, 4], [4, 4]])


def test_local_vector_loop() -> None:
    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector.zero(ti.i32, 4)
        for i in ti.static(range(4)):
            v[i] = i * i
        s = 0
        for i in range(4):
            s += v[i]
        return s

    check(k(), 14)


def test_min_max_reduce() -> None:
    x = ti.field(ti.f32, 10)
    for i in range(10):
        x[i] = i * 7 % 10

    @ti.kernel
    def k() -> ti.f32:
        m = 0.0
        for i in x:
            ti.atomic_max(m, x[i])
        return m

    check(k(), 9.0)


def test_local_atomic_ret() -> None:
    x = ti.field(ti.i32, 4)

    @ti.kernel
    def k():
        c = 0
        for i in range(1):
            for j in range(4):
                x[j] = ti.atomic_add(c, j)

    k()
    check(x, [0, 0, 1, 3])


def test_atomic_ret_aug() -> None:
    x = ti.field(ti.i32, 4)
    n = ti.field(ti.i32, ())

    @ti.kernel
    def k():
        for i in range(4):
            idx = ti.atomic_add(n[None], 1)
            x[idx] = 7

    k()
    check([x, n[None]], [[7, 7, 7, 7], 4])


def test_reduction_float() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.f32:
        s = 0.0
        for i in range(n):
            s += 0.5
        return s

    check(k(1000), 500.0)


def test_reduction_two() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.f32:
        s = 0.0
        m = 0
        for i in range(n):
            s += i
            m += 1
        return s / m

    check(k(100), 49.5)


def test_local_nonatomic_in_par() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        s = 0
        for i in range(n):
            t = i
            t *= 2
            s += t
        return s

    check(k(10), 90)


def test_while_condition_assigns() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        left = n
        s = 0
        while (left := left - 1) > 0:
            if left == 3:
                continue
            s += left
        return s * 100 + left

    check([k(6), k(0)], [1200, -1])


def test_while_condition_assigns_and_breaks() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        left = n
        s = 0
        while (left := left // 2) > 0 and s < 100:
            s += left
            if s > 40:
                break
        return s

    check([k(64), k(7)], [48, 4])


def test_while_condition_declares() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        s = 0
        while (t := n - s) > 2:
            s += t // 2
        return s

    check(k(10), 8)
