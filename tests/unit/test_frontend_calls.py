"""Calls: inlined functions, methods, plain Python, calls at compile time."""

import functools
import math
import sys

import numpy as np
import pytest

import vkchi as ti
from tests.unit.kernels import Field, Func, lower, run
from vkchi.errors import KernelSyntaxError
from vkchi.ir.core import walk


def test_keywords_defaults_and_annotations():
    @Func
    def f(a, b=2, *, c: ti.i32 = 3.9):
        return a * 100 + b * 10 + c

    x = Field(np.zeros(4, np.int32))

    def k():
        x[0] = f(1)
        x[1] = f(1, 5)
        x[2] = f(b=4, a=7, c=1.5)
        x[3] = f(*[1, 2], **{"c": 8})

    run(k)
    assert x.data.tolist() == [123, 153, 741, 128]


def test_string_annotations_and_return_annotations():
    @Func
    def f(a: "ti.f32") -> "ti.i32":
        return a * 2.6

    @Func
    def g(a) -> (ti.i32, ti.f32):
        return a, a

    def k() -> "ti.f32":
        p, q = g(2.5)
        return f(1) * 100 + p * 10 + q

    assert run(k) == 222.5


def test_templates_take_arrays_functions_numbers_and_variables():
    x = Field(np.arange(3, dtype=np.float32))

    @Func
    def double(v):
        return v * 2

    @Func
    def apply(f: ti.template(), a: ti.template(), n: ti.template(), out: ti.template()):
        for i in ti.static(range(n)):
            out += f(a[i])

    def k(y: ti.template(), z: ti.types.ndarray()) -> ti.f32:
        total = 0.0
        apply(double, x, 3, total)
        apply(double, y, 2, total)
        apply(double, z, 1, out=total)
        return total

    assert run(k, Field(np.array([10.0, 20.0], np.float32)), np.array([100.0], np.float32)) == 266


def test_references_in_loops_and_branches():
    @Func
    def bump(a: ti.template(), n):
        for i in range(n):
            if i % 2 == 0:
                a += i

    def k(n: ti.i32) -> ti.i32:
        v, w, s = ti.Vector([0, 0]), [0, 0], 0
        for i in range(1):
            for j in range(2):
                bump(v[1], n)
                bump(w[0], n)
                bump(s, n)
        return v.y * 10000 + w[0] * 100 + s

    assert run(k, 5) == 121212


def test_methods_of_objects():
    class Particles:
        def __init__(self, n):
            self.x, self.n, self.scale = Field(np.ones(n, np.float32)), n, 2.0

        @Func
        def weight(self, i):
            return self.x[i] * self.scale

        def plain(self, i):
            return self.weight(i) + 1

        @property
        def twice(self):
            return self.n * 2

        def step(self, k: ti.f32) -> ti.f32:
            for i in self.x:
                self.x[i] += k * self.plain(i)
            return self.x[0] + self.twice

    p = Particles(3)
    assert run(Particles.step, p, 0.5) == 2.5 + 6
    assert p.x.data.tolist() == [2.5] * 3


def test_plain_functions_are_inlined():
    def outer(v, k):
        def_k = k * 2
        if v > 1:
            return inner(v) + def_k
        return v

    def inner(v):
        return v * 10

    def k(x: ti.f32) -> ti.f32:
        return outer(x, 3)

    assert run(k, 2.0) == 26 and run(k, 0.5) == 0.5


def test_python_runs_calls_with_constant_arguments():
    def count(n):
        return len([i for i in range(n) if i % 2])

    table = {"a": (1.0, 2.0)}

    def k() -> ti.f32:
        r = math.sqrt(16.0) + count(9) + max(1, 7) + abs(-2) + len("abc") + table["a"][1]
        return r + functools.reduce(max, [1, 2, 5]) + np.array([0.5, 0.25])[1] + int("3")

    lowered = lower(k)
    assert run(k) == 4 + 4 + 7 + 2 + 3 + 2 + 5 + 0.25 + 3
    assert all(
        op.kind in ("const", "add", "elem", "store", "yield") for op in walk(lowered.func.body)
    )


def test_functions_that_name_arrays_are_inlined_even_without_arguments():
    x = Field(np.array([3.0], np.float32))

    def read():
        return x[0]

    def k() -> ti.f32:
        return read() + 1

    assert run(k) == 4.0


def test_partials_and_closures():
    @Func
    def scaled(a, v):
        return a * v

    def make(a):
        return Func(lambda_free(a))

    def lambda_free(a):
        def add(v):
            return v + a

        return add

    twice, plus = functools.partial(scaled, 2), make(5)

    def k(x: ti.i32) -> ti.i32:
        return twice(x) * 100 + plus(x)

    assert run(k, 3) == 608


def test_partials_take_references():
    @Func
    def add(v, a: ti.template()):
        a += v

    two = functools.partial(add, 2)

    def k(n: ti.i32) -> ti.i32:
        total = 0
        ti.loop_config(serialize=True)
        for i in range(n):
            two(total)
        return total

    assert run(k, 5) == 10


def test_a_loop_config_reaches_into_a_function_once():
    x = Field(np.zeros(4, np.int32))

    @Func
    def fill():
        for i in x:
            x[i] = 1

    def k():
        ti.loop_config(block_dim=32)
        fill()
        fill()

    loops = [op for op in lower(k).func.body.ops if op.kind == "parallel"]
    assert [op.attr for op in loops] == [32, None]


def test_recursion_at_compile_time():
    @Func
    def power(x, n: ti.template()):
        if ti.static(n == 0):
            return 1.0
        return x * power(x, n - 1)

    def k(x: ti.f32) -> ti.f32:
        return power(x, 5)

    assert run(k, 2.0) == 32.0


def test_lists_and_tuples_are_passed_and_returned():
    @Func
    def weights(v):
        return [0.5 * v, 1 - v, v], (v, [v])

    @Func
    def total(w, t):
        w[0] = 100
        return w[0] + w[1] + t[1][0]

    def k(x: ti.f32) -> ti.f32:
        w, t = weights(x)
        return total(w, t) * 1000 + w[0]

    assert run(k, 0.5) == 101000.25


def test_tensor_parts_as_arguments():
    @Func
    def f(v, m):
        return v.x + m[1, 0]

    def k() -> ti.f32:
        m = ti.Matrix([[1.0, 2.0], [3.0, 4.0]])
        return f(m[0, :], m) + f(ti.Vector([5.0, 6.0]).yx, m)

    assert run(k) == 13.0


def test_a_kernel_of_a_thousand_terms():
    from tests.unit.kernels import define

    text = "def k(x: ti.f32) -> ti.f32:\n    return " + " + ".join(["x"] * 1000) + "\n"
    assert run(define(text), 1.0) == 1000.0


def test_globals_are_read_when_a_kernel_is_compiled():
    from tests.unit.kernels import define

    k = define("N = 3\ndef k() -> ti.i32:\n    return N\n")
    assert run(k) == 3
    k.__globals__["N"] = 4
    assert run(k) == 4


def test_random_draws_need_a_seed():
    x = Field(np.zeros(4, np.float32))

    def k():
        for i in x:
            x[i] = ti.random()

    assert lower(k).bindings[".seed"] == ("seed",)
    run(k)
    assert len(set(x.data.tolist())) == 4


def test_a_wrong_function_is_named_where_it_is_called():
    @Func
    def g(v):
        return v.nothing

    @Func
    def f(v):
        return g(v)

    def k():
        f(1.0)

    with pytest.raises(Exception) as e:
        lower(k)
    text = str(e.value)
    assert "in g(), called from f() at" in text and "in f(), called from k() at" in text


def test_functions_without_source_raise():
    names = {}
    exec("def k(): pass", names)
    with pytest.raises(KernelSyntaxError, match="the source of k\\(\\) is not available"):
        lower(names["k"])


def test_lambdas_are_functions_of_one_expression():
    c = 7
    add = lambda x, y=c: x + y  # noqa: E731
    tables = {"ü": (lambda x:
        x - c if x > c else c)}  # fmt: skip

    def k(a: ti.i32) -> ti.i32:
        return add(a) + 100 * tables["ü"](a)

    assert run(k, 5) == 12 + 700


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no columns before Python 3.11")
def test_lambdas_of_one_line_are_distinguished():
    double, triple = lambda x: 2 * x, (lambda: lambda x: 3 * x)()

    def k(a: ti.i32) -> ti.i32:
        return double(a) + 100 * triple(a)

    assert run(k, 5) == 10 + 1500
