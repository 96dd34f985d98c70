"""Loops: ranges, ndrange, struct-for, nesting, while, break and continue, sizes, sequences."""

import numpy as np
import pytest

import vkchi as ti

RANGES = [(0, 10), (5,), (0,), (1,), (3, 8), (-4, 3), (8, 3), (0, 1), (-7, -2), (100, 133)]


@pytest.mark.parametrize("bounds", RANGES, ids=str)
def test_parallel_range(bounds):
    """Each iteration runs once, whether the bounds are constants, arguments or field values."""
    seen = ti.field(ti.i32, (4, 150))
    ends = ti.field(ti.i32, 2)
    first, last = bounds if len(bounds) == 2 else (0, *bounds)
    ends[0], ends[1] = first, last

    @ti.kernel
    def run(a: ti.i32, b: ti.i32):
        for i in range(first, last):
            seen[0, i + 10] += 1
        for i in range(a, b):
            seen[1, i + 10] += 1
        for i in range(ends[0], ends[1]):
            seen[2, i + 10] += 1
        for i in range(a + 1, b + a - a + 1):
            seen[3, i + 9] += 1

    run(first, last)
    want = np.zeros(150, np.int32)
    want[first + 10 : max(first, last) + 10] = 1
    np.testing.assert_array_equal(seen.to_numpy(), [want] * 4)


@pytest.mark.parametrize("bounds", RANGES, ids=str)
def test_serial_range(bounds):
    out = ti.field(ti.i32, (3, 2))
    first, last = bounds if len(bounds) == 2 else (0, *bounds)

    @ti.kernel
    def run(end: ti.i32):
        for p in range(3):
            digest = 0
            count = 0
            for i in range(first, last):
                digest = digest * 3 + i
                count += 1
            for i in range(end):
                count += 100
            out[p, 0] = digest
            out[p, 1] = count

    run(last)
    digest = 0
    for i in range(first, last):
        digest = (digest * 3 + i) & 0xFFFFFFFF
    count = len(range(first, last)) + 100 * max(last, 0)
    want = np.array([digest, count], np.uint32).view(np.int32)
    np.testing.assert_array_equal(out.to_numpy(), [want] * 3)


@pytest.mark.parametrize("bounds", [(0, 10, 3), (10, 0, -1), (0, 7, 7)], ids=str)
def test_range_with_a_step_is_right_or_raises(bounds):
    """Taichi has no steps outside ti.static."""
    begin, end, step = bounds

    @ti.kernel
    def run() -> ti.i32:
        digest = 0
        for p in range(1):
            for i in range(begin, end, step):
                digest = digest * 3 + i
        return digest

    digest = 0
    for i in range(*bounds):
        digest = digest * 3 + i
    try:
        assert run() == digest
    except ti.TaichiCompilationError as e:
        assert "range" in str(e)


NDRANGES = [
    (5,),
    (3, 4),
    (2, 3, 4),
    ((2, 5), 3),
    ((-1, 2), (1, 4), 2),
    (1, 1),
    (7, (3, 3)),
    (2, 2, 2, 3),
]


@pytest.mark.parametrize("parts", NDRANGES, ids=str)
def test_ndrange(parts):
    spans = [range(*p) if isinstance(p, tuple) else range(p) for p in parts]
    dims = len(parts)
    seen = ti.field(ti.i32, (8,) * dims)
    grouped = ti.field(ti.i32, (8,) * dims)
    serial = ti.field(ti.i32, (8,) * dims)

    @ti.kernel
    def run():
        for I in ti.grouped(ti.ndrange(*parts)):
            grouped[I + 1] += 1
        for p in range(1):
            for I in ti.grouped(ti.ndrange(*parts)):
                serial[I + 1] += 1

    @ti.kernel
    def run_one():
        for i in ti.ndrange(*parts):
            seen[i + 1] += 1

    @ti.kernel
    def run_two():
        for i, j in ti.ndrange(*parts):
            seen[i + 1, j + 1] += 1

    @ti.kernel
    def run_three():
        for i, j, k in ti.ndrange(*parts):
            seen[i + 1, j + 1, k + 1] += 1

    @ti.kernel
    def run_four():
        for i, j, k, l in ti.ndrange(*parts):
            seen[i + 1, j + 1, k + 1, l + 1] += 1

    run()
    [run_one, run_two, run_three, run_four][dims - 1]()
    want = np.zeros((8,) * dims, np.int32)
    want[tuple(slice(s.start + 1, max(s.start, s.stop) + 1) for s in spans)] = 1
    np.testing.assert_array_equal(seen.to_numpy(), want)
    np.testing.assert_array_equal(grouped.to_numpy(), want)
    np.testing.assert_array_equal(serial.to_numpy(), want)


def test_ndrange_with_arguments_and_fields():
    n = ti.field(ti.i32, ())
    seen = ti.field(ti.i32, (6, 7))
    n[None] = 5

    @ti.kernel
    def run(m: ti.i32, x: ti.types.ndarray()):
        for i, j in ti.ndrange(n[None], (1, m)):
            seen[i, j] += 1
        for i, j in ti.ndrange(x.shape[0], x.shape[1]):
            seen[i, j] += 10

    run(7, np.zeros((2, 3), np.float32))
    want = np.zeros((6, 7), np.int32)
    want[:5, 1:7] += 1
    want[:2, :3] += 10
    np.testing.assert_array_equal(seen.to_numpy(), want)


@pytest.mark.parametrize(
    "shape", [(), (1,), (7,), (64,), (129,), (3, 5), (1, 17), (2, 3, 4)], ids=str
)
@pytest.mark.parametrize("kind", ["field", "ndarray"])
def test_struct_for(shape, kind):
    if kind == "field":
        x = ti.field(ti.i32, shape)

        @ti.kernel
        def run():
            for I in ti.grouped(x):
                x[I] += 1

        run()
    else:
        if shape == ():
            pytest.skip("nothing to iterate")
        x = ti.ndarray(ti.i32, shape)

        @ti.kernel
        def run_array(a: ti.types.ndarray()):
            for I in ti.grouped(a):
                a[I] += 1

        run_array(x)
    np.testing.assert_array_equal(x.to_numpy(), np.ones(shape))


def test_struct_for_with_named_indices():
    x, y = ti.field(ti.i32, (4, 6)), ti.Vector.field(2, ti.f32, (2, 3, 4))

    @ti.kernel
    def run(z: ti.types.ndarray(ndim=2)):
        for i, j in x:
            x[i, j] = 10 * i + j
        for i, j, k in y:
            y[i, j, k] = [i + j, k]
        for i, j in z:
            z[i, j] = 100 * i + j

    z = np.zeros((3, 5), np.float32)
    run(z)
    np.testing.assert_array_equal(x.to_numpy(), np.fromfunction(lambda i, j: 10 * i + j, (4, 6)))
    want = np.stack(np.broadcast_arrays(*np.ogrid[0:2, 0:3, 0:4]), 0)
    np.testing.assert_array_equal(y.to_numpy()[..., 0], want[0] + want[1])
    np.testing.assert_array_equal(y.to_numpy()[..., 1], want[2])
    np.testing.assert_array_equal(z, np.fromfunction(lambda i, j: 100 * i + j, (3, 5)))


def test_grouped_indices_are_vectors():
    x = ti.field(ti.f32, (4, 5))
    y = ti.field(ti.i32, (4, 5))

    @ti.kernel
    def run():
        for I in ti.grouped(x):
            x[I] = I[0] * 10 + I.y
        for I in ti.grouped(y):
            left = ti.max(I - ti.Vector([0, 1]), 0)
            y[I] = int(x[left]) + I.sum()

    run()
    i, j = np.mgrid[0:4, 0:5]
    np.testing.assert_array_equal(x.to_numpy(), 10 * i + j)
    np.testing.assert_array_equal(y.to_numpy(), 10 * i + np.maximum(j - 1, 0) + i + j)


def test_nested_loops_are_serial():
    n = 20
    out = ti.field(ti.i32, n)

    @ti.kernel
    def run():
        for i in range(n):
            s = 0
            for j in range(i):
                for k in range(j, i):
                    s = s * 7 + j - k
            out[i] = s

    run()
    want = []
    for i in range(n):
        s = 0
        for j in range(i):
            for k in range(j, i):
                s = (s * 7 + j - k) & 0xFFFFFFFF
        want.append(s)
    np.testing.assert_array_equal(out.to_numpy(), np.array(want, np.uint32).view(np.int32))


def test_while():
    n = 30
    out = ti.field(ti.i32, n)

    @ti.kernel
    def collatz():
        for i in range(n):
            x = i + 1
            steps = 0
            while x != 1:
                if x % 2 == 0:
                    x //= 2
                else:
                    x = 3 * x + 1
                steps += 1
            out[i] = steps

    def steps(x):
        return 0 if x == 1 else 1 + steps(x // 2 if x % 2 == 0 else 3 * x + 1)

    collatz()
    np.testing.assert_array_equal(out.to_numpy(), [steps(i + 1) for i in range(n)])


def test_while_true_with_break_and_continue():
    out = ti.field(ti.i32, (10, 2))

    @ti.kernel
    def run():
        for i in range(10):
            k = 0
            s = 0
            while True:
                k += 1
                if k % 3 == 0:
                    continue
                if k > i:
                    break
                s += k
            out[i, 0] = s
            out[i, 1] = k

    run()
    for i in range(10):
        k = next(k for k in range(i + 1, 20) if k % 3)
        s = sum(q for q in range(1, i + 1) if q % 3)
        assert out.to_numpy()[i].tolist() == [s, k]


def python_break_and_continue(n):
    found = []
    for i in range(n):
        s = 0
        for j in range(10):
            if j == i:
                continue
            if j > 7:
                break
            for k in range(10):
                if (i + j + k) % 5 == 0:
                    break
                if k % 2:
                    continue
                s += k * j
            else_branch = s % 3
            if else_branch == 2:
                s += 100
        found.append(s)
    return found


def test_break_and_continue_in_nested_loops():
    n = 12
    out = ti.field(ti.i32, n)

    @ti.kernel
    def run():
        for i in range(n):
            s = 0
            for j in range(10):
                if j == i:
                    continue
                if j > 7:
                    break
                for k in range(10):
                    if (i + j + k) % 5 == 0:
                        break
                    if k % 2:
                        continue
                    s += k * j
                else_branch = s % 3
                if else_branch == 2:
                    s += 100
            out[i] = s

    run()
    np.testing.assert_array_equal(out.to_numpy(), python_break_and_continue(n))


def test_continue_in_a_parallel_loop():
    x, y = ti.field(ti.i32, 50), ti.field(ti.i32, (5, 5))

    @ti.kernel
    def run():
        for i in x:
            if i % 3 == 0:
                continue
            if i % 5 == 0:
                x[i] = -1
                continue
            x[i] = i
        for i, j in ti.ndrange(5, 5):
            if i == j:
                continue
            y[i, j] = 1

    run()
    want = [0 if i % 3 == 0 else -1 if i % 5 == 0 else i for i in range(50)]
    np.testing.assert_array_equal(x.to_numpy(), want)
    np.testing.assert_array_equal(y.to_numpy(), 1 - np.eye(5))


def test_break_in_nested_ndrange():
    out = ti.field(ti.i32, 6)

    @ti.kernel
    def run():
        for p in range(6):
            s = 0
            for i, j in ti.ndrange(4, 5):
                if i * 5 + j >= p * 3:
                    break
                s += 1
            out[p] = s

    run()
    np.testing.assert_array_equal(out.to_numpy(), np.minimum(np.arange(6) * 3, 20))


# --- compile-time control ----------------------------------------------------------------------


def test_static_loops():
    names = [3, 1, 4, 1, 5]
    out = ti.field(ti.i32, (2, 8))

    @ti.kernel
    def run():
        for i in range(2):
            s = 0
            for k in ti.static(range(5)):
                s += names[k] * 10**k
            out[i, 0] = s
            for v in ti.static(names):
                out[i, 1] += v
            for k, v in ti.static(enumerate(names)):
                out[i, 2] += k * v
            for a, b in ti.static(zip(names, (1, 2, 3))):
                out[i, 3] += a * b
            for a, b in ti.static(ti.ndrange(3, (1, 3))):
                out[i, 4] += a * b
            for I in ti.static(ti.grouped(ti.ndrange(2, 3))):
                out[i, 5] += I[0] * 10 + I[1]
            for k in ti.static(range(6, 0, -2)):
                out[i, 6] = out[i, 6] * 10 + k

    run()
    want = [51413, 14, 1 + 8 + 3 + 20, 3 + 2 + 12, 9, 3 * 10 + 2 * 3, 642, 0]
    np.testing.assert_array_equal(out.to_numpy(), [want, want])


def test_static_break_and_continue():
    @ti.kernel
    def run() -> ti.i32:
        s = 0
        for k in ti.static(range(10)):
            if ti.static(k == 2):
                continue
            if ti.static(k > 5):
                break
            s += k
        return s

    assert run() == 0 + 1 + 3 + 4 + 5


@pytest.mark.parametrize("flag", [True, False])
def test_static_branches(flag):
    """The branch not taken is not even compiled."""

    @ti.kernel
    def run() -> ti.i32:
        r = 0
        if ti.static(flag):
            r = 1
        else:
            r = 2
        if ti.static(not flag):
            r += ti.static(nothing_of_that_name)  # noqa: F821
        return r

    if flag:
        assert run() == 1
    else:
        with pytest.raises(Exception, match="nothing_of_that_name"):
            run()


def test_static_values_from_python():
    def double(v):
        return 2 * v

    @ti.kernel
    def run() -> ti.i32:
        a = ti.static(double(21))
        b = ti.static(len([1, 2, 3]))
        return a + b

    assert run() == 45


def test_static_assert():
    @ti.kernel
    def good():
        ti.static_assert(2 + 2 == 4, "arithmetic")

    @ti.kernel
    def bad():
        ti.static_assert(2 + 2 == 5, "no such arithmetic")

    good()
    with pytest.raises(Exception, match="no such arithmetic"):
        bad()


# --- sequences of loops and serial code --------------------------------------------------------


def test_loops_of_one_kernel_see_each_others_results():
    n = 1000
    x, y, z = (ti.field(ti.i32, n) for _ in range(3))

    @ti.kernel
    def run():
        for i in x:
            x[i] = i
        for i in y:
            y[i] = x[n - 1 - i] + x[(i + 1) % n]
        for i in range(n):
            z[i] = y[i] - y[(i + 500) % n]
        for i in x:
            x[i] = z[(i * 7) % n]

    run()
    a = np.arange(n)
    y1 = a[::-1] + np.roll(a, -1)
    z1 = y1 - np.roll(y1, -500)
    np.testing.assert_array_equal(y.to_numpy(), y1)
    np.testing.assert_array_equal(z.to_numpy(), z1)
    np.testing.assert_array_equal(x.to_numpy(), z1[(a * 7) % n])


@pytest.mark.parametrize("t", ["i32", "f32"])
def test_accumulator_of_a_kernel(t):
    dtype = getattr(ti, t)
    n = 4321
    values = np.random.default_rng(1).integers(-50, 50, n).astype(np.int32)
    x = ti.field(dtype, n)
    x.from_numpy(values)

    @ti.kernel
    def total() -> dtype:
        s = ti.cast(0, dtype)
        for i in x:
            s += x[i]
        return s

    @ti.kernel
    def extremes() -> dtype:
        low = ti.cast(1000, dtype)
        high = ti.cast(-1000, dtype)
        for i in x:
            ti.atomic_min(low, x[i])
            ti.atomic_max(high, x[i])
        return high * 1000 - low

    assert total() == values.sum()
    assert total() == values.sum()
    assert extremes() == int(values.max()) * 1000 - int(values.min())


def test_several_accumulators_and_reuse_between_loops():
    n = 777

    @ti.kernel
    def run(out: ti.types.ndarray()):
        count = 0
        total = 0.0
        for i in range(n):
            if i % 2 == 0:
                count += 1
                total += i * 0.5
        mean = total / count
        above = 0
        for i in range(n):
            if i % 2 == 0 and i * 0.5 > mean:
                above += 1
        out[0] = count
        out[1] = total
        out[2] = mean
        out[3] = above

    out = np.zeros(4, np.float32)
    run(out)
    v = np.arange(0, n, 2) * 0.5
    np.testing.assert_allclose(out, [len(v), v.sum(), v.mean(), (v > v.mean()).sum()], rtol=1e-5)


def test_serial_code_between_loops():
    x, s = ti.field(ti.i32, 100), ti.field(ti.i32, ())

    @ti.kernel
    def run(k: ti.i32) -> ti.i32:
        s[None] = k
        for i in x:
            x[i] = s[None] + i
        s[None] += x[99] + x[0]
        y = s[None] * 2
        for i in x:
            x[i] += y
        x[5] = -1
        return x[5] + x[6]

    assert run(10) == -1 + 16 + 2 * (10 + 109 + 10)
    a = np.arange(100) + 10 + 258
    a[5] = -1
    np.testing.assert_array_equal(x.to_numpy(), a)
    assert s[None] == 129


def test_loops_under_if_and_in_loops_are_serial():
    x = ti.field(ti.i32, 10)

    @ti.kernel
    def run(flag: ti.i32):
        if flag:
            for i in range(1, 10):
                x[i] = x[i - 1] + 1
        else:
            for i in range(10):
                x[9 - i] = i

    run(1)
    np.testing.assert_array_equal(x.to_numpy(), np.arange(10))
    run(0)
    np.testing.assert_array_equal(x.to_numpy(), np.arange(10)[::-1])


def test_kernel_without_loops():
    x = ti.field(ti.i32, 4)

    @ti.kernel
    def run(a: ti.i32):
        x[0] = a
        x[1] = x[0] + 1
        x[2] = x[1] * x[1]
        x[3] = x[2] // 2

    run(4)
    np.testing.assert_array_equal(x.to_numpy(), [4, 5, 25, 12])


def test_empty_kernel():
    @ti.kernel
    def nothing():
        pass

    assert nothing() is None


def test_bounds_that_one_loop_computes_for_the_next():
    n, x = ti.field(ti.i32, ()), ti.field(ti.i32, 64)

    @ti.kernel
    def run():
        for i in range(40):
            if i % 4 == 0:
                n[None] += 1
        for i in range(n[None]):
            x[i] = 1
        m = n[None] * 2
        for i in range(n[None], m):
            x[i] = 2

    run()
    np.testing.assert_array_equal(x.to_numpy(), [1] * 10 + [2] * 10 + [0] * 44)


# --- sizes and configuration -------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 127, 128, 129, 255, 257, 1023, 1025, 100003])
def test_odd_sizes(n):
    x = ti.field(ti.i32, n)

    @ti.kernel
    def run() -> ti.i32:
        total = 0
        for i in x:
            x[i] = i * 3 + 1
            total += 1
        return total

    assert run() == n
    np.testing.assert_array_equal(x.to_numpy(), np.arange(n) * 3 + 1)


def test_more_groups_than_one_dimension_has():
    """65535 groups of 128 is the least that devices offer in x."""
    n = 2**24 + 5
    x = ti.field(ti.i32, n)

    @ti.kernel
    def run(m: ti.i32):
        for i in range(m):
            x[i] += i ^ 0x155

    @ti.kernel
    def again():
        for i in x:
            x[i] += 1

    run(n)
    again()
    assert (x.to_numpy() == (np.arange(n, dtype=np.int32) ^ 0x155) + 1).all()


@pytest.mark.parametrize("block", [1, 8, 32, 64, 100, 128])
def test_block_dim(block):
    n = 1000
    x = ti.field(ti.i32, n)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=block)
        for i in range(n):
            x[i] = 2 * i

    run()
    np.testing.assert_array_equal(x.to_numpy(), 2 * np.arange(n))


def test_serialize():
    n = 200
    x = ti.field(ti.i32, n)

    @ti.kernel
    def run():
        ti.loop_config(serialize=True)
        for i in range(1, n):
            x[i] = x[i - 1] + i
        for i in range(n):
            x[i] *= 2

    run()
    np.testing.assert_array_equal(x.to_numpy(), 2 * np.cumsum(np.arange(n)))


def test_serialized_loop_can_break():
    @ti.kernel
    def first_above(x: ti.types.ndarray(), v: ti.f32) -> ti.i32:
        found = -1
        ti.loop_config(serialize=True)
        for i in range(x.shape[0]):
            if x[i] > v:
                found = i
                break
        return found

    x = np.array([1, 5, 3, 9, 2], np.float32)
    assert [first_above(x, v) for v in (0.0, 4.0, 8.0, 10.0)] == [0, 1, 3, -1]


def test_loop_variables_of_several_loops():
    x = ti.field(ti.i32, (3, 4))

    @ti.kernel
    def run():
        for i in range(3):
            for j in range(4):
                x[i, j] = i
        for j in range(4):
            for i in range(3):
                x[i, j] += 10 * j

    run()
    np.testing.assert_array_equal(x.to_numpy(), np.fromfunction(lambda i, j: i + 10 * j, (3, 4)))


def test_empty_ranges():
    x = ti.field(ti.i32, 4)

    @ti.kernel
    def run(n: ti.i32) -> ti.i32:
        s = 5
        for i in range(n):
            x[i] = 1
            s += 1
        for i, j in ti.ndrange(n, 3):
            s += 1
        for i in range(3, n):
            s += 1
        return s

    assert run(0) == 5
    assert run(-3) == 5
    assert not x.to_numpy().any()
    assert run(2) == 5 + 2 + 6


IS_CHAIN = True


def test_only_static_conditions_keep_loops_parallel():
    """Under any other `if` a loop is serial, as in Taichi, also where the condition is known."""
    x = ti.field(ti.f32, 5000)

    @ti.kernel
    def run(most: ti.template()):
        if IS_CHAIN:
            for i in range(1, 5000):
                x[i] = x[i - 1] + 1
                if i > most:
                    break
        if ti.static(IS_CHAIN):
            for i in range(5000):
                x[i] += 1

    run(4000)
    np.testing.assert_array_equal(x.to_numpy()[[1, 3000, 4002]], [2, 3001, 1])


def test_lanes_share_serial_code():
    """Inner loops of serial code have the results of a single invocation, in its order: rows that
    read the row before them, writes before and behind, a branch that numbers decide."""
    n = 100
    a, b, x = ti.field(ti.i32, (n, n)), ti.field(ti.i32, (n, n)), ti.field(ti.i32, n)
    rng = np.random.default_rng(1)
    start, want = rng.integers(0, 9, (n, n), np.int32), np.zeros(n, np.int32)
    a.from_numpy(start)

    @ti.kernel
    def run(begin: ti.i32):
        ti.loop_config(serialize=True)
        for j in range(begin, n):
            s = a[j, j]
            for k in range(j):
                s += b[j, k]
            x[j] = s
            if s % 2 == 0:
                for i in range(n):
                    a[j, i] += x[j] + i
                x[j] += a[j, 7]
            else:
                x[0] += 1
            for i in range(j + 1, n):
                t = a[i, j]
                for k in range(3):
                    t += a[j, k] * (x[j] % 10)
                b[i, j] = t % 1000

    run(1)
    found, under = start.astype(np.int64), np.zeros((n, n), np.int64)
    for j in range(1, n):
        s = found[j, j] + under[j, :j].sum()
        want[j] = s
        if s % 2 == 0:
            found[j] += s + np.arange(n)
            want[j] += found[j, 7]
        else:
            want[0] += 1
        under[j + 1 :, j] = (found[j + 1 :, j] + found[j, :3].sum() * (want[j] % 10)) % 1000
    np.testing.assert_array_equal(x.to_numpy(), want)
    np.testing.assert_array_equal(a.to_numpy(), found)
    np.testing.assert_array_equal(b.to_numpy(), under)


def test_loops_that_read_their_reductions_run_in_order() -> None:
    x = ti.field(ti.i32, 1000)

    @ti.kernel
    def scan() -> ti.i32:
        s = 0
        for i in range(1000):
            s += i
            x[i] = s
        return s

    assert scan() == 499500
    assert (x.to_numpy() == np.cumsum(np.arange(1000))).all()

    @ti.kernel
    def grow() -> ti.i32:
        s = 1
        for i in range(15):
            s += s * 2 + i
        return s

    want = 1
    for i in range(15):
        want += want * 2 + i
    assert grow() == want


def test_loops_that_read_components_they_add_up_run_in_order() -> None:
    x = ti.field(ti.i32, 100)

    @ti.kernel
    def pairs(n: ti.i32) -> ti.i32:
        v = ti.Vector([0, 1])
        for i in range(n):
            v[0] += v[1]
            v[1] += i
            x[i] = v[0]
        return v[0] + v[1]

    a, b, want = 0, 1, []
    for i in range(100):
        a += b
        b += i
        want.append(a)
    assert pairs(100) == a + b
    assert x.to_numpy().tolist() == want


def test_an_attribute_called_block_is_no_workgroup() -> None:
    @ti.data_oriented
    class Hash:
        def __init__(self) -> None:
            self.block = 16

        @ti.kernel
        def value(self) -> ti.i32:
            h = 7
            for i in range(1000):
                h = (h * 31 + self.block + i) % 65521
            return h

    want = 7
    for i in range(1000):
        want = (want * 31 + 16 + i) % 65521
    assert Hash().value() == want
