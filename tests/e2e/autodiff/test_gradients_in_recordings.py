"""`kernel.grad()` inside tapes and forward mode, and writes of programs to gradients there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import X, check, is_near, make, refuse

pytestmark = pytest.mark.device
MESSAGE = "flows through what energy.grad.. computed: the second derivative"
WEIGHTS = np.arange(1, 5)


class Forces:
    """x**4 / 4 as an energy, whose slope kernels take to be a force."""

    def __init__(self, *, is_linear: bool = False, needs_dual: bool = False) -> None:
        ti.init(arch=ti.vulkan)
        both = {"needs_grad": True, "needs_dual": needs_dual}
        self.x, self.f = (ti.field(ti.f32, 4, **both) for _ in range(2))
        self.total, self.loss = (ti.field(ti.f32, (), **both) for _ in range(2))
        self.x.from_numpy(X.astype(np.float32))
        x, f, total, loss = self.x, self.f, self.total, self.loss

        @ti.kernel
        def energy():
            for i in x:
                total[None] += x[i] * 5 if ti.static(is_linear) else x[i] ** 4 / 4

        @ti.kernel
        def take():
            for i in x:
                f[i] = x.grad[i]

        @ti.kernel
        def add_up():
            for i in x:
                loss[None] += f[i] * x[i] * (i + 1)

        self.energy, self.take, self.add_up = energy, take, add_up

    def find(self) -> None:
        """Put the slope of the energy into x.grad."""
        self.total.grad.fill(1)
        self.energy.grad()

    def clear(self) -> None:
        self.x.grad.fill(0)


@pytest.mark.parametrize("is_copy", [True, False])
def test_a_second_derivative_raises(is_copy: bool) -> None:
    w = Forces()
    take = (lambda: w.f.copy_from(w.x.grad)) if is_copy else w.take
    for _ in range(2):
        with pytest.raises(ti.ad.GradientError, match=MESSAGE) as found, ti.ad.Tape(w.loss):
            w.find()
            take()
            w.clear()
            w.add_up()
        assert found.value.span is not None
        assert found.value.span.file == __file__
        assert "energy.grad() puts a value with a derivative there" in str(found.value)


def test_a_second_derivative_raises_in_forward_mode() -> None:
    w = Forces(needs_dual=True)
    with pytest.raises(ti.ad.GradientError, match=MESSAGE), ti.ad.FwdMode(w.loss, w.x, [1] * 4):
        w.find()
        w.take()
        w.add_up()


def test_a_slope_that_does_not_vary_is_a_constant() -> None:
    w = Forces(is_linear=True)
    check(w.x, w.loss, w.find, w.take, w.clear, w.add_up, gradient=5 * WEIGHTS)


def test_slopes_in_functions_that_are_not_differentiated_are_constants() -> None:
    w = Forces()
    find = ti.ad.no_grad(lambda: w.find())
    check(w.x, w.loss, find, w.take, w.clear, w.add_up, gradient=X**3 * WEIGHTS)


def test_slopes_that_nothing_reads() -> None:
    w = Forces()
    w.f.fill(2)
    check(w.x, w.loss, w.find, w.clear, w.add_up, gradient=2 * WEIGHTS)


def test_slopes_that_are_cleared_before_they_are_read() -> None:
    w = Forces()
    check(w.x, w.loss, w.find, w.clear, w.take, w.add_up, gradient=[0] * 4)


def test_tangents_of_tangents_raise() -> None:
    """A linear kernel's gradient, from values that another gradient wrote."""
    w = Forces()
    z = ti.field(ti.f32, 4, needs_grad=True)

    @ti.kernel
    def double():
        for i in z:
            w.x[i] += 2 * z[i]

    @ti.kernel
    def add_up():
        for i in z:
            w.loss[None] += z.grad[i]

    message = "flows through what double.grad.. computed"
    refuse(message, w.loss, w.find, lambda: double.grad(), add_up)


def chain() -> tuple[Any, Any, Any, list[Callable[[], None]]]:
    """y = x * x, and the loss is the sum of y * (i + 1)."""
    x, loss = make()
    y = ti.field(ti.f32, 4, needs_grad=True)

    @ti.kernel
    def square():
        for i in x:
            y[i] = x[i] * x[i]

    @ti.kernel
    def add_up():
        for i in x:
            loss[None] += y[i] * (i + 1)

    return x, y, loss, [square, add_up]


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("clears", [True, False])
def test_values_in_gradients_are_no_seeds(position: int, clears: bool) -> None:
    x, y, loss, kernels = chain()

    def put() -> None:
        y.grad.fill(5)
        y.grad[1] = 7
        x.grad.fill(100)
        loss.grad.fill(9)

    acts = [*kernels[:position], put, *kernels[position:]]
    for _ in range(3):
        with ti.ad.Tape(loss, clear_gradients=clears):
            for act in acts:
                act()
        is_near(x.grad, 100 + 2 * X * WEIGHTS)
        is_near(y.grad, [5, 7, 5, 5])
        assert loss.grad[None] == 1


def test_values_that_kernels_put_into_gradients_are_no_seeds() -> None:
    x, y, loss, kernels = chain()

    @ti.kernel
    def put():
        for i in y:
            y.grad[i] = 5.0

    check(x, loss, kernels[0], put, kernels[1], gradient=2 * X * WEIGHTS)
    check(x, loss, kernels[0], kernels[1], ti.ad.no_grad(put), gradient=2 * X * WEIGHTS)


def test_gradients_by_themselves_inside_a_tape_are_no_seeds() -> None:
    x, y, loss, kernels = chain()
    z = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def other():
        for i in y:
            z[None] += 3 * y[i]

    def find() -> None:
        z.grad.fill(1)
        other.grad()  # y.grad is 3

    check(x, loss, kernels[0], find, kernels[1], gradient=2 * X * WEIGHTS)
    is_near(y.grad, [3] * 4)


def test_values_in_gradients_are_no_seeds_of_products_with_the_hessian() -> None:
    x, y, loss, kernels = chain()

    def run() -> None:
        kernels[0]()
        y.grad.fill(5)
        kernels[1]()

    is_near(ti.ad.hvp(run, loss, x, X), 2 * X * WEIGHTS)
    is_near(x.grad, 2 * X * WEIGHTS)


@pytest.mark.parametrize("is_used", [True, False])
def test_a_second_derivative_of_a_tensor_raises(is_used: bool) -> None:
    torch = pytest.importorskip("torch")
    ti.init(arch=ti.vulkan)
    total, loss = (ti.field(ti.f32, (), needs_grad=True) for _ in range(2))
    t = torch.tensor(X, dtype=torch.float32, requires_grad=True)

    @ti.kernel
    def energy(x: ti.types.ndarray()):
        for i in x:
            total[None] += x[i] ** 3

    @ti.kernel
    def use(g: ti.types.ndarray(), x: ti.types.ndarray()):
        for i in x:
            loss[None] += g[i] * x[i]

    def find() -> None:
        total.grad[None] = 1
        energy.grad(t)

    if is_used:
        refuse(MESSAGE, loss, find, lambda: use(t.grad, t))
        return
    with ti.ad.Tape(loss):
        find()
        use(np.ones(4, np.float32), t)
    is_near(t.grad, 3 * X**2 + 1)
