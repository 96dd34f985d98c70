"""Forward mode, second derivatives, checks of gradients, validation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti


def has_f64() -> bool:
    from vkchi.runtime import current_runtime

    return current_runtime().device.caps.can_store("f64")


class Curve:
    """A loss with loops, branches and mutation."""

    def __init__(self, dtype: Any) -> None:
        n = self.n = 5
        self.x = x = ti.field(dtype, n, needs_grad=True)
        self.y = y = ti.field(dtype, n, needs_grad=True)
        self.loss = loss = ti.field(dtype, (), needs_grad=True)

        @ti.kernel
        def step(k: ti.f32):
            for i in x:
                s = x[i]
                for j in range(3):
                    s = ti.sin(s) * x[j] + k
                    if s > 0.5:
                        s = s * s
                y[i] += s * x[(i + 1) % n]

        @ti.kernel
        def square():
            for i in x:
                y[i] = y[i] * y[i]

        @ti.kernel
        def total():
            for i in y:
                loss[None] += y[i] * y[i]

        self.step, self.square, self.total = step, square, total

    def run(self) -> None:
        self.y.fill(0.1)
        self.step(0.3)
        self.square()
        self.step(0.1)
        self.total()

    def gradient(self, x: Any) -> Any:
        self.x.from_numpy(x)
        with ti.ad.Tape(self.loss):
            self.run()
        return self.x.grad.to_numpy()


def test_hessian_times_vector() -> None:
    dtype = ti.f64 if has_f64() else ti.f32
    step, tolerance = (1e-6, 1e-7) if dtype is ti.f64 else (1e-3, 5e-2)
    curve, random = Curve(dtype), np.random.default_rng(0)
    x, v = random.uniform(0.2, 1.3, curve.n), random.normal(size=curve.n)
    slope = (curve.gradient(x + step * v) - curve.gradient(x - step * v)) / (2 * step)
    gradient = curve.gradient(x)
    curve.x.from_numpy(x)
    product = ti.ad.hvp(curve.run, curve.loss, curve.x, v)
    np.testing.assert_allclose(product, slope, tolerance, tolerance)
    np.testing.assert_array_equal(curve.x.grad.to_numpy(), gradient)


def test_hessian_of_a_quadratic_form_is_its_matrix() -> None:
    n = 4
    a = np.random.default_rng(1).normal(size=(n, n)).astype(np.float32)
    matrix, x = ti.field(ti.f32, (n, n)), ti.field(ti.f32, n, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    matrix.from_numpy(a)

    @ti.kernel
    def form():
        for i, j in matrix:
            loss[None] += x[i] * matrix[i, j] * x[j]

    columns = [ti.ad.hvp(form, loss, x, row) for row in np.eye(n)]
    np.testing.assert_allclose(np.array(columns), a + a.T, rtol=1e-6, atol=1e-6)


def test_hvp_wants_the_shape_of_x() -> None:
    curve = Curve(ti.f32)
    with pytest.raises(ti.TaichiRuntimeError, match=r"v has shape \(3,\), x \(5,\)"):
        ti.ad.hvp(curve.run, curve.loss, curve.x, np.ones(3))


def test_gradcheck_finds_nothing_wrong_and_changes_nothing() -> None:
    curve = Curve(ti.f64 if has_f64() else ti.f32)
    x = np.linspace(0.2, 1.1, curve.n)
    curve.x.from_numpy(x)
    ti.ad.gradcheck(curve.run, curve.loss, [curve.x])
    with ti.ad.Tape(curve.loss, grad_check=[curve.x]):
        curve.run()
    np.testing.assert_allclose(curve.x.to_numpy(), x, rtol=1e-6)


def test_gradcheck_finds_a_wrong_gradient() -> None:
    x, loss = (ti.field(ti.f32, (), needs_grad=True) for _ in range(2))
    x[None] = 2.0

    @ti.kernel
    def cube():
        loss[None] += x[None] ** 3

    @ti.ad.grad_replaced
    def forward():
        cube()

    @ti.ad.grad_for(forward)
    def backward():
        x.grad[None] += 1.0

    with pytest.raises(ti.ad.GradientError, match="is 1, and differences give 12"):
        ti.ad.gradcheck(forward, loss, [x])


def test_forward_mode() -> None:
    x, y = (ti.field(ti.f32, 3, needs_dual=True) for _ in range(2))
    x.from_numpy(np.array([1, 2, 3], np.float32))

    @ti.kernel
    def run():
        for i in x:
            y[i] = x[i] * x[i] + x[(i + 1) % 3]

    expected = np.array([[2, 1, 0], [0, 4, 1], [1, 0, 6]], np.float32)
    for column, seed in enumerate(np.eye(3)):
        with ti.ad.FwdMode(loss=y, param=x, seed=list(seed)):
            run()
        np.testing.assert_allclose(y.dual.to_numpy(), expected[:, column])
    np.testing.assert_array_equal(x.dual.to_numpy(), 0)


def test_forward_mode_through_several_kernels() -> None:
    x, y, loss = (ti.field(ti.f32, (), needs_dual=True) for _ in range(3))
    x[None] = 0.5

    @ti.kernel
    def first():
        y[None] = ti.exp(x[None])

    @ti.kernel
    def second() -> ti.f32:
        loss[None] = y[None] * x[None]
        return loss[None]

    with ti.ad.FwdMode(loss=loss, param=x):
        first()
        assert second() == pytest.approx(0.5 * np.exp(0.5))
    assert loss.dual[None] == pytest.approx(1.5 * np.exp(0.5), rel=1e-6)


def test_forward_mode_raises() -> None:
    x, y = (ti.field(ti.f32, 3, needs_dual=True) for _ in range(2))
    plain = ti.field(ti.f32, 3)
    with pytest.raises(RuntimeError, match="seed of 3 numbers"), ti.ad.FwdMode(y, x):
        pass
    with pytest.raises(RuntimeError, match="not of 2"), ti.ad.FwdMode(y, x, [1, 0]):
        pass
    with pytest.raises(RuntimeError, match="needs_dual=True"), ti.ad.FwdMode(plain, x, [1, 0, 0]):
        pass


def test_a_derivative_lost_in_forward_mode_is_an_error() -> None:
    x, y = (ti.field(ti.f32, (), needs_dual=True) for _ in range(2))
    between = ti.field(ti.f32, ())

    @ti.kernel
    def run():
        between[None] = x[None] * 2
        y[None] = between[None] * 3

    with (
        pytest.raises(ti.ad.GradientError, match="through `between`, which has none"),
        ti.ad.FwdMode(y, x),
    ):
        run()


def test_validation_finds_violations_of_the_rules() -> None:
    x, y = (ti.field(ti.f32, 4, needs_grad=True) for _ in range(2))
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def double():
        for i in x:
            y[i] = x[i] * 2

    @ti.kernel
    def change_last():
        x[3] += 1.0

    @ti.kernel
    def total(n: ti.i32):
        for i in range(n):
            loss[None] += y[i]

    with ti.ad.Tape(loss, validation=True):
        double()
        total(4)
    np.testing.assert_array_equal(x.grad.to_numpy(), 2)
    message = r"(?s)change_last.*the global data access rule.*double\(\) read it here.*x\[i\] \* 2"
    with (
        pytest.raises(ti.TaichiAssertionError, match=message),
        ti.ad.Tape(loss, validation=True),
    ):
        double()
        change_last()
