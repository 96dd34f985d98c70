"""Consecutive loops of a kernel match numpy, as one dispatch or several."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti

N = 1000


def count_dispatches(kernel: Any, *args: Any) -> int:
    """Number of dispatches that a call of a kernel records."""
    found: int = kernel.inspect(lambda plan, _: len(plan.steps), *args)
    return found


def array(values: Any) -> Any:
    made = ti.ndarray(ti.f32, values.shape)
    made.from_numpy(values)
    return made


def numbers(*shape: int) -> Any:
    return np.random.default_rng(3).random(shape, np.float32)


@ti.kernel
def layers(x: ti.types.ndarray(), y: ti.types.ndarray(), z: ti.types.ndarray()):
    for i in x:
        y[i] = 2 * x[i] - 1
    for i in y:
        y[i] = ti.max(y[i], 0)
    for i in z:
        z[i] = y[i] + x[i]


def test_consumers_at_the_same_index_are_one_dispatch():
    values = numbers(N)
    x, y, z = array(values), array(0 * values), array(0 * values)
    layers(x, y, z)
    assert count_dispatches(layers, x, y, z) == 1
    np.testing.assert_allclose(y.to_numpy(), np.maximum(2 * values - 1, 0), rtol=1e-6)
    np.testing.assert_allclose(z.to_numpy(), np.maximum(2 * values - 1, 0) + values, rtol=1e-6)


def test_arguments_that_are_one_array():
    values = numbers(N)
    x, y = array(values), array(0 * values)
    layers(x, y, y)
    want = np.maximum(2 * values - 1, 0) + values
    np.testing.assert_allclose(y.to_numpy(), want, rtol=1e-6)
    z = array(values)
    layers(z, z, z)
    want = 2 * np.maximum(2 * values - 1, 0)
    np.testing.assert_allclose(z.to_numpy(), want, rtol=1e-6)


def test_loops_of_other_lengths_are_not_fused():
    values = numbers(N)
    x, y, z = array(values[:600]), array(0 * values), array(0 * values[:400])
    layers(x, y, z)
    assert count_dispatches(layers, x, y, z) == 3
    want = np.maximum(2 * values[:400] - 1, 0) + values[:400]
    np.testing.assert_allclose(z.to_numpy(), want, rtol=1e-6)


def test_neighbours_wait():
    n = 64
    a, b = ti.field(ti.f32, (n, n)), ti.field(ti.f32, (n, n))

    @ti.kernel
    def smooth():
        for i, j in ti.ndrange((1, n - 1), (1, n - 1)):
            b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
        for i, j in ti.ndrange((1, n - 1), (1, n - 1)):
            a[i, j] = 0.25 * (b[i - 1, j] + b[i + 1, j] + b[i, j - 1] + b[i, j + 1])

    def smoothed(x: Any) -> Any:
        return 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])

    want, between = numbers(n, n), np.zeros((n, n), np.float32)
    a.from_numpy(want)
    smooth()
    between[1:-1, 1:-1] = smoothed(want)
    want[1:-1, 1:-1] = smoothed(between)
    np.testing.assert_allclose(a.to_numpy(), want, rtol=1e-5)
    assert count_dispatches(smooth) == 2


@ti.kernel
def centre(x: ti.types.ndarray(), y: ti.types.ndarray(), z: ti.types.ndarray()):
    total = ti.Vector([0.0, 0.0])
    for i in x:
        total[0] += x[i]
        total[1] += 2 * x[i]
    for i in x:
        y[i] = total[1]
        z[i] = total[0]


def test_sums_in_components_are_complete():
    x, y, z = [array(np.ones(N, np.float32)) for _ in range(3)]
    centre(x, y, z)
    assert (y.to_numpy() == 2 * N).all()
    assert (z.to_numpy() == N).all()


@pytest.mark.usefixtures("as_gpu")
def test_sums_and_updates_as_gpu():
    test_sums_and_updates()


def test_sums_and_updates():
    x, r = ti.field(ti.f32, N), ti.field(ti.f32, N)
    out = ti.field(ti.f32, 2)

    @ti.kernel
    def step(a: ti.f32) -> ti.f32:
        total = 0.0
        for i in x:
            x[i] += a * r[i]
        for i in r:
            total += r[i] * x[i]
        out[0] = a
        biggest = 0.0
        for i in r:
            ti.atomic_max(biggest, x[i])
        out[1] = biggest
        for i in r:
            r[i] = r[i] - total
        return total

    values = numbers(N)
    r.from_numpy(values)
    total = step(2.0)
    want = 2 * float(np.sum(values.astype(np.float64) ** 2))
    assert total == pytest.approx(want, rel=1e-4)
    np.testing.assert_allclose(out.to_numpy(), [2, 2 * values.max()], rtol=1e-6)
    np.testing.assert_allclose(r.to_numpy(), values - total, rtol=1e-4, atol=1e-3)


def test_gradients_of_loops_that_follow_each_other():
    x, y = (ti.field(ti.f32, N, needs_grad=True) for _ in range(2))
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def run():
        for i in x:
            y[i] = ti.sin(x[i])
        for i in x:
            loss[None] += y[i] * y[i]

    values = numbers(N)
    x.from_numpy(values)
    with ti.ad.Tape(loss):
        run()
    np.testing.assert_allclose(
        x.grad.to_numpy(), np.sin(2 * values), atol=2e-3
    )  # as exact as sines are


def test_lines_keep_their_order(capfd: pytest.CaptureFixture[str]):
    x = ti.field(ti.i32, 2)

    @ti.kernel
    def tell():
        for i in x:
            x[i] = 1
            print("first")
        for i in x:
            x[i] = 2
            print("second")

    tell()
    ti.sync()
    assert capfd.readouterr().out.split() == ["first", "first", "second", "second"]
