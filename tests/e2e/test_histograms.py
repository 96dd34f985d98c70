"""Scatter-adds to data-dependent elements of small arrays match numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.ir.core import walk
from vkchi.opt import pipeline
from vkchi.opt.cost_model import plan_bins

COUNTS = [1, 7, 4 * 37 - 1, 16 * 37, 30_001]


def numbers(n: int, most: int, seed: int = 3) -> Any:
    return np.random.default_rng(seed).integers(0, most, n, dtype=np.int32)


def field(values: Any) -> Any:
    made = ti.field(ti.i32 if values.dtype.kind == "i" else ti.f32, values.shape)
    made.from_numpy(values)
    return made


@pytest.fixture(autouse=True, params=["as it is", "as a graphics card"])
def kind(request: pytest.FixtureRequest) -> None:
    """Bins are an invocation's own on processors, and a workgroup's on GPUs."""
    if request.param == "as a graphics card":
        request.getfixturevalue("as_gpu")


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each loop that pass `bins` looks at, whether it got bins."""
    found: list[bool] = []
    run_pass = pipeline.run_pass

    def watched(name: str, fn: Any, given: Any) -> Any:
        new = run_pass(name, fn, given)
        if name == "bins":
            found.append(any(op.kind == "shared" for op in walk(new.body)))
        return new

    monkeypatch.setattr(pipeline, "run_pass", watched)
    return found


@pytest.mark.parametrize("n", COUNTS)
def test_histograms_of_any_length(n: int, loops: list[bool]) -> None:
    values = numbers(n, 37)
    x, h = field(values), ti.field(ti.i32, 37)
    h.fill(5)

    @ti.kernel
    def count():
        for i in x:
            h[x[i]] += 1

    count()
    assert np.array_equal(h.to_numpy(), 5 + np.bincount(values, minlength=37))
    assert loops == [n >= 16 * 37]


@pytest.mark.parametrize("n", COUNTS)
def test_lengths_that_a_launch_knows(n: int, loops: list[bool]) -> None:
    values = numbers(n, 37)
    x, h = ti.ndarray(ti.i32, n), ti.field(ti.i32, 37)
    x.from_numpy(values)

    @ti.kernel
    def count(x: ti.types.ndarray(dtype=ti.i32, ndim=1), first: ti.i32):
        for i in range(first, x.shape[0]):
            h[x[i]] += 1

    count(x, 0)
    count(x, n // 2)
    count(x, n)
    expected = np.bincount(values, minlength=37) + np.bincount(values[n // 2 :], minlength=37)
    assert np.array_equal(h.to_numpy(), expected)
    assert loops == [True]


def test_lengths_that_only_the_device_knows() -> None:
    values = numbers(5000, 10)
    x, h, n = field(values), ti.field(ti.i32, 10), ti.field(ti.i32, ())

    @ti.kernel
    def count():
        for i, j in ti.ndrange(n[None], 2):
            h[x[i]] += 1 + j

    for length in (0, 3, 5000):
        n[None] = length
        h.fill(0)
        count()
        assert np.array_equal(h.to_numpy(), 3 * np.bincount(values[:length], minlength=10))


def test_axes_and_atomics_of_each_kind() -> None:
    values = numbers(120 * 90, 24).reshape(120, 90)
    x = field(values)
    least, most, bits = (ti.field(ti.i32, (4, 6)) for _ in range(3))
    least.fill(1 << 30)

    @ti.kernel
    def gather():
        for i, j in x:
            p, q = x[i, j] // 6, x[i, j] % 6
            ti.atomic_min(least[p, q], i - j)
            ti.atomic_max(most[p, q], i * j)
            ti.atomic_or(bits[p, q], 1 << (i % 31))

    gather()
    i, j = np.indices(values.shape)
    for k in range(24):
        here = values == k
        at = divmod(k, 6)
        assert least.to_numpy()[at] == (i - j)[here].min()
        assert most.to_numpy()[at] == (i * j)[here].max()
        assert bits.to_numpy()[at] == np.bitwise_or.reduce(1 << (i[here] % 31))


def test_vectors_components_and_a_total(loops: list[bool]) -> None:
    n, m = 20_000, 16
    label, weight = numbers(n, m), numbers(n, 9, seed=4).astype(np.float32)
    points = np.random.default_rng(5).integers(-9, 9, (n, 2)).astype(np.float32)
    at, w, x = field(label), field(weight), ti.Vector.field(2, ti.f32, n)
    x.from_numpy(points)
    sums, counts = ti.Vector.field(2, ti.f32, m), ti.field(ti.f32, m)
    second, total = ti.Vector.field(3, ti.f32, m), ti.field(ti.f32, ())

    @ti.kernel
    def recentre():
        for i in x:
            sums[at[i]] += x[i]
            counts[at[i]] += w[i]
            second[at[i]][1] += x[i][0]
            total[None] += w[i]

    recentre()
    for k in range(m):
        here = label == k
        assert np.array_equal(sums.to_numpy()[k], points[here].sum(0))
        assert counts[k] == weight[here].sum()
        assert second.to_numpy()[k].tolist() == [0, points[here][:, 0].sum(), 0]
    assert total[None] == weight.sum()
    assert loops == [True]


def test_sums_in_serial_loops() -> None:
    values = numbers(4000, 5)
    x, h = field(values), ti.field(ti.i32, 5)

    @ti.kernel
    def gather():
        for i in x:
            for k in range(i % 4):
                h[x[i]] += k
                if k == 2:
                    h[x[i] // 2] += 100

    gather()
    i = np.arange(4000)
    own = np.bincount(values, np.array([0, 0, 1, 3])[i % 4], minlength=5)
    halves = np.bincount(values // 2, 100 * (i % 4 == 3), minlength=5)
    assert np.array_equal(h.to_numpy(), own + halves)


def test_out_of_range_bins_are_dropped() -> None:
    values = numbers(8000, 30)
    x, h, after = field(values), ti.field(ti.i32, 10), ti.field(ti.i32, 10)

    @ti.kernel
    def count():
        for i in x:
            h[x[i] - 10] += 1

    count()
    assert np.array_equal(h.to_numpy(), np.bincount(values, minlength=30)[10:20])
    assert not after.to_numpy().any()


def test_indices_far_outside_are_nowhere() -> None:
    values = numbers(8000, 16)
    values[::3] = [-(2**31), 2**29, -(2**28), 2**27, 16, -1] * 444 + [-(2**31), 2**30, 0]
    x, h, v = field(values), ti.field(ti.i32, 16), ti.Vector.field(3, ti.f32, 16)

    @ti.kernel
    def count():
        for i in x:
            h[x[i]] += 1
            v[x[i]] += ti.Vector([1.0, 2.0, 3.0])

    count()
    inside = values[(values >= 0) & (values < 16)]
    found = np.bincount(inside, minlength=16)
    assert np.array_equal(h.to_numpy(), found)
    assert np.array_equal(v.to_numpy(), found[:, None] * [1, 2, 3])


def test_bins_fit_a_workgroups_memory_with_the_spare_one() -> None:
    caps = pipeline.CPU._replace(shared_bytes=8 * 4 * 100)
    fits, exceeds = (plan_bins(("const", 1 << 20), [(m, 4)], caps) for m in (99, 100))
    assert fits is not None and fits.has_own
    assert exceeds is not None and not exceeds.has_own


def test_arrays_that_are_read_as_well_have_none(loops: list[bool]) -> None:
    values = numbers(4000, 8)
    x, h, seen = field(values), ti.field(ti.i32, 8), ti.field(ti.i32, 4000)

    @ti.kernel
    def places():
        for i in x:
            seen[i] = ti.atomic_add(h[x[i]], 1)

    places()
    assert loops == [False]
    for k in range(8):
        assert sorted(seen.to_numpy()[values == k]) == list(range((values == k).sum()))


def test_an_array_that_is_too_large_does_not_keep_others_from_bins(loops: list[bool]) -> None:
    first, second = numbers(4000, 1 << 20), numbers(4000, 8, 4)
    x, y, large, small = field(first), field(second), ti.field(ti.i32, 1 << 20), ti.field(ti.i32, 8)

    @ti.kernel
    def count():
        for i in x:
            large[x[i]] += 1
            small[y[i]] += 1

    count()
    assert loops == [True]
    assert np.array_equal(large.to_numpy(), np.bincount(first, minlength=1 << 20))
    assert np.array_equal(small.to_numpy(), np.bincount(second, minlength=8))


@pytest.mark.parametrize("count", [5, 0, -1, -7])
def test_ranges_that_may_be_empty(count: int, loops: list[bool]) -> None:
    x, h = field(numbers(4000, 8)), ti.field(ti.i32, 8)

    @ti.kernel
    def first(n: ti.i32):
        for i in range(n):
            h[x[i]] += 1

    first(count)
    assert loops == [True]
    assert h.to_numpy().sum() == max(0, count)
