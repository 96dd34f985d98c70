"""Atomics on elements that belong to one iteration act as a load and a store: their results, and
mixtures with stores, have a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import X, check, field, is_near, make, refuse, slope
from tests.unit.kernels import define

Y = np.array([0.5, 1.5, 0.9, 0.2])


def start() -> tuple[Any, Any, Any]:
    """x, y and a loss."""
    x, loss = make()
    return x, field(4, values=Y), loss


def test_the_old_value_carries_a_derivative() -> None:
    x, y, loss = start()

    @ti.kernel
    def run():
        for i in x:
            loss[None] += ti.atomic_add(y[i], x[i] * x[i]) * x[i] + y[i]

    check(x, loss, run, gradient=Y + 2 * X)
    is_near(y.grad, X + 1)


def test_the_old_value_decides() -> None:
    x, y, loss = start()

    @ti.kernel
    def run():
        for i in x:
            if ti.atomic_sub(y[i], 1.0) > 0.7:
                loss[None] += x[i] * x[i] * y[i]

    check(x, loss, run, gradient=np.where(Y > 0.7, 2 * X * (Y - 1), 0))


def test_a_maximum_over_windows() -> None:
    x, loss = make()
    y = field(2)

    @ti.kernel
    def run():
        for i in y:
            y[i] = -1e9
            for k in range(2):
                ti.atomic_max(y[i], x[2 * i + k])
                ti.atomic_min(y[i], 1.5)
            loss[None] += y[i] * y[i]

    check(x, loss, run, gradient=[0, 2 * 1.3, 0, 0])


def test_a_product() -> None:
    x, y, loss = start()

    @ti.kernel
    def run():
        for i in x:
            for k in range(3):
                ti.atomic_mul(y[i], x[(i + k) % 4])
        for i in y:
            loss[None] += y[i]

    def program(x):
        return sum(Y[i] * x[i] * x[(i + 1) % 4] * x[(i + 2) % 4] for i in range(4))

    check(x, loss, run, gradient=slope(program))


def test_in_two_axes_and_in_forward_mode() -> None:
    x = ti.field(ti.f32, (2, 2), needs_grad=True, needs_dual=True)
    y = ti.field(ti.f32, (2, 2), needs_grad=True, needs_dual=True)
    loss = ti.field(ti.f32, (), needs_grad=True, needs_dual=True)
    x.from_numpy(X.reshape(2, 2).astype(np.float32))
    y.from_numpy(Y.reshape(2, 2).astype(np.float32))

    @ti.kernel
    def run():
        for i, j in x:
            old = ti.atomic_add(y[i, j], x[i, j])
            loss[None] += old * x[i, j] + ti.atomic_max(y[i, j], x[j, i])

    def program(x):
        x, y = x.reshape(2, 2), Y.reshape(2, 2)
        return (y * x + y + x).sum()

    check(x, loss, run, gradient=slope(program).reshape(2, 2))
    y.from_numpy(Y.reshape(2, 2).astype(np.float32))
    with ti.ad.FwdMode(loss=loss, param=x, seed=[1, 0, 0, 0]):
        run()
    is_near(loss.dual, slope(program)[0])


@pytest.mark.parametrize("memory", [None, "1KiB"])
def test_counter_in_a_loop_of_one_iteration(memory: Any) -> None:
    """`for _ in range(1)` is how people make a kernel's loops serial: a tree whose nodes a counter
    hands out there, in a `while`, is the same when the gradient builds it again."""
    n = 6
    x, loss = field(n, values=[0.9, 0.1, 0.4, 0.7, 0.2, 0.55]), field()
    mass = field(4 * n)
    child, nodes = ti.field(ti.i32, (4 * n, 2)), ti.field(ti.i32, ())

    @ti.kernel
    def build():
        for k, side in child:
            child[k, side] = -1
        for k in mass:
            mass[k] = 0
        nodes[None] = 1
        for _ in range(1):
            for i in range(n):
                node, low, high = 0, 0.0, 1.0
                while high - low > 0.2:
                    middle = (low + high) / 2
                    side = 1 if x[i] > middle else 0
                    if child[node, side] < 0:
                        child[node, side] = ti.atomic_add(nodes[None], 1)
                    node = child[node, side]
                    mass[node] += x[i] ** 2
                    if side:
                        low = middle
                    else:
                        high = middle

    @ti.kernel
    def add():
        for k in range(nodes[None]):
            loss[None] += mass[k] ** 2

    def program(values):
        sums: dict[Any, float] = {}
        for v in values:
            for depth in (2, 4, 8):
                place = depth, int(v * depth)
                sums[place] = sums.get(place, 0.0) + v**2
        return sum(s**2 for s in sums.values())

    with ti.ad.Tape(loss, memory=memory):
        build()
        add()
    assert nodes[None] > n
    is_near(x.grad, slope(program, x.to_numpy()))


def test_an_index_that_is_computed_twice() -> None:
    x, y, loss = start()

    @ti.kernel
    def run():
        for i in range(4):
            for _ in range(2):
                loss[None] += ti.atomic_add(y[3 - i], x[i]) ** 2
            y[3 - i] = 0.0

    y0 = Y[::-1]
    check(x, loss, run, gradient=2 * (y0 + X))
    is_near(y.grad, (2 * y0 + 2 * (y0 + X))[::-1])


def test_old_values_at_multiples_and_in_rows() -> None:
    """`2 * i` and `i * n + j` are an iteration's own, in loops of any number of axes, in serial
    loops, and in a circle."""
    x, loss = field(2, 3, values=np.arange(1.0, 7.0).reshape(2, 3) / 5), field()
    y = field(12, values=np.linspace(0.2, 1.3, 12))

    @ti.kernel
    def run(m: ti.i32, n: ti.i32):
        for i, j in ti.ndrange(m, n):
            loss[None] += ti.atomic_mul(y[i * n + j], x[i, j]) * x[i, j]
        for i in range(m):
            loss[None] += ti.atomic_add(y[2 * i + 6], x[i, 0]) * x[i, 1]
        for i in range(2):
            for j in range(3):
                loss[None] += ti.atomic_mul(y[3 * i + j + 6], x[i, j])
        for i in range(n):
            loss[None] += ti.atomic_mul(y[(i + 1) % n], x[0, i]) * x[1, i]

    def program(values: np.ndarray) -> Any:
        x, y = values.reshape(2, 3), np.linspace(0.2, 1.3, 12).astype(object)
        total = 0.0
        for k, v in enumerate(x.reshape(-1)):
            total, y[k] = total + y[k] * v, y[k] * v
        for i in range(2):
            total, y[2 * i + 6] = total + y[2 * i + 6] * x[i, 1], y[2 * i + 6] + x[i, 0]
        for k, v in enumerate(x.reshape(-1)):
            total, y[k + 6] = total + y[k + 6], y[k + 6] * v
        for i in range(3):
            k = (i + 1) % 3
            total, y[k] = total + y[k] * x[1, i], y[k] * x[0, i]
        return total

    expected = slope(program, np.arange(1.0, 7.0) / 5)
    check(x, loss, lambda: run(2, 3), gradient=expected.reshape(2, 3))


@pytest.mark.parametrize("place", ["i * 2 + j", "(i + 1) % 2", "i // 2 * 2"])
def test_old_values_of_overlapping_rows_raise(place: str) -> None:
    x, loss = make()
    y = field(12)
    run = define(f"""
def run():
    for i in range(4):
        for j in range(3):
            loss[None] += ti.atomic_add(y[{place}], x[i]) * x[i]
""", x=x, y=y, loss=loss)  # fmt: skip
    message = "the old value of an atomic operation depends on the order of iterations"
    refuse(message, loss, ti.kernel(run))
