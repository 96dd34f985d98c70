"""Derivatives through atomics: old values of places of one's own, minima and maxima."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import X, check, field, is_near, make, refuse, slope

Program = Callable[[], Any]
Y = np.array([1.0, 2.0, 3.0, 4.0])
V = np.array([1.0, -2.0, 0.5, 3.0])


def both(*shape: int, values: Any = None) -> Any:
    """A field with a gradient and a dual."""
    made = ti.field(ti.f32, shape, needs_grad=True, needs_dual=True)
    if values is not None:
        made.from_numpy(np.asarray(values))
    return made


def check_all(start: Program, run: Program, x: Any, loss: Any, f: Any) -> None:
    """The gradient, the derivative along V, and the Hessian times V of a program that is f in
    numpy; `start` sets all memory but x."""
    want = slope(f)
    start()
    check(x, loss, run, gradient=want)
    start()
    loss.fill(0)
    with ti.ad.FwdMode(loss, x, list(V)):
        run()
    is_near(loss.dual, want @ V)
    is_near(loss, f(X))
    start()
    step = 1e-3
    second = (slope(f, X + step * V) - slope(f, X - step * V)) / (2 * step)
    is_near(ti.ad.hvp(run, loss, x, V), second, 5e-3)


# --- old values of places of one's own -----------------------------------------------------------

OLD = {
    ti.atomic_add: lambda y, v: y + v,
    ti.atomic_sub: lambda y, v: y - v,
    ti.atomic_mul: lambda y, v: y * v,
    ti.atomic_max: np.maximum,
    ti.atomic_min: np.minimum,
}


@pytest.mark.parametrize("op", OLD, ids=[op.__name__ for op in OLD])
def test_old_values_of_ones_own(op: Any) -> None:
    x, y, loss = both(4, values=X), both(4), both()

    @ti.kernel
    def run():
        for i in x:
            old = op(y[i], 2 * x[i] * x[i])
            loss[None] += old * x[i] * y[i]

    def f(x: np.ndarray) -> Any:
        return (Y * x * OLD[op](Y, 2 * x * x)).sum()

    check_all(lambda: y.from_numpy(Y), run, x, loss, f)


def test_old_values_in_a_serial_loop() -> None:
    x, y, loss = both(4, values=X), both(4), both()

    @ti.kernel
    def run():
        for i in x:
            for j in range(3):
                old = ti.atomic_mul(y[i], x[i] + j)
                loss[None] += old * x[i]

    def f(x: np.ndarray) -> Any:
        y, total = Y.copy(), 0.0
        for j in range(3):
            total += (y * x).sum()
            y *= x + j
        return total

    check_all(lambda: y.from_numpy(Y), run, x, loss, f)


def test_old_values_of_components_and_shifted_elements() -> None:
    x, loss = make()
    y = ti.Vector.field(2, ti.f32, (4, 5), needs_grad=True)

    @ti.kernel
    def run():
        for i, j in ti.ndrange((1, 4), 4):
            y[i - 1, 3 - j] = ti.Vector([1.0, 2.0])
            old = ti.atomic_mul(y[i - 1, 3 - j][1], x[i] * x[j])
            loss[None] += old * y[i - 1, 3 - j].sum() * x[j]

    def f(x: np.ndarray) -> Any:
        return sum(2 * (1 + 2 * x[i] * x[j]) * x[j] for i in range(1, 4) for j in range(4))

    check(x, loss, run, gradient=slope(f))


def test_old_values_of_ndarrays() -> None:
    x = ti.ndarray(ti.f32, 4, needs_grad=True)
    y = ti.ndarray(ti.f32, 4, needs_grad=True)
    loss = field()

    @ti.kernel
    def run(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            loss[None] += ti.atomic_mul(y[i], x[i]) * x[i] + y[i]

    x.from_numpy(X.astype(np.float32))
    y.from_numpy(Y.astype(np.float32))
    check(x, loss, lambda: run(x, y), gradient=slope(lambda x: (2 * Y * x).sum()))


def test_old_values_of_shared_elements_raise() -> None:
    x, loss = make()
    y = field(4)

    @ti.kernel
    def run():
        for i in x:
            loss[None] += ti.atomic_add(y[i // 2], x[i]) * x[i]

    refuse("the old value of an atomic operation depends on the order of iterations", loss, run)


# --- minima and maxima ---------------------------------------------------------------------------


def test_a_maximum_in_all_modes() -> None:
    x, most, loss = both(4, values=X), both(), both()

    @ti.kernel
    def run():
        for i in x:
            ti.atomic_max(most[None], x[i] * x[i])
        for i in x:
            loss[None] += most[None] * most[None] * x[i]

    def f(x: np.ndarray) -> Any:
        return (x * x).max() ** 2 * x.sum()

    check_all(lambda: most.fill(0), run, x, loss, f)


def test_minima_at_many_elements_of_loop_carried_values() -> None:
    x, y, low, loss = both(4, values=X), both(4), both(2), both()

    @ti.kernel
    def run():
        for i in x:
            y[i] *= x[i]
            for j in range(2):
                ti.atomic_min(low[(i + j) % 2], y[i] * (j + 1))
        for i in low:
            loss[None] += low[i] ** 3

    def start() -> None:
        y.from_numpy(Y)
        low.fill(9)

    def f(x: np.ndarray) -> Any:
        places = [[], []]
        for i in range(4):
            for j in range(2):
                places[(i + j) % 2].append(Y[i] * x[i] * (j + 1))
        return sum(min(p) ** 3 for p in places)

    check_all(start, run, x, loss, f)


def test_a_maximum_in_a_variable() -> None:
    x, loss = both(4, values=X), both()

    @ti.kernel
    def run():
        most = x[0] * 0.5
        for i in x:
            ti.atomic_max(most, ti.sin(x[i]))
        loss[None] += most * most * x[0]

    def f(x: np.ndarray) -> Any:
        return max(x[0] / 2, np.sin(x).max()) ** 2 * x[0]

    check_all(lambda: None, run, x, loss, f)


def test_atomic_max_with_previous_maximum() -> None:
    x, most, loss = both(4, values=X), both(), both()

    @ti.kernel
    def first():
        most[None] = 5 * x[3]

    @ti.kernel
    def second():
        for i in x:
            ti.atomic_max(most[None], x[i] * x[0])
        loss[None] += most[None] ** 2

    def run() -> None:
        first()
        second()

    check_all(lambda: most.fill(0), run, x, loss, lambda x: 25 * x[3] ** 2)


def test_extremes_of_vectors_by_component() -> None:
    x, loss = both(4, values=X), both()
    most = ti.Vector.field(2, ti.f32, (), needs_grad=True, needs_dual=True)

    @ti.kernel
    def run():
        for i in x:
            ti.atomic_max(most[None], ti.Vector([x[i] * x[i], 1 / x[i]]))
        loss[None] += most[None].norm_sqr()

    def f(x: np.ndarray) -> Any:
        return (x * x).max() ** 2 + (1 / x).max() ** 2

    check_all(lambda: most.fill(0), run, x, loss, f)


def test_a_maximum_that_is_looked_at_before() -> None:
    x, most, loss = both(4, values=X), both(), both()

    @ti.kernel
    def run():
        for i in x:
            if x[i] > most[None]:
                ti.atomic_max(most[None], x[i])
        loss[None] += most[None] ** 3

    check_all(lambda: most.fill(0), run, x, loss, lambda x: x.max() ** 3)


def test_two_maxima_in_one_loop_and_one_after_the_other() -> None:
    x, most, least, loss = both(4, values=X), both(), both(), both()

    @ti.kernel
    def run():
        for i in x:
            ti.atomic_max(most[None], x[i])
            ti.atomic_max(most[None], x[(i + 1) % 4] * 0.5)
            ti.atomic_min(least[None], x[i] * 2)
        for i in x:
            ti.atomic_max(most[None], least[None] * x[i] * 3)
        loss[None] += most[None] * least[None]

    def start() -> None:
        most.fill(0)
        least.fill(100)

    def f(x: np.ndarray) -> Any:
        low = 2 * x.min()
        return max(x.max(), 3 * low * x.max()) * low

    check_all(start, run, x, loss, f)


def test_ties_go_to_one_of_them_forward() -> None:
    x, most = both(4, values=[2, 1, 2, 2]), both()

    @ti.kernel
    def run():
        for i in x:
            ti.atomic_max(most[None], x[i])

    with ti.ad.FwdMode(most, x, [1, 2, 3, 4]):
        run()
    assert most[None] == 2
    assert most.dual[None] in (1, 3, 4)


def test_a_maximum_over_many_forward() -> None:
    values = np.random.default_rng(3).normal(size=5000).astype(np.float32)
    x, most = both(5000, values=values), both()

    @ti.kernel
    def run():
        for i in x:
            ti.atomic_max(most[None], x[i] * x[i] + 0.1 * x[i])

    seed = np.arange(5000, dtype=np.float32) % 7
    with ti.ad.FwdMode(most, x, list(seed)):
        run()
    at = int((values.astype(float) ** 2 + 0.1 * values).argmax())
    is_near(most.dual, (2 * values[at] + 0.1) * seed[at])


@pytest.mark.parametrize("is_needed", [True, False])
def test_random_numbers_beside_a_maximum_forward(is_needed: bool) -> None:
    x, y, most = both(4, values=X), both(4), both()
    drawn = ti.field(ti.f32, 4)

    @ti.kernel
    def run():
        for i in x:
            noise = ti.random()
            drawn[i] = noise
            y[i] = noise * x[i]
            ti.atomic_max(most[None], x[i] + (noise if ti.static(is_needed) else 0.0))

    with ti.ad.FwdMode(most, x, [1, 2, 3, 4]):
        run()
    assert most.dual[None] == (1 + np.argmax(X + drawn.to_numpy()) if is_needed else 4)
