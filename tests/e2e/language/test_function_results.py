"""`@ti.func`: results, changes by reference, loops in it."""

import vkchi as ti
from tests.e2e.language.compare import check


def test_func_static_if_return() -> None:
    @ti.func
    def f(x: ti.template()):
        if ti.static(x > 2):
            return 1
        else:
            return 2

    @ti.kernel
    def k() -> ti.i32:
        return f(3) * 10 + f(1)

    check(k(), 12)


def test_func_return_vec() -> None:
    @ti.func
    def f(a, b):
        return ti.Vector([a, b])

    @ti.kernel
    def k() -> ti.i32:
        return f(3, 4).dot(f(1, 2))

    check(k(), 11)


def test_func_return_mat_unpack() -> None:
    @ti.func
    def f():
        m = ti.Matrix([[1, 2], [3, 4]])
        return m, m.transpose()

    @ti.kernel
    def k() -> ti.i32:
        a, b = f()
        return a[0, 1] * 10 + b[0, 1]

    check(k(), 23)


def test_nested_calls() -> None:
    @ti.func
    def a(x):
        return x + 1

    @ti.func
    def b(x):
        return a(a(x)) * 2

    @ti.kernel
    def k() -> ti.i32:
        return b(b(1))

    check(k(), 16)


def test_func_modifies_global() -> None:
    x = ti.field(ti.i32, ())

    @ti.func
    def inc():
        x[None] += 1

    @ti.kernel
    def k():
        for i in range(10):
            inc()

    k()
    check(x[None], 10)


def test_func_loop_toplevel() -> None:
    x = ti.field(ti.i32, 10)

    @ti.func
    def fill(v):
        for i in x:
            x[i] = i * v

    @ti.kernel
    def k():
        fill(2)
        fill(3)

    k()
    check(x, [0, 3, 6, 9, 12, 15, 18, 21, 24, 27])


def test_func_no_return_used() -> None:
    @ti.func
    def f(x):
        x + 1

    @ti.kernel
    def k() -> ti.i32:
        a = f(1)
        return 1

    check(k(), 1)


def test_tpl_modify_in_loop() -> None:
    @ti.func
    def add(a: ti.template(), v):
        a += v

    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for _ in range(1):
            t = 0
            for i in range(5):
                add(t, i)
            s += t
        return s

    check(k(), 10)


def test_tpl_modify_top_loop() -> None:
    @ti.func
    def add(a: ti.template(), v):
        a += v

    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i in range(5):
            add(s, i)
        return s

    check(k(), 10)


def test_tpl_swap() -> None:
    @ti.func
    def swap(a: ti.template(), b: ti.template()):
        t = a
        a = b
        b = t

    @ti.kernel
    def k() -> ti.i32:
        x, y = 1, 2
        swap(x, y)
        return x * 10 + y

    check(k(), 21)


def test_tpl_swap_fields() -> None:
    x = ti.field(ti.i32, 2)
    x[0] = 5
    x[1] = 7

    @ti.func
    def swap(a: ti.template(), b: ti.template()):
        a, b = b, a

    @ti.kernel
    def k():
        swap(x[0], x[1])

    k()
    check(x, [7, 5])


def test_tpl_mat_elem() -> None:
    @ti.func
    def f(a: ti.template()):
        a += 5

    @ti.kernel
    def k() -> ti.i32:
        m = ti.Matrix([[1, 2], [3, 4]])
        f(m[1, 0])
        return m[1, 0] * 10 + m[0, 1]

    check(k(), 82)


def test_tpl_literal() -> None:
    @ti.func
    def f(n: ti.template()):
        s = 0
        for i in ti.static(range(n)):
            s += i
        return s

    @ti.kernel
    def k() -> ti.i32:
        return f(5)

    check(k(), 10)


def test_tpl_expr() -> None:
    @ti.func
    def f(n: ti.template()):
        return n * 2

    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return f(a + 1)

    check(k(3), 8)


def test_several_values_where_a_struct_is_annotated() -> None:
    Pair = ti.types.struct(a=ti.f32, b=ti.i32)

    @ti.func
    def unpack(v) -> Pair:
        return v[0] * 2, int(v[1])

    @ti.kernel
    def run() -> ti.f32:
        a, b = unpack(ti.Vector([1.25, 3.0]))
        return a * 10 + b

    check(run(), 28.0)
