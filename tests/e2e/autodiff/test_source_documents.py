"""The programs of the two documents on differentiable programming, as they stand there, with the
results that the documents state.

Sources: Taichi's "Differentiable programming", the version with `ti.Tape` and the one with the
kernel simplicity rule. Only the import, `init`, the window and the asserts that follow are ours.
"""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti


def test_derivative_of_a_sine() -> None:
    x = ti.field(dtype=ti.f32, shape=(), needs_grad=True)
    y = ti.field(dtype=ti.f32, shape=(), needs_grad=True)

    @ti.kernel
    def compute_y():
        y[None] = ti.sin(x[None])

    x[None] = 0.4
    with ti.Tape(y):
        compute_y()

    print("dy/dx =", x.grad[None], " at x =", x[None])
    assert x.grad[None] == pytest.approx(np.cos(0.4), rel=1e-3)


def test_the_same_by_hand() -> None:
    x = ti.field(dtype=ti.f32, shape=())
    dy_dx = ti.field(dtype=ti.f32, shape=())

    @ti.kernel
    def compute_dy_dx():
        dy_dx[None] = ti.cos(x[None])

    compute_dy_dx()
    assert dy_dx[None] == pytest.approx(1, rel=1e-3)


# fmt: off
def test_gravity() -> None:
    N = 8
    dt = 1e-5

    x = ti.Vector.field(2, dtype=ti.f32, shape=N, needs_grad=True)  # particle positions
    v = ti.Vector.field(2, dtype=ti.f32, shape=N)  # particle velocities
    U = ti.field(dtype=ti.f32, shape=(), needs_grad=True)  # potential energy


    @ti.kernel
    def compute_U():
        for i, j in ti.ndrange(N, N):
            r = x[i] - x[j]
            # r.norm(1e-3) is equivalent to ti.sqrt(r.norm()**2 + 1e-3)
            # This is to prevent 1/0 error which can cause wrong derivative
            U[None] += -1 / r.norm(1e-3)  # U += -1 / |r|


    @ti.kernel
    def advance():
        for i in x:
            v[i] += dt * -x.grad[i]  # dv/dt = -dU/dx
        for i in x:
            x[i] += dt * v[i]  # dx/dt = v


    def substep():
        with ti.Tape(loss=U):
            # Kernel invocations in this scope will later contribute to partial derivatives of
            # U with respect to input variables such as x.
            compute_U(
            )  # The tape will automatically compute dU/dx and save the results in x.grad
        advance()


    @ti.kernel
    def init():
        for i in x:
            x[i] = [ti.random(), ti.random()]


    init()
    before = x.to_numpy().astype(np.float64)
    for i in range(50):
        substep()

    r = before[:, None] - before[None]
    forces = (2 * r / (np.square(r).sum(-1) + 1e-3)[..., None] ** 1.5).sum(1)
    got = (v.to_numpy() / -dt / 50).astype(np.float64)
    scale = np.abs(forces).max()
    np.testing.assert_allclose(got / scale, forces / scale, atol=0.02)


def test_several_results() -> None:
    N = 16

    x = ti.field(dtype=ti.f32, shape=N, needs_grad=True)
    loss = ti.field(dtype=ti.f32, shape=(), needs_grad=True)
    loss2 = ti.field(dtype=ti.f32, shape=(), needs_grad=True)

    @ti.kernel
    def func():
        for i in x:
           loss[None] += x[i] ** 2
           loss2[None] += x[i]

    for i in range(N):
        x[i] = i

    # Set the `grad` of the output variables to `1` before calling `func.grad()`.
    loss.grad[None] = 1
    loss2.grad[None] = 1

    func()
    func.grad()
    for i in range(N):
        assert x.grad[i] == i * 2 + 1


@pytest.mark.parametrize("name", ["func_broke_rule_1", "func_equivalent"])
def test_first_data_access_rule(name) -> None:
    N = 16

    x = ti.field(dtype=ti.f32, shape=N, needs_grad=True)
    loss = ti.field(dtype=ti.f32, shape=(), needs_grad=True)
    b = ti.field(dtype=ti.f32, shape=(), needs_grad=True)

    @ti.kernel
    def func_broke_rule_1():
        # BAD: broke global data access rule #1, reading global field and before mutation is done.
        loss[None] = x[1] * b[None]
        b[None] += 100


    @ti.kernel
    def func_equivalent():
        loss[None] = x[1] * 10

    for i in range(N):
        x[i] = i
    b[None] = 10
    loss.grad[None] = 1

    with ti.Tape(loss):
        {"func_broke_rule_1": func_broke_rule_1, "func_equivalent": func_equivalent}[name]()

    assert x.grad[1] == 10.0


def test_second_data_access_rule() -> None:
    N = 16

    x = ti.field(dtype=ti.f32, shape=N, needs_grad=True)
    loss = ti.field(dtype=ti.f32, shape=(), needs_grad=True)

    @ti.kernel
    def func_break_rule_2():
        loss[None] += x[1] ** 2
        # Bad: broke global data access rule #2, it's not an atomic_add.
        loss[None] *= x[2]

    @ti.kernel
    def func_equivalent():
        loss[None] = (2 + x[1] ** 2) * x[2]

    for i in range(N):
        x[i] = i
    loss.grad[None] = 1
    loss[None] = 2

    func_equivalent()
    func_equivalent.grad()
    assert x.grad[1] == 4.0
    assert x.grad[2] == 3.0

    # The gradient needs the old value of `loss`. Outside a tape it is gone, an error.
    x.grad.fill(0)
    loss.grad[None] = 1
    loss[None] = 2
    func_break_rule_2()
    with pytest.raises(ti.TaichiCompilationError, match="held before the kernel overwrote it"):
        func_break_rule_2.grad()

    # Inside a tape it is kept: d (x[1]**2 * x[2]), for a tape sets the loss to 0.
    with ti.Tape(loss):
        func_break_rule_2()
    assert x.grad[1] == 4.0
    assert x.grad[2] == 1.0


def test_mixed_usage() -> None:
    x = ti.field(dtype=ti.f32, shape=16, needs_grad=True)
    loss = ti.field(dtype=ti.f32, shape=(), needs_grad=True)

    @ti.kernel
    def differentiable_task():
        # Bad: mixed usage of a parallel for-loop and a statement without looping. Please split them into two kernels.  # noqa: E501
        loss[None] += x[0]
        for i in range(10):
            loss[None] += x[i] * x[i]

    x.fill(3)
    with ti.Tape(loss):
        differentiable_task()
    assert x.grad.to_numpy().tolist() == [7] + [6] * 9 + [0] * 6


def test_kernels_simple_and_not() -> None:
    x = ti.field(dtype=ti.f32, shape=10, needs_grad=True)
    y = ti.field(dtype=ti.f32, shape=10, needs_grad=True)
    loss = ti.field(dtype=ti.f32, shape=(), needs_grad=True)

    @ti.kernel
    def differentiable_task1():
        # Good: simple for loop
        for i in x:
            x[i] = y[i]

    @ti.kernel
    def differentiable_task2():
        # Good: one nested for loop
        for i in range(10):
            for j in range(20):
                for k in range(3):
                    loss[None] += x[i] * j

    @ti.kernel
    def differentiable_task3():
        # Bad: the outer for loop contains two for loops.
        for i in range(10):
            for j in range(20):
                loss[None] += x[i] * x[i]
            for j in range(20):
                loss[None] += x[i] * j

    @ti.kernel
    def differentiable_task3_static():
        # Good: ti.static unrolls the inner loops so that it now only has one simple for loop.
        for i in range(10):
            for j in ti.static(range(20)):
                loss[None] += x[i] * x[i]
            for j in ti.static(range(20)):
                loss[None] += x[i] * j

    for task, gradient in [
        (differentiable_task2, 3 * 190),
        (differentiable_task3, 20 * 2 * 0.5 + 190),
        (differentiable_task3_static, 20 * 2 * 0.5 + 190),
    ]:
        y.fill(0.5)
        with ti.Tape(loss):
            differentiable_task1()
            task()
        np.testing.assert_allclose(y.grad.to_numpy(), gradient, rtol=1e-5)


def test_python_scope_is_not_differentiated(capfd) -> None:
    x = ti.field(dtype=float, shape=(), needs_grad=True)
    loss = ti.field(dtype=float, shape=(), needs_grad=True)


    @ti.kernel
    def differentiable_task():
        for l in range(3):
            loss[None] += ti.sin(x[None]) + 1.0

    @ti.kernel
    def manipulation_in_kernel():
        loss[None] += ti.sin(x[None]) + 1.0


    x[None] = 0.0
    with ti.Tape(loss=loss):
        # The line below in python scope only contribute to the forward pass
        # but not the backward pass i.e., not auto-differentiated.
        loss[None] += ti.sin(x[None]) + 1.0

        # Code in Taichi scope i.e. inside Taichi kernels, is auto-differentiated.
        manipulation_in_kernel()
        differentiable_task()

    # The outputs are 5.0 and 4.0
    print(loss[None], x.grad[None])

    # You can modify the grad of a field manually in python scope, e.g., clear the grad.
    x.grad[None] = 0.0
    # The output is 0.0
    print(x.grad[None])
    assert np.allclose([float(s) for s in capfd.readouterr().out.split()], [5, 4, 0], atol=1e-3)


def test_gradients_of_ones_own() -> None:
    x = ti.field(ti.f32)
    total = ti.field(ti.f32)
    n = 128
    ti.root.dense(ti.i, n).place(x)
    ti.root.place(total)
    ti.root.lazy_grad()

    @ti.kernel
    def func(mul: ti.f32):
        for i in range(n):
            ti.atomic_add(total[None], x[i] * mul)

    @ti.ad.grad_replaced
    def forward(mul):
        func(mul)
        func(mul)

    @ti.ad.grad_for(forward)
    def backward(mul):
        func.grad(mul)

    with ti.Tape(loss=total):
        forward(4)

    assert x.grad[0] == 4
