"""`@ti.func`: arguments by value and by reference, results, calls of calls."""

import enum
from typing import Any, List, Tuple  # noqa: UP035

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def test_func_value() -> None:
    @ti.func
    def f(x):
        x = x + 1
        return x

    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        b = a
        c = f(b)
        return b * 100 + c

    check(k(3), 304)


def test_func_template() -> None:
    @ti.func
    def f(x: ti.template()):
        x = x + 1

    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        b = a
        f(b)
        return b

    check(k(3), 4)


def test_func_template_elem() -> None:
    x = ti.field(ti.i32, shape=4)

    @ti.func
    def f(x: ti.template(), y: ti.template()):
        x += y

    @ti.kernel
    def k():
        for i in x:
            f(x[i], i)

    k()
    k()
    check(x, [0, 2, 4, 6])


def test_func_template_vec_elem() -> None:
    x = ti.Vector.field(3, ti.i32, shape=4)

    @ti.func
    def f(x: ti.template()):
        x[1] += 2

    @ti.kernel
    def k():
        for i in x:
            f(x[i])

    k()
    check(x, [[0, 2, 0], [0, 2, 0], [0, 2, 0], [0, 2, 0]])


def test_func_template_local_vec() -> None:
    @ti.func
    def f(x: ti.template()):
        x[1] += 2

    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([1, 2, 3])
        f(v)
        return v[1]

    check(k(), 4)


def test_func_vec_value() -> None:
    @ti.func
    def f(x):
        x[1] += 2
        return x

    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([1, 2, 3])
        w = f(v)
        return v[1] * 10 + w[1]

    check(k(), 24)


def test_multi_return() -> None:
    @ti.func
    def f(x):
        return x, x * 2, x * 3

    @ti.kernel
    def k() -> ti.i32:
        a, b, c = f(2)
        return a * 100 + b * 10 + c

    check(k(), 246)


def test_tuple_return_index() -> None:
    @ti.func
    def f(x):
        return x, x * 2

    @ti.kernel
    def k() -> ti.i32:
        t = f(2)
        return t[0] * 10 + t[1]

    check(k(), 24)


@pytest.mark.ours("return-in-branches")
def test_early_return() -> None:
    @ti.func
    def f(x):
        if x > 2:
            return x
        return -x

    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return f(a)

    check([k(1), k(5)], [-1, 5])


@pytest.mark.ours("return-in-branches")
def test_early_nested() -> None:
    @ti.func
    def f(x):
        for i in range(10):
            if i * i > x:
                return i
        return -1

    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return f(a)

    check([k(1), k(5), k(1000)], [2, 3, -1])


@pytest.mark.ours("return-in-branches")
def test_early_while() -> None:
    @ti.func
    def f(x):
        i = 0
        while True:
            if i * i > x:
                return i, x
            i += 1
        return -1, -1

    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        p, q = f(a)
        return p * 1000 + q

    check([k(1), k(5), k(100)], [2001, 3005, 11100])


def test_default_args() -> None:
    @ti.func
    def f(x, y=3, z=4.5):
        return x + y * z

    @ti.kernel
    def k(a: ti.i32) -> ti.f32:
        return f(a) + f(a, 1) + f(a, z=2.0) + f(y=2, x=1)

    check(k(1), 37.0)


def test_func_kwargs_template() -> None:
    @ti.func
    def f(a, b: ti.template()):
        b += a

    @ti.kernel
    def k() -> ti.i32:
        x = 1
        f(b=x, a=5)
        return x

    check(k(), 6)


def test_func_typed_arg() -> None:
    @ti.func
    def f(a: ti.i32):
        return a

    @ti.kernel
    def k() -> ti.f32:
        return f(1.7)

    check(k(), 1.0)


def test_func_ret_annot() -> None:
    @ti.func
    def f(a) -> ti.i32:
        return a

    @ti.kernel
    def k() -> ti.f32:
        return f(1.7)

    check(k(), 1.0)


def test_pyfunc() -> None:
    @ti.pyfunc
    def f(x, y):
        return x * y + 1

    @ti.kernel
    def k() -> ti.i32:
        return f(2, 3)

    check([k(), f(4, 5)], [7, 21])


def test_recursion() -> None:
    @ti.func
    def f(x):
        return f(x)

    @ti.kernel
    def k() -> ti.i32:
        return f(2)

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_func_from_python() -> None:
    @ti.func
    def g():
        return 1

    with pytest.raises(ti.TaichiSyntaxError):
        g()


def test_func_star_args() -> None:
    with pytest.raises(ti.TaichiSyntaxError):

        @ti.func
        def f(*v):
            return 1


def test_starred_call() -> None:
    @ti.func
    def f(a, b, c):
        return a * 100 + b * 10 + c

    @ti.kernel
    def k() -> ti.i32:
        t = (2, 3)
        return f(1, *t)

    check(k(), 123)


def test_starred_call_vec() -> None:
    @ti.func
    def f(a, b, c):
        return a * 100 + b * 10 + c

    @ti.kernel
    def k() -> ti.i32:
        t = ti.Vector([2, 3])
        return f(1, *t)

    check(k(), 123)


def test_scalar_annotations_convert_each_component() -> None:
    @ti.func
    def doubled(x: ti.f32):
        return x * 2

    @ti.func
    def whole(x: ti.i32):
        return x * 2

    @ti.func
    def same(x: float) -> float:
        return x

    @ti.kernel
    def run() -> ti.types.vector(4, ti.f32):
        a = doubled(ti.Vector([1.5, 2.0]))
        b = whole(ti.Vector([1.5, 2.0]))
        c = same(ti.Vector([1, 2]))
        return ti.Vector([a.sum(), b.sum(), whole(2.5), c.sum() / 2])

    check(run(), [7.0, 6.0, 4.0, 1.5])


@pytest.mark.parametrize(
    "note",
    [Tuple, "Tuple", tuple, List[ti.f32], Any, "Any", "NotImported"],  # noqa: UP006
)
def test_return_annotations_that_are_no_types_are_ignored(note) -> None:
    def pair(x):
        return x, x + 1

    pair.__annotations__["return"] = note
    pair = ti.func(pair)

    @ti.kernel
    def run(n: ti.i32) -> ti.i32:
        a, b = pair(n)
        return a * 10 + b

    assert run(3) == 34


def test_operators_by_their_special_names() -> None:
    @ti.kernel
    def run(u: ti.f32) -> ti.f32:
        s = (u * 3).__mod__(2.5) + u.__add__(1) + u.__rsub__(1.0) + (-u).__abs__() + u.__neg__()
        if u.__lt__(2.0):
            s += 10
        v = ti.Vector([u, 2.0])
        return s + v.__mul__(2).sum() + u.__pow__(2)

    u = 1.5
    check(run(u), (u * 3) % 2.5 + (u + 1) + (1 - u) + u - u + 10 + (2 * u + 4) + u * u)


class Level(enum.Enum):
    LOW = 3

    def __int__(self):
        return self.value

    def __float__(self):
        return self.value + 0.5


def test_int_and_float_of_objects_that_define_them() -> None:
    @ti.kernel
    def run() -> ti.f32:
        return int(Level.LOW) * 10 + float(Level.LOW)

    assert run() == 33.5


@pytest.mark.ours("conversions-of-objects")
def test_int_and_bool_of_objects_that_kernels_make() -> None:
    class Box:
        def __init__(self, x):
            self.x = x

        def __int__(self):
            return self.x * 2

    @ti.kernel
    def run(n: ti.i32) -> ti.i32:
        return int(Box(n)) + ti.cast(bool([n, 0]), ti.i32)

    assert run(5) == 11


def test_real_functions_keep_the_types_of_their_annotations() -> None:
    @ti.real_func
    def doubled(x: ti.f32) -> ti.f32:
        return x * 2

    @ti.kernel
    def run() -> ti.f32:
        return doubled(ti.Vector([1.0, 2.0])).sum()

    with pytest.raises(ti.TaichiCompilationError):
        run()
