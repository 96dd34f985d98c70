"""Updates of one element by an iteration, under `if`s and in loops."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti


def integers(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(-9, 9, shape, np.int32)


def array(values: Any) -> Any:
    made = ti.ndarray(ti.i32, values.shape)
    made.from_numpy(values)
    return made


def test_grids_of_a_simulator() -> None:
    n = 33
    v, m = ti.Vector.field(2, ti.f32, (n, n)), ti.field(ti.f32, (n, n))
    rng = np.random.default_rng(2)
    start = (rng.random((n, n, 2)) - 0.5).astype(np.float32)
    mass = np.where(rng.random((n, n)) > 0.3, 2.0, 0.0).astype(np.float32)
    v.from_numpy(start)
    m.from_numpy(mass)

    @ti.kernel
    def update():
        for i, j in m:
            if m[i, j] > 0:
                v[i, j] /= m[i, j]
            v[i, j].y -= 0.25
            if i < 3 and v[i, j].x < 0:
                v[i, j].x = 0
            if i > n - 3 and v[i, j].x > 0:
                v[i, j].x = 0
            if j < 3 and v[i, j].y < 0:
                v[i, j].y = 0

    update()
    e = start.copy()
    e[mass > 0] /= 2
    e[..., 1] -= 0.25
    e[:3, :, 0] = np.maximum(e[:3, :, 0], 0)
    e[n - 2 :, :, 0] = np.minimum(e[n - 2 :, :, 0], 0)
    e[:, :3, 1] = np.maximum(e[:, :3, 1], 0)
    np.testing.assert_array_equal(v.to_numpy(), e)


@pytest.mark.parametrize("count", [1, 7, 5000])
def test_loops_and_exits(count: int) -> None:
    """In loops, behind `continue` and `break`, and in a while."""

    @ti.kernel
    def work(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            x[i] += 1
            for k in range(5):
                if x[i] > 6:
                    break
                if x[i] == k:
                    continue
                x[i] += k
            while x[i] > 3:
                x[i] -= 4
                y[i] += 1
            y[i] *= 2
            if x[i] == 0:
                y[i] = 100
            y[i] += x[i]

    start = integers(count)
    x, y = array(start), array(np.zeros(count, np.int32))
    work(x, y)
    left, seen = zip(*map(one, start.tolist()))
    assert x.to_numpy().tolist() == list(left)
    assert y.to_numpy().tolist() == list(seen)


def one(x: int) -> tuple[int, int]:
    """Result of `work` for a number."""
    y = 0
    x += 1
    for k in range(5):
        if x > 6:
            break
        if x == k:
            continue
        x += k
    while x > 3:
        x -= 4
        y += 1
    y *= 2
    if x == 0:
        y = 100
    return x, y + x


def test_elements_that_others_store_to() -> None:
    """An element found through memory is not the iteration's own: all see others' additions."""
    n = 4096
    slot, x = ti.field(ti.i32, n), ti.field(ti.i32, 16)
    slot.from_numpy(np.arange(n, dtype=np.int32) % 16)

    @ti.kernel
    def scatter():
        for i in slot:
            x[slot[i]] += 1
            if i % 3 == 0:
                x[slot[i]] += 2

    scatter()
    counts = np.zeros(16, np.int64)
    np.add.at(counts, np.arange(n) % 16, 1 + 2 * (np.arange(n) % 3 == 0))
    assert x.to_numpy().tolist() == counts.tolist()


def test_neighbours_and_rows() -> None:
    """Distinct elements of an array in one iteration; matrices of which some parts are used."""
    n = 300
    x = ti.Matrix.field(2, 2, ti.i32, (n, 3))
    start = integers(n, 3, 2, 2)
    x.from_numpy(start)

    @ti.kernel
    def swap():
        for i in range(n):
            if x[i, 0][0, 0] > x[i, 1][0, 0]:
                t = x[i, 0]
                x[i, 0] = x[i, 1]
                x[i, 1] = t
            x[i, 0][1, 1] = x[i, 1][0, 1]
            if x[i, 2][0, 0] == 0:
                x[i, 2][0, 0] = x[i, 0][0, 0]
            x[i, 2][0, 0] += 1
            x[i, 1] += x[i, 0]

    swap()
    e = start.copy()
    wrong = e[:, 0, 0, 0] > e[:, 1, 0, 0]
    e[wrong, 0], e[wrong, 1] = e[wrong, 1].copy(), e[wrong, 0].copy()
    e[:, 0, 1, 1] = e[:, 1, 0, 1]
    none = e[:, 2, 0, 0] == 0
    e[none, 2, 0, 0] = e[none, 0, 0, 0]
    e[:, 2, 0, 0] += 1
    e[:, 1] += e[:, 0]
    assert np.array_equal(x.to_numpy(), e)


@pytest.mark.parametrize("n", [4, 8, 31])
def test_updates_that_the_last_iteration_leaves_out(n: int) -> None:
    """An element behind a row has the offset of one in the next row, which must keep its sum."""
    x, counts = array(integers(2, n)), array(np.arange(n, dtype=np.int32)[::-1])
    y, m = array(integers(2, n, seed=2)), 5

    @ti.kernel
    def update(
        x: ti.types.ndarray(dtype=ti.i32, ndim=2),
        y: ti.types.ndarray(dtype=ti.i32, ndim=2),
        counts: ti.types.ndarray(dtype=ti.i32, ndim=1),
        m: ti.i32,
    ):
        for i in range(x.shape[1]):
            for _ in range(m):
                x[1, i] = x[1, i] + 2
                y[1, i] = y[1, i] + 2
            for _ in range(counts[i]):
                x[0, i + 1] = x[0, i + 1] + 1
            for _ in range(m):
                if i + 1 < y.shape[1]:
                    y[0, i + 1] = y[0, i + 1] + 3

    update(x, y, counts, m)
    first, second = integers(2, n), integers(2, n, seed=2)
    first[1] += 2 * m
    second[1] += 2 * m
    first[0, 1:] += np.arange(n)[:0:-1].astype(np.int32)
    second[0, 1:] += 3 * m
    np.testing.assert_array_equal(x.to_numpy(), first)
    np.testing.assert_array_equal(y.to_numpy(), second)
