"""Gradients where vkchi differs from Taichi on purpose: right, or refused."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti


def make(n: int = 3) -> tuple:
    """An array and a loss."""
    return ti.field(ti.f32, n, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)


@pytest.mark.ours("gradients-of-overwritten")
def test_kernels_overwrite_their_inputs() -> None:
    x, loss = make()

    @ti.kernel
    def square():
        for i in x:
            x[i] = x[i] * x[i]

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    x.fill(3)
    with ti.ad.Tape(loss):
        square()
        square()
        total()
    np.testing.assert_allclose(x.grad.to_numpy(), 4 * 3**3)


@pytest.mark.ours("gradients-of-loops")
def test_loops_and_statements_mix() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in x:
            s = x[i]
            while s < 50.0:
                s = s * s
            loss[None] += s
        loss[None] *= 2.0

    x.fill(3)
    with ti.ad.Tape(loss):
        run()
    np.testing.assert_allclose(x.grad.to_numpy(), 2 * 4 * 3**3)


@pytest.mark.ours("gradients-lost")
def test_a_lost_derivative_raises() -> None:
    x, loss = make()
    y = ti.field(ti.f32, 3)

    @ti.kernel
    def double():
        for i in x:
            y[i] = 2 * x[i]

    @ti.kernel
    def total():
        for i in x:
            loss[None] += y[i]

    with pytest.raises(Exception, match="which has none: it would be lost"), ti.ad.Tape(loss):
        double()
        total()


@pytest.mark.ours("gradients-python-writes")
def test_python_write_is_a_constant() -> None:
    x, loss = make()
    y = ti.field(ti.f32, 3, needs_grad=True)

    @ti.kernel
    def double():
        for i in x:
            y[i] = 2 * x[i]

    @ti.kernel
    def total():
        for i in x:
            loss[None] += y[i]

    with ti.ad.Tape(loss):
        double()
        y[1] = 5.0
        total()
    np.testing.assert_array_equal(x.grad.to_numpy(), [2, 0, 2])


@pytest.mark.ours("gradients-once")
def test_gradients_of_a_tape_are_evaluated_before_it_ends() -> None:
    x, loss = make()

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    with ti.ad.Tape(loss) as tape:
        total()
        tape.grad()
    np.testing.assert_array_equal(x.grad.to_numpy(), 1)
