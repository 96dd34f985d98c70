"""Sums over an axis of a loop, to elements given by the other axes, match numpy."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti

SHAPES = [(1, 1), (1, 5000), (5000, 1), (3, 70001), (700, 901), (2049, 64)]


def integers(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(-50, 50, shape, np.int32)


def array(values: Any) -> Any:
    made = ti.ndarray(ti.i32, values.shape)
    made.from_numpy(values)
    return made


@ti.kernel
def along(x: ti.types.ndarray(), rows: ti.types.ndarray(), columns: ti.types.ndarray()):
    for i, j in x:
        rows[i] += x[i, j]
    for i, j in x:
        if x[i, j] > 0:
            columns[j] += x[i, j] * i
    for i, j in x:
        rows[i] += 1
        columns[j] -= j


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_and_columns(shape: tuple[int, int]) -> None:
    n, m = shape
    x = integers(n, m)
    rows, columns = array(np.zeros(n, np.int32)), array(np.zeros(m, np.int32))
    along(array(x), rows, columns)
    kept = np.where(x > 0, x, 0) * np.arange(n, dtype=np.int32)[:, None]
    assert np.array_equal(rows.to_numpy(), x.sum(1, dtype=np.int32) + m)
    expected = kept.sum(0, dtype=np.int32) - n * np.arange(m, dtype=np.int32)
    assert np.array_equal(columns.to_numpy(), expected)


@pytest.mark.parametrize("ends", [(0, 300), (-7, 250), (10, 10), (250, -7)])
def test_ranges_that_begin_anywhere(ends: tuple[int, int]) -> None:
    low, high = ends
    out = ti.field(ti.i32, 300, offset=-20)

    @ti.kernel
    def count(a: int, b: int):
        for i, j in ti.ndrange((-20, 280), (a, b)):
            out[i] += j * j

    count(low, high)
    total = sum(j * j for j in range(low, high))
    assert (out.to_numpy() == total).all()


def test_products_over_three_axes() -> None:
    n, m, r = 65, 70, 33
    a, b = integers(n, r), integers(r, m, seed=2)
    x, y, z = ti.field(ti.i32, (n, r)), ti.field(ti.i32, (r, m)), ti.field(ti.i32, (n, m))
    x.from_numpy(a)
    y.from_numpy(b)

    @ti.kernel
    def last():
        for i, j, k in ti.ndrange(n, m, r):
            z[i, j] += x[i, k] * y[k, j]

    @ti.kernel
    def middle():
        for i, k, j in ti.ndrange(n, r, m):
            z[i, j] += x[i, k] * y[k, j]

    for times, kernel in enumerate((last, middle, last), 1):
        kernel()
        assert np.array_equal(z.to_numpy(), times * (a @ b))


def test_extremes_and_bits() -> None:
    n, m = 300, 301
    x = ti.field(ti.i32, (n, m))
    low, high, seen = (ti.field(ti.i32, n) for _ in range(3))
    values = integers(n, m)
    x.from_numpy(values)
    low.fill(1000)

    @ti.kernel
    def find():
        for i, j in x:
            ti.atomic_min(low[i], x[i, j])
            ti.atomic_max(high[i], x[i, j])
            ti.atomic_or(seen[i], 1 << (x[i, j] & 31))

    find()
    assert np.array_equal(low.to_numpy(), values.min(1))
    assert np.array_equal(high.to_numpy(), np.maximum(values.max(1), 0))
    bits = np.bitwise_or.reduce(np.left_shift(1, values & 31), 1).astype(np.int32)
    assert np.array_equal(seen.to_numpy(), bits)


def test_old_values_of_reduced_sums() -> None:
    """Each iteration gets an old value of its own."""
    n, m = 64, 3000
    total, tickets = ti.field(ti.i32, n), ti.field(ti.i32, (n, m))

    @ti.kernel
    def draw():
        for i, j in tickets:
            tickets[i, j] = ti.atomic_add(total[i], 1)

    draw()
    assert (np.sort(tickets.to_numpy(), 1) == np.arange(m)).all()


def test_forces_between_all_pairs_and_their_gradient() -> None:
    n = 400
    x = ti.Vector.field(2, ti.f32, n, needs_grad=True)
    force = ti.Vector.field(2, ti.f32, n, needs_grad=True)
    energy = ti.field(ti.f32, (), needs_grad=True)
    places = np.random.default_rng(3).random((n, 2)).astype(np.float32)
    x.from_numpy(places)

    @ti.kernel
    def forces():
        for i, j in ti.ndrange(n, n):
            if i != j:
                d = x[i] - x[j]
                force[i] += d / (d.norm_sqr() + 0.25)

    @ti.kernel
    def potential():
        for i, j in ti.ndrange(n, n):
            energy[None] += 0.25 * ti.log((x[i] - x[j]).norm_sqr() + 0.25)

    forces()
    with ti.ad.Tape(energy):
        potential()
    d = places[:, None].astype(np.float64) - places[None]
    expected = (d / ((d * d).sum(-1, keepdims=True) + 0.25)).sum(1)
    np.testing.assert_allclose(force.to_numpy(), expected, rtol=1e-4, atol=2e-3)
    np.testing.assert_allclose(x.grad.to_numpy(), expected, rtol=1e-4, atol=2e-3)
