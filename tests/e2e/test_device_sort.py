"""`ti.algorithms` on the device: stable radix sort, scans and compaction, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti

RNG = np.random.default_rng(33)
SIZES = (1, 2, 255, 257, 5003, (1 << 16) + 3)
TYPES = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "u64", "i64", "f64")


@pytest.fixture(autouse=True)
def fresh_random_numbers() -> None:
    """Random numbers that do not depend on the tests before."""
    globals()["RNG"] = np.random.default_rng(33)


def numpy_type(t: str) -> Any:
    return np.dtype({"u": "uint", "i": "int", "f": "float"}[t[0]] + t[1:])


def random_keys(t: str, n: int) -> Any:
    """Keys of all sizes and signs, with repetitions; floats also nan, infinity and zeros."""
    kind = numpy_type(t)
    raw = RNG.integers(0, 256, n * kind.itemsize, dtype=np.uint8).view(kind)
    if t[0] == "f":
        raw = np.where(np.isfinite(raw), raw, kind.type(1))
        special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], kind)
        at = RNG.integers(0, 4, n) == 0
        raw[at] = RNG.choice(special, int(at.sum()))
    at = RNG.integers(0, 2, n) == 0
    raw[at] = RNG.choice(raw[:7], int(at.sum()))
    return raw


def make(values: Any, kind: str = "ndarray", offset: int = 0) -> Any:
    t = getattr(ti, f"{values.dtype.kind}{8 * values.dtype.itemsize}")
    made = (
        ti.field(t, len(values), offset=offset) if kind == "field" else ti.ndarray(t, len(values))
    )
    made.from_numpy(values)
    return made


# --- sort ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("t", ["u32", "i32", "f32"])
def test_argsort_is_stable(t: str, n: int) -> None:
    keys = random_keys(t, n)
    array = make(keys)
    order = ti.algorithms.argsort(array).to_numpy()
    np.testing.assert_array_equal(order, np.argsort(keys, kind="stable"))
    np.testing.assert_array_equal(array.to_numpy(), keys)


@pytest.mark.parametrize("t", TYPES)
def test_argsort_of_type(t: str, need: Callable[..., None]) -> None:
    need(t)
    keys = random_keys(t, 3001)
    order = ti.algorithms.argsort(make(keys)).to_numpy()
    np.testing.assert_array_equal(order, np.argsort(keys, kind="stable"))


def test_argsort_of_a_field_with_an_offset_into_a_field() -> None:
    keys = random_keys("f32", 700)
    order = ti.field(ti.i32, 700, offset=5)
    assert ti.algorithms.argsort(make(keys, "field", -3), order) is order
    np.testing.assert_array_equal(order.to_numpy(), np.argsort(keys, kind="stable"))


def test_large_sorts_with_values() -> None:
    n = (1 << 20) + 3
    keys = RNG.integers(0, 1 << 32, n, dtype=np.uint32)
    array, values = make(keys), make(np.arange(n, dtype=np.int32), "field")
    ti.algorithms.parallel_sort(array, values)
    order = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(values.to_numpy(), order)
    np.testing.assert_array_equal(array.to_numpy(), keys[order])


@pytest.mark.parametrize("n", [3, 20_000])  # by numpy, by kernels
def test_parallel_sort_is_stable(n: int) -> None:
    keys = RNG.integers(-3, 3, n).astype(np.float32)
    keys[::5] = np.nan
    pairs = ti.Vector.field(2, ti.f32, n + 2, offset=-7)
    contents = RNG.random((n + 2, 2)).astype(np.float32)
    pairs.from_numpy(contents)
    array = make(keys, "field", 4)
    ti.algorithms.parallel_sort(array, pairs)
    order = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(array.to_numpy(), keys[order])
    np.testing.assert_array_equal(pairs.to_numpy(), [*contents[order], *contents[n:]])


def test_gradient_of_a_sort_is_that_of_its_permutation() -> None:
    n = 500
    keys, values = RNG.permutation(n).astype(np.float32), RNG.random(n).astype(np.float32)
    k, v = ti.ndarray(ti.f32, n, needs_grad=True), ti.ndarray(ti.f32, n, needs_grad=True)
    k.from_numpy(keys)
    v.from_numpy(values)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def weigh(k: ti.types.ndarray(), v: ti.types.ndarray()):
        for i in range(n):
            loss[None] += k[i] * i + v[i] * v[i] * i

    with ti.ad.Tape(loss):
        ti.algorithms.parallel_sort(k, v)
        weigh(k, v)
    rank = np.argsort(np.argsort(keys))
    np.testing.assert_allclose(k.grad.to_numpy(), rank)
    np.testing.assert_allclose(v.grad.to_numpy(), 2 * values * rank, rtol=1e-6)


def test_a_gather_by_argsort_is_differentiated() -> None:
    x, y = ti.ndarray(ti.f32, 40, needs_grad=True), RNG.random(40).astype(np.float32)
    x.from_numpy(y)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def weigh(x: ti.types.ndarray(), order: ti.types.ndarray()):
        for i in range(40):
            loss[None] += x[order[i]] * i

    with ti.ad.Tape(loss):
        order = ti.algorithms.argsort(x)
        weigh(x, order)
    np.testing.assert_allclose(x.grad.to_numpy(), np.argsort(np.argsort(y)))


def test_sort_in_a_record() -> None:
    x = ti.ndarray(ti.f32, 30_000)
    with ti.record() as g:
        ti.algorithms.parallel_sort(x)
    for _ in range(2):
        values = RNG.random(30_000).astype(np.float32)
        x.from_numpy(values)
        g.run()
        np.testing.assert_array_equal(x.to_numpy(), np.sort(values))


# --- scans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("t", ["u32", "i32"])
def test_scans(t: str, n: int) -> None:
    values = random_keys(t, n)
    want = np.cumsum(values, dtype=values.dtype)
    x, out = make(values), make(np.ones_like(values), "field", 2)
    ti.algorithms.inclusive_scan(x, out)
    np.testing.assert_array_equal(out.to_numpy(), want)
    ti.algorithms.exclusive_scan(x, out)
    np.testing.assert_array_equal(out.to_numpy(), want - values)
    np.testing.assert_array_equal(x.to_numpy(), values)
    ti.algorithms.exclusive_scan(x)
    np.testing.assert_array_equal(x.to_numpy(), want - values)


@pytest.mark.parametrize("t", ["i64", "f32", "f64"])
def test_scan_of_type(t: str, need: Callable[..., None]) -> None:
    need(t)
    values = RNG.integers(-9, 9, 4000).astype(numpy_type(t))
    x = make(values, "field")
    ti.algorithms.inclusive_scan(x)
    np.testing.assert_array_equal(x.to_numpy(), np.cumsum(values))


@pytest.mark.parametrize("is_in_place", [False, True])
@pytest.mark.parametrize("name", ["inclusive_scan", "exclusive_scan"])
def test_gradient_of_a_scan(name: str, is_in_place: bool) -> None:
    n = 1500
    x = ti.ndarray(ti.f32, n, needs_grad=True)
    x.from_numpy(RNG.random(n).astype(np.float32))
    out = x if is_in_place else ti.ndarray(ti.f32, n, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    weights = RNG.integers(0, 9, n).astype(np.float32)
    w = make(weights)

    @ti.kernel
    def weigh(x: ti.types.ndarray(), w: ti.types.ndarray()):
        for i in range(n):
            loss[None] += x[i] * w[i]

    with ti.ad.Tape(loss):
        getattr(ti.algorithms, name)(x, out)
        weigh(out, w)
    want = np.cumsum(weights[::-1])[::-1]
    if name == "exclusive_scan":
        want = want - weights
    np.testing.assert_allclose(x.grad.to_numpy(), want)


# --- compaction ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_compact(n: int, share: float) -> None:
    mask = np.where(RNG.random(n) < share, RNG.integers(1, 9, n), 0).astype(np.int32)
    (kept,) = np.nonzero(mask)
    out = ti.field(ti.i32, n + 1, offset=3)
    out.fill(-1)
    assert ti.algorithms.compact(make(mask, "field", -2), out) == len(kept)
    np.testing.assert_array_equal(out.to_numpy(), [*kept, *[-1] * (n + 1 - len(kept))])
    values = RNG.random((n, 3)).astype(np.float32)
    x, found = ti.ndarray(ti.math.vec3, n), ti.ndarray(ti.math.vec3, n)
    x.from_numpy(values)
    assert ti.algorithms.compact(make(mask), found, x) == len(kept)
    np.testing.assert_array_equal(found.to_numpy()[: len(kept)], values[kept])


def test_compact_with_bools() -> None:
    mask, out = ti.field(ti.u1, 100), ti.field(ti.i32, 50)
    mask.from_numpy(np.arange(100) % 2 == 1)
    assert ti.algorithms.compact(mask, out) == 50
    np.testing.assert_array_equal(out.to_numpy(), np.arange(1, 100, 2))


def test_gradient_of_compact() -> None:
    mask = make((np.arange(300) % 3 == 0).astype(np.int32))
    x, out = ti.field(ti.f32, 300, needs_grad=True), ti.field(ti.f32, 100, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def weigh():
        for i in out:
            loss[None] += out[i] * (i + 1)

    with ti.ad.Tape(loss):
        ti.algorithms.compact(mask, out, x)
        weigh()
    want = np.zeros(300)
    want[::3] = np.arange(1, 101)
    np.testing.assert_allclose(x.grad.to_numpy(), want)


# --- errors --------------------------------------------------------------------------------------


def raises(words: str) -> Any:
    return pytest.raises(ti.TaichiRuntimeTypeError, match=words)


def test_errors() -> None:
    ints, floats, vectors = ti.field(ti.i32, 8), ti.field(ti.f32, 8), ti.Vector.field(2, ti.f32, 8)
    with raises("argsort: keys are numbers, not f32<2>"):
        ti.algorithms.argsort(vectors)
    with raises("argsort: `order` must hold 8 ti.i32, not 8 f32"):
        ti.algorithms.argsort(floats, floats)
    with raises("argsort: `keys` must be a field or an ndarray"):
        ti.algorithms.argsort(np.ones(3))  # type: ignore[arg-type]
    with raises("inclusive_scan: `out` is i32 of shape .8,., and f32 of shape .8,. is needed"):
        ti.algorithms.inclusive_scan(floats, ints)
    with raises("exclusive_scan: numbers are added, not f32<2>"):
        ti.algorithms.exclusive_scan(vectors)
    with raises("compact: `mask` holds integers or bools, not f32"):
        ti.algorithms.compact(floats, ints)
    with raises("compact: `out` must hold i32, not f32"):
        ti.algorithms.compact(ints, floats)
    with raises("compact: `mask` has 8 elements, and `values` 7"):
        ti.algorithms.compact(ints, floats, ti.field(ti.f32, 7))
    ints.fill(1)
    short = ti.field(ti.i32, 5)
    with raises("compact: 8 elements are selected, and `out` has 5"):
        ti.algorithms.compact(ints, short)
    assert not short.to_numpy().any()
