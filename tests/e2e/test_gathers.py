"""Gradients of stencils, convolutions and products, whose sums are gathered or distributed: for
linear kernels y = K x they are K^T y', so that (K v) . y' = v . (K^T y'), exactly for small whole
numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti

N = 150
Kernel = Callable[[Any, Any], None]


@ti.kernel
def stencil(x: ti.template(), y: ti.template()):
    for i, j in ti.ndrange((1, N - 1), (1, N - 1)):
        y[i, j] = x[i - 1, j] + 2 * x[i + 1, j] + x[i, j - 1] - 3 * x[i, j + 1] - 4 * x[i, j]


@ti.kernel
def transposed(x: ti.template(), y: ti.template()):
    for i, j in ti.ndrange((1, N - 1), (1, N - 1)):
        y[j, i] = x[j - 1, i] + 2 * x[j, i + 1] + x[i, j - 1] - 3 * x[i, j]


@ti.kernel
def torus(x: ti.template(), y: ti.template()):
    for i, j in x:
        y[i, j] = x[(i + 1) % N, j] - 2 * x[i, (j - 1) % N] + x[(i - 3) % N, (j + 2) % N]


@ti.kernel
def far_torus(x: ti.template(), y: ti.template(), far: ti.i32):
    for i, j in x:  # i + far may overflow: another remainder
        y[i, j] = x[(i + far) % N, j] - 2 * x[i, (j + 1) % N]


@ti.kernel
def bordered(x: ti.template(), y: ti.template()):
    for i, j in x:
        s = -2 * x[i, j]
        if i > 0:
            s += x[i - 1, j]
        if j < N - 1:
            s += 3 * x[i, j + 1]
        y[i, j] = s


@ti.func
def sample(x: ti.template(), i, j):
    at = ti.max(0, ti.min(N - 1, ti.Vector([i, j])))
    return x[at]


@ti.kernel
def limited(x: ti.template(), y: ti.template()):
    for i, j in x:
        around = sample(x, i - 1, j) + 2 * sample(x, i + 2, j) - sample(x, i, j + 1)
        y[i, j] = around + x[ti.max(i - 2, 1), ti.min(j, N - 3)]


@ti.kernel
def convolution(x: ti.template(), y: ti.template()):
    for i, j in ti.ndrange(N - 2, N - 4):
        for k, l in ti.ndrange(3, 5):
            y[i, j] += (k - l) * x[i + k, j + l]


@ti.kernel
def part(x: ti.template(), y: ti.template(), begin: ti.i32, end: ti.i32, far: ti.i32):
    for i, j in ti.ndrange((begin, end), N):
        y[i, j] = x[i + far, j] - 2 * x[i - 1, j] + 3 * x[i + 1, j]


@ti.kernel
def scattered(x: ti.template(), y: ti.template()):
    for i, j in ti.ndrange((2, N), (0, N - 3)):
        v = x[i, j]
        y[i - 2, j] += v
        for k in range(3):
            y[i, j + k] += k * v


@ti.kernel
def coarse(x: ti.template(), y: ti.template()):
    for i, j in x:
        y[i, j] = x[i // 2, j] - 2 * x[i, (j + 1) // 3]


@ti.kernel
def coarser(x: ti.template(), y: ti.template()):
    for i, j in ti.ndrange((3, N - 2), (1, N)):
        y[i, j] = x[(i - 3) // 4, j // 2] + 2 * x[i // 4 + 0, (j - 1) // 2] - x[i // 5, j]


@ti.kernel
def pooled(x: ti.template(), y: ti.template()):
    for i, j in ti.ndrange((1, N - 1), N):
        y[(i + 1) // 2, j // 4] += x[i, j]


@ti.kernel
def of_arrays(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i, j in ti.ndrange((1, x.shape[0] - 1), x.shape[1]):
        y[i, j] = x[i - 1, j] + 2 * x[i + 1, (j + 1) % x.shape[1]] - x[i, j]


KERNELS: dict[str, Kernel] = {
    "stencil": stencil, "transposed": transposed, "torus": torus, "bordered": bordered,
    "limited": limited, "far torus": lambda x, y: far_torus(x, y, 2**31 - 20),
    "convolution": convolution, "scattered": scattered, "of arrays": of_arrays,
    "coarse": coarse, "coarser": coarser, "pooled": pooled,
    "part": lambda x, y: part(x, y, 3, N - 5, 4), "none": lambda x, y: part(x, y, 9, 3, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_transposed_convolution_gradient(name: str) -> None:
    kernel = KERNELS[name]
    rng = np.random.default_rng(5)
    v, slope = rng.integers(-2, 3, (2, N, N)).astype(np.float32)
    make = ti.ndarray if name == "of arrays" else ti.field
    x, y = (make(ti.f32, (N, N), needs_grad=True) for _ in range(2))
    loss = ti.field(ti.f32, (), needs_grad=True)
    weights = make(ti.f32, (N, N))
    x.from_numpy(v)
    weights.from_numpy(slope)
    with ti.ad.Tape(loss):
        kernel(x, y)
        if name == "of arrays":
            add_arrays(y, weights, loss)
        else:
            add(y, weights, loss)
    assert (y.to_numpy() * slope).sum() == (v * x.grad.to_numpy()).sum()
    # for each element, the kernel's result for it alone
    for at in ((0, 0), (1, 2), (5, 7), (N - 1, N - 1), (N - 2, 0)):
        one = np.zeros((N, N), np.float32)
        one[at] = 1
        x.from_numpy(one)
        y.fill(0)
        kernel(x, y)
        assert x.grad[at] == (y.to_numpy() * slope).sum(), at


@ti.kernel
def add(y: ti.template(), weights: ti.template(), loss: ti.template()):
    for i, j in y:
        loss[None] += y[i, j] * weights[i, j]


@ti.kernel
def add_arrays(y: ti.types.ndarray(), weights: ti.types.ndarray(), loss: ti.template()):
    for i, j in y:
        loss[None] += y[i, j] * weights[i, j]


def test_vector_gathers() -> None:
    v, u = (ti.Vector.field(2, ti.f32, N * N, needs_grad=True) for _ in range(2))

    @ti.kernel
    def difference():
        for i in range(1, N * N - 1):
            u[i] = v[i + 1] - 2 * v[i - 1].yx

    slope = np.random.default_rng(5).integers(-2, 3, (N * N, 2)).astype(np.float32)
    u.grad.from_numpy(slope)
    difference.grad()
    want = np.zeros_like(slope)
    want[2:] += slope[1:-1]
    want[:-2] -= 2 * slope[1:-1, ::-1]
    np.testing.assert_array_equal(v.grad.to_numpy(), want)


def test_weight_gradients() -> None:
    x, y = (ti.field(ti.f32, (N, N), needs_grad=True) for _ in range(2))
    w = ti.field(ti.f32, (3, 5), needs_grad=True)

    @ti.kernel
    def convolve():
        for i, j in ti.ndrange(N - 2, N - 4):
            s = 0.0
            for k, l in ti.ndrange(3, 5):
                s += x[i + k, j + l] * w[k, l]
            y[i, j] = s

    rng = np.random.default_rng(5)
    values, slope = rng.integers(-2, 3, (2, N, N)).astype(np.float32)
    weights = rng.integers(-2, 3, (3, 5)).astype(np.float32)
    x.from_numpy(values)
    w.from_numpy(weights)
    y.grad.from_numpy(slope)
    convolve.grad()
    want, want_w = np.zeros_like(values), np.zeros_like(weights)
    inner = slope[: N - 2, : N - 4]
    for k, l in np.ndindex(3, 5):
        part = np.s_[k : k + N - 2, l : l + N - 4]
        want[part] += weights[k, l] * inner
        want_w[k, l] = (values[part] * inner).sum()
    np.testing.assert_array_equal(x.grad.to_numpy(), want)
    np.testing.assert_array_equal(w.grad.to_numpy(), want_w)


@pytest.mark.parametrize("form", ["serial", "atomic"])
def test_product_gradients(form: str) -> None:
    rows, inner, columns = 70, 50, 60
    a, b, c = (
        ti.field(ti.f32, shape, needs_grad=True)
        for shape in ((rows, inner), (inner, columns), (rows, columns))
    )

    @ti.kernel
    def serial():
        for i, j in c:
            for k in range(inner):
                c[i, j] += a[i, k] * b[k, j]

    @ti.kernel
    def atomic():
        for i, j, k in ti.ndrange(rows, columns, inner):
            c[i, j] += a[i, k] * b[k, j]

    rng = np.random.default_rng(5)
    given = {x: rng.integers(-2, 3, x.shape).astype(np.float32) for x in (a, b)}
    for x, values in given.items():
        x.from_numpy(values)
    slope = rng.integers(-2, 3, c.shape).astype(np.float32)
    c.grad.from_numpy(slope)
    (serial if form == "serial" else atomic).grad()
    np.testing.assert_array_equal(a.grad.to_numpy(), slope @ given[b].T)
    np.testing.assert_array_equal(b.grad.to_numpy(), given[a].T @ slope)


def test_pairwise_gradients() -> None:
    n = 200
    x, f = (ti.Vector.field(3, ti.f32, n, needs_grad=True) for _ in range(2))

    @ti.kernel
    def springs():
        for i in x:
            for j in range(n):
                d = x[j] - x[i]
                f[i] += d * (i - 2 * j)

    slope = np.random.default_rng(5).integers(-2, 3, (n, 3)).astype(np.float32)
    f.grad.from_numpy(slope)
    springs.grad()
    i, j = np.ogrid[:n, :n]
    weights = i - 2 * j
    want = weights.T @ slope - weights.sum(1)[:, None] * slope
    np.testing.assert_array_equal(x.grad.to_numpy(), want)
