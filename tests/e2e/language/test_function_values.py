"""`@ti.func`: functions in lists, dicts, partials; defaults, wrong calls, results of every form."""

import functools

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def test_tuple_arg_func() -> None:
    @ti.func
    def f(t):
        return t[0] + t[1]

    @ti.kernel
    def k() -> ti.i32:
        t = (1, 2)
        return f(t) + f((3, 4))

    check(k(), 10)


def test_list_arg_func() -> None:
    @ti.func
    def f(t):
        s = 0
        for x in ti.static(t):
            s += x
        return s

    @ti.kernel
    def k() -> ti.i32:
        return f([1, 2, 3])

    check(k(), 6)


def test_func_in_dict() -> None:
    @ti.func
    def a(x):
        return x + 1

    @ti.func
    def b(x):
        return x * 2

    d = {"a": a, "b": b}

    @ti.kernel
    def k() -> ti.i32:
        return d["a"](1) * 10 + d["b"](3)

    check(k(), 26)


def test_func_list_static_loop() -> None:
    @ti.func
    def a(x):
        return x + 1

    @ti.func
    def b(x):
        return x * 2

    fs = [a, b]

    @ti.kernel
    def k() -> ti.i32:
        r = 5
        for f in ti.static(fs):
            r = f(r)
        return r

    check(k(), 12)


def test_lambda_tpl() -> None:
    @ti.kernel
    def k(f: ti.template()) -> ti.i32:
        return f(3)

    check(k(lambda x: x * x), 9)


def test_func_returning_func_result() -> None:
    @ti.func
    def compose(f: ti.template(), g: ti.template(), x):
        return f(g(x))

    @ti.func
    def a(x):
        return x + 1

    @ti.func
    def b(x):
        return x * 2

    @ti.kernel
    def k() -> ti.i32:
        return compose(a, b, 5)

    check(k(), 11)


def test_partial() -> None:
    @ti.func
    def a(x, y):
        return x * 10 + y

    p = functools.partial(a, 3)

    @ti.kernel
    def k() -> ti.i32:
        return p(4)

    check(k(), 34)


def test_partials_of_everything_that_can_be_called() -> None:
    @ti.func
    def scaled(x, by=1):
        return x * by

    class Table:
        @ti.func
        def at(self, k, j):
            return 10 * k + j

    pair = ti.types.struct(a=ti.i32, b=ti.i32)
    triple, fives = functools.partial(scaled, by=3), functools.partial(pair, b=5)
    later, greater = functools.partial(range, 3), functools.partial(ti.max, 3)
    method = functools.partial(Table().at, 2)
    nested = functools.partial(functools.partial(scaled, by=2), by=4)

    @ti.kernel
    def k(n: ti.i32) -> ti.types.vector(7, ti.i32):
        s = fives(n)
        total = 0
        for i in ti.static(later(6)):
            total += i
        return ti.Vector(
            [triple(n), triple(n, by=2), s.a + 10 * s.b, total, greater(n), method(n), nested(n)]
        )

    check(k(1), [3, 2, 51, 12, 3, 21, 4])


def test_literals_bound_by_partials_must_fit_as_those_of_calls() -> None:
    whole, half = functools.partial(ti.i32, 2), functools.partial(ti.i32, 2.5)

    @ti.kernel
    def good() -> ti.i32:
        return whole()

    @ti.kernel
    def bad() -> ti.i32:
        return half()

    check(good(), 2)
    with pytest.raises(ti.TaichiCompilationError, match="2.5 is no integer"):
        bad()


def test_default_vec_arg() -> None:
    d = ti.Vector([1, 2])

    @ti.func
    def a(x, y=d):
        return x + y

    @ti.kernel
    def k() -> ti.i32:
        return a(ti.Vector([1, 1])).sum()

    check(k(), 5)


def test_default_none() -> None:
    @ti.func
    def a(x, y: ti.template() = None):
        r = x
        if ti.static(y != None):
            r = x + y
        return r

    @ti.kernel
    def k() -> ti.i32:
        return a(1) * 10 + a(1, 2)

    check(k(), 13)


def test_func_wrong_count() -> None:
    @ti.func
    def a(x):
        return x

    @ti.kernel
    def k() -> ti.i32:
        return a(1, 2)

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_func_missing() -> None:
    @ti.func
    def a(x, y):
        return x

    @ti.kernel
    def k() -> ti.i32:
        return a(1)

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_func_unknown_kw() -> None:
    @ti.func
    def a(x):
        return x

    @ti.kernel
    def k() -> ti.i32:
        return a(x=1, z=2)

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_func_unpack_mismatch() -> None:
    @ti.func
    def a(x):
        return x, x

    @ti.kernel
    def k() -> ti.i32:
        p, q, r = a(1)
        return p

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_func_ret_tuple_of_vec() -> None:
    @ti.func
    def a():
        return ti.Vector([1, 2]), 3

    @ti.kernel
    def k() -> ti.i32:
        (v, s) = a()
        return v[1] * 10 + s

    check(k(), 23)


def test_func_ret_list() -> None:
    @ti.func
    def a():
        return [1, 2, 3]

    @ti.kernel
    def k() -> ti.i32:
        l = a()
        return l[0] + l[2]

    check(k(), 4)


def test_func_ret_dict() -> None:
    @ti.func
    def a():
        return {"x": 1, "y": 2}

    @ti.kernel
    def k() -> ti.i32:
        l = a()
        return l["x"] + l["y"]

    check(k(), 3)
