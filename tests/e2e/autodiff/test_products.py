"""Gradients of products over iterations of a parallel loop (`ti.atomic_mul`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import vkchi as ti

N, M = 23, 7
Floats = np.ndarray[Any, Any]


def differences(f: Callable[[Floats], float], x: Floats, step: float = 1e-6) -> Floats:
    found = np.zeros_like(x)
    for k in range(len(x)):
        ends = []
        for sign in (1, -1):
            y = x.copy()
            y[k] += sign * step
            ends.append(f(y))
        found[k] = (ends[0] - ends[1]) / (2 * step)
    return found


def others(x: Sequence[float], old: float = 1.0) -> list[float]:
    return [old * float(np.prod(np.delete(x, k))) for k in range(len(x))]


@pytest.mark.parametrize("seed", range(6))
def test_products_at_indices_from_data(seed: int) -> None:
    """Several products into one array, in loops that run a number of times from data, beside sums.
    Up to four factors are 0."""
    x, start, weight, out = (ti.field(ti.f32, n, needs_grad=True) for n in (N, M, M, M))
    near, loss = ti.field(ti.i32, N), ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def run():
        for j in range(M):
            out[j] = ti.sin(start[j]) + 0.5
        for i in range(N):
            ti.atomic_mul(out[near[i]], ti.cos(x[i]) * x[i])
        for j in range(M):
            out[j] += start[j]
        for i in range(N):
            for k in range(near[i] % 3):
                ti.atomic_mul(out[(near[i] + k) % M], x[i] + k)
        for j in range(M):
            loss[None] += out[j] * weight[j] * out[j]

    random = np.random.default_rng(seed)
    x0 = random.uniform(0.5, 1.3, N).astype(np.float32)
    x0[random.integers(0, N, random.integers(0, 5))] = 0
    s0, w = (random.uniform(-1, 1, M).astype(np.float32) for _ in range(2))
    places = random.integers(0, M, N).astype(np.int32)

    def f(both: Floats) -> float:
        a, s = both[:N], both[N:]
        y = np.sin(s) + 0.5
        for i in range(N):
            y[places[i]] *= np.cos(a[i]) * a[i]
        y = y + s
        for i in range(N):
            for k in range(places[i] % 3):
                y[(places[i] + k) % M] *= a[i] + k
        return float((y * y * w).sum())

    for array, values in ((x, x0), (start, s0), (weight, w), (near, places)):
        array.from_numpy(values)
    want = differences(f, np.concatenate([x0, s0]).astype(np.float64))
    with ti.ad.Tape(loss):
        run()
    found = np.concatenate([x.grad.to_numpy(), start.grad.to_numpy()])
    np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-4 * max(1, np.abs(want).max()))


@pytest.mark.parametrize("t", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("zeros", [(), (1,), (1, 3)], ids=["none", "one", "two"])
@pytest.mark.parametrize("old", [1.5, 0.0])
def test_zeros_among_the_factors(
    need: Callable[..., None], t: str, zeros: Sequence[int], old: float
) -> None:
    need(t)
    dtype, tolerance = getattr(ti, t), {"f32": 1e-5, "f64": 1e-12, "f16": 5e-3, "bf16": 4e-2}[t]
    x, out, loss = (ti.field(dtype, n, needs_grad=True) for n in (5, (), ()))

    @ti.kernel
    def run():
        for i in range(5):
            ti.atomic_mul(out[None], x[i])
        loss[None] += out[None]

    values = np.linspace(0.75, 1.25, 5)
    values[list(zeros)] = 0
    for i, v in enumerate(values):
        x[i] = v
    out[None] = old
    with ti.ad.Tape(loss):
        run()
    near = {"rtol": tolerance, "atol": 1e-6}
    np.testing.assert_allclose([x.grad[i] for i in range(5)], others(values, old), **near)
    np.testing.assert_allclose(out.grad[None], np.prod(values), **near)


@pytest.mark.parametrize("sign", [1, -1])
def test_factors_whose_product_is_out_of_range(sign: int) -> None:
    """The old value brings the result back into range."""
    x, out, loss = (ti.field(ti.f32, n, needs_grad=True) for n in (2, (), ()))
    x.from_numpy(np.array([10.0 ** (20 * sign), 10.0 ** (25 * sign)], np.float32))

    @ti.kernel
    def run(start: float):
        out[None] = start
        for i in x:
            ti.atomic_mul(out[None], x[i])
        loss[None] += out[None]

    with ti.ad.Tape(loss):
        run(10.0 ** (-30 * sign))
    want = [10.0 ** (-5 * sign), 10.0 ** (-10 * sign)]
    np.testing.assert_allclose(x.grad.to_numpy(), want, rtol=1e-4)


def test_a_product_in_a_variable_of_the_kernel() -> None:
    x, loss = ti.field(ti.f32, 4, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(np.array([1.5, 2, 0, 4], np.float32))

    @ti.kernel
    def run():
        product = 2.0
        for i in x:
            ti.atomic_mul(product, x[i] + 1)
        loss[None] += product * product

    with ti.ad.Tape(loss):
        run()
    factors = x.to_numpy() + 1
    total = 2 * np.prod(factors)
    np.testing.assert_allclose(loss[None], total**2)
    np.testing.assert_allclose(x.grad.to_numpy(), 2 * total * total / factors, rtol=1e-5)


def test_products_of_components_and_ndarrays() -> None:
    x = ti.Vector.ndarray(3, ti.f32, N, needs_grad=True)
    out = ti.Vector.ndarray(3, ti.f32, (), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    values = np.random.default_rng(0).uniform(0.8, 1.2, (N, 3)).astype(np.float32)
    values[2, 1] = values[3, 2] = values[4, 2] = 0
    x.from_numpy(values)

    @ti.kernel
    def run(x: ti.types.ndarray(), out: ti.types.ndarray()):
        for i in x:
            ti.atomic_mul(out[None], x[i])
        loss[None] += out[None].sum()

    out.fill(2)
    with ti.ad.Tape(loss, clear_gradients=False):
        run(x, out)
    want = np.stack([others(values[:, k], 2.0) for k in range(3)], axis=1)
    np.testing.assert_allclose(x.grad.to_numpy(), want, rtol=1e-4)


def test_a_product_that_is_not_used_may_be_nan() -> None:
    x, out, loss = (ti.field(ti.f32, n, needs_grad=True) for n in (4, 2, ()))
    x.from_numpy(np.array([2, np.nan, 3, 0], np.float32))
    out.fill(1)

    @ti.kernel
    def run():
        for i in x:
            ti.atomic_mul(out[i % 2], x[i])
        loss[None] += out[0]

    with ti.ad.Tape(loss):
        run()
    np.testing.assert_array_equal(x.grad.to_numpy(), [3, 0, 2, 0])


def test_reads_of_the_product_in_its_loop_raise() -> None:
    """The place of one's own was read before the product, or after it."""
    x, out, loss = (ti.field(ti.f32, n, needs_grad=True) for n in (4, 4, ()))
    order = ti.field(ti.i32, 4)
    order.from_numpy(np.array([2, 0, 3, 1], np.int32))

    @ti.kernel
    def run():
        for i in x:
            before = out[order[i]]
            ti.atomic_mul(out[order[i]], x[i])
            loss[None] += before

    with pytest.raises(ti.ad.GradientError, match="no gradient flows"), ti.ad.Tape(loss):
        run()


def test_second_derivatives_of_products_raise() -> None:
    x, loss = ti.field(ti.f32, 3, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def run():
        for i in x:
            ti.atomic_mul(loss[None], x[i])

    with pytest.raises(ti.ad.GradientError, match="no gradient flows"):
        ti.ad.hvp(run, loss, x, [1, 0, 0])
