"""Loops whose accesses are contiguous along different axes, and stencils over narrow elements.
Results and gradients are compared with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).random(shape, dtype=np.float32)


@pytest.mark.parametrize(("n", "m"), [(1024, 1024), (1000, 1024), (16, 2048), (2048, 1), (1, 1)])
def test_transposes_of_fields(n: int, m: int) -> None:
    x, y = ti.field(ti.f32, (n, m)), ti.field(ti.f32, (m, n))
    a = random(n, m)
    x.from_numpy(a)

    @ti.kernel
    def transpose() -> None:
        for i, j in x:
            y[j, i] = x[i, j]

    transpose()
    np.testing.assert_array_equal(y.to_numpy(), a.T)


def test_inner_range_with_a_branch_and_three_axes() -> None:
    n, m = 131, 1024
    x, y = ti.field(ti.f32, (n, 3, m)), ti.field(ti.f32, (m, 3, n))
    a = random(n, 3, m)
    x.from_numpy(a)

    @ti.kernel
    def permute() -> None:
        for i, k, j in ti.ndrange((2, n), 3, m):
            if x[i, k, j] > 0.5:
                y[j, k, i] += x[i, k, j]

    permute()
    want = np.where(a > 0.5, a, 0).transpose(2, 1, 0)
    want[:, :, :2] = 0
    np.testing.assert_array_equal(y.to_numpy(), want)


def test_ndarrays_of_known_shapes_and_one_array_twice() -> None:
    @ti.kernel
    def symmetric(x: ti.types.ndarray(ti.f32, 2), y: ti.types.ndarray(ti.f32, 2)):  # type: ignore
        for i, j in x:
            y[i, j] = x[i, j] + x[j, i]

    a = random(1024, 1024)
    x, y = (ti.ndarray(ti.f32, a.shape) for _ in range(2))
    x.from_numpy(a)
    for _ in range(30):  # the code for known shapes runs too
        symmetric(x, y)
    np.testing.assert_array_equal(y.to_numpy(), a + a.T)


def test_gradients() -> None:
    n = 1024
    x, y = (ti.field(ti.f32, (n, n), needs_grad=True) for _ in range(2))
    loss = ti.field(ti.f32, (), needs_grad=True)
    a, w = random(n, n), random(n, n + 1)[:, :n]
    x.from_numpy(a)
    weights = ti.field(ti.f32, (n, n))
    weights.from_numpy(w)

    @ti.kernel
    def transpose() -> None:
        for i, j in x:
            y[j, i] = x[i, j] * x[i, j]

    @ti.kernel
    def measure() -> None:
        for i, j in y:
            loss[None] += y[i, j] * weights[i, j]

    with ti.ad.Tape(loss):
        transpose()
        measure()
    np.testing.assert_allclose(x.grad.to_numpy(), 2 * a * w.T, rtol=1e-6)
    y.grad.from_numpy(w)
    x.grad.fill(0)
    transpose.grad()
    np.testing.assert_allclose(x.grad.to_numpy(), 2 * a * w.T, rtol=1e-6)


def life(a: Any) -> Any:
    s = sum(np.roll(a, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
    return ((s == 3) | ((s == 2) & (a == 1))).astype(np.uint8)


@pytest.mark.parametrize("n", [256, 257, 64, 5])
@pytest.mark.parametrize("begin", [0, 1, 2, 3])
def test_stencils_over_bytes(n: int, begin: int, need: Any) -> None:
    need("u8")
    x, y = ti.field(ti.u8, (n, n)), ti.field(ti.u8, (n, n))
    a = (random(n, n) < 0.4).astype(np.uint8)
    x.from_numpy(a)
    y.fill(7)

    @ti.kernel
    def step() -> None:
        for i, j in ti.ndrange(n, (begin, n - 1)):
            c = 0
            for di, dj in ti.static(ti.ndrange((-1, 2), (-1, 2))):
                if ti.static(di != 0 or dj != 0):
                    c += x[(i + di + n) % n, (j + dj + n) % n]
            y[i, j] = 1 if c == 3 or (c == 2 and x[i, j] == 1) else 0

    step()
    want = life(a)
    want[:, :begin] = want[:, n - 1 :] = 7
    np.testing.assert_array_equal(y.to_numpy(), want)


@pytest.mark.parametrize("n", [512, 515])
def test_taps_of_colours(n: int, need: Any) -> None:
    need("u8")
    x, y = ti.Vector.field(3, ti.u8, (n, n)), ti.Vector.field(3, ti.u8, (n, n))
    w = ti.field(ti.i32, 5)
    a = (random(n, n, 3) * 255).astype(np.uint8)
    x.from_numpy(a)
    w.from_numpy(np.array([1, 4, 6, 4, 1], np.int32))

    @ti.kernel
    def blur() -> None:
        for i, j in ti.ndrange(n, (2, n - 2)):
            s = ti.Vector([0, 0, 0])
            for k in range(5):
                s += ti.cast(x[i, j + k - 2], ti.i32) * w[k]
            y[i, j] = ti.cast(s // 16, ti.u8)

    blur()
    wide = a.astype(np.int32)
    want = sum(f * wide[:, k : n - 4 + k] for k, f in enumerate((1, 4, 6, 4, 1))) // 16
    np.testing.assert_array_equal(y.to_numpy()[:, 2 : n - 2], want)


def test_guarded_loads_out_of_range_stay_guarded(need: Any) -> None:
    need("u8")
    n = 512
    x, y = ti.field(ti.u8, (n, n)), ti.field(ti.u8, (n, n))
    a = (random(n, n) * 255).astype(np.uint8)
    x.from_numpy(a)

    @ti.kernel
    def shift(by: ti.i32):
        for i, j in x:
            y[i, j] = x[i, j + by] if 0 <= j + by < n else 9

    for by in (-3, 0, 1, 600):
        shift(by)
        want = np.full_like(a, 9)
        low, high = max(0, -by), min(n, n - by)
        if low < high:
            want[:, low:high] = a[:, low + by : high + by]
        np.testing.assert_array_equal(y.to_numpy(), want)
