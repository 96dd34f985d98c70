"""Unselected values do not spoil gradients: infinities and NaNs in the other arm of a `select`, or
in values that only some iterations use."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti


def x_log_x(a):
    return ti.select(a > 0, a * ti.log(a), 0.0)


def sign_by_rsqrt(a):
    return ti.select(a != 0, a * ti.rsqrt(a * a), 0.0)


def unit_vector(a):
    v = ti.Vector([a, a])
    return ti.select(v.norm() > 0, v.normalized(), ti.Vector([0.0, 0.0])).sum()


def x_exp_x(a):
    return ti.select(a < 80, ti.exp(a) * a, a)


def twice_inverse(a):
    r = 1 / a
    return ti.select(a != 0, r * a * a, 0.0)


def root_by_logarithm(a):
    return ti.select(a > 0, ti.exp(ti.log(a) * 0.5) * a, a)


def solved(a):
    m = ti.Matrix([[a, 0.0], [0.0, a]])
    x = m.inverse() @ ti.Vector([1.0, 1.0])
    return ti.select(a != 0, x[0] * a * a, 0.0)


def arc(a):
    return ti.select(abs(a) < 1, ti.asin(a) * ti.sqrt(1 - a * a), a)


def wave_of_inverse(a):
    return ti.select(a != 0, ti.sin(1 / a) * a, 0.0)


def used_in_one_arm(a):
    r = a * ti.rsqrt(a * a)
    total = 0.0
    if a != 0:
        total = r * a  # |a|
    return total


PROGRAMS: list[tuple[Callable[..., Any], list[float], list[float]]] = [
    (x_log_x, [1, 0, -1], [1, 0, 0]),
    (sign_by_rsqrt, [2, 0], [0, 0]),
    (unit_vector, [2, 0], [0, 0]),
    (x_exp_x, [1, 1000], [2 * math.e, 1]),
    (twice_inverse, [2, 0], [1, 0]),
    (root_by_logarithm, [4, -1], [3, 1]),
    (solved, [2, 0], [1, 0]),
    (arc, [0.5, 1, 2], [1 - math.asin(0.5) * 0.5 / math.sqrt(0.75), 1, 1]),
    (wave_of_inverse, [2, 0], [math.sin(0.5) - 0.5 * math.cos(0.5), 0]),
    (used_in_one_arm, [2, -3, 0], [1, -1, 0]),
]


@pytest.mark.parametrize(("body", "at", "slopes"), PROGRAMS, ids=[p[0].__name__ for p in PROGRAMS])
def test_unselected_arm_does_not_spoil_gradient(
    body: Any, at: list[float], slopes: list[float]
) -> None:
    x, loss = ti.field(ti.f32, len(at), needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(np.array(at, np.float32))
    function = ti.func(body)

    @ti.kernel
    def run():
        for i in x:
            loss[None] += function(x[i])

    with ti.ad.Tape(loss):
        run()
    np.testing.assert_allclose(x.grad.to_numpy(), slopes, rtol=1e-4, atol=1e-5)


def test_chosen_in_another_kernel() -> None:
    x, y = ti.field(ti.f32, 3, needs_grad=True), ti.field(ti.f32, 3, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(np.array([2, 0, -3], np.float32))

    @ti.kernel
    def put():
        for i in x:
            y[i] = x[i] * ti.rsqrt(x[i] * x[i]) * x[i]

    @ti.kernel
    def use():
        for i in x:
            loss[None] += ti.select(x[i] != 0, y[i], 0.0)

    with ti.ad.Tape(loss):
        put()
        use()
    np.testing.assert_allclose(x.grad.to_numpy(), [1, 0, -1], rtol=1e-5)


def by_select(loss, known, x, seen, w):
    loss[None] += ti.select(known, w * (x - seen) ** 2, 0.0)


def by_product(loss, known, x, seen, w):
    error = x - seen
    loss[None] += w * error * error if known else 0.0


def by_branch(loss, known, x, seen, w):
    error = x - seen
    squared = w * error * error
    if known:
        loss[None] += squared


def by_fixed_numbers(loss, known, x, seen, w):
    product = w * ti.stop_grad(seen) * x
    loss[None] += ti.select(known, product, 0.0)


def in_a_loop(loss, known, x, seen, w):
    total = 0.0
    for _ in range(2):
        total += w * (x - seen) * (x - seen) / 2
    if known:
        loss[None] += total


def in_vectors(loss, known, x, seen, w):
    error = ti.Vector([w * x, seen]) * seen
    product = error.dot(ti.Vector([x, w]))
    loss[None] += ti.select(known, product, 0.0)


SQUARES = [2 * 2 * 0.5, 0, 0, 0]
MASKED: list[tuple[Callable[..., None], list[float]]] = [
    (by_select, SQUARES),
    (by_product, SQUARES),
    (by_branch, SQUARES),
    (by_fixed_numbers, [2 * 0.5, 0, 0, 0]),
    (in_a_loop, SQUARES),
    (in_vectors, [2 * 2 * 0.5, 0, 0, 0]),
]


@pytest.mark.parametrize(("body", "slopes"), MASKED, ids=[p[0].__name__ for p in MASKED])
def test_missing_data(body: Any, slopes: list[float]) -> None:
    x, w, seen = (ti.field(ti.f32, 4, needs_grad=True) for _ in range(3))
    loss = ti.field(ti.f32, (), needs_grad=True)
    x.fill(1)
    w.fill(2)
    seen.from_numpy(np.array([0.5, np.nan, np.inf, -np.inf], np.float32))
    add = ti.func(body)

    @ti.kernel
    def run():
        for i in x:
            add(loss, i == 0, x[i], seen[i], w[i])

    with ti.ad.Tape(loss):
        run()
    np.testing.assert_allclose(x.grad.to_numpy(), slopes, rtol=1e-5)
    assert not np.isnan(w.grad.to_numpy()).any()


def test_missing_data_in_sums_of_their_own() -> None:
    """Terms of `errors[i]` count only where that does."""
    x, seen, errors = (ti.field(ti.f32, 4, needs_grad=True) for _ in range(3))
    loss = ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(np.array([1, 2, 3, 4], np.float32))
    seen.from_numpy(np.array([0.5, np.nan, 1, np.nan], np.float32))

    @ti.kernel
    def run():
        for i in x:
            errors[i] += (x[i] - seen[i]) ** 2
        for i in x:
            loss[None] += ti.select(i % 2 == 0, errors[i], 0.0)

    with ti.ad.Tape(loss):
        run()
    np.testing.assert_allclose(x.grad.to_numpy(), [1, 0, 4, 0], rtol=1e-5)


def test_infinite_slope_that_counts_stays_infinite() -> None:
    x, loss = ti.field(ti.f32, (), needs_grad=True), ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def root():
        loss[None] += 3 * ti.sqrt(x[None])

    with ti.ad.Tape(loss):
        root()
    assert x.grad[None] == math.inf


def logistic(x: Any) -> Any:
    return 1 / (1 + ti.exp(-x))


def saturated(x: Any) -> Any:
    return ti.tanh(ti.exp(x)) * 2


def root_times_zero(x: Any) -> Any:
    return ti.floor(x * 0) * ti.sqrt(x * 0)


OVERFLOWS = [
    (logistic, [-800.0, 0.0, 800.0], [0, 0.25, 0], [0, 0, 0]),
    (saturated, [-800.0, 800.0], [0, 0], [0, 0]),
    (root_times_zero, [1.0], [0], [0]),
]


@pytest.mark.parametrize(("body", "at", "slopes", "bends"), OVERFLOWS)
def test_tangent_that_overflows(body: Any, at: Any, slopes: Any, bends: Any) -> None:
    """Forward mode, and both modes, where an exponential is infinite and its result is not."""
    n, f = len(at), ti.func(body)
    x = ti.field(ti.f32, n, needs_grad=True, needs_dual=True)
    y = ti.field(ti.f32, n, needs_grad=True, needs_dual=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def run():
        for i in x:
            y[i] = f(x[i])

    @ti.kernel
    def add():
        for i in y:
            loss[None] += y[i]

    def both():
        run()
        add()

    x.from_numpy(np.array(at))
    with ti.ad.FwdMode(loss=y, param=x, seed=[1] * n):
        run()
    np.testing.assert_allclose(y.dual.to_numpy(), slopes, atol=1e-6)
    np.testing.assert_allclose(ti.ad.hvp(both, loss, x, [1] * n), bends, atol=1e-6)
    np.testing.assert_allclose(x.grad.to_numpy(), slopes, atol=1e-6)
