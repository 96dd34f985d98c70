"""Kernels that write a row of an array and read another: nothing is copied, and gradients are
right, of rows that may be the same as well."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti

pytestmark = pytest.mark.device
N, ROWS = 5, 4


@pytest.fixture
def arrays():
    ti.init(arch=ti.vulkan)
    made = [ti.field(ti.f32, (ROWS, N), needs_grad=True) for _ in range(2)]
    return *made, ti.field(ti.f32, (), needs_grad=True)


def test_rows_of_time(arrays):
    """b[t] += 2 a[t - 1]; loss += b[t - 1] b[t], whose slope by a is found by hand."""
    a, b, loss = arrays
    values = np.random.default_rng(1).random((ROWS, N), np.float32)

    @ti.kernel
    def step(t: ti.i32):
        for i in range(N):
            b[t, i] += 2 * a[t - 1, i]
            loss[None] += b[t - 1, i] * a[t, i] ** 2

    a.from_numpy(values)
    for _ in range(2):
        b.fill(1)
        with ti.ad.Tape(loss) as tape:
            for t in range(1, ROWS):
                step(t)
        assert tape.report.saved_bytes == 0
        rows = np.vstack([np.ones(N), 1 + 2 * values[:-1]])  # b in the end
        want = np.zeros((ROWS, N))
        want[1:] += 2 * rows[:-1] * values[1:]
        want[: ROWS - 2] += 2 * values[2:] ** 2
        np.testing.assert_allclose(a.grad.to_numpy(), want, rtol=1e-5)
        assert loss[None] == pytest.approx((rows[:-1] * values[1:] ** 2).sum(), rel=1e-5)


@pytest.mark.parametrize(("t", "u"), [(1, 1), (1, 2), (2, 0)])
def test_rows_that_may_be_one(arrays, t, u):
    a, b, loss = arrays
    a.fill(3)
    b.fill(1)

    @ti.kernel
    def step(t: ti.i32, u: ti.i32):
        for i in range(N):
            b[t, i] = a[t, i] * 2
            loss[None] += b[u, i] ** 2

    with ti.ad.Tape(loss):
        step(t, u)
    want = np.zeros((ROWS, N))
    if t == u:
        want[t] = 2 * 6 * 2
    np.testing.assert_array_equal(a.grad.to_numpy(), want)


def test_iterations_that_read_writes_of_earlier_iterations(arrays):
    a, b, loss = arrays
    a.fill(2)
    b.fill(1)

    @ti.kernel
    def run(t: ti.i32):
        for i in range(N):
            for k in range(1, ROWS):
                b[k, i] = a[t, i] * b[k - 1, i]
            loss[None] += b[ROWS - 1, i]

    with ti.ad.Tape(loss):
        run(0)
    want = np.zeros((ROWS, N))
    want[0] = 3 * 2**2
    np.testing.assert_array_equal(a.grad.to_numpy(), want)
