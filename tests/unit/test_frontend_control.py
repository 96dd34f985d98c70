"""Branches and loops: executed code, its order, and skipped code."""

import numpy as np
import pytest

import vkchi as ti
from tests.unit.kernels import Field, Func, define, lower, run
from vkchi.ir.core import walk


def kinds(fn, *args):
    """The op kinds of a lowered kernel."""
    return [op.kind for op in walk(lower(fn, *args).func.body)]


# --- conditions ----------------------------------------------------------------------------------


def test_a_guarded_read_does_not_happen():
    x = Field(np.arange(4, dtype=np.float32))
    y = Field(np.zeros(6, np.float32))

    def k():
        for i in y:
            y[i] = x[i] if i < 4 else -1.0
            if i < 4 and x[i] > 1.5:
                y[i] += 10
            if i >= 4 or x[i] < 1:
                y[i] += 100
            if 0 <= i < 4 < 5:
                y[i] += 1000

    run(k)
    assert y.data.tolist() == [1100, 1001, 1012, 1013, 99, 99]
    body = kinds(k)
    assert body.count("select") == 0 and body.count("if") == 6


def test_cheap_conditions_are_selects():
    def k(a: ti.i32, b: ti.i32) -> ti.i32:
        c = a + 1 if a > 0 and b > 0 else b * 2
        return c

    assert run(k, 1, 1) == 2 and run(k, -1, 7) == 14
    assert "if" not in kinds(k, 1, 1) and "select" in kinds(k, 1, 1)


@pytest.mark.parametrize(
    "text", ["a and b", "a or b", "not a", "a < b < 3", "1 if a else b", "a == 1 or b == 2 and a"]
)
def test_conditions_agree_with_python(text):
    k = define(f"def k(a: ti.i32, b: ti.i32) -> ti.i32:\n    return int({text})\n")
    for a in (0, 1, 2):
        for b in (0, 1, 2):
            want = eval(text, {"a": a, "b": b})
            assert bool(run(k, a, b)) == bool(want), (a, b)


def test_branches_on_python_values_are_taken_at_compile_time():
    flag, other = True, None

    def k(x: ti.i32) -> ti.i32:
        y = x if flag else undefined_name  # noqa: F821
        if flag and other is None:
            y += 1
        elif x > 3:
            y = undefined_name  # noqa: F821
        else:
            y = undefined_name  # noqa: F821
        while not flag:
            y = undefined_name  # noqa: F821
        return y

    assert run(k, 5) == 6
    assert not {"if", "while", "select"} & set(kinds(k, 5))


def test_branches_of_different_types_meet_in_the_common_one():
    def k(c: ti.i32) -> ti.f32:
        return 1 if c > 0 else 2.5

    assert run(k, 1) == 1.0 and run(k, 0) == 2.5


def test_ternaries_of_tuples_and_vectors():
    x = Field(np.ones(1, np.float32))

    def k(c: ti.i32) -> ti.f32:
        a, b = (x[0], 2.0) if c > 0 else (3.0, x[0] + 3)
        v = ti.Vector([x[0], 1.0]) if c > 0 else 5.0
        return a * 100 + b * 10 + v.y

    assert run(k, 1) == 121 and run(k, 0) == 345


def test_vector_conditions_select_components():
    def k() -> ti.types.vector(2, ti.i32):
        v = ti.Vector([1, -1])
        return 7 if v > 0 else v

    np.testing.assert_array_equal(run(k), [7, -1])


# --- branches ------------------------------------------------------------------------------------


def test_branches_change_variables_lists_and_components():
    def k(c: ti.i32) -> ti.i32:
        a, w, v = 1, [10, 20], ti.Vector([100, 200])
        if c == 0:
            a = 2
            w[1] += 1
        elif c == 1:
            v.y = 300
        else:
            v = ti.Vector([0, 0])
            if c > 5:
                w[0] = 0
        return a + w[0] + w[1] + v.x + v.y

    assert [run(k, c) for c in (0, 1, 3, 9)] == [333, 431, 31, 21]


def test_only_changed_variables_are_results():
    def k(c: ti.i32) -> ti.i32:
        a, b = 1, 2
        if c > 0:
            a = 3
        return a + b

    op = next(op for op in walk(lower(k, 1).func.body) if op.kind == "if")
    assert [r.name for r in op.results] == ["a"]


# --- break, continue, return -------------------------------------------------------------------


def test_break_leaves_the_inner_loop():
    def k(n: ti.i32) -> ti.i32:
        total = 0
        ti.loop_config(serialize=True)
        for i in range(n):
            if i == 7:
                break
            for j in range(i):
                if j * j > i:
                    break
                if j % 2 == 1:
                    continue
                total += 10 * i + j
        return total

    def want(n):
        total = 0
        for i in range(n):
            if i == 7:
                break
            for j in range(i):
                if j * j > i:
                    break
                if j % 2 == 1:
                    continue
                total += 10 * i + j
        return total

    assert [run(k, n) for n in (0, 3, 20)] == [want(n) for n in (0, 3, 20)]


def test_break_out_of_several_axes():
    x = Field(np.zeros((3, 4), np.int32))

    def k(limit: ti.i32):
        ti.loop_config(serialize=True)
        for i, j in ti.ndrange(3, (1, 5)):
            if i * 10 + j > limit:
                break
            x[i, j - 1] = i * 10 + j

    run(k, 12)
    assert x.data.tolist() == [[1, 2, 3, 4], [11, 12, 0, 0], [0, 0, 0, 0]]


def test_while_true_with_break_and_continue():
    def k(n: ti.i32) -> ti.i32:
        a, steps = n, 0
        while True:
            if a == 1:
                break
            steps += 1
            if a % 2 == 0:
                a //= 2
                continue
            a = 3 * a + 1
        return steps

    assert run(k, 27) == 111


def test_the_condition_is_not_computed_after_a_break():
    x = Field(np.arange(4, dtype=np.int32))
    reads = Field(np.zeros((), np.int32))

    @Func
    def read(i):
        reads[None] += 1
        return x[i]

    def k() -> ti.i32:
        i = 0
        while read(i) < 100:
            if i == 3:
                break
            i += 1
        return i

    assert run(k) == 3 and reads.data == 4


def test_early_returns():
    @Func
    def f(x, n):
        if x < 0:
            return -1.0
        for i in range(n):
            for j in range(n):
                if i * j == x:
                    return i + 0.5
            if i > 5:
                return 100.0
        while x > 3:
            x -= 1
            if x == 5:
                return 55.0
        return 0.0

    out = Field(np.zeros(10, np.float32))

    def k(n: ti.i32):
        for i in out:
            out[i] = f(i - 1, n)

    run(k, 4)
    want = [-1.0, 0.5, 1.5, 1.5, 1.5, 2.5, 0.0, 2.5, 55.0, 55.0]
    assert out.data.tolist() == want


def test_returns_of_different_types():
    @Func
    def f(x):
        if x > 10:
            return 1
        return x * 0.5

    def k(x: ti.i32) -> ti.f32:
        return f(x)

    assert run(k, 20) == 1.0 and run(k, 3) == 1.5


def test_returns_of_tuples_in_loops():
    @Func
    def find(value):
        for i, j in ti.ndrange(4, 4):
            if i * 4 + j == value:
                return i, ti.Vector([j, 7])
        return -1, ti.Vector([0, 0])

    def k(value: ti.i32) -> ti.i32:
        i, v = find(value)
        return i * 100 + v.x * 10 + v.y

    assert run(k, 9) == 217 and run(k, 99) == -100


def test_functions_without_a_value_return_early():
    x = Field(np.zeros(4, np.int32))

    @Func
    def put(i):
        if i == 2:
            return
        x[i] = i + 1

    def k():
        for i in range(4):
            put(i)

    run(k)
    assert x.data.tolist() == [1, 2, 0, 4]


def test_static_loops_with_break_and_continue():
    def k(n: ti.i32) -> ti.i32:
        total = 0
        for i in ti.static(range(10)):
            if ti.static(i == 1):
                continue
            if ti.static(i == 6):
                break
            if i == n:
                continue
            if i > n + 2:
                break
            total = total * 10 + i
        return total

    assert run(k, 2) == 34 and run(k, 20) == 2345


# --- loops ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [(2, 9, 2), (9, 2, -3), (-4, 0, 1), (3, 3, 5)])
@pytest.mark.parametrize("text", ["b, e", "b, e, 3", "e, b, -2", "b, e, s", "e"])
def test_serial_ranges(text, bounds):
    k = define(
        "def k(b: ti.i32, e: ti.i32, s: ti.i32, x: ti.types.ndarray()):\n"
        "    at = 0\n"
        "    ti.loop_config(serialize=True)\n"
        f"    for i in range({text}):\n"
        "        x[at] = i\n"
        "        at += 1\n"
    )
    x = np.full(32, 99, np.int32)
    run(k, *bounds, x)
    want = list(eval(f"range({text})", dict(zip("bes", bounds))))
    assert x[x != 99].tolist() == want


def test_parallel_ranges():
    x = Field(np.zeros(30, np.int32))

    def k(begin: ti.i32, n: ti.i32):
        for i in range(n):
            x[i] += 1
        for i in range(begin, n):
            x[i] += 10
        for i in range(begin, n, 3):
            x[i] += 100
        for i in range(29, 20, -4):
            x[i] += 1000

    run(k, 5, 12)
    want = np.zeros(30, np.int32)
    want[:12] += 1
    want[5:12] += 10
    want[5:12:3] += 100
    want[29:20:-4] += 1000
    np.testing.assert_array_equal(x.data, want)


def test_ndranges():
    x = Field(np.zeros((4, 5, 3), np.int32))

    def k(n: ti.i32, y: ti.types.ndarray()):
        for i, j, l in ti.ndrange(4, (1, n), (n - 4, 3)):
            x[i, j, l] = 100 * i + 10 * j + l
        for i, j in ti.ndrange(y.shape[0], y.shape[1]):
            y[i, j] = 10 * i + j
        for i, j in ti.ndrange((5, 3), (5, 3)):
            y[0, 0] = -1

    y = np.zeros((2, 7), np.int32)
    run(k, 5, y)
    want = np.zeros((4, 5, 3), np.int32)
    for i, j, l in np.ndindex(4, 4, 2):
        want[i, j + 1, l + 1] = 100 * i + 10 * (j + 1) + l + 1
    np.testing.assert_array_equal(x.data, want)
    np.testing.assert_array_equal(y, np.fromfunction(lambda i, j: 10 * i + j, (2, 7)))


def test_arrays_as_loops():
    x = Field(np.zeros((2, 3), np.int32))
    shifted = Field(np.zeros((4,), np.int32), offset=(-2,))
    zero = Field(np.zeros((), np.int32))

    def k(y: ti.types.ndarray(), total: ti.types.ndarray()):
        for i, j in x:
            x[i, j] = 10 * i + j
        for I in ti.grouped(y):
            y[I] = I[0] * 100 + I.y
        for i in shifted:
            total[i + 2] = i
        for I in ti.grouped(zero):
            zero[I] += 1
        for i in range(1):
            for I in ti.grouped(x):
                x[I] += 1
                for j, l in y:
                    total[3] += 1

    y, total = np.zeros((3, 2), np.int32), np.zeros(4, np.int32)
    run(k, y, total)
    assert x.data.tolist() == [[1, 2, 3], [11, 12, 13]]
    assert y.tolist() == [[0, 1], [100, 101], [200, 201]]
    assert total.tolist() == [-2, -1, 0, 1 + 36]
    assert zero.data == 1


def test_only_top_level_loops_are_parallel():
    x = Field(np.zeros(8, np.int32))

    @Func
    def inner():
        for i in range(8):
            x[i] += 1

    def k(c: ti.i32):
        inner()
        for i in x:
            x[i] += 1
        if ti.static(True):
            for i in x:
                x[i] += 1
        for _ in ti.static(range(2)):
            for i in x:
                x[i] += 1
        if c > 0:
            for i in x:
                x[i] += 1
        while x[0] < 6:
            for i in x:
                x[i] += 1
        ti.loop_config(serialize=True)
        for i in x:
            x[i] += 1

    assert kinds(k, 1).count("parallel") == 5
    run(k, 1)
    assert x.data.tolist() == [7] * 8


def test_loop_config_is_for_the_next_loop():
    x = Field(np.zeros(8, np.int32))

    def k():
        ti.loop_config(block_dim=64)
        for i in x:
            x[i] += 1
        for i in x:
            x[i] += 1

    loops = [op for op in lower(k).func.body.ops if op.kind == "parallel"]
    assert [op.attr for op in loops] == [64, None]


def test_static_loops():
    x = Field(np.zeros(12, np.int32))

    def k():
        at = 0
        for i, j in ti.static(ti.ndrange(2, (1, 3))):
            x[at] = 10 * i + j
            at += 1
        for k, (a, b) in ti.static(enumerate(zip([1, 2], (3, 4)))):
            x[4 + k] = 10 * a + b
        for I in ti.static(ti.grouped(ti.ndrange(2, 2))):
            x[6 + I[0] * 2 + I.y] = (I * 10)[0] + I[1]
        for v in ti.static([x[0], x[1]]):
            x[10] += v

    run(k)
    assert x.data.tolist() == [1, 2, 11, 12, 13, 24, 0, 1, 10, 11, 3, 0]


def test_comprehensions():
    x = Field(np.arange(6, dtype=np.float32))

    def k() -> ti.f32:
        w = [x[i] * 2 for i in range(4) if i != 1]
        m = ti.Matrix([[i * 10.0 + j for j in range(2)] for i in ti.static(range(2))])
        return sum(w) + m[1, 1] * 100

    assert run(k) == 10 + 1100


def test_loops_count_in_64_bits_where_bounds_do():
    def k(n: ti.i64) -> ti.i64:
        total = ti.i64(0)
        ti.loop_config(serialize=True)
        for i in range(n, n + 3):
            total += i
        return total

    assert run(k, 1 << 40) == 3 * (1 << 40) + 3


def test_assignment_in_expressions():
    def k(x: ti.i32) -> ti.i32:
        a = 0
        b = (c := x * 2) + (a := a + 1)
        y = (a := 100) if x > 5 else 0
        return a * 1000 + b * 10 + c + y

    assert run(k, 3) == 1076 and run(k, 6) == 100000 + 130 + 12 + 100


def test_chains_of_vectors_are_componentwise():
    def k(low: ti.f32) -> ti.types.vector(3, ti.i32):
        v = ti.Vector([0.0, 1.0, 2.0])
        return ti.cast(low < v < 1.5, ti.i32)

    np.testing.assert_array_equal(run(k, 0.5), [0, 1, 0])
