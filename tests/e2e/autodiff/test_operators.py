"""Operators as other libraries use them: `kernel.grad` after the kernel, torch tensors, gradients
that add up over several tapes."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import field, is_near, slope

X = np.array([0.7, 1.3, 0.4, 1.9], np.float32)


def array(values: Any) -> Any:
    """An ndarray with a gradient."""
    values = np.asarray(values, np.float32)
    made = ti.ndarray(ti.f32, values.shape, needs_grad=True)
    made.from_numpy(values)
    return made


def run_both(kernel: Any, x: Any, *others: Any, seed: Any = 1.0) -> None:
    """The kernel, then its gradient; the last array is the result."""
    kernel(x, *others)
    others[-1].grad.fill(seed)
    kernel.grad(x, *others)


# --- kernel.grad() of kernels that overwrite their inputs


def test_grad_of_a_buffer_in_one_loop() -> None:
    @ti.kernel
    def run(x: ti.types.ndarray(), b: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            b[i] = x[i] * x[i]
            y[i] = b[i] * x[i]

    x, b, y = array(X), array(X), array(X)
    run_both(run, x, b, y)
    is_near(x.grad, 3 * X**2)


def test_grad_of_a_buffer_in_two_loops() -> None:
    @ti.kernel
    def run(x: ti.types.ndarray(), b: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in b:
            b[i] = 0.0
        for i, j in ti.ndrange(4, 4):
            b[j] += x[i] / 4
        for i in x:
            y[i] = (x[i] - b[i]) ** 2

    x, b, y = array(X), array(X), array(X)
    run_both(run, x, b, y)
    is_near(x.grad, 2 * (X - X.mean()))


def test_grad_of_a_state_that_is_carried_in_an_array() -> None:
    @ti.kernel
    def run(x: ti.types.ndarray(), h: ti.types.ndarray()):
        ti.loop_config(serialize=True)
        for t in range(x.shape[0]):
            if t == 0:
                h[t] = x[t]
            else:
                h[t] = h[t - 1] * x[t]

    x, h = array(X), array(X)
    run(x, h)
    h.grad[3] = 1.0
    run.grad(x, h)
    is_near(x.grad, X.prod() / X)


def test_grad_of_indices_found_in_the_kernel() -> None:
    @ti.kernel
    def run(x: ti.types.ndarray(), k: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in y:
            best = 0
            for j in range(x.shape[0]):
                if x[j] > x[best]:
                    best = j
            k[i] = best
        for i in y:
            y[i] = x[k[i]] ** 2

    x, y = array(X), array([0.0])
    run_both(run, x, ti.ndarray(ti.i32, 1), y)
    is_near(x.grad, [0, 0, 0, 2 * X[3]])


def test_grad_of_components_stored_one_by_one() -> None:
    n = ti.Vector.field(2, ti.f32, 4, needs_grad=True)
    x, y = field(4, values=X), field(4)

    @ti.kernel
    def run():
        for i in x:
            n[i][0] = x[i]
            n[i][1] = x[i] * x[i]
            y[i] = n[i].dot(n[i])

    run()
    y.grad.fill(1)
    run.grad()
    is_near(x.grad, 2 * X + 4 * X**3)


def test_grad_leaves_the_memory_as_it_is() -> None:
    @ti.kernel
    def run(x: ti.types.ndarray(), b: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            b[i] = x[i] * x[i]
            y[i] += b[i] * x[i]

    x, b, y = array(X), array(X), array(X)
    run_both(run, x, b, y)
    is_near(b, X**2)
    is_near(y, X**3 + X)
    is_near(x.grad, 3 * X**2)


@pytest.mark.parametrize("flag", [0, 1])
def test_grad_that_depends_on_a_flag_of_the_kernel_raises(flag: int) -> None:
    done = ti.field(ti.i32, 4)
    x, y = field(4, values=X), field(4)

    @ti.kernel
    def run():
        for i in x:
            if done[i] == flag:
                done[i] = 1 - flag
                y[i] = x[i] * x[i]

    run()
    y.grad.fill(1)
    with pytest.raises(ti.ad.GradientError, match="what `done` held before") as e:
        run.grad()
    assert "the kernel reads it here" in str(e.value)


def test_grad_of_a_component_found_at_run_time_raises() -> None:
    n = ti.Vector.field(2, ti.f32, 4, needs_grad=True)
    x, y = field(4, values=X), field(4)

    @ti.kernel
    def run():
        for i in x:
            n[i][0] = x[i]
            y[i] = n[i].dot(n[i])
            n[i][1] = 1.0

    run()
    with pytest.raises(ti.ad.GradientError, match="what `n` held before"):
        run.grad()


def test_grad_of_a_maximum_over_iterations() -> None:
    x, m, y = field(4, values=X), field(), field(4)

    @ti.kernel
    def run():
        for i in x:
            ti.atomic_max(m[None], x[i] * x[i])
        for i in x:
            y[i] = x[i] / 2

    m[None] = -1.0
    run()
    m.grad[None] = 1.0
    run.grad()
    is_near(x.grad, [0, 0, 0, 2 * X[3]])


def test_grad_of_a_maximum_in_a_serial_loop_raises() -> None:
    x, m = field(4, values=X), field()

    @ti.kernel
    def run():
        ti.loop_config(serialize=True)
        for i in range(4):
            ti.atomic_max(m[None], x[i] * x[i])

    run()
    m.grad[None] = 1.0
    with pytest.raises(ti.ad.GradientError, match="what `m` held before"):
        run.grad()


def test_grad_of_sums_that_are_read_when_they_are_complete() -> None:
    x, mean, var, y = (field(4, values=X), field(), field(), field(4))

    @ti.kernel
    def run():
        for i in x:
            mean[None] += x[i] / 4
        for i in x:
            var[None] += (x[i] - mean[None]) ** 2 / 4
        for i in x:
            y[i] = (x[i] - mean[None]) / ti.sqrt(var[None])

    run()
    y.grad[1] = 1.0
    run.grad()
    is_near(x.grad, slope(lambda x: (x[1] - x.mean()) / x.std()))


def test_grad_of_sums_in_one_iteration() -> None:
    x, total, y = field(4, values=X), field(4), field(4)

    @ti.kernel
    def run():
        for i in x:
            for j in range(4):
                total[i] += x[i] * x[j]
            for j in range(3):
                y[i] += total[i] ** 2

    run()
    y.grad.fill(1)
    run.grad()
    is_near(x.grad, slope(lambda x: 3 * ((x * x.sum()) ** 2).sum()))


def test_grad_of_sums_and_extremes_in_one_element() -> None:
    x, best = field(4, values=X), field()

    @ti.kernel
    def run():
        for i in x:
            ti.atomic_max(best[None], 20 * x[i])
        for i in x:
            best[None] += x[i] ** 2

    @ti.kernel
    def from_zero():
        best[None] = 0.0
        for i in x:
            ti.atomic_max(best[None], 20 * x[i])
        for i in x:
            best[None] += x[i] ** 2

    run()
    best.grad[None] = 1.0
    with pytest.raises(ti.ad.GradientError, match="what `best` held before"):
        run.grad()
    from_zero()
    from_zero.grad()
    is_near(x.grad, slope(lambda x: 20 * x.max() + (x * x).sum()))


def test_grad_of_a_sum_that_is_read_and_then_changed_raises() -> None:
    x, total, y = field(4, values=X), field(), field(4)

    @ti.kernel
    def run():
        ti.loop_config(serialize=True)
        for i in range(4):
            total[None] += x[i]
            y[i] = total[None] ** 2

    run()
    y.grad.fill(1)
    with pytest.raises(ti.ad.GradientError, match="what `total` held before"):
        run.grad()


def test_grad_of_sums_that_guard_themselves_raises() -> None:
    count = ti.field(ti.i32, 4)
    x, y = field(4, values=X), field(4)

    @ti.kernel
    def run():
        for i in x:
            if count[i] < 1:
                count[i] += 1
                y[i] = x[i] * x[i]

    run()
    y.grad.fill(1)
    with pytest.raises(ti.ad.GradientError, match="what `count` held before"):
        run.grad()


def test_grad_of_sums_that_index_other_sums_raises() -> None:
    at = ti.field(ti.i32, ())
    s, x, y = field(4), field(4, values=X), field(4)

    @ti.kernel
    def run():
        for _ in range(1):
            k = at[None]
            s[k] += x[k] * x[k]
            at[None] += 1
        for i in x:
            y[i] = s[i] ** 2

    run()
    y.grad.fill(1)
    with pytest.raises(ti.ad.GradientError, match="held before"):
        run.grad()


def test_a_gradient_of_ones_own_may_compute_a_buffer_again() -> None:
    start = np.tile(X / 2, (3, 1))
    x, b, loss = field(3, 4, values=start), field(4), field()

    @ti.kernel
    def step(t: ti.i32):
        for i in b:
            b[i] = 0.0
            b[i] += x[t, i] ** 2
            b[i] *= b[i]
        for i in b:
            x[t + 1, i] = b[i] * 0.5 + x[t, i]
            x[t + 1, i] += 0.1 * x[t + 1, i] ** 2

    @ti.kernel
    def add_up():
        for i in b:
            loss[None] += x[2, i]

    @ti.ad.grad_replaced
    def forward(t: int) -> None:
        step(t)

    @ti.ad.grad_for(forward)
    def backward(t: int) -> None:
        step.grad(t)

    @ti.ad.grad_replaced
    def forward_again(t: int) -> None:
        step(t)

    @ti.ad.grad_for(forward_again)
    def backward_again(t: int) -> None:
        b.grad.fill(0)
        step(t)
        step.grad(t)

    def value(x: np.ndarray) -> float:
        for _ in range(2):
            x = x**4 / 2 + x
            x = x + 0.1 * x**2
        return float(x.sum())

    for call in (forward, forward_again):
        x.from_numpy(start)
        with ti.ad.Tape(loss):
            call(0)
            call(1)
            add_up()
        is_near(x.grad.to_numpy()[0], slope(value, start[0]))


# --- several tapes


def test_gradients_of_several_tapes_add_up() -> None:
    x, y, loss = field(4, values=X), field(4), field()

    @ti.kernel
    def first():
        for i in x:
            y[i] += 2 * x[i]

    @ti.kernel
    def second():
        for i in x:
            loss[None] += y[i] * y[i]

    for count in range(1, 4):
        y.fill(0)
        with ti.ad.Tape(loss, clear_gradients=False):
            first()
            second()
        is_near(x.grad, count * 8 * X)
        is_near(y.grad, count * 4 * X)


# --- torch


@ti.kernel
def cube(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = x[i] ** 3


def tensor(values: Any, *, requires_grad: bool = True) -> Any:
    """A torch tensor."""
    torch = pytest.importorskip("torch")
    return torch.tensor(values, requires_grad=requires_grad)


def test_a_torch_function_leaves_the_gradient_that_it_is_given() -> None:
    torch = pytest.importorskip("torch")

    class Cube(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = torch.zeros_like(x)
            cube(x, y)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, y = ctx.saved_tensors
            x.grad, y.grad = None, g
            cube.grad(x, y)
            return x.grad

    for power in (1, 2):  # g is one number seen four times, or a tensor that z's gradient shares
        x, z = tensor(X), tensor(X)
        found = torch.autograd.grad(((z + Cube.apply(x)) ** power).sum(), (x, z))
        outer = power * (X + X**3) ** (power - 1)
        is_near(found[0], outer * 3 * X**2)
        is_near(found[1], outer)


def test_a_tensor_with_a_grad_has_a_gradient() -> None:
    x, y = tensor(X, requires_grad=False), tensor(X, requires_grad=False)
    x.grad = held = tensor([0.0, 0.0, 0.0, 1.0], requires_grad=False)
    y.grad = tensor([1.0, 2.0, 3.0, 4.0], requires_grad=False)
    cube(x, y)
    cube.grad(x, y)
    is_near(x.grad, np.arange(1, 5) * 3 * X**2 + [0, 0, 0, 1])
    assert x.grad is held


def test_kernels_use_the_grad_of_a_tensor() -> None:
    @ti.kernel
    def seed(y: ti.types.ndarray()):
        for i in y:
            y.grad[i] = i + 1

    x, y = tensor(X), tensor(X)
    cube(x, y.detach())
    seed(y)
    cube.grad(x, y)
    is_near(x.grad, np.arange(1, 5) * 3 * X**2)
    with pytest.raises(ti.TaichiRuntimeError, match="its grad, and it has none"):
        seed(tensor(X, requires_grad=False))


def test_gradients_of_tensors_add_up() -> None:
    @ti.kernel
    def first(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] += 2 * x[i]

    @ti.kernel
    def second(y: ti.types.ndarray(), loss: ti.types.ndarray()):
        for i in y:
            loss[None] += y[i] * y[i]

    x, y, loss = tensor(X), tensor(0 * X), tensor(0.0)
    for count in range(1, 4):
        y.detach().zero_()
        with ti.ad.Tape(loss):
            first(x, y)
            second(y, loss)
        is_near(x.grad, count * 8 * X)
        is_near(y.grad, count * 4 * X)


def test_tapes_give_tensors_gradients() -> None:
    torch = pytest.importorskip("torch")

    @ti.kernel
    def add_up(x: ti.types.ndarray(), unused: ti.types.ndarray(), loss: ti.types.ndarray()):
        for i in x:
            loss[None] += x[i] ** 2 * x[i] + 0.0 * unused[i]

    @ti.kernel
    def copy(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i]

    x, unused, loss = tensor(X), tensor(X), tensor(0.0)
    constant, copied = tensor(X, requires_grad=False), tensor(X, requires_grad=False)
    with ti.ad.Tape(loss):
        add_up(x, unused, loss)
        assert not x.grad.any() and not loss.grad.any()  # there, and zero
        add_up(constant, unused, loss)
        copy(constant, copied)
    is_near(x.grad, 3 * X**2)
    is_near(unused.grad, 0 * X)
    assert constant.grad is None and copied.grad is None
    copy(x.grad, copied)  # gradients are tensors like any
    assert torch.equal(copied, x.grad)
    copy(constant, x.grad)
    assert torch.equal(constant, x.grad)
