"""Atomics: every operation on every number type, where many iterations meet; old values."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti

COUNT, BINS = 1500, 7
TYPES = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "f32", "f64")
NUMPY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
BITWISE = ("and", "or", "xor")
TABLE = [(op, t) for op in NUMPY for t in TYPES if t[0] != "f" or op not in BITWISE]


def dtype_of(t: str) -> Any:
    """numpy's dtype of a type's name."""
    return np.dtype({"i": "int", "u": "uint", "f": "float"}[t[0]] + t[1:])


def draw(op: str, t: str) -> Any:
    """Numbers of which the result is exact in any order."""
    rng = np.random.default_rng(3)
    values = rng.integers(-3 if t[0] == "i" else 0, 4, COUNT)
    if op == "mul":
        values = np.where(np.arange(COUNT) < 3 * BINS, 2, 1)
    elif t == "f16":
        values = values % 2
    return values.astype(dtype_of(t))


def expected(op: str, start: Any, values: Any) -> Any:
    """Final contents of the bins."""
    want = start.copy()
    with np.errstate(over="ignore"):
        NUMPY[op].at(want, np.arange(COUNT) % BINS, values)
    return want


@pytest.mark.parametrize(("op", "t"), TABLE)
def test_atomics_on_fields(op: str, t: str, lacks: Any) -> None:
    if lacks(t):
        pytest.skip(f"no {t}")
    atomic = getattr(ti, f"atomic_{op}")
    values, start = draw(op, t), np.arange(BINS).astype(dtype_of(t))
    source, bins = ti.field(getattr(ti, t), COUNT), ti.field(getattr(ti, t), BINS)
    source.from_numpy(values)
    bins.from_numpy(start)

    @ti.kernel
    def run():
        for i in source:
            atomic(bins[i % BINS], source[i])

    run()
    np.testing.assert_array_equal(bins.to_numpy(), expected(op, start, values))


@pytest.mark.parametrize("t", TYPES)
def test_atomics_on_ndarrays(t: str, lacks: Any) -> None:
    if lacks(t):
        pytest.skip(f"no {t}")
    source, bins = ti.ndarray(getattr(ti, t), COUNT), ti.ndarray(getattr(ti, t), (2, BINS))
    values, start = draw("add", t), np.arange(BINS).astype(dtype_of(t))
    source.from_numpy(values)
    bins.from_numpy(np.stack([start, start]))

    @ti.kernel
    def run(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in range(x.shape[0]):
            y[0, i % BINS] += x[i]
            ti.atomic_max(y[1, i % BINS], x[i])

    run(source, bins)
    sums, most = expected("add", start, values), expected("max", start, values)
    np.testing.assert_array_equal(bins.to_numpy(), [sums, most])


@pytest.mark.parametrize("t", TYPES)
def test_old_values_are_tickets(t: str, lacks: Any) -> None:
    """Each iteration gets another one."""
    if lacks(t):
        pytest.skip(f"no {t}")
    count = 120
    counter, seen = ti.field(getattr(ti, t), 3), ti.field(ti.i32, (2, count))

    @ti.kernel
    def run():
        for i in range(count):
            seen[0, i] = int(ti.atomic_add(counter[1], 1))
        for i in range(count):
            seen[1, i] = int(ti.atomic_sub(counter[1], 1))

    run()
    up, down = np.sort(seen.to_numpy(), axis=1)
    np.testing.assert_array_equal(up, np.arange(count))
    np.testing.assert_array_equal(down, np.arange(1, count + 1))
    np.testing.assert_array_equal(counter.to_numpy(), [0, 0, 0])


@pytest.mark.parametrize("t", ["i8", "u16", "i32", "u64"])
@pytest.mark.parametrize("op", NUMPY)
def test_old_value(op: str, t: str, lacks: Any) -> None:
    if lacks(t):
        pytest.skip(f"no {t}")
    atomic = getattr(ti, f"atomic_{op}")
    x, old = ti.field(getattr(ti, t), 4), ti.field(getattr(ti, t), ())
    x.fill(12)

    @ti.kernel
    def run():
        for _ in range(1):
            old[None] = atomic(x[2], 5)

    run()
    assert old[None] == 12
    assert x.to_numpy().tolist() == [12, 12, int(NUMPY[op](12, 5)), 12]


@pytest.mark.parametrize("t", ["i8", "u8", "i16", "i32", "i64"])
def test_integers_wrap(t: str, lacks: Any) -> None:
    if lacks(t):
        pytest.skip(f"no {t}")
    x = ti.field(getattr(ti, t), 5)
    info = np.iinfo(dtype_of(t))
    x.from_numpy(np.array([info.max, info.min, info.max, 3, info.min], dtype_of(t)))

    @ti.kernel
    def run():
        for i in range(4):
            x[0] += 1
            x[1] -= 1
            ti.atomic_min(x[2], x[3])
            ti.atomic_max(x[4], x[3])

    run()
    low, high = info.min + 3, info.max - 3
    assert x.to_numpy().tolist() == [low, high, 3, 3, 3]


@pytest.mark.parametrize("t", ["u8", "i16", "f16"])
def test_neighbours_in_a_word(t: str, lacks: Any) -> None:
    """Numbers beside each other: each combined, or stored plainly, while the others are."""
    if lacks(t):
        pytest.skip(f"no {t}")
    x = ti.field(getattr(ti, t), 257)

    @ti.kernel
    def run():
        for i in range(257 * 64):
            if i % 257 % 2:
                x[i % 257] += 1
            else:
                x[i % 257] = 5

    run()
    assert set(x.to_numpy()[1::2]) == {64} and set(x.to_numpy()[::2]) == {5}


@pytest.mark.parametrize("t", ["f16", "f32", "f64"])
def test_float_extremes(t: str, lacks: Any) -> None:
    if lacks(t):
        pytest.skip(f"no {t}")
    values = np.random.default_rng(1).normal(0, 10, COUNT).astype(dtype_of(t))
    source, ends = ti.field(getattr(ti, t), COUNT), ti.field(getattr(ti, t), 2)
    source.from_numpy(values)
    ends.from_numpy(np.array([np.inf, -np.inf], dtype_of(t)))

    @ti.kernel
    def run():
        for i in source:
            ti.atomic_min(ends[0], source[i])
            ti.atomic_max(ends[1], source[i])

    run()
    assert ends.to_numpy().tolist() == [values.min(), values.max()]


@pytest.mark.parametrize("t", ["f32", "f64"])
@pytest.mark.ours("atomic-nan")
def test_nan_loses(t: str, lacks: Any) -> None:
    if lacks(t):
        pytest.skip(f"no {t}")
    x = ti.field(getattr(ti, t), 4)
    x.from_numpy(np.array([1, np.nan, 1, np.nan], dtype_of(t)))

    @ti.kernel
    def run(nan: ti.f32):
        for i in range(2):
            ti.atomic_min(x[0], nan)
            ti.atomic_min(x[1], 2.0)
            ti.atomic_max(x[2], nan)
            ti.atomic_max(x[3], 2.0)

    run(float("nan"))
    assert x.to_numpy().tolist() == [1, 2, 1, 2]


@pytest.mark.ours("atomic-u1", run=False)
def test_bools(lacks: Any) -> None:
    if lacks("u1") or lacks("u8"):
        pytest.skip("no u8")
    x, old = ti.field(ti.u1, 6), ti.field(ti.i32, 2)
    x.from_numpy(np.array([False, True, True, False, False, True]))

    @ti.kernel
    def run():
        for i in range(100):
            x[0] |= i == 77
            x[1] &= i != 50
            x[2] ^= i < 33
            ti.atomic_or(x[3], i == 4)
            ti.atomic_xor(x[4], i < 10)
        for i in range(1):
            old[0] = ti.atomic_and(x[5], False)
            old[1] = ti.atomic_and(x[5], True)

    run()
    assert x.to_numpy().tolist() == [True, False, False, True, False, False]
    assert old.to_numpy().tolist() == [1, 0]


@pytest.mark.ours("f16-sums")
def test_long_sums_of_f16_are_rounded_once(lacks: Any) -> None:
    if lacks("f16"):
        pytest.skip("no f16")
    rows = ti.field(ti.f16, (4, 8192))
    sums, vectors = ti.field(ti.f16, 4), ti.Vector.field(2, ti.f16, 4)
    rows.from_numpy(np.full((4, 8192), 0.1, np.float16))

    @ti.kernel
    def run():
        for i in range(4):
            for k in range(8192):
                sums[i] += rows[i, k]
                vectors[i] += ti.Vector([rows[i, k], -rows[i, k]])

    run()
    want = np.float16(np.float64(np.float16(0.1)) * 8192)
    np.testing.assert_array_equal(sums.to_numpy(), np.full(4, want))
    np.testing.assert_array_equal(vectors.to_numpy(), np.tile([want, -want], (4, 1)))
