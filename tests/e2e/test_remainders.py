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
    """By extents that only the launch knows, many in an invocation: multiplied by reciprocals."""
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
