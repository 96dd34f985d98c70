"""`ti.template()` arguments of kernels: numbers, functions, texts, tuples, fields."""

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def test_tpl_number() -> None:
    @ti.kernel
    def k(n: ti.template()) -> ti.i32:
        s = 0
        for i in ti.static(range(n)):
            s += i
        return s

    check([k(3), k(5)], [3, 10])


def test_tpl_func() -> None:
    @ti.func
    def a(x):
        return x + 1

    @ti.func
    def b(x):
        return x * 10

    @ti.kernel
    def k(f: ti.template()) -> ti.i32:
        return f(3)

    check([k(a), k(b)], [4, 30])


@pytest.mark.ours("is-none")
def test_tpl_none() -> None:
    @ti.kernel
    def k(x: ti.template()) -> ti.i32:
        r = 1
        if ti.static(x is None):
            r = 2
        return r

    check([k(None), k(3)], [2, 1])


def test_tpl_tuple() -> None:
    @ti.kernel
    def k(x: ti.template()) -> ti.i32:
        return x[0] * 10 + x[1]

    check([k((1, 2)), k((3, 4))], [12, 34])


@pytest.mark.ours("lists-as-templates")
def test_tpl_list() -> None:
    @ti.kernel
    def k(x: ti.template()) -> ti.i32:
        return x[0] * 10 + x[1]

    check([k([1, 2]), k([3, 4])], [12, 34])


def test_tpl_str() -> None:
    @ti.kernel
    def k(x: ti.template()) -> ti.i32:
        r = 0
        if ti.static(x == "a"):
            r = 1
        return r

    check([k("a"), k("b")], [1, 0])


def test_tpl_field() -> None:
    x = ti.field(ti.i32, 3)
    y = ti.field(ti.i32, 5)

    @ti.kernel
    def k(f: ti.template()):
        for i in f:
            f[i] = i * f.shape[0]

    k(x)
    k(y)
    check([x, y], [[0, 3, 6], [0, 5, 10, 15, 20]])


def test_tpl_vec() -> None:
    @ti.kernel
    def k(v: ti.template()) -> ti.f32:
        return v[0] + v.n

    check(k(ti.Vector([1.5, 2.0])), 3.5)
