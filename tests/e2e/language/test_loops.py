"""Loops: ranges, ndrange, grouped, break and continue, several in one kernel, scopes."""

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


@pytest.mark.ours("range-step")
def test_range_neg() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i in range(5, 0, -1):
            s += i * i
        return s

    check(k(), 55)


@pytest.mark.ours("range-step")
def test_range_step() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i in range(1, 8, 3):
            s += i * i
        return s

    check(k(), 66)


@pytest.mark.ours("range-step")
def test_range_step_inner() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        s = 0
        for _ in range(1):
            for i in range(1, 8, n):
                s = s * 10 + i
        return s

    check(k(3), 147)


@pytest.mark.ours("range-step")
def test_range_neg_inner() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        s = 0
        for _ in range(1):
            for i in range(8, 1, -2):
                s = s * 10 + i
        return s

    check(k(3), 8642)


def test_top_mixed() -> None:
    x = ti.field(ti.i32, 4)
    y = ti.field(ti.i32, ())

    @ti.kernel
    def k():
        y[None] = 1
        for i in x:
            x[i] = i
        y[None] += x[3]
        for i in range(4):
            x[i] += y[None]
        y[None] = x[2]

    k()
    check([x, y[None]], [[4, 5, 6, 7], 6])


@pytest.mark.ours("loops-under-if")
def test_top_if_for() -> None:
    x = ti.field(ti.i32, 4)

    @ti.kernel
    def k(c: ti.i32):
        if c:
            for i in x:
                x[i] = i
        else:
            for i in x:
                x[i] = -i

    k(1)
    a = x.to_numpy()
    k(0)
    check([a, x], [[0, 1, 2, 3], [0, -1, -2, -3]])


def test_top_static_if_for() -> None:
    x = ti.field(ti.i32, 4)

    @ti.kernel
    def k(c: ti.template()):
        if ti.static(c):
            for i in x:
                x[i] = i
        else:
            for i in x:
                x[i] = -i

    k(1)
    a = x.to_numpy()
    k(0)
    check([a, x], [[0, 1, 2, 3], [0, -1, -2, -3]])


def test_top_while() -> None:
    @ti.kernel
    def k() -> ti.i32:
        i = 0
        while i < 10:
            i += 3
        return i

    check(k(), 12)


def test_while_true() -> None:
    @ti.kernel
    def k() -> ti.i32:
        i = 0
        while True:
            i += 1
            if i == 2:
                continue
            if i > 6:
                break
        return i

    check(k(), 7)


def test_break_top() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i in range(10):
            if i == 3:
                break
            s += 1
        return s

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_break_serial() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        ti.loop_config(serialize=True)
        for i in range(10):
            if i == 3:
                break
            s += 1
        return s

    check(k(), 3)


def test_continue_top() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i in range(10):
            if i % 3 == 0:
                continue
            s += i
        return s

    check(k(), 27)


def test_scope_if() -> None:
    @ti.kernel
    def k(c: ti.i32) -> ti.i32:
        if c > 0:
            a = 1
        return a

    with pytest.raises(ti.TaichiNameError):
        k(1)


def test_scope_for() -> None:
    @ti.kernel
    def k(c: ti.i32) -> ti.i32:
        for i in range(3):
            a = 1
        return a

    with pytest.raises(ti.TaichiNameError):
        k(1)


def test_scope_loopvar() -> None:
    @ti.kernel
    def k(c: ti.i32) -> ti.i32:
        for i in range(3):
            pass
        return i

    with pytest.raises(ti.TaichiNameError):
        k(1)


def test_scope_loopvar_static() -> None:
    @ti.kernel
    def k(c: ti.i32) -> ti.i32:
        for i in ti.static(range(3)):
            pass
        return i

    with pytest.raises(ti.TaichiNameError):
        k(1)


def test_shadow_loopvar() -> None:
    @ti.kernel
    def k(c: ti.i32) -> ti.i32:
        i = 5
        for i in range(3):
            pass
        return i

    with pytest.raises(ti.TaichiSyntaxError):
        k(1)


def test_shadow_loopvar_in_inner() -> None:
    @ti.kernel
    def k(c: ti.i32) -> ti.i32:
        s = 0
        for _ in range(1):
            i = 7
            for i in range(3):
                s += i
            s += i * 100
        return s

    with pytest.raises(ti.TaichiSyntaxError):
        k(1)


def test_grouped_field() -> None:
    x = ti.field(ti.i32, (2, 3))

    @ti.kernel
    def k():
        for I in ti.grouped(x):
            x[I] = I[0] * 10 + I[1]

    k()
    check(x, [[0, 1, 2], [10, 11, 12]])


def test_grouped_offset() -> None:
    x = ti.field(ti.i32, (3, 3))
    y = ti.field(ti.i32, (3, 3))

    @ti.kernel
    def k():
        for I in ti.grouped(x):
            x[I] = I.x * 10 + I.y
        for I in ti.grouped(x):
            J = I + ti.Vector([1, 0])
            if J[0] < 3:
                y[I] = x[J]

    k()
    check(y, [[10, 11, 12], [20, 21, 22], [0, 0, 0]])


def test_ndrange_forms() -> None:
    x = ti.field(ti.i32, (4, 4))

    @ti.kernel
    def k(n: ti.i32):
        for i, j in ti.ndrange(n, (1, n)):
            x[i, j] = 1
        for I in ti.grouped(ti.ndrange((1, 3), 2)):
            x[I] += 10
        for i in ti.ndrange(4):
            x[i, i] += 100

    k(4)
    check(x, [[100, 1, 1, 1], [10, 111, 1, 1], [10, 11, 101, 1], [0, 1, 1, 101]])


def test_ndrange_tuple_one() -> None:
    x = ti.field(ti.i32, 4)

    @ti.kernel
    def k(n: ti.i32):
        for i in ti.ndrange((1, 3)):
            x[i] = i

    k(4)
    check(x, [0, 1, 2, 0])


def test_ndrange_nested_inner() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for _ in range(1):
            for i, j in ti.ndrange(2, 3):
                s = s * 10 + i + j
        return s

    check(k(), 12123)


def test_for_in_ndrange_single_tuple() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for I in ti.ndrange(2, 3):
            s += I[0] * 10 + I[1]
        return s

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_for_vec() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for a in ti.Vector([1, 2]):
            s += a
        return s

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_two_idx_on_1d() -> None:
    x = ti.field(ti.i32, 3)

    @ti.kernel
    def k():
        for i, j in x:
            x[i] = 1

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_one_idx_on_2d() -> None:
    x = ti.field(ti.i32, (2, 3))

    @ti.kernel
    def k():
        for i in x:
            x[i, 0] = 1

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_loop_config() -> None:
    x = ti.field(ti.i32, 8)

    @ti.kernel
    def k():
        ti.loop_config(block_dim=4)
        for i in x:
            x[i] = i
        ti.loop_config(parallelize=2)
        for i in x:
            x[i] += 1
        ti.loop_config(serialize=True)
        for i in range(1, 8):
            x[i] += x[i - 1]

    k()
    check(x, [1, 3, 6, 10, 15, 21, 28, 36])


def test_loop_config_unknown() -> None:
    x = ti.field(ti.i32, 8)

    @ti.kernel
    def k():
        ti.loop_config(blk=4)
        for i in x:
            x[i] = i

    with pytest.raises(ti.TaichiTypeError):
        k()


def test_a_block_size_leaves_iterations_in_order() -> None:
    """`block_dim` is about speed alone: a loop-carried variable keeps its values."""
    x, y = ti.field(ti.i32, 1000), ti.field(ti.i32, 1000)

    @ti.kernel
    def sums() -> ti.i32:
        s = 0
        ti.loop_config(block_dim=64)
        for i in range(1000):
            y[i] = s
            s = s + x[i]
        return s

    for i in range(1000):
        x[i] = i
    assert sums() == 999 * 1000 // 2
    check(y, [i * (i - 1) // 2 for i in range(1000)])


def test_block_dim_fn() -> None:
    x = ti.field(ti.i32, 8)

    @ti.kernel
    def k():
        ti.block_dim(4)
        for i in x:
            x[i] = i

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_variables_that_loops_at_the_top_assign() -> None:
    """Iterations run in order where each continues from the values of the one before."""

    @ti.kernel
    def fibonacci(n: ti.i32) -> ti.i32:
        a, b = 0, 1
        for _ in range(n):
            a, b = b, a + b
        return a

    @ti.kernel
    def shuffled(seed: ti.u32) -> ti.u32:
        s = seed
        for _ in range(10):
            s = shift(s)
        return s

    @ti.kernel
    def by_reference(n: ti.i32) -> ti.i32:
        s = ti.Vector([1, 2])
        for i in range(n):
            double(s, i)
        return s[0] * 1000 + s[1]

    @ti.kernel
    def greatest(n: ti.i32) -> ti.types.vector(3, ti.i32):
        best, at, is_there = -1, -1, 0
        for i in range(n):
            if i * 37 % 101 > best:
                best = i * 37 % 101
                at = i
        for i in range(n):
            if i * 37 % 101 == 100:
                is_there = 1
        return ti.Vector([best, at, is_there])

    check([fibonacci(n) for n in (0, 1, 10, 40)], [0, 1, 55, 102334155])
    check(shuffled(12345), 2188185676)
    check(by_reference(5), 32034)
    check(greatest(101), [100, 30, 1])


@ti.func
def shift(s):
    s ^= s << 13
    s ^= s >> 17
    s ^= s << 5
    return s


@ti.func
def double(v: ti.template(), i):
    v[0] = v[0] * 2
    v[1] = v[1] * 2 - i % 2 * 3


@pytest.mark.ours("variables-in-order", run=False)
def test_variables_of_many_iterations() -> None:
    @ti.kernel
    def run(n: ti.i32) -> ti.i32:
        h = 17
        for i in range(n):
            h = (h ^ i) * 31 + i
        return h

    h = 17
    for i in range(20000):
        h = ((h ^ i) * 31 + i + 2**31) % 2**32 - 2**31
    check(run(20000), h)


def test_variables_that_iterations_assign_before_they_read_them() -> None:
    x, y = ti.field(ti.f32, 5000), ti.field(ti.f32, 5000)

    @ti.kernel
    def run():
        t = 0.0
        v = ti.Vector([0.0, 0.0])
        for i in x:
            t = i * 2.0
            v = ti.Vector([t, 1.0])
            v[1] = v[1] + t
            for k in range(3):
                t += k
            x[i] = t
            y[i] = v.sum()
        u = 5.0
        x[0] += u

    run()
    check(x, [8.0, *(2.0 * i + 3 for i in range(1, 5000))])
    check(y, [4.0 * i + 1 for i in range(5000)])
