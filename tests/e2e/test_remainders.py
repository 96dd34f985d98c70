"""Neighbours in periodic grids whose extents only a launch knows are those that numpy rolls to."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti


@ti.kernel
def spread(x: ti.types.ndarray(), y: ti.types.ndarray(), far: ti.i32):
    n, m = x.shape[0], x.shape[1]
    for i, j in x:
        total = x[(i + 1) % n, j] + 2 * x[(i - 1) % n, j] + 4 * x[i, (j + m - 1) % m]
        y[i, j] = total + 8 * x[(i + far) % n, (j - far) % m]


@pytest.mark.parametrize("far", [0, 3, -50])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (2, 3), (33, 130), (128, 65)])
def test_periodic_grids(shape: tuple[int, int], far: int) -> None:
    values: Any = np.random.default_rng(2).integers(0, 99, shape, np.int32)
    x, y = ti.ndarray(ti.i32, shape), ti.ndarray(ti.i32, shape)
    x.from_numpy(values)
    spread(x, y, far)
    want = np.roll(values, -1, 0) + 2 * np.roll(values, 1, 0) + 4 * np.roll(values, 1, 1)
    want = want + 8 * np.roll(values, (-far, far), (0, 1))
    assert (y.to_numpy() == want).all()


@pytest.mark.usefixtures("as_gpu")
def test_periodic_grids_as_gpu() -> None:
    test_periodic_grids((33, 130), 3)


def test_numbers_that_may_be_negative() -> None:
    @ti.kernel
    def fill(n: ti.i32, by: ti.i32, x: ti.types.ndarray()):
        for i in range(n):
            x[i] = (i + 1) % by + 100 * ((i - 1) % n)

    for n, by in ((7, 7), (7, 6), (7, -7), (7, -3), (7, 100), (0, 3)):
        x = ti.ndarray(ti.i32, 7)
        x.fill(0)
        fill(n, by, x)
        want = [(i + 1) % by + 100 * ((i - 1) % n) for i in range(n)] + [0] * (7 - n)
        assert x.to_numpy().tolist() == want


@pytest.mark.parametrize("shape", [(1, 1, 70001), (40000, 1, 1), (3, 16384, 2), (37, 1021, 3)])
def test_flat_indices_taken_apart(shape: tuple[int, int, int]) -> None:
    """By extents that only the launch knows, multiplied by reciprocals."""
    x, y = ti.ndarray(ti.i32, shape), ti.ndarray(ti.i32, shape)
    values = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    x.from_numpy(values)

    @ti.kernel
    def run(x: ti.types.ndarray(), y: ti.types.ndarray(), back: ti.i32):
        n, m = x.shape[1], x.shape[2]
        for p in range(x.shape[0] * n * m):
            i, j, k = p // m // n, p // m % n, p % m
            behind = p - back
            y[i, j, k] = x[i, j, k] + 1000 * (behind // m) + behind % m

    run(x, y, 100)
    behind = np.arange(values.size).reshape(shape) - 100
    want = values + 1000 * (behind // shape[2]) + behind % shape[2]
    np.testing.assert_array_equal(y.to_numpy(), want.astype(np.int32))


def test_every_launch_sends_constants_of_its_bounds() -> None:
    """One kernel, arrays of one shape after the other and again."""

    @ti.kernel
    def run(x: ti.types.ndarray(ti.i32, ndim=2), y: ti.types.ndarray(ti.i32, ndim=1), by: ti.i32):
        for p in y:
            y[p] = by * (p // x.shape[1]) + (p + 3) % x.shape[0] - p % x.shape[1]

    kept = {}
    p = np.arange(100)
    for n, m in [(5, 7), (8, 1), (1, 64), (5, 7), (1000003, 2), (8, 1), (5, 7)]:
        x, y = kept.setdefault((n, m), (ti.ndarray(ti.i32, (n, m)), ti.ndarray(ti.i32, 100)))
        for by in (10, 20):
            run(x, y, by)
            np.testing.assert_array_equal(y.to_numpy(), by * (p // m) + (p + 3) % n - p % m)


def test_graphs_send_constants_of_their_bounds() -> None:
    @ti.kernel
    def run(x: ti.types.ndarray(ti.i32, ndim=2), y: ti.types.ndarray(ti.i32, ndim=1), by: ti.i32):
        for p in y:
            y[p] += by * (p // x.shape[1]) + p % x.shape[1]

    x, y = ti.ndarray(ti.i32, (3, 11)), ti.ndarray(ti.i32, 33)
    with ti.record() as g:
        run(x, y, 100)
        run(x, y, 1)
    g.run(2)
    p = np.arange(33)
    np.testing.assert_array_equal(y.to_numpy(), 2 * (101 * (p // 11) + 2 * (p % 11)))


def test_graphs_take_arrays_of_other_shapes() -> None:
    """Values that depend on their shapes are sent for each run."""

    @ti.kernel
    def run(x: ti.types.ndarray(ti.i32, ndim=2), y: ti.types.ndarray(ti.i32, ndim=1)):
        for p in y:
            y[p] = 1000 * ((p - 40) // x.shape[1]) + p % x.shape[0]

    builder = ti.graph.GraphBuilder()
    array = ti.graph.ArgKind.NDARRAY
    args = [ti.graph.Arg(array, name, ti.i32, ndim=n) for name, n in (("x", 2), ("y", 1))]
    builder.dispatch(run, *args)
    graph = builder.compile()
    p = np.arange(100)
    for n, m in [(5, 7), (7, 5), (1, 64), (64, 1), (1000, 33), (5, 7)]:
        x, y = ti.ndarray(ti.i32, (n, m)), ti.ndarray(ti.i32, 100)
        graph.run({"x": x, "y": y})
        np.testing.assert_array_equal(y.to_numpy(), 1000 * ((p - 40) // m) + p % n)


def test_numbers_of_divisors_that_are_too_many_to_be_pushed() -> None:
    """More than 256 bytes of arguments: they stand in memory."""

    @ti.kernel
    def run(
        a: ti.types.ndarray(ti.i32, ndim=4), b: ti.types.ndarray(ti.i32, ndim=4),
        c: ti.types.ndarray(ti.i32, ndim=4), d: ti.types.ndarray(ti.i32, ndim=4),
        e: ti.types.ndarray(ti.i32, ndim=4), y: ti.types.ndarray(ti.i32, ndim=1),
    ):  # fmt: skip
        for p in y:
            s = 0
            for x in ti.static((a, b, c, d, e)):
                q = p
                for k in ti.static(range(4)):
                    s = 7 * s + q % x.shape[3 - k]
                    q //= x.shape[3 - k]
            y[p] = s

    rng = np.random.default_rng(0)
    for _ in range(3):
        shapes = rng.integers(1, 12, (5, 4))
        y = ti.ndarray(ti.i32, 500)
        run(*(ti.ndarray(ti.i32, tuple(map(int, shape))) for shape in shapes), y)
        want = np.zeros(500, np.int64)
        for shape in shapes:
            q = np.arange(500)
            for n in shape[::-1]:
                want, q = 7 * want + q % n, q // n
        np.testing.assert_array_equal(y.to_numpy(), want.astype(np.int32))
