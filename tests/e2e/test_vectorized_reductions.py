"""Long sums with vectorized parts match numpy."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti

SHAPES = [(1 << 20,), ((1 << 20) + 2,), ((1 << 20) + 5,), (3, 1 << 19), (1024, 1030)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_vectorized_sums_match_numpy(shape: tuple[int, ...]) -> None:
    x, y = ti.field(ti.i32, shape), ti.field(ti.i32, shape)
    total, dot, most = (ti.field(ti.i32, ()) for _ in range(3))
    a, b = (np.random.default_rng(k).integers(-9, 9, shape, dtype=np.int32) for k in (1, 2))
    a.flat[-1] = 77
    x.from_numpy(a)
    y.from_numpy(b)

    @ti.kernel
    def run() -> None:
        for i in ti.grouped(x):
            total[None] += x[i]
        for i in ti.grouped(x):
            dot[None] += x[i] * y[i]
        for i in ti.grouped(x):
            ti.atomic_max(most[None], x[i])

    run()
    assert (total[None], dot[None], most[None]) == (a.sum(), (a * b).sum(), 77)


@pytest.mark.parametrize("begin", [0, 1, 2, 6])
def test_floats_from_an_offset_on(begin: int) -> None:
    n = 1 << 20
    x, total = ti.field(ti.f32, n), ti.field(ti.f32, ())
    a: Any = np.random.default_rng(3).integers(0, 4, n).astype(np.float32)
    x.from_numpy(a)

    @ti.kernel
    def run() -> None:
        for i in range(begin, n - 8 + begin):
            total[None] += x[i]

    run()
    assert total[None] == a[begin : n - 8 + begin].sum(dtype=np.float64)
