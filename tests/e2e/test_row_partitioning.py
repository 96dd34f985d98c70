"""Loops whose rows a processor's subgroups partition go through every iteration once."""

import numpy as np
import pytest

import vkchi as ti

SHAPES = [(3, 20_000), (300, 257), (40_000, 65), (1, 70_001), (1024, 64), (9000, 64), (511, 1018)]


@pytest.mark.parametrize("shape", SHAPES)
def test_two_axes(shape: tuple[int, int]) -> None:
    n, m = shape
    x, total = ti.field(ti.i32, shape), ti.field(ti.i32, ())

    @ti.kernel
    def step():
        for i, j in x:
            x[i, j] += 1 + i * 7 + j * 3

    @ti.kernel
    def add():
        for i, j in ti.ndrange((1, n), (2, m)):
            total[None] += x[i, j] % 1000

    step()
    add()
    i, j = np.indices(shape)
    want = 1 + i * 7 + j * 3
    assert np.array_equal(x.to_numpy(), want)
    assert total[None] == (want % 1000)[1:, 2:].sum()


@pytest.mark.parametrize("shape", [(20, 40, 100), (2, 3, 9001), (33, 35, 71), (5, 5, 40, 70)])
def test_more_axes(shape: tuple[int, ...]) -> None:
    x = ti.field(ti.i32, shape)

    @ti.kernel
    def step():
        for at in ti.grouped(x):
            number = 0
            for k in ti.static(range(len(shape))):
                number = number * shape[k] + at[k]
            x[at] += 1 + number

    step()
    want = 1 + np.arange(np.prod(shape)).reshape(shape)
    assert np.array_equal(x.to_numpy(), want)
