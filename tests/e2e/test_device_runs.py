"""`ti.algorithms`: histograms, distinct values, reductions by key and segmented sorts, against
numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti

SIZES = (1, 2, 257, 3001)
TYPES = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "u64", "i64", "f64")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(37)


def numpy_type(t: str) -> Any:
    return np.dtype({"u": "uint", "i": "int", "f": "float"}[t[0]] + t[1:])


def make(values: Any, kind: str = "ndarray", offset: int = 0, *, needs_grad: bool = False) -> Any:
    t = getattr(ti, f"{values.dtype.kind}{8 * values.dtype.itemsize}")
    if kind == "field":
        made = ti.field(t, len(values), offset=offset, needs_grad=needs_grad)
    else:
        made = ti.ndarray(t, len(values), needs_grad)
    made.from_numpy(values)
    return made


def some_keys(rng: np.random.Generator, t: str, n: int) -> Any:
    """Few distinct keys, of all sizes and signs; floats also nan, infinity and zeros."""
    kind = numpy_type(t)
    few = rng.integers(0, 256, 16 * kind.itemsize, dtype=np.uint8).view(kind)
    if t[0] == "f":
        few = np.where(np.isfinite(few), few, kind.type(1))
        few[:6] = [np.nan, np.inf, -np.inf, 0.0, -0.0, -1.5]
    return rng.choice(few, n)


# --- histogram -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["field", "ndarray"])
@pytest.mark.parametrize("n", SIZES)
def test_histogram_of_integers(n: int, kind: str, rng: np.random.Generator) -> None:
    values = rng.integers(-5, 70, n).astype(np.int32)
    counts = make(np.full(64, 7, np.int32), kind, -3)
    ti.algorithms.histogram(make(values, kind, 4), counts)
    inside = values[(values >= 0) & (values < 64)]
    np.testing.assert_array_equal(counts.to_numpy(), np.bincount(inside, minlength=64))


@pytest.mark.parametrize("t", [t for t in TYPES if t[0] != "f"])
def test_histogram_of_type(t: str, need: Callable[..., None], rng: np.random.Generator) -> None:
    need(t)
    kind = numpy_type(t)
    limits = np.iinfo(kind)
    values = np.concatenate([
        rng.integers(0, 100, 500).astype(kind),
        np.array([limits.min, limits.max, limits.max - 1], kind),
        rng.integers(0, 256, 400 * kind.itemsize, dtype=np.uint8).view(kind),
    ])  # fmt: skip
    for bins in (1, 100, 1000):
        counts = ti.ndarray(ti.i32, bins)
        ti.algorithms.histogram(make(values), counts)
        inside = values[(values >= 0) & (values < np.uint64(bins))].astype(np.int64)
        np.testing.assert_array_equal(counts.to_numpy(), np.bincount(inside, minlength=bins))


@pytest.mark.parametrize("t", ["f32", "f64"])
@pytest.mark.parametrize(
    ("low", "high", "bins"), [(0.0, 1.0, 64), (-1.0, 2.0, 7), (0.1, 0.3, 1), (-3, 3, 600)]
)
def test_histogram_of_floats(
    t: str, low: float, high: float, bins: int, need: Callable[..., None], rng: np.random.Generator
) -> None:
    need(t)
    kind = numpy_type(t)
    edges = np.linspace(low, high, bins + 1).astype(kind)
    values = np.concatenate([
        rng.random(3000) * 4 - 2, edges, np.nextafter(edges, kind.type(-9)),
        np.nextafter(edges, kind.type(9)), [np.nan, np.inf, -np.inf],
    ]).astype(kind)  # fmt: skip
    values = values[~((abs(values) < 1e-30) & (values != 0))]  # some devices flush subnormals
    counts = ti.field(ti.i32, bins)
    ti.algorithms.histogram(make(values), counts, low, high)
    finite = values[np.isfinite(values)]
    np.testing.assert_array_equal(counts.to_numpy(), np.histogram(finite, edges)[0])


def test_histogram_in_a_record(rng: np.random.Generator) -> None:
    x, counts = ti.ndarray(ti.i32, 1000), ti.ndarray(ti.i32, 10)
    with ti.record() as g:
        ti.algorithms.histogram(x, counts)
    for _ in range(2):
        values = rng.integers(0, 10, 1000).astype(np.int32)
        x.from_numpy(values)
        g.run()
        np.testing.assert_array_equal(counts.to_numpy(), np.bincount(values, minlength=10))


# --- unique --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("t", "n"), [*[(t, 700) for t in TYPES], *[("f32", n) for n in SIZES]])
def test_unique(t: str, n: int, need: Callable[..., None], rng: np.random.Generator) -> None:
    need(t)
    values = some_keys(rng, t, n)
    x, out = make(values, "field", 2), make(np.full(n + 3, 9, numpy_type(t)))
    counts = make(np.full(n, 8, np.int32), "field", -2)
    expected, lengths = np.unique(values, return_counts=True)
    count = ti.algorithms.unique(x, out, counts)
    assert count == len(expected)
    np.testing.assert_array_equal(out.to_numpy()[:count], expected)
    assert (out.to_numpy()[count:] == 9).all()
    np.testing.assert_array_equal(counts.to_numpy()[:count], lengths)
    assert (counts.to_numpy()[count:] == 8).all()
    np.testing.assert_array_equal(x.to_numpy(), values)
    assert ti.algorithms.unique(x, x) == count
    np.testing.assert_array_equal(x.to_numpy()[:count], expected)


# --- reduce_by_key -------------------------------------------------------------------------------


def runs_of(keys: Any) -> Any:
    """First indices of the runs of equal keys; nan equals nan."""
    is_new = (keys[1:] != keys[:-1]) & ~((keys[1:] != keys[1:]) & (keys[:-1] != keys[:-1]))
    return np.concatenate([[0], np.nonzero(is_new)[0] + 1])


UFUNCS = {"add": np.add, "min": np.minimum, "max": np.maximum}


@pytest.mark.parametrize("op", UFUNCS)
@pytest.mark.parametrize(("n", "longest"), [(1, 1), (2, 1), (257, 3), (256, 900), (3001, 900)])
def test_reduce_by_key(n: int, longest: int, op: str, rng: np.random.Generator) -> None:
    keys = np.repeat(rng.integers(-3, 3, n), rng.integers(1, longest + 1, n))[:n].astype(np.int32)
    begins = runs_of(keys)
    for kind, values in (
        ("field", rng.integers(-100, 100, n).astype(np.int32)),
        ("ndarray", rng.integers(-100, 100, n).astype(np.float32)),
    ):
        out_keys, out = make(np.full(n, 77, np.int32), kind, 3), make(0 * values, kind, -2)
        k, v = make(keys, kind, 5), make(values, kind, -6)
        count = ti.algorithms.reduce_by_key(k, v, out_keys, out, op)
        assert count == len(begins)
        np.testing.assert_array_equal(out_keys.to_numpy()[:count], keys[begins])
        assert (out_keys.to_numpy()[count:] == 77).all()
        expected = UFUNCS[op].reduceat(values, begins)
        np.testing.assert_array_equal(out.to_numpy()[:count], expected)
        ti.algorithms.reduce_by_key(k, v, k, v, op)  # in place
        np.testing.assert_array_equal(k.to_numpy()[:count], keys[begins])
        np.testing.assert_array_equal(v.to_numpy(), [*expected, *values[count:]])


@pytest.mark.parametrize("t", TYPES)
def test_reduce_by_key_of_type(t: str, need: Callable[..., None], rng: np.random.Generator) -> None:
    need(t)
    keys = np.sort(some_keys(rng, t, 700))
    values = rng.integers(0, 5, 700).astype(numpy_type("u32" if t[0] == "f" else t))
    begins = runs_of(keys)
    out_keys, out = make(keys), make(values)
    for op, ufunc in UFUNCS.items():
        count = ti.algorithms.reduce_by_key(make(keys), make(values), out_keys, out, op)
        assert count == len(begins)
        np.testing.assert_array_equal(out_keys.to_numpy()[:count], keys[begins])
        expected = ufunc.reduceat(values, begins)
        np.testing.assert_array_equal(out.to_numpy()[:count], expected.astype(values.dtype))


def test_gradient_of_sums_by_key(rng: np.random.Generator) -> None:
    n = 600
    keys = np.repeat(np.arange(n), rng.integers(1, 300, n))[:n].astype(np.int32)
    values = rng.random(n).astype(np.float32)
    v = make(values, needs_grad=True)
    out = ti.ndarray(ti.f32, n, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def score(out: ti.types.ndarray(), count: ti.i32):
        for r in range(count):
            loss[None] += out[r] * out[r] * r

    with ti.ad.Tape(loss):
        count = ti.algorithms.reduce_by_key(make(keys), v, ti.ndarray(ti.i32, n), out)
        score(out, count)
    begins = runs_of(keys)
    rank = np.repeat(np.arange(len(begins)), np.diff([*begins, n]))
    sums = np.add.reduceat(values, begins)
    np.testing.assert_allclose(
        v.grad.to_numpy(), 2 * (sums * np.arange(len(sums)))[rank], rtol=1e-4
    )


def test_gradient_of_distinct_values(rng: np.random.Generator) -> None:
    values = rng.integers(0, 5, 50).astype(np.float32)
    x, out = make(values, needs_grad=True), ti.ndarray(ti.f32, 50, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def score(out: ti.types.ndarray(), count: ti.i32):
        for r in range(count):
            loss[None] += out[r] * (r + 1)

    with ti.ad.Tape(loss):
        score(out, ti.algorithms.unique(x, out))
    _, firsts = np.unique(values, return_index=True)
    expected = np.zeros(50)
    expected[firsts] = np.arange(len(firsts)) + 1
    np.testing.assert_array_equal(x.grad.to_numpy(), expected)


# --- segmented sort ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["field", "ndarray"])
@pytest.mark.parametrize(("n", "count"), [(1, 1), (2, 2), (257, 40), (3001, 1), (3001, 40)])
def test_segmented_sort(n: int, count: int, kind: str, rng: np.random.Generator) -> None:
    keys = some_keys(rng, "f32", n)
    starts = np.sort(rng.integers(0, n + 1, count)).astype(np.int32)
    k, v = make(keys, kind, -3), make(np.arange(n + 2, dtype=np.int32), kind, 7)
    ti.algorithms.segmented_sort(k, make(starts, kind, 2), v)
    order = np.concatenate([
        part[np.argsort(keys[part], kind="stable")] for part in np.split(np.arange(n), starts)
    ])  # fmt: skip
    np.testing.assert_array_equal(v.to_numpy(), [*order, n, n + 1])
    np.testing.assert_array_equal(k.to_numpy(), keys[order])


@pytest.mark.parametrize("t", TYPES)
def test_segmented_sort_of_type(
    t: str, need: Callable[..., None], rng: np.random.Generator
) -> None:
    need(t)
    keys = some_keys(rng, t, 900)
    starts = np.array([0, 3, 3, 500, 899, 950, -4], np.int32)  # some have no effect
    k = make(keys)
    ti.algorithms.segmented_sort(k, make(starts))
    parts = [np.sort(part) for part in np.split(keys, [3, 500, 899])]
    np.testing.assert_array_equal(k.to_numpy(), np.concatenate(parts))


@pytest.mark.parametrize("kind", ["field", "ndarray"])
def test_views_and_views_without_elements(kind: str, rng: np.random.Generator) -> None:
    a = ti.algorithms
    values = rng.integers(0, 9, 300).astype(np.int32)
    x, y = make(values, kind), make(values[::-1].copy(), kind)
    part = slice(5, 290, 3)
    out, counts = make(0 * values, kind), make(0 * values, kind)
    a.histogram(x[part], counts[1:10])
    np.testing.assert_array_equal(counts.to_numpy()[1:10], np.bincount(values[part], minlength=9))
    expected = np.unique(values[part])
    assert a.unique(x[part], out[7:100]) == len(expected)
    np.testing.assert_array_equal(out.to_numpy()[7 : 7 + len(expected)], expected)
    begins = runs_of(values[part])
    assert a.reduce_by_key(x[part], y[part], out[::2], counts[1::2]) == len(begins)
    sums = np.add.reduceat(values[::-1][part], begins)
    np.testing.assert_array_equal(counts.to_numpy()[1::2][: len(begins)], sums)
    a.segmented_sort(x[part], make(np.array([40], np.int32)))
    parts = [np.sort(v) for v in np.split(values[part], [40])]
    np.testing.assert_array_equal(x.to_numpy()[part], np.concatenate(parts))
    before = out.to_numpy(), counts.to_numpy(), x.to_numpy()
    none = x[3:3]
    a.histogram(none, counts[2:2])
    a.histogram(x, counts[2:2])
    assert a.unique(none, out) == 0
    assert a.reduce_by_key(none, none, out, counts) == 0
    a.segmented_sort(none, y)
    a.segmented_sort(x[4:5], none)
    for array, contents in zip((out, counts, x), before):
        np.testing.assert_array_equal(array.to_numpy(), contents)


# --- errors --------------------------------------------------------------------------------------


def test_wrong_arguments() -> None:
    a = ti.algorithms
    i, f, short = ti.ndarray(ti.i32, 4), ti.ndarray(ti.f32, 4), ti.ndarray(ti.i32, 1)
    i.from_numpy(np.array([3, 1, 2, 1], np.int32))
    for call, words in (
        (lambda: a.histogram(f, i), "f32 need bounds: histogram.x, out, low, high."),
        (lambda: a.histogram(i, i, 0, 1), "bounds are for floats, not i32"),
        (lambda: a.histogram(f, i, 1.0), "finite low < high are needed, not 1.0 and None"),
        (lambda: a.histogram(f, i, 1, 1), "finite low < high are needed, not 1 and 1"),
        (lambda: a.histogram(f, f, 0, 1), "`out` must hold ti.i32"),
        (lambda: a.histogram(ti.Vector.field(2, ti.f32, 3), i), "numbers are counted, not f32<2>"),
        (lambda: a.unique(i, f), "`out` must hold i32, not"),
        (lambda: a.unique(i, i, f), "`counts` must hold i32, not"),
        (lambda: a.unique(i, short), "there are 3 results, and an array for them has 1 elements"),
        (lambda: a.reduce_by_key(i, short, i, i), "4 keys, and 1 values"),
        (lambda: a.reduce_by_key(i, f, i, f, "mean"), "op is one of add, min, max, not 'mean'"),
        (lambda: a.reduce_by_key(i, f, i, i), "`out_values` must hold f32, not"),
        (lambda: a.reduce_by_key(i, f, short, f), "there are 4 results"),
        (lambda: a.segmented_sort(i, f), "`starts` must hold ti.i32, not"),
        (lambda: a.segmented_sort(i, i, short), "4 keys, and 1 values"),
    ):
        with pytest.raises(ti.TaichiRuntimeTypeError, match=words):
            call()
    np.testing.assert_array_equal(i.to_numpy(), [3, 1, 2, 1])
    assert short[0] == 0


@pytest.mark.parametrize("places", [(0, 6, 0, 6), (0, 3, 2, 6), (3, 6, 0, 4)])
def test_histogram_of_an_array_that_it_overwrites(places: tuple[int, int, int, int]) -> None:
    values = np.array([0, 1, 1, 2, 0, 3], np.int32)
    x, (a, b, c, d) = make(values), places
    want = values.copy()
    want[c:d] = np.bincount(values[a:b], minlength=d - c)[: d - c]
    ti.algorithms.histogram(x[a:b], x[c:d])
    assert (x.to_numpy() == want).all()
