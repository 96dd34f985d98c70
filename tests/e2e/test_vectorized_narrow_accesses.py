"""Narrow numbers that several iterations access as one word match single accesses."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.runtime import current_runtime

TYPES = {"u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16, "f16": np.float16}
SHAPES = [(16384,), (16387,), (128, 132), (101, 130), (257, 63)]


@pytest.fixture(autouse=True)
def device_with_narrow_memory() -> None:
    lacking = [name for name in TYPES if not current_runtime().device.caps.can_store(name)]
    if lacking:
        pytest.skip(f"no memory of {', '.join(lacking)}")


def numbers(dtype: Any, *shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(0, 60, shape).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_narrow_arrays(name: str, shape: tuple[int, ...]) -> None:
    t = getattr(ti, name)
    x, y, z = (ti.field(t, shape) for _ in range(3))
    a = numbers(TYPES[name], *shape)
    x.from_numpy(a)
    y.fill(1)

    @ti.kernel
    def step():
        for at in ti.grouped(x):
            y[at] = ti.cast(x[at] + x[at] + y[at], t)
            if x[at] > 30:
                z[at] = x[at]

    step()
    assert np.array_equal(y.to_numpy(), (a + a + 1).astype(a.dtype))
    assert np.array_equal(z.to_numpy(), np.where(a > 30, a, 0))


@pytest.mark.parametrize("n", [132, 131])
def test_pixels_to_grey_and_back(n: int) -> None:
    colors, grey = ti.Vector.field(3, ti.u8, (n, n)), ti.field(ti.u8, (n, n))
    total = ti.field(ti.i32, ())
    a = numbers(np.uint8, n, n, 3)
    colors.from_numpy(a)

    @ti.kernel
    def step():
        for i, j in grey:
            c = ti.cast(colors[i, j], ti.i32)
            grey[i, j] = ti.cast(c.sum(), ti.u8)
        for i, j in grey:
            colors[i, j] = ti.Vector([1, 2, 3]) + grey[i, j]
        for i, j in grey:
            total[None] += grey[i, j]

    step()
    want = a.sum(-1).astype(np.uint8)
    assert np.array_equal(grey.to_numpy(), want)
    assert np.array_equal(colors.to_numpy(), (want[..., None] + [1, 2, 3]).astype(np.uint8))
    assert total[None] == want.sum(dtype=np.int64)


def test_neighbours_of_bytes() -> None:
    n = 40_001
    a = numbers(np.uint8, n)
    x, y = ti.field(ti.u8, n), ti.field(ti.u8, n)
    x.from_numpy(a)

    @ti.kernel
    def step():
        for i in range(1, n - 1):
            y[i] = ti.cast((x[i - 1] + x[i] + x[i + 1]) // 3, ti.u8)

    step()
    want = np.zeros_like(a)
    wide = a.astype(np.int32)
    want[1:-1] = (wide[:-2] + wide[1:-1] + wide[2:]) // 3
    assert np.array_equal(y.to_numpy(), want)
