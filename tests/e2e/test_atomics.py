"""Atomic operations: results under contention, old values, every type and every spelling."""

import numpy as np
import pytest

import vkchi as ti

NP = {"i32": np.int32, "u32": np.uint32, "f32": np.float32, "i64": np.int64, "u64": np.uint64,
      "f64": np.float64}  # fmt: skip
N = 3000
BINS = 7


def draw(t):
    rng = np.random.default_rng(5)
    if t[0] == "f":
        return (rng.integers(-64, 64, N) / 4).astype(NP[t])  # sums of these are exact
    return rng.integers(0 if t[0] == "u" else -1000, 1000, N).astype(NP[t])


@pytest.mark.parametrize("t", NP)
@pytest.mark.parametrize("op", ["add", "sub", "min", "max", "call_add", "call_sub"])
def test_arithmetic_atomics(op, t, need):
    need(t)
    values = draw(t)
    start = np.array([3, 0, 500, 1, 2, 100, 7]).astype(NP[t])
    source, bins = ti.field(getattr(ti, t), N), ti.field(getattr(ti, t), BINS)
    source.from_numpy(values)
    bins.from_numpy(start)

    @ti.kernel
    def run():
        for i in source:
            k = i % BINS
            if ti.static(op == "add"):
                bins[k] += source[i]
            elif ti.static(op == "sub"):
                bins[k] -= source[i]
            elif ti.static(op == "call_add"):
                ti.atomic_add(bins[k], source[i])
            elif ti.static(op == "call_sub"):
                ti.atomic_sub(bins[k], source[i])
            elif ti.static(op == "min"):
                ti.atomic_min(bins[k], source[i])
            else:
                ti.atomic_max(bins[k], source[i])

    run()
    ufunc = {"add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum}[op[-3:]]
    want = start.copy()
    with np.errstate(over="ignore"):
        ufunc.at(want, np.arange(N) % BINS, values)
    np.testing.assert_array_equal(bins.to_numpy(), want)


@pytest.mark.parametrize("t", ["i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("op", ["and", "or", "xor", "call_and", "call_or", "call_xor"])
def test_bitwise_atomics(op, t, need):
    need(t)
    values = np.random.default_rng(6).integers(0, 2**31, N).astype(NP[t])
    if "xor" not in op:
        wide = np.full(N, 0x7FFFFFFF, NP[t])
        single = (1 << np.random.default_rng(6).integers(0, 31, N)).astype(NP[t])
        values = wide ^ single if "and" in op else single
        values[40:] = values[40]
    start = np.full(BINS, 0x7FFFFFFF if "and" in op else 0, NP[t])
    source, bins = ti.field(getattr(ti, t), N), ti.field(getattr(ti, t), BINS)
    source.from_numpy(values)
    bins.from_numpy(start)

    @ti.kernel
    def run():
        for i in source:
            k = i % BINS
            if ti.static(op == "and"):
                bins[k] &= source[i]
            elif ti.static(op == "or"):
                bins[k] |= source[i]
            elif ti.static(op == "xor"):
                bins[k] ^= source[i]
            elif ti.static(op == "call_and"):
                ti.atomic_and(bins[k], source[i])
            elif ti.static(op == "call_or"):
                ti.atomic_or(bins[k], source[i])
            else:
                ti.atomic_xor(bins[k], source[i])

    run()
    ufunc = {"and": np.bitwise_and, "xor": np.bitwise_xor}.get(op[-3:], np.bitwise_or)
    ufunc.at(start, np.arange(N) % BINS, values)
    np.testing.assert_array_equal(bins.to_numpy(), start)


@pytest.mark.parametrize("t", NP)
def test_old_values_are_tickets(t, need):
    need(t)
    n = 1000
    counter, tickets = ti.field(getattr(ti, t), ()), ti.field(ti.i32, n)

    @ti.kernel
    def run():
        for i in range(n):
            old = ti.atomic_add(counter[None], 1)
            tickets[i] = ti.cast(old, ti.i32)

    run()
    assert counter[None] == n
    np.testing.assert_array_equal(np.sort(tickets.to_numpy()), np.arange(n))


@pytest.mark.parametrize("op", ["sub", "min", "max", "and", "or", "xor", "mul"])
def test_old_value(op):
    x, old = ti.field(ti.i32, ()), ti.field(ti.i32, ())
    x[None] = 12

    @ti.kernel
    def run():
        if ti.static(op == "sub"):
            old[None] = ti.atomic_sub(x[None], 5)
        elif ti.static(op == "min"):
            old[None] = ti.atomic_min(x[None], 5)
        elif ti.static(op == "max"):
            old[None] = ti.atomic_max(x[None], 50)
        elif ti.static(op == "and"):
            old[None] = ti.atomic_and(x[None], 6)
        elif ti.static(op == "or"):
            old[None] = ti.atomic_or(x[None], 6)
        elif ti.static(op == "xor"):
            old[None] = ti.atomic_xor(x[None], 6)
        else:
            old[None] = ti.atomic_mul(x[None], 6)

    run()
    want = {"sub": 7, "min": 5, "max": 50, "and": 4, "or": 14, "xor": 10, "mul": 72}
    assert (old[None], x[None]) == (12, want[op])


@pytest.mark.parametrize("t", ["f32", "i32", "f64"])
def test_atomic_mul(t, need):
    need(t)
    x = ti.field(getattr(ti, t), 2)
    x.fill(1)

    @ti.kernel
    def run():
        for i in range(20):
            ti.atomic_mul(x[i % 2], 2)

    run()
    np.testing.assert_array_equal(x.to_numpy(), [1024, 1024])


def test_float_extremes_with_negative_values():
    values = np.random.default_rng(1).normal(0, 1, N).astype(np.float32)
    source, low, high = ti.field(ti.f32, N), ti.field(ti.f32, ()), ti.field(ti.f32, ())
    source.from_numpy(values)
    low[None], high[None] = 1e30, -1e30

    @ti.kernel
    def run():
        for i in source:
            ti.atomic_min(low[None], source[i])
            ti.atomic_max(high[None], source[i])

    run()
    assert (low[None], high[None]) == (values.min(), values.max())


@pytest.mark.parametrize("t", ["i32", "f32", "u32", "f64", "i64"])
def test_on_ndarrays(t, need):
    need(t)
    values = draw(t)
    source, total = ti.ndarray(getattr(ti, t), N), ti.ndarray(getattr(ti, t), BINS)
    source.from_numpy(values)

    @ti.kernel
    def run(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i % BINS] += x[i]

    run(source, total)
    want = np.zeros(BINS, NP[t])
    np.add.at(want, np.arange(N) % BINS, values)
    np.testing.assert_array_equal(total.to_numpy(), want)


def test_on_vector_and_matrix_elements():
    v, m = ti.Vector.field(3, ti.f32, 2), ti.Matrix.field(2, 2, ti.i32, ())
    u = ti.Vector.field(2, ti.i32, 2)

    @ti.kernel
    def run():
        for i in range(600):
            v[i % 2] += ti.Vector([1.0, 0.5, i % 3])
            v[i % 2].y -= 0.25
            v[i % 2][2] += 1.0
            m[None][0, 1] += 2
            m[None] -= ti.Matrix([[1, 0], [0, 1]])
            ti.atomic_max(u[i % 2][0], i)
            ti.atomic_add(u[0], ti.Vector([0, 1]))

    run()
    third = [sum(i % 3 for i in range(600) if i % 2 == p) for p in (0, 1)]
    np.testing.assert_array_equal(
        v.to_numpy(), [[300, 75, third[0] + 300], [300, 75, third[1] + 300]]
    )
    np.testing.assert_array_equal(m.to_numpy(), [[-600, 1200], [0, -600]])
    np.testing.assert_array_equal(u.to_numpy(), [[598, 600], [599, 0]])


def test_in_functions_by_reference_to_a_field():
    x = ti.field(ti.f32, 4)

    @ti.func
    def deposit(target: ti.template(), i, v):
        target[i] += v
        ti.atomic_add(target[i + 1], 2 * v)

    @ti.kernel
    def run():
        for i in range(300):
            deposit(x, i % 3, 1.0)

    run()
    np.testing.assert_array_equal(x.to_numpy(), [100, 300, 300, 200])


def test_value_is_cast_to_the_type_of_the_element():
    x, y = ti.field(ti.i32, ()), ti.field(ti.f32, ())

    @ti.kernel
    def run():
        for i in range(10):
            x[None] += 1.75
            y[None] += 2

    run()
    assert (x[None], y[None]) == (10, 20)


def test_increment_returns_no_value_but_works_in_any_branch():
    x = ti.field(ti.i32, 4)

    @ti.kernel
    def run():
        for i in range(100):
            if i % 2:
                x[0] += 1
            elif i % 4 == 0:
                x[1] += i
            else:
                for j in range(3):
                    x[2] += j
            while x[3] < -5:
                x[3] += 1

    run()
    np.testing.assert_array_equal(x.to_numpy(), [50, sum(range(0, 100, 4)), 75, 0])


def test_local_variables_are_not_atomic_across_invocations():
    out = ti.field(ti.i32, 100)

    @ti.kernel
    def run():
        for i in range(100):
            s = 0
            for j in range(i):
                s += j
            old = ti.atomic_add(s, 1000)
            out[i] = s - old + old * 2

    run()
    k = np.arange(100)
    np.testing.assert_array_equal(out.to_numpy(), 1000 + 2 * (k * (k - 1) // 2))


def test_compaction():
    """Each survivor takes a distinct place."""
    n = 2000
    values = np.random.default_rng(9).integers(0, 100, n).astype(np.int32)
    x, out, length = ti.field(ti.i32, n), ti.field(ti.i32, n), ti.field(ti.i32, ())
    x.from_numpy(values)

    @ti.kernel
    def run():
        for i in x:
            if x[i] >= 50:
                out[ti.atomic_add(length[None], 1)] = x[i]

    run()
    kept = values[values >= 50]
    assert length[None] == len(kept)
    np.testing.assert_array_equal(np.sort(out.to_numpy()[: len(kept)]), np.sort(kept))
    assert not out.to_numpy()[len(kept) :].any()


@pytest.mark.parametrize("t", [ti.i32, ti.u32], ids=str)
def test_integer_extremes_by_constants_in_loops(t):
    """SwiftShader's own instruction gives 0 here (Caps.integer_extremes)."""
    x, most = ti.field(ti.f32, 4), ti.field(ti.f32, ())
    high, low, large = ti.field(t, ()), ti.field(t, ()), ti.field(t, 4)
    x.from_numpy(np.array([1, 2, 3, -4], np.float32))
    low[None] = 9

    @ti.kernel
    def run():
        ti.loop_config(serialize=True)
        for i in range(4):
            ti.atomic_max(high[None], 1)
            ti.atomic_min(low[None], 7)
            large[i] = ti.max(large[i], 3)
            ti.atomic_max(most[None], x[i] * x[i])

    run()
    assert (high[None], low[None], most[None]) == (1, 7, 16)
    assert list(large.to_numpy()) == [3] * 4


@pytest.mark.parametrize("op", ["min", "max"])
def test_extremes_leave_nan_where_nothing_is_written(op):
    nan, n = np.float32(np.nan), 4096
    number, vector = ti.field(ti.f32, 3), ti.Vector.field(2, ti.f32, 3)
    source = ti.field(ti.i32, n)  # zeros: the last places are nobody's
    number.fill(nan)
    vector.fill(nan)
    extreme = ti.atomic_min if op == "min" else ti.atomic_max

    @ti.kernel
    def by_data():
        for i in source:
            extreme(number[source[i]], 2.0)
            extreme(vector[source[i]], ti.Vector([2.0, 3.0]))

    @ti.kernel
    def by_conditions():
        for i in source:
            if source[i] > 0:
                extreme(number[1], 2.0)
                extreme(vector[1], ti.Vector([2.0, 3.0]))

    @ti.kernel
    def by_loops():
        for i in range(1, 3):
            for k in range(source[i]):
                extreme(number[i], float(k))
                extreme(vector[i], ti.Vector([2.0, 3.0]))

    by_data()
    by_conditions()
    by_loops()
    assert number.to_numpy().tolist() == pytest.approx([2, nan, nan], nan_ok=True)
    assert vector.to_numpy().ravel().tolist() == pytest.approx([2, 3, *4 * [nan]], nan_ok=True)


@pytest.mark.parametrize("name", ["u8", "i16", "f16", "i32"])
@pytest.mark.parametrize("step", [1, 2])
def test_sums_in_arrays_that_are_copied_come_back(name, step, need):
    """Narrow numbers are changed in their words, which are the array's too."""
    need(name)
    dtype = getattr(ti, name).dtype
    x, y = np.ones(10, dtype), np.zeros(3 * step, dtype)[::step]

    @ti.kernel
    def scatter(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i % 3] += x[i]

    scatter(x, y)
    assert y.tolist() == [4, 3, 3]


@pytest.mark.parametrize("layout", [ti.Layout.AOS, ti.Layout.SOA])
def test_several_components_at_a_computed_index(layout):
    """They are one place in memory: additions are atomic, other components are not rewritten."""
    v = ti.Vector.field(3, ti.i32, shape=2, layout=layout)
    m = ti.Matrix.field(2, 3, ti.i32, shape=2, layout=layout)

    @ti.kernel
    def run(k: ti.i32):
        for i in range(10_000):
            v[1].zx[k] += 1
            ti.atomic_add(v[0].xz[i % 2], 2)
            m[1][1, :][k] += 3

    run(1)
    assert v.to_numpy().tolist() == [[10_000, 0, 10_000], [10_000, 0, 0]]
    assert m.to_numpy()[1].tolist() == [[0, 0, 0], [0, 30_000, 0]]


def test_a_store_to_several_components_at_a_computed_index():
    w = ti.Vector.field(3, ti.i32, shape=4)

    @ti.kernel
    def run(k: ti.i32):
        for i in range(4):
            w[i].zy[k] = i + 1

    run(1)
    run(-7)  # clamped, as indices of components are
    assert w.to_numpy().tolist() == [[0, i + 1, i + 1] for i in range(4)]
