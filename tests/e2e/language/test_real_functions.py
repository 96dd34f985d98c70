"""`@ti.real_func`: typed arguments by value, `ti.ref`, results, serial loops."""

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def test_real_func() -> None:
    @ti.real_func
    def f(a: ti.i32, b: ti.f32) -> ti.f32:
        if a > 2:
            return b
        return b * 2

    @ti.kernel
    def k(a: ti.i32) -> ti.f32:
        return f(a, 1.5)

    check([k(1), k(4)], [3.0, 1.5])


def test_exp_real_func() -> None:
    @ti.experimental.real_func
    def f(a: ti.i32) -> ti.i32:
        return a + 1

    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return f(a)

    check([k(1), k(4)], [2, 5])


def test_real_func_recursion() -> None:
    @ti.real_func
    def fact(a: ti.i32) -> ti.i32:
        r = 1
        if a > 1:
            r = a * fact(a - 1)
        return r

    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return fact(a)

    check([k(1), k(4), k(9)], [1, 24, 362880])


def test_real_func_ref() -> None:
    @ti.real_func
    def f(a: ti.ref(ti.i32)):
        a = a + 1

    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        b = a
        f(b)
        return b

    check([k(1), k(4)], [2, 5])


def test_real_func_castarg() -> None:
    @ti.real_func
    def f(a: ti.i32) -> ti.f32:
        return a * 1.5

    @ti.kernel
    def k(a: ti.f32) -> ti.f32:
        return f(a)

    check([k(1.9), k(4)], [1.5, 6.0])


def test_real_func_vec() -> None:
    v3 = ti.types.vector(3, ti.f32)

    @ti.real_func
    def f(a: v3, s: ti.f32) -> v3:
        return a * s

    @ti.kernel
    def k() -> v3:
        return f(v3(1, 2, 3), 2)

    check(list(k()), [2.0, 4.0, 6.0])


def test_real_func_noann() -> None:
    with pytest.raises(ti.TaichiSyntaxError):

        @ti.real_func
        def f(a) -> ti.i32:
            return a


def test_addone() -> None:
    @ti.real_func
    def add_one(a: ti.ref(ti.i32)):
        a += 1

    @ti.kernel
    def foo() -> ti.i32:
        a = 1
        add_one(a)
        return a

    check(foo(), 2)


@pytest.mark.ours("references", run=False)
def test_ref_elem() -> None:
    x = ti.field(ti.i32, 3)

    @ti.real_func
    def add_one(a: ti.ref(ti.i32)):
        a += 1

    @ti.kernel
    def foo():
        for i in x:
            add_one(x[i])

    foo()
    check(x, [1, 1, 1])


def test_ref_value() -> None:
    @ti.real_func
    def add_one(a: ti.ref(ti.i32)):
        a += 1

    @ti.kernel
    def foo():
        add_one(3)

    with pytest.raises(ti.TaichiCompilationError):
        foo()


@pytest.mark.ours("references", run=False)
def test_ref_wrong() -> None:
    @ti.real_func
    def add_one(a: ti.ref(ti.i32)):
        a += 1

    @ti.kernel
    def foo() -> ti.f32:
        a = 1.5
        add_one(a)
        return a

    with pytest.raises(Exception):
        foo()


@pytest.mark.ours("references")
def test_ref_vec() -> None:
    v2 = ti.types.vector(2, ti.f32)

    @ti.real_func
    def add_one(a: ti.ref(v2)):
        a[0] += 1

    @ti.kernel
    def foo() -> ti.f32:
        a = v2(1, 2)
        add_one(a)
        return a[0]

    check(foo(), 2.0)


def test_rf_noret() -> None:
    @ti.real_func
    def f(a: ti.i32):
        return a

    @ti.kernel
    def foo() -> ti.i32:
        return f(1)

    with pytest.raises(ti.TaichiSyntaxError):
        foo()


def test_rf_template() -> None:
    x = ti.field(ti.i32, 3)

    @ti.real_func
    def f(x: ti.template(), i: ti.i32, v: ti.i32):
        x[i] = v

    @ti.kernel
    def foo():
        f(x, 1, 5)

    foo()
    check(x, [0, 5, 0])


def test_rf_loop() -> None:
    @ti.real_func
    def f(n: ti.i32) -> ti.i32:
        s = 0
        for i in range(n):
            if i == 5:
                break
            s += i
        return s

    @ti.kernel
    def foo(n: ti.i32) -> ti.i32:
        return f(n)

    check([foo(3), foo(100)], [3, 10])


def test_rf_order() -> None:
    x = ti.field(ti.i32, 10)

    @ti.real_func
    def f(n: ti.i32):
        for i in range(1, n):
            x[i] = x[i - 1] + 1

    @ti.kernel
    def foo():
        f(10)

    foo()
    check(x, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])


def test_rf_ret_tuple() -> None:
    @ti.real_func
    def f(n: ti.i32) -> (ti.i32, ti.f32):
        return n, n * 1.5

    @ti.kernel
    def foo() -> ti.f32:
        a, b = f(3)
        return a + b

    check(foo(), 7.5)


def test_rf_in_do() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.k = 3

        @ti.real_func
        def f(self, x: ti.i32) -> ti.i32:
            return x * self.k

        @ti.kernel
        def run(self) -> ti.i32:
            return self.f(4)

    check(A().run(), 12)


def test_rf_sum() -> None:
    @ti.real_func
    def sum_func(n: ti.i32) -> ti.i32:
        if n == 0:
            return 0
        return sum_func(n - 1) + n

    @ti.kernel
    def sum(n: ti.i32) -> ti.i32:
        return sum_func(n)

    check(sum(100), 5050)


@pytest.mark.ours("runtime-recursion", run=False)
def test_recursion_that_goes_too_deep() -> None:
    @ti.real_func
    def count(n: ti.i32) -> ti.i32:
        if n == 0:
            return 0
        return count(n - 1) + 1

    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        return count(n)

    with pytest.raises(ti.TaichiAssertionError, match="calls itself more than 128 times"):
        k(1000)
    check(k(64), 64)


def test_recursion_from_several_calls() -> None:
    moves = ti.field(ti.i32, ())

    @ti.real_func
    def fib(n: ti.i32) -> ti.i32:
        if n < 2:
            return n
        return fib(n - 1) + fib(n - 2)

    @ti.real_func
    def move(n: ti.i32):
        if n > 0:
            move(n - 1)
            moves[None] += 1
            move(n - 1)

    @ti.real_func
    def divide(a: ti.i32, b: ti.i32) -> (ti.i32, ti.i32):
        if a < b:
            return 0, a
        q, r = divide(a - b, b)
        return q + 1, r

    @ti.kernel
    def k(n: ti.i32) -> ti.types.vector(3, ti.i32):
        q, r = divide(47, 5)
        move(3)
        return ti.Vector([fib(n), q, r])

    check(k(6), [8, 9, 2])
    check(moves[None], 7)


def test_recursion_from_several_calls_goes_deep() -> None:
    @ti.real_func
    def fib(n: ti.i32) -> ti.i32:
        if n < 2:
            return n
        return fib(n - 1) + fib(n - 2)

    @ti.real_func
    def ackermann(m: ti.i32, n: ti.i32) -> ti.i32:
        if m == 0:
            return n + 1
        if n == 0:
            return ackermann(m - 1, 1)
        return ackermann(m - 1, ackermann(m, n - 1))

    @ti.kernel
    def k(n: ti.i32) -> ti.types.vector(2, ti.i32):
        return ti.Vector([fib(n), ackermann(3, 2)])

    check(k(16), [987, 29])


def test_a_tree_in_fields() -> None:
    """In a parallel loop, with a result that is kept in a variable, and a field as an argument."""
    left, right = ti.field(ti.i32, 63), ti.field(ti.i32, 63)
    weight, total = ti.field(ti.f32, 63), ti.field(ti.f32, 63)
    for i in range(63):
        left[i], right[i] = (2 * i + 1, 2 * i + 2) if i < 31 else (-1, -1)
        weight[i] = i

    @ti.real_func
    def add_up(i: ti.i32, weight: ti.template()) -> ti.f32:
        """Weight of a node and its subtree."""
        s = 0.0
        if i >= 0:
            s = weight[i]
            s += add_up(left[i], weight)
            s += add_up(right[i], weight)
        return s

    @ti.kernel
    def run():
        for i in total:
            total[i] = add_up(i, weight)

    run()
    want = [0.0] * 127
    for i in reversed(range(63)):
        want[i] = i + want[2 * i + 1] + want[2 * i + 2]
    check(total, want[:63])


def test_recursion_in_conditions_and_choices() -> None:
    @ti.real_func
    def f(n: ti.i32, w: ti.f32) -> ti.f32:
        if n <= 0:
            return w
        a = w + 1 if n % 2 == 0 else w - 1
        for j in range(3):
            a += j * 0.25
        if f(n - 1, a * 0.5) > 3.0:
            b = f(n - 2, a)
            return b + 1.0
        elif a > 2:
            return ti.abs(f(n - 3, a * 0.25)) * 2
        return a if n < 3 else (w if n == 4 else f(n - 2, a * 0.125))

    def g(n: int, w: float) -> float:
        if n <= 0:
            return w
        a = (w + 1 if n % 2 == 0 else w - 1) + 0.75
        if g(n - 1, a * 0.5) > 3.0:
            return g(n - 2, a) + 1.0
        if a > 2:
            return abs(g(n - 3, a * 0.25)) * 2
        return a if n < 3 else (w if n == 4 else g(n - 2, a * 0.125))

    @ti.kernel
    def k(n: ti.i32, w: ti.f32) -> ti.f32:
        return f(n, w)

    for n in range(9):
        check([k(n, w) for w in (0.125, -2.0, 5.0)], [g(n, w) for w in (0.125, -2.0, 5.0)])


@pytest.mark.ours("runtime-recursion", run=False)
def test_a_stack_that_is_full() -> None:
    @ti.real_func
    def fib(n: ti.i32) -> ti.i32:
        if n < 2:
            return n
        return fib(n - 1) + fib(n - 2)

    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        return fib(n)

    with pytest.raises(ti.TaichiAssertionError, match="calls itself more than 64 times"):
        k(100)
    check(k(10), 55)


@pytest.mark.ours("runtime-recursion", run=False)
def test_recursion_through_another_function_from_several_calls() -> None:
    """Each of the copies has two more: 2 ** 128 of them."""

    @ti.real_func
    def other(n: ti.i32) -> ti.i32:
        return fib(n - 1) + fib(n - 2)

    @ti.real_func
    def fib(n: ti.i32) -> ti.i32:
        if n < 2:
            return n
        return other(n)

    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        return fib(n)

    with pytest.raises(ti.TaichiCompilationError, match=r"fib\(\) calls itself in too many ways"):
        k(6)


def test_rf_default() -> None:
    @ti.real_func
    def f(n: ti.i32, m: ti.i32 = 4) -> ti.i32:
        return n * m

    @ti.kernel
    def k() -> ti.i32:
        return f(2) + f(2, 3)

    check(k(), 14)


def test_rf_kw() -> None:
    @ti.real_func
    def f(n: ti.i32, m: ti.i32) -> ti.i32:
        return n * 10 + m

    @ti.kernel
    def k() -> ti.i32:
        return f(m=2, n=3)

    check(k(), 32)


@pytest.mark.ours("real-function-arguments")
def test_rf_arg_assign() -> None:
    @ti.real_func
    def f(n: ti.i32) -> ti.i32:
        n += 1
        return n

    @ti.kernel
    def k() -> ti.i32:
        a = 3
        b = f(a)
        return a * 10 + b

    check(k(), 34)


def test_rf_python() -> None:
    @ti.real_func
    def f(n: ti.i32) -> ti.i32:
        return n

    with pytest.raises(ti.TaichiSyntaxError):
        f(2)


def test_recursive_functions_of_one_definition_with_other_types() -> None:
    """The annotations, which differ, decide if the recursion becomes a loop."""

    def make(t, minus):
        @ti.real_func
        def double(x: t, depth: ti.i32) -> t:
            if depth == 0:
                return x
            return double(x, depth - minus) + double(x, depth - minus)

        return double

    v2 = ti.types.vector(2, ti.f32)
    of_scalars, of_vectors = make(ti.f32, 1), make(v2, 2)

    @ti.kernel
    def scalar() -> ti.f32:
        return of_scalars(1.5, 3)

    @ti.kernel
    def pair() -> v2:
        return of_vectors(v2(1.5, 2.0), 4)

    assert scalar() == 12.0
    assert list(pair()) == [6.0, 8.0]
