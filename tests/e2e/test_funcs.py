"""Functions, templates, closures, classes, arguments and results of kernels."""

from typing import Tuple  # noqa: UP035

import numpy as np
import pytest

import vkchi as ti

# --- functions ---------------------------------------------------------------------------------


def test_arguments_are_passed_by_value():
    @ti.func
    def f(a, v):
        a += 1
        v += 1
        return a * 10 + v.x

    @ti.kernel
    def run(out: ti.types.ndarray()):
        a = 3
        v = ti.Vector([5, 6])
        out[0] = f(a, v)
        out[1] = a
        out[2] = v.x

    out = np.zeros(3, np.int32)
    run(out)
    np.testing.assert_array_equal(out, [46, 3, 5])


def test_template_arguments_are_passed_by_reference():
    @ti.func
    def f(a: ti.template(), b):
        a += b
        b = 0

    @ti.kernel
    def run() -> ti.i32:
        a, b = 3, 10
        f(a, b)
        f(a, b)
        return a * 100 + b

    assert run() == 2310


def test_keywords_and_defaults():
    @ti.func
    def f(a, b=2, c: ti.i32 = 3):
        return a * 100 + b * 10 + c

    @ti.kernel
    def run(out: ti.types.ndarray()):
        out[0] = f(1)
        out[1] = f(1, 5)
        out[2] = f(1, c=9)
        out[3] = f(b=4, a=7)
        out[4] = f(1, 2, 8)

    out = np.zeros(5, np.int32)
    run(out)
    np.testing.assert_array_equal(out, [123, 153, 129, 743, 128])


def test_annotations_of_functions_cast():
    """A number type casts each component of a vector."""

    @ti.func
    def whole(x) -> ti.i32:
        return x

    @ti.func
    def add(a: ti.i32, b: ti.f32) -> ti.f32:
        return a + b

    @ti.kernel
    def run(x: ti.f32) -> ti.f32:
        v = whole(ti.Vector([x, x + 1]))
        return whole(x) + v.x * 10 + v.y * 100 + add(x, 3) * 1000

    assert run(2.75) == 2 + 20 + 300 + 5000


def test_returning_tuples():
    @ti.func
    def divide(a, b):
        return a // b, a % b

    @ti.func
    def shapes(a):
        return a * 2.0, ti.Vector([a, a + 1]), 7

    @ti.kernel
    def run(out: ti.types.ndarray()):
        q, r = divide(17, 5)
        x, v, n = shapes(1.5)
        out[0], out[1] = q, r
        out[2] = x + v.y + n
        pair = divide(23, 4)
        out[3] = pair[0] * 10 + pair[1]

    out = np.zeros(4, np.float32)
    run(out)
    np.testing.assert_array_equal(out, [3, 2, 12.5, 53])


def test_nested_functions():
    @ti.func
    def square(x):
        return x * x

    @ti.func
    def quartic(x):
        y = square(x)
        return square(y)

    @ti.func
    def both(x):
        return square(x) + quartic(x) + square(square(1 + x))

    @ti.kernel
    def run(x: ti.f32) -> ti.f32:
        return both(x)

    assert run(2) == 4 + 16 + 81


def test_assignment_expressions():
    x = ti.field(ti.f32, 3)

    @ti.kernel
    def run(k: ti.f32) -> ti.f32:
        x[0] = (a := k * 2) + 1
        return a + x[0]

    try:
        assert run(3) == 13
    except ti.TaichiSyntaxError as e:
        pytest.skip(str(e))


def test_functions_with_control_flow():
    @ti.func
    def gcd(a, b):
        x, y = a, b
        while y != 0:
            t = x % y
            x = y
            y = t
        return x

    @ti.func
    def count_divisors(n):
        c = 0
        for k in range(1, n + 1):
            if n % k == 0:
                c += 1
        return c

    @ti.kernel
    def run(out: ti.types.ndarray()):
        for i, j in ti.ndrange(12, 12):
            out[i, j] = gcd(i + 1, j + 1) * 100 + count_divisors(i + 1)

    out = np.zeros((12, 12), np.int32)
    run(out)
    k = np.arange(1, 13)
    divisors = [sum(n % d == 0 for d in range(1, n + 1)) for n in k]
    np.testing.assert_array_equal(out, np.gcd.outer(k, k) * 100 + np.array(divisors)[:, None])


def test_static_choice_of_return():
    @ti.func
    def f(x, kind: ti.template()):
        if ti.static(kind == 0):
            return x + 1
        else:
            return x * 2

    @ti.kernel
    def run(x: ti.i32) -> ti.i32:
        return f(x, 0) * 100 + f(x, 1)

    assert run(5) == 610


def test_plain_python_functions():
    def cube(x):
        return x * x * x

    def blend(a, b, t=0.5):
        return a * (1 - t) + b * t

    @ti.kernel
    def run(x: ti.f32) -> ti.f32:
        v = ti.Vector([x, 1.0])
        return cube(x) + blend(x, 10.0) + blend(v, v * 3, t=0.25).x

    assert run(2) == 8 + 6 + 3


def test_pyfunc():
    @ti.pyfunc
    def f(x, y):
        return x * 10 + y

    @ti.kernel
    def run(x: ti.i32) -> ti.i32:
        return f(x, 1)

    assert run(2) == 21
    assert f(3, 4) == 34


def test_functions_chosen_at_compile_time():
    @ti.func
    def double(x):
        return 2 * x

    @ti.func
    def increment(x):
        return x + 1

    table = [double, increment]

    @ti.func
    def twice(f: ti.template(), x):
        return f(f(x))

    @ti.kernel
    def run(x: ti.i32) -> ti.i32:
        r = 0
        for k in ti.static(range(2)):
            r = r * 100 + table[k](x)
        return r * 10000 + twice(double, x) * 100 + twice(increment, x)

    assert run(5) == 10062007


def test_functions_see_loops_of_their_caller():
    x = ti.field(ti.i32, 10)

    @ti.func
    def put(i, v):
        if i % 2 == 0:
            x[i] = v
        else:
            x[i] = -v

    @ti.kernel
    def run():
        for i in x:
            put(i, 10 * i)

    run()
    np.testing.assert_array_equal(x.to_numpy(), [10 * i * (-1) ** i for i in range(10)])


def test_recursion_raises():
    @ti.func
    def f(n):
        return 1 if n == 0 else n * f(n - 1)

    @ti.kernel
    def run() -> ti.i32:
        return f(5)

    with pytest.raises(Exception, match="(?i)recurs"):
        run()


def test_static_recursion_terminates():
    @ti.func
    def power(x, n: ti.template()):
        if ti.static(n == 0):
            return 1.0
        else:
            return x * power(x, ti.static(n - 1))

    @ti.kernel
    def run(x: ti.f32) -> ti.f32:
        return power(x, 5)

    assert run(2) == 32


def test_functions_cannot_be_called_from_python():
    @ti.func
    def f(x):
        return x

    with pytest.raises(Exception, match="(?i)kernel|python-scope"):
        f(1)


# --- captured values ---------------------------------------------------------------------------


def test_closures_are_read_as_they_are_now():
    scale = 3
    offset = np.float32(0.5)
    table = [1, 10, 100]
    sizes = {"n": 4}

    @ti.kernel
    def run(i: ti.i32) -> ti.f32:
        s = 0.0
        for k in ti.static(range(3)):
            s += table[k]
        return scale * i + offset + s + ti.static(sizes["n"]) * 1000

    assert run(2) == 6.5 + 111 + 4000
    scale = 4
    assert run(2) == 8.5 + 111 + 4000


WIDTH = 6


def test_globals():
    @ti.kernel
    def run() -> ti.i32:
        return WIDTH * 2 + np_constant()

    assert run() == 19


def np_constant():
    return 7


def test_kernels_made_by_a_factory():
    def make(k):
        @ti.kernel
        def run(x: ti.i32) -> ti.i32:
            return x * k

        return run

    three, five = make(3), make(5)
    assert (three(10), five(10), three(1)) == (30, 50, 3)


def test_undefined_name():
    @ti.kernel
    def run() -> ti.i32:
        return no_such_name + 1  # noqa: F821

    with pytest.raises(ti.TaichiNameError, match="no_such_name"):
        run()


def test_variables_of_one_branch_do_not_leave_it():
    @ti.kernel
    def run(x: ti.i32) -> ti.i32:
        if x > 0:
            y = 1
        return y

    with pytest.raises(ti.TaichiCompilationError, match="y"):
        run(1)


# --- templates ---------------------------------------------------------------------------------


def test_template_fields():
    @ti.kernel
    def copy(source: ti.template(), target: ti.template(), k: ti.template()):
        for i in source:
            target[i] = source[i] * k

    a, b = ti.field(ti.i32, 5), ti.field(ti.i32, 5)
    c, d = ti.field(ti.f32, 7), ti.field(ti.f32, 7)
    v, w = ti.Vector.field(2, ti.f32, 3), ti.Vector.field(2, ti.f32, 3)
    a.fill(2)
    c.fill(0.5)
    v.fill(1.5)
    copy(a, b, 3)
    copy(c, d, 3)
    copy(v, w, 2)
    copy(b, a, 10)
    assert (b.to_numpy() == 6).all() and (a.to_numpy() == 60).all()
    assert (d.to_numpy() == 1.5).all() and (w.to_numpy() == 3).all()


def test_template_numbers_specialise():
    @ti.kernel
    def run(n: ti.template(), x: ti.template()) -> ti.f32:
        s = 0.0
        for k in ti.static(range(n)):
            s += x
        return s

    assert [run(3, 2), run(4, 2), run(0, 2), run(3, 0.5)] == [6, 8, 0, 1.5]


def test_template_grouped_over_any_dimension():
    @ti.kernel
    def ramp(x: ti.template()):
        for I in ti.grouped(x):
            s = 0
            for d in ti.static(range(len(x.shape))):
                s = s * 10 + I[d]
            x[I] = s

    for shape in ((4,), (3, 4), (2, 3, 4)):
        x = ti.field(ti.i32, shape)
        ramp(x)
        want = np.zeros(shape, int)
        for k in np.indices(shape):
            want = want * 10 + k
        np.testing.assert_array_equal(x.to_numpy(), want)


def test_template_functions():
    @ti.func
    def double(x):
        return 2 * x

    @ti.func
    def negate(x):
        return -x

    @ti.kernel
    def run(f: ti.template(), x: ti.i32) -> ti.i32:
        return f(x)

    assert (run(double, 4), run(negate, 4)) == (8, -4)


def test_compile_time_facts_about_fields():
    x = ti.Vector.field(3, ti.f32, (4, 5))

    @ti.kernel
    def run(y: ti.types.ndarray()) -> ti.i32:
        return (
            x.shape[0] * 1000 + x.shape[1] * 100 + x.n * 10 + ti.static(len(x.shape)) + y.shape[0]
        )

    assert run(np.zeros(7, np.float32)) == 4532 + 7


# --- kernels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "t", ["i32", "u32", "f32", "i8", "u8", "i16", "u16", "i64", "u64", "f64", "u1"]
)
def test_scalar_arguments_and_results(t, need):
    if t != "u1":
        need(t)
    dtype = getattr(ti, t)

    @ti.kernel
    def same(x: dtype) -> dtype:
        return x

    @ti.kernel
    def inner(x: dtype, n: ti.i32) -> dtype:
        r = x
        for i in range(n):
            r = x
        return r

    values = {
        "f": [0, -1.5, 1e10],
        "i": [0, 1, -1, -(2 ** (int(t[1:]) - 1))],
        "u": [0, 1, 2 ** int(t[1:]) - 1],
    }
    for v in [True, False] if t == "u1" else values[t[0]]:
        assert same(v) == v
        assert inner(v, 3) == v


def test_results_have_python_types():
    @ti.kernel
    def f() -> ti.f32:
        return 1

    @ti.kernel
    def i() -> ti.i32:
        return 2.75

    @ti.kernel
    def d() -> float:
        return 0.5

    @ti.kernel
    def n() -> int:
        return 7

    assert isinstance(f(), float) and f() == 1.0
    assert isinstance(i(), int) and i() == 2
    assert (d(), n()) == (0.5, 7)


def test_several_results():
    @ti.kernel
    def run(x: ti.f32) -> Tuple[ti.f32, ti.i32]:  # noqa: UP006
        return x * 2, 7

    @ti.kernel
    def vectors() -> tuple[ti.math.vec2, ti.i32]:
        return ti.math.vec2(1, 2), 3

    a, b = run(1.5)
    assert (a, b) == (3.0, 7)
    v, k = vectors()
    assert (v[0], v[1], k) == (1, 2, 3)


def test_keyword_arguments_of_kernels():
    @ti.kernel
    def run(a: ti.i32, b: ti.i32) -> ti.i32:
        return a * 10 + b

    assert run(1, 2) == 12
    assert run(b=1, a=2) == 21
    assert run(3, b=4) == 34


def test_kernels_call_kernels_only_from_python():
    @ti.kernel
    def inner():
        pass

    @ti.kernel
    def outer():
        inner()

    with pytest.raises(ti.TaichiCompilationError):
        outer()


def test_wrong_arguments():
    @ti.kernel
    def run(a: ti.i32, b: ti.f32):
        pass

    for args in ((1,), (1, 2.0, 3), ("x", 1.0), (None, 1.0), (1.5, 1.0)):
        with pytest.raises((ti.TaichiRuntimeError, ti.TaichiCompilationError, TypeError)):
            run(*args)
    run(1, 2)
    run(np.int32(1), np.float32(2))
    run(np.int64(1), np.float64(2))


def test_docstrings_comments_and_types_in_kernels():
    @ti.kernel
    def run(x: ti.i32) -> ti.i32:
        """A docstring."""
        # a comment
        y: ti.i32 = x  # another
        z: ti.f32 = 0.5
        """A string in between."""
        y += int(z * 4)
        pass
        return (
            y
            + 1
        )  # fmt: skip

    assert run(1) == 4


def test_assertions_outside_debug_mode_do_nothing():
    x = ti.field(ti.i32, 3)

    @ti.kernel
    def run(k: ti.i32):
        for i in x:
            assert k > 0, "positive"
            assert 0 <= i < 3, f"i = {i}"
            x[i] = k

    run(3)
    run(-1)
    assert x.to_numpy().tolist() == [-1, -1, -1]


def test_launching_many_times():
    x = ti.field(ti.i32, ())

    @ti.kernel
    def increment(k: ti.i32):
        x[None] += k

    for k in range(2000):
        increment(k)
    assert x[None] == 1999 * 1000


# --- classes -----------------------------------------------------------------------------------


@ti.data_oriented
class Counter:
    """A class of kernels, as Taichi's documentation writes them."""

    step = 2

    def __init__(self, n, start):
        self.n = n
        self.start = start
        self.x = ti.field(ti.i32, n)
        self.total = ti.field(ti.i32, ())

    @ti.func
    def value(self, i):
        return self.start + i * self.step

    @staticmethod
    @ti.func
    def clip(v):
        return ti.min(v, 100)

    @ti.kernel
    def fill(self, k: ti.i32):
        for i in range(self.n):
            self.x[i] = self.clip(self.value(i) * k)
        for i in self.x:
            self.total[None] += self.x[i]

    @ti.kernel
    def sum(self) -> ti.i32:
        s = 0
        for i in self.x:
            s += self.x[i]
        return s

    def run(self, k):
        self.fill(k)
        return self.sum()


def test_data_oriented_classes():
    a, b = Counter(5, 10), Counter(8, 20)
    want_a = np.minimum((10 + 2 * np.arange(5)) * 3, 100)
    want_b = np.minimum((20 + 2 * np.arange(8)) * 4, 100)
    assert a.run(3) == want_a.sum()
    assert b.run(4) == want_b.sum()
    np.testing.assert_array_equal(a.x.to_numpy(), want_a)
    np.testing.assert_array_equal(b.x.to_numpy(), want_b)
    assert a.total[None] == want_a.sum()
    assert a.sum() == want_a.sum()


def test_inheritance():
    @ti.data_oriented
    class Base:
        def __init__(self):
            self.x = ti.field(ti.f32, 3)

        @ti.func
        def weight(self):
            return 1.0

        @ti.kernel
        def run(self):
            for i in self.x:
                self.x[i] = self.weight() * (i + 1)

    @ti.data_oriented
    class Heavy(Base):
        @ti.func
        def weight(self):
            return 10.0

    light, heavy = Base(), Heavy()
    light.run()
    heavy.run()
    assert light.x.to_numpy().tolist() == [1, 2, 3]
    assert heavy.x.to_numpy().tolist() == [10, 20, 30]


def test_objects_inside_objects():
    @ti.data_oriented
    class Grid:
        def __init__(self, n):
            self.n = n
            self.v = ti.field(ti.f32, n)

        @ti.func
        def at(self, i):
            return self.v[i % self.n]

    @ti.data_oriented
    class Solver:
        def __init__(self, grid):
            self.grid = grid
            self.result = ti.field(ti.f32, ())

        @ti.kernel
        def run(self, i: ti.i32):
            self.result[None] = self.grid.at(i) + self.grid.v[0]

    grid = Grid(4)
    grid.v.from_numpy(np.array([1, 2, 3, 4], np.float32))
    solver = Solver(grid)
    solver.run(6)
    assert solver.result[None] == 4


def test_kernels_that_take_self_and_template():
    @ti.data_oriented
    class Copier:
        @ti.kernel
        def copy(self, a: ti.template(), b: ti.types.ndarray()):
            for i in a:
                b[i] = a[i] + 1

    x = ti.field(ti.i32, 4)
    x.fill(5)
    y = np.zeros(4, np.int32)
    Copier().copy(x, y)
    assert y.tolist() == [6, 6, 6, 6]


def test_structs_as_plain_attributes():
    """A namespace of constants is readable in kernels."""

    class Config:
        width = 5
        gravity = -9.5

    @ti.kernel
    def run() -> ti.f32:
        return Config.width * 2 + Config.gravity

    assert run() == 0.5
