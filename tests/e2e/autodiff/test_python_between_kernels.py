"""Gradients with Python code between kernels: writes, tapes, `kernel.grad`, functions without
gradients, tensors and arrays of other libraries, forward mode."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from threading import Thread
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import X, check, field, is_near, make, refuse


def needs_view(x: Any) -> None:
    """Skip where numpy cannot see an array in place, as on a GPU."""
    if x.host is None:
        pytest.skip("no views of the device's memory here")


def make_steps(x: Any, y: Any, loss: Any) -> tuple[Any, Any]:
    """Two kernels: y from x, and the loss from both."""

    @ti.kernel
    def first():
        for i in x:
            y[i] = x[i] * 2

    @ti.kernel
    def second():
        for i in x:
            loss[None] += y[i] * x[i]

    return first, second


# --- writes between kernels ----------------------------------------------------------------------


def test_an_element_written_between_kernels() -> None:
    x, loss = make()
    y = field(4)
    first, second = make_steps(x, y, loss)

    def write():
        y[1] = 5.0

    check(x, loss, first, write, second, gradient=[4 * X[0], 5, 4 * X[2], 4 * X[3]])


def test_an_element_in_blocks_written_between_kernels() -> None:
    x, loss = make()
    y = ti.field(ti.f32, needs_grad=True)
    ti.root.dense(ti.i, 2).dense(ti.i, 2).place(y, y.grad)
    first, second = make_steps(x, y, loss)

    def write():
        y[2] = 5.0

    check(x, loss, first, write, second, gradient=[4 * X[0], 4 * X[1], 5, 4 * X[3]])


@pytest.mark.parametrize("form", ["fill", "from_numpy", "copy_from"])
def test_an_array_written_between_kernels(form: str) -> None:
    x, loss = make()
    y, fives = field(4), field(4, values=[5.0] * 4)
    first, second = make_steps(x, y, loss)
    write = {
        "fill": lambda: y.fill(5),
        "from_numpy": lambda: y.from_numpy(np.full(4, 5, np.float32)),
        "copy_from": lambda: y.copy_from(fives),
    }[form]
    check(x, loss, first, write, second, gradient=[5] * 4)


def test_a_component_written_between_kernels() -> None:
    x, loss = make()
    y = ti.Vector.field(2, ti.f32, 4, needs_grad=True)

    @ti.kernel
    def first():
        for i in x:
            y[i] = [x[i] * 2, x[i] * 3]

    @ti.kernel
    def second():
        for i in x:
            loss[None] += y[i].x * x[i] + y[i].y

    def write():
        y[1][0] = 5.0

    def fill():
        y.get_scalar_field(0).fill(5)

    check(x, loss, first, write, second, gradient=[4 * X[0] + 3, 8, 4 * X[2] + 3, 4 * X[3] + 3])
    check(x, loss, first, fill, second, gradient=[8] * 4)


def test_written_from_an_element_that_was_read() -> None:
    x, loss = make()
    y = field(4)
    first, second = make_steps(x, y, loss)

    def add():
        y[1] += 5.0
        y[1] = 2 + y[1] - 1

    def scale():
        y[1] *= 5.0

    def double():
        y.from_numpy(y.to_numpy() * 2)

    check(x, loss, first, add, second, gradient=[4 * X[0], 4 * X[1] + 6, 4 * X[2], 4 * X[3]])
    for change in (scale, double):
        refuse("`y` was overwritten by Python, which had read it", loss, first, change, second)


def test_the_line_that_wrote_is_named() -> None:
    x, loss = make()
    first, second = make_steps(x, field(4), loss)
    with pytest.raises(ti.ad.GradientError) as e, ti.ad.Tape(loss):
        first()
        loss[None] += 1
        y = find_y(second)
        y[1] *= 5.0
        second()
    assert "it was overwritten here" in str(e.value)
    assert "y[1] *= 5.0" in str(e.value)


def find_y(kernel: Any) -> Any:
    """The field y of a kernel that `make_steps` made."""
    return kernel.__vkchi_func__.__closure__[-1].cell_contents


def test_the_loss_changed_in_python() -> None:
    x, loss = make()
    _, run = make_steps(x, field(4, values=[1.0] * 4), loss)

    def add():
        loss[None] += 1.0

    def clear():
        loss[None] = 0.0

    check(x, loss, add, run, gradient=[1] * 4)
    check(x, loss, run, clear, run, gradient=[1] * 4)
    check(x, loss, run, add, gradient=[1] * 4)
    check(x, loss, run, add, run, gradient=[2] * 4)

    def scale():
        loss[None] *= 2.0

    refuse("`loss` was overwritten by Python, which had read it", loss, run, scale)


def test_inputs_changed_between_calls() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in x:
            loss[None] += x[i] * x[i] * x[i]

    def change():
        x[0] = 10.0
        x.fill(20)

    check(x, loss, run, change, gradient=3 * X**2)


def test_scalars_change_from_call_to_call() -> None:
    x, loss = make()

    @ti.kernel
    def run(i: ti.i32, by: ti.f32, v: ti.math.vec2):
        loss[None] += x[i] * by * v.y

    with ti.ad.Tape(loss):
        for i in range(4):
            run(i, i + 0.5, ti.math.vec2(0, 2 * i))
    is_near(x.grad, [0, 3, 10, 21])


# --- functions without gradients, or with their own ----------------------------------------------


@pytest.mark.parametrize("form", ["kernel", "numpy"])
def test_custom_gradient_output_is_overwritten(form: str) -> None:
    x, loss = make()
    y = field(4)
    first, second = make_steps(x, y, loss)

    @ti.ad.grad_replaced
    def own():
        if form == "kernel":
            first()
        else:
            y.from_numpy(2 * x.to_numpy())

    @ti.ad.grad_for(own)
    def own_grad():
        x.grad.from_numpy(x.grad.to_numpy() + 2 * y.grad.to_numpy())
        y.grad.fill(0)

    def write():
        y[1] = 5.0

    def scale():
        y[1] *= 5.0

    check(x, loss, own, second, gradient=4 * X)
    check(x, loss, own, write, second, gradient=[4 * X[0], 5, 4 * X[2], 4 * X[3]])
    check(x, loss, own, lambda: y.fill(3), second, gradient=[3] * 4)
    refuse("was overwritten by Python, which had read it", loss, own, scale, second)


def test_a_function_without_gradient_overwrites() -> None:
    x, loss = make()
    y = field(4)
    first, second = make_steps(x, y, loss)

    @ti.kernel
    def clear():
        for i in y:
            y[i] = 1

    @ti.kernel
    def scale():
        for i in y:
            y[i] = 2 * y[i]

    message = r"`y` was overwritten by skipped\(\), which is not differentiated"
    refuse(message, loss, first, ti.ad.no_grad(named("skipped", scale)), second)
    check(x, loss, first, ti.ad.no_grad(clear), second, gradient=[1] * 4)


@pytest.mark.parametrize("way", [lambda t: t, lambda t: t.detach().numpy()], ids=["t", "numpy"])
def test_a_function_without_gradient_overwrites_a_tensor(way: Callable[[Any], Any]) -> None:
    torch = pytest.importorskip("torch")
    x, loss = make()
    y = torch.zeros(4, requires_grad=True)

    @ti.kernel
    def first(y: ti.types.ndarray()):
        for i in x:
            y[i] = 2 * x[i]

    @ti.kernel
    def same(y: ti.types.ndarray()):
        for i in y:
            y[i] = abs(y[i])

    @ti.kernel
    def second(y: ti.types.ndarray()):
        for i in x:
            loss[None] += y[i] * x[i]

    skipped = ti.ad.no_grad(named("skipped", lambda: same(way(y))))
    with pytest.raises(ti.ad.GradientError, match=r"overwritten by skipped\(\)") as e:
        with ti.ad.Tape(loss):
            first(y)
            skipped()
            second(y)
    assert "skipped = ti.ad.no_grad" in str(e.value)  # its old index


@pytest.mark.parametrize("memory", [None, 110])
def test_functions_without_gradient_in_limited_memory(memory: Any) -> None:
    x, loss = make()
    y, seen = field(4), ti.field(ti.f32, 4)

    @ti.kernel
    def step():
        for i in x:
            x[i] = ti.sin(x[i]) * y[i]

    @ti.kernel
    def clear():
        for i in y:
            y[i] = 0.5

    @ti.kernel
    def look():
        for i in x:
            seen[i] = x[i]
            y[i] += seen[i]

    @ti.ad.no_grad
    def both():
        look()
        clear()
        look()

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    x.from_numpy(X)
    y.fill(1)
    with ti.ad.Tape(loss, memory=memory) as tape:
        for _ in range(8):
            step()
            both()
        total()
    assert tape.report is not None
    assert (tape.report.repeated > 0) == (memory is not None)
    slope, now, scale = np.ones(4), X, np.ones(4)
    for _ in range(8):
        slope, now = slope * np.cos(now) * scale, np.sin(now) * scale
        scale = 0.5 + now
    is_near(x.grad, slope)
    is_near(x, now)


def named(name: str, kernel: Any) -> Any:
    """A Python function of this name that calls a kernel."""

    def call():
        kernel()

    call.__name__ = name
    return call


def test_a_function_without_gradient_adds() -> None:
    x, loss = make()
    y = field(4)
    first, second = make_steps(x, y, loss)

    @ti.kernel
    def more():
        for i in y:
            y[i] += 1

    check(x, loss, first, ti.ad.no_grad(more), second, gradient=4 * X + 1)


# --- tapes ---------------------------------------------------------------------------------------


def test_an_exception_inside_a_tape() -> None:
    x, loss = make()
    first, second = make_steps(x, field(4), loss)
    with pytest.raises(ZeroDivisionError), ti.ad.Tape(loss):
        first()
        raise ZeroDivisionError
    check(x, loss, first, second, gradient=4 * X)


def test_tapes_add_up_if_not_cleared() -> None:
    x, loss = make()
    first, second = make_steps(x, field(4), loss)
    for times in (1, 2):
        with ti.ad.Tape(loss, clear_gradients=times == 1):
            first()
            second()
        is_near(x.grad, times * 4 * X)


@pytest.mark.parametrize("form", ["added", "in place", "components"])
def test_intermediate_gradients_of_tapes_do_not_flow_again(form: str) -> None:
    x, loss = make()
    y = ti.Vector.field(2, ti.f32, 4, needs_grad=True)

    @ti.kernel
    def add():
        for i in x:
            y[i].x += 2 * x[i]

    @ti.kernel
    def change():
        for i in x:
            x[i] = 2 * x[i]
            y[i] = [x[i], 0]

    @ti.kernel
    def use():
        for i in x:
            loss[None] += y[i].x

    first = {"added": add, "in place": change, "components": add}[form]
    for times in (1, 2, 3):
        y.fill(0)
        with ti.ad.Tape(loss, clear_gradients=times == 1):
            if form == "components":
                y.get_scalar_field(0).fill(0)
            first()
            use()
        is_near(x.grad, [2 * times] * 4)
        if form == "added":
            is_near(y.grad, [[times, 0]] * 4)
        assert loss.grad[None] == 1


def test_tapes_add_up_in_limited_memory() -> None:
    x, loss = make()
    first, second = make_steps(x, field(4), loss)
    values = []

    @ti.kernel
    def square_all():
        for i in x:
            x[i] = x[i] * x[i]

    for memory in (None, 100):
        x.from_numpy(X)
        x.grad.fill(0)
        for _ in range(2):
            with ti.ad.Tape(loss, clear_gradients=False, memory=memory):
                for _ in range(4):
                    square_all()
                first()
                second()
        values.append(x.grad.to_numpy())
    np.testing.assert_array_equal(*values)


def test_tapes_do_not_nest_and_run_once() -> None:
    _, loss = make()
    tape = ti.ad.Tape(loss)
    with tape, pytest.raises(ti.TaichiRuntimeError, match="tapes do not nest"):
        ti.ad.Tape(loss).__enter__()
    with pytest.raises(ti.TaichiRuntimeError, match="a tape can be entered once"):
        tape.__enter__()


def test_a_copy_that_raises_shows_its_call() -> None:
    x, loss = make()
    y, z = ti.field(ti.f32, 4), field(4)
    with pytest.raises(ti.ad.GradientError) as error, ti.ad.Tape(loss):
        y.copy_from(x)
        z.copy_from(y)
    assert "z.copy_from(y)" in str(error.value)
    assert "vkchi" not in str(error.value).replace(__file__, "")


def test_without_memory_for_copies_a_tape_says_how_to_save_less(monkeypatch: Any) -> None:
    from vkchi.errors import DeviceError
    from vkchi.fields.storage import Storage

    x, loss = make()

    @ti.kernel
    def square():
        for i in x:
            x[i] *= x[i]

    def fail(array: Any) -> None:
        raise DeviceError("there is none")

    with pytest.raises(ti.TaichiRuntimeError, match=r"none; the tape .* 0 bytes .*\(memory="):
        with ti.ad.Tape(loss):
            monkeypatch.setattr(Storage, "copied", fail)
            square()


def test_tapes_of_two_threads_take_turns() -> None:
    _, loss = make()
    told: list[str] = []

    def enter() -> None:
        with pytest.raises(ti.TaichiRuntimeError) as error:
            ti.ad.Tape(loss).__enter__()
        told.append(str(error.value))

    with ti.ad.Tape(loss):
        other = Thread(target=enter)
        other.start()
        other.join()
    assert "while another thread is inside ti.ad.Tape" in told[0]


def test_a_loss_without_gradient() -> None:
    with pytest.raises(ti.TaichiRuntimeError, match="needs_grad=True"):
        ti.ad.Tape(ti.field(ti.f32, ())).__enter__()


def test_gradient_of_a_kernel_outside_a_tape() -> None:
    x, loss = make()
    first, second = make_steps(x, field(4), loss)
    first()
    second()
    loss.grad[None] = 1
    second.grad()
    first.grad()
    is_near(x.grad, 4 * X)


def test_gradient_of_a_kernel_that_overwrites_its_operands() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in x:
            loss[None] += x[i] * x[i]
            x[i] = 7

    run()
    loss.grad[None] = 1
    with pytest.raises(ti.TaichiCompilationError, match="held before the kernel overwrote it"):
        run.grad()


def test_a_kernel_that_reads_gradients() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in x:
            loss[None] += x[i] * x[i]

    @ti.kernel
    def descend():
        for i in x:
            x[i] -= 0.25 * x.grad[i]

    for k in range(3):
        check(x, loss, run, gradient=2 * X / 2**k)
        descend()


def test_return_values() -> None:
    x, loss = make()

    @ti.kernel
    def run() -> ti.f32:
        for i in x:
            loss[None] += x[i] * x[i]
        return loss[None] * 2

    with ti.ad.Tape(loss):
        assert abs(run() - 2 * (X * X).sum()) < 1e-4
    is_near(x.grad, 2 * X)


def test_methods_as_kernels() -> None:
    @ti.data_oriented
    class Model:
        def __init__(self, scale):
            self.x, self.loss = make()
            self.scale = scale

        @ti.kernel
        def run(self, by: ti.f32):
            for i in self.x:
                self.loss[None] += self.x[i] ** 2 * by * self.scale

    one, two = Model(1), Model(2)
    check(one.x, one.loss, lambda: one.run(3.0), gradient=6 * X)
    check(two.x, two.loss, lambda: two.run(3.0), gradient=12 * X)
    is_near(one.x.grad, 0 * X)
    one.loss.grad[None] = 1
    one.run.grad(3.0)
    is_near(one.x.grad, 6 * X)


def test_template_arguments() -> None:
    a, loss = make()
    b = field(4, values=2 * X)

    @ti.kernel
    def run(x: ti.template(), power: ti.template()):
        for i in x:
            loss[None] += x[i] ** power

    check(a, loss, lambda: run(a, 2), lambda: run(b, 3), gradient=2 * X)
    is_near(b.grad, 3 * (2 * X) ** 2)


def test_after_reset(own_runtime: None) -> None:
    x, loss = make()
    first, second = make_steps(x, field(4), loss)
    check(x, loss, first, second, gradient=4 * X)
    ti.reset()
    ti.init()
    x, loss = make()
    first, second = make_steps(x, field(4), loss)
    check(x, loss, first, second, gradient=4 * X)


# --- tensors and arrays of other libraries -------------------------------------------------------


@ti.kernel
def multiply(a: ti.types.ndarray(), b: ti.types.ndarray(), loss: ti.types.ndarray()):
    for i in a:
        loss[0] += a[i] * b[i]


@ti.kernel
def square(a: ti.types.ndarray(), b: ti.types.ndarray()):
    for i in a:
        b[i] = a[i] * a[i]


def tensor(values: Any, *, needs: bool = True) -> Any:
    """A torch tensor."""
    torch = pytest.importorskip("torch")
    return torch.tensor(values, dtype=torch.float32, requires_grad=needs)


def test_torch_tensors_as_arguments() -> None:
    a, b, loss = tensor(X), tensor(2 * X), tensor([0.0])
    with ti.ad.Tape(loss):
        multiply(a, b, loss)
    is_near(a.grad, 2 * X)
    is_near(b.grad, X)


def test_a_tensor_passed_twice() -> None:
    a, loss = tensor(X), tensor([0.0])
    with ti.ad.Tape(loss):
        multiply(a, a, loss)
    is_near(a.grad, 2 * X)


def test_tensors_changed_in_place() -> None:
    a, loss = tensor(X), tensor([0.0])

    @ti.kernel
    def cube(a: ti.types.ndarray()):
        for i in a:
            a[i] = a[i] * a[i] * a[i]

    with ti.ad.Tape(loss):
        cube(a)
        multiply(a, tensor(np.ones(4), needs=False), loss)
        a.data.zero_()
    is_near(a.grad, 3 * X**2)


def test_gradients_of_tensors_add_up() -> None:
    a, ones, loss = tensor(X), tensor(np.ones(4), needs=False), tensor([0.0])

    @ti.kernel
    def double(a: ti.types.ndarray()):
        for i in a:
            a[i] *= 2

    for times in (1, 2, 3):
        with ti.ad.Tape(loss):
            double(a)
            multiply(a, ones, loss)
        is_near(a.grad, [2 * times] * 4)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_arrays_that_are_only_read_are_kept_once(library: str) -> None:
    needs_view(ti.ndarray(ti.f32, 1))  # copies are compared where Python reads them
    a, loss = tensor(X), tensor([0.0])
    by: Any = np.ones(4, np.float32) if library == "numpy" else tensor([1.0] * 4, needs=False)
    with ti.ad.Tape(loss) as tape:
        for k in range(4):
            if k == 2:
                by[:] = -0.0
            if k == 3:
                by[:] = 3.0
            multiply(a, by, loss)
    is_near(a.grad, [5] * 4)
    kept = {id(entry.bound.arrays["b"]) for entry in tape.entries}
    assert len(kept) == 3
    assert len({id(entry.bound.arrays["a"]) for entry in tape.entries}) == 1


def test_a_tensor_read_and_written_by_two_names() -> None:
    a, loss = tensor(X), tensor([0.0])
    refuse("are the same memory", loss, lambda: square(a, a))


def make_tensor_steps(a: Any, b: Any, loss: Any) -> tuple[Any, Any]:
    """b = a * a, and the loss a . b, of tensors."""
    return lambda: square(a, b), lambda: multiply(a, b, loss)


CHANGES = {
    "in place": lambda b: b.detach().mul_(2),
    "zeros": lambda b: b.detach().zero_(),
    "data": lambda b: b.data.add_(1),
    "numpy": lambda b: b.detach().numpy().__setitem__(1, 9.0),
    "view": lambda b: b.detach()[2:].copy_(b.detach()[:2]),
    "other memory": lambda b: setattr(b, "data", b.data + 1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_tensors_changed_between_kernels(change: str) -> None:
    a, b, loss = tensor(X), tensor(0 * X), tensor([0.0])
    first, second = make_tensor_steps(a, b, loss)
    refuse("`b` was overwritten by torch or numpy", loss, first, lambda: CHANGES[change](b), second)
    for t in (a, b, loss):
        t.grad = None
    with ti.ad.Tape(loss):
        first()
        CHANGES[change](b)
        first()  # overwrites all of it
        second()
        CHANGES[change](b)  # nobody reads it
    is_near(a.grad, 3 * X**2)


def test_a_tensor_that_is_zero_is_set_to_zero() -> None:
    a, b, loss = tensor(0 * X), tensor(0 * X), tensor([0.0])
    first, second = make_tensor_steps(a, b, loss)
    refuse("overwritten by torch", loss, first, lambda: b.detach().zero_(), second)


def test_zeros_with_another_sign_are_other_numbers() -> None:
    a, b, loss = tensor(0 * X), tensor(0 * X), tensor([0.0])
    first, second = make_tensor_steps(a, b, loss)

    def turn() -> None:
        view = b.detach().numpy()
        view *= -1

    refuse("`b` was overwritten by torch or numpy", loss, first, turn, second)


def test_tensors_that_are_only_looked_at() -> None:
    a, b, loss = tensor(X), tensor(0 * X), tensor([0.0])
    first, second = make_tensor_steps(a, b, loss)

    def look():
        assert float(b.detach().sum()) > 0
        assert b.detach().numpy().max() > 0
        b.detach().clone().mul_(2)

    with ti.ad.Tape(loss):
        first()
        look()
        second()
    is_near(a.grad, 3 * X**2)


def test_a_function_with_its_own_gradient_changes_a_tensor() -> None:
    a, b, loss = tensor(X), tensor(0 * X), tensor([0.0])
    first, second = make_tensor_steps(a, b, loss)

    @ti.ad.grad_replaced
    def double():
        b.detach().mul_(2)

    @ti.ad.grad_for(double)
    def double_grad():
        b.grad.mul_(2)

    with ti.ad.Tape(loss):
        first()
        double()
        second()
    is_near(a.grad, 6 * X**2)
    refuse("overwritten by torch", loss, first, lambda: b.detach().mul_(2), double, second)

    @ti.ad.grad_replaced
    def own():
        first()

    @ti.ad.grad_for(own)
    def own_grad():
        pass

    refuse("overwritten by torch", loss, own, lambda: b.detach().mul_(2), second)


def test_a_loss_that_torch_changed() -> None:
    a, loss = tensor(X), tensor([0.0])
    ones = tensor(np.ones(4), needs=False)
    refuse("`loss` was overwritten by torch", loss, lambda: multiply(a, ones, loss),
           lambda: loss.detach().mul_(2))  # fmt: skip


def test_an_optimiser_between_tapes() -> None:
    torch = pytest.importorskip("torch")
    a, b, loss = tensor(X), tensor(0 * X), tensor([0.0])
    first, second = make_tensor_steps(a, b, loss)
    optimiser = torch.optim.SGD([a], lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        before = a.detach().numpy().copy()
        with ti.ad.Tape(loss):
            first()
            second()
        is_near(a.grad, 3 * before**2)
        optimiser.step()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_host_arrays_between_kernels(library: str) -> None:
    a, loss = tensor(X), tensor([0.0])
    b: Any = np.ones(8, np.float32)
    if library == "torch":
        b = tensor(b, needs=False)
    refuse("flows through `b`", loss, lambda: square(a, b[:4]), lambda: multiply(a, b[1:5], loss))
    with ti.ad.Tape(loss):
        square(a, b[:4])
        multiply(a, b[4:], loss)
    is_near(a.grad, [1] * 4)


# --- forward mode --------------------------------------------------------------------------------


def dual(*shape: int) -> Any:
    return ti.field(ti.f32, shape, needs_dual=True)


def test_forward_mode_across_kernels() -> None:
    x, y, loss = dual(4), dual(4), dual()
    x.from_numpy(X)
    first, second = make_steps(x, y, loss)
    with ti.ad.FwdMode(loss=loss, param=x, seed=[1, 0, 1, 0]):
        first()
        second()
    is_near(loss.dual, 4 * X[0] + 4 * X[2])


def test_forward_mode_through_a_field_without_dual() -> None:
    x, y, loss = dual(4), ti.field(ti.f32, 4), dual()
    first, second = make_steps(x, y, loss)
    message = "the derivative flows through `y`, which has none"
    with (
        pytest.raises(ti.TaichiCompilationError, match=message),
        ti.ad.FwdMode(loss=loss, param=x, seed=[1] * 4),
    ):
        first()
        second()


def test_forward_mode_and_python() -> None:
    x, y, loss = dual(4), dual(4), dual()
    x.from_numpy(X)
    first, second = make_steps(x, y, loss)
    with ti.ad.FwdMode(loss=loss, param=x, seed=[1] * 4):
        first()
        y[1] = 5.0
        second()
    is_near(loss.dual, 4 * (X[0] + X[2] + X[3]) + 5)
    with (
        pytest.raises(ti.TaichiCompilationError, match="overwritten by Python"),
        ti.ad.FwdMode(loss=loss, param=x, seed=[1] * 4),
    ):
        first()
        y[1] *= 5.0
        second()


def test_forward_mode_runs_a_kernel_once() -> None:
    x, y = dual(), dual()

    @ti.kernel
    def run() -> ti.f32:
        y[None] += x[None] * x[None]
        return y[None]

    x[None] = 3
    with ti.ad.FwdMode(loss=y, param=x):
        assert run() == 9
    assert y[None] == 9 and y.dual[None] == 6


def make_square(y: Any) -> Any:
    """A kernel that squares y in place."""

    @ti.kernel
    def square():
        for i in y:
            y[i] *= y[i]

    return square


def test_sums_with_values_read_before_a_change() -> None:
    x, loss = make()
    y = field(4)
    first, second = make_steps(x, y, loss)
    square = make_square(y)
    read: list[Any] = []

    def look():
        read[:] = [y[1]]

    def put():
        y[1] = read[0] + 1

    def fill():
        y.fill(5)

    def double():
        y[1] += y[1]

    def add():
        loss[None] += 1  # changes nothing in y
        y[0] = 5.0  # nor this in y[1]

    def put_other():
        y[1] = 5.0

    @ti.ad.grad_replaced
    def own():
        y[1] = 5.0

    want = [5.0, 4 * X[1] + 1, 4 * X[2], 4 * X[3]]
    check(x, loss, first, look, add, put, put, second, gradient=want)
    for steps in ((look, square, put), (look, fill, put), (look, put_other, put), (double,),
                  (look, own, put)):  # fmt: skip
        refuse("`y` was overwritten by Python, which had read it", loss, first, *steps, second)


def test_an_element_with_a_derivative_that_python_adds() -> None:
    """The derivative of `y` is lost in `loss[None] += y[1]`: an error, also if only the sum of both
    is used later. An element without a derivative is a constant."""
    x, loss = make()
    y, z, free = field(4), field(4), ti.field(ti.f32, 4)
    first, second = make_steps(x, y, loss)
    third = make_steps(y, z, loss)[0]

    def add():
        loss[None] += y[1]

    def add_inner():
        z[1] += y[1]

    use = make_steps(x, z, loss)[1]

    def add_free():
        loss[None] += free[1]

    refuse("`loss` was overwritten by Python, which had read it", loss, first, second, add)
    refuse("was overwritten by Python, which had read it", loss, first, third, add_inner, use)
    check(x, loss, first, second, add_free, gradient=4 * X)


def test_the_loss_changed_in_place_at_the_end() -> None:
    x, loss = make()
    needs_view(loss)
    _, run = make_steps(x, field(4, values=[1.0] * 4), loss)
    views: list[Any] = []

    def scale():
        views[:] = [np.from_dlpack(loss)]
        views[0][...] *= 2

    refuse("`loss` was overwritten by Python, which had read it", loss, run, scale)


def test_losses_of_forward_mode_changed_in_python() -> None:
    x = ti.field(ti.f32, (), needs_dual=True)
    loss = ti.field(ti.f32, (), needs_dual=True)
    needs_view(loss)
    x[None] = 3

    @ti.kernel
    def run():
        loss[None] = x[None] ** 2

    def scale():
        loss[None] *= 2

    def share():
        view = np.from_dlpack(loss)
        view[...] *= 2

    for change in (scale, share):
        with (
            pytest.raises(ti.ad.GradientError, match="`loss` was overwritten by Python"),
            ti.ad.FwdMode(loss=loss, param=x),
        ):
            run()
            change()
    y = ti.field(ti.f32, (), needs_dual=True)

    @ti.kernel
    def other():
        y[None] = x[None] ** 2

    with ti.ad.FwdMode(loss=y, param=x):
        other()
        y[None] += 1
    assert y.dual[None] == 6


def test_gradients_in_python_of_arrays_that_no_kernel_met() -> None:
    x, loss = make()
    y = field(4)
    _, second = make_steps(x, y, loss)

    @ti.ad.grad_replaced
    def cube():
        for i in range(4):
            y[i] = x[i] ** 3

    @ti.ad.grad_for(cube)
    def cube_back():
        for i in range(4):
            x.grad[i] += 3 * x[i] ** 2 * y.grad[i]

    @ti.kernel
    def add():
        for i in y:
            loss[None] += y[i]

    def change():
        x[1] = 2.0

    check(x, loss, cube, add, gradient=3 * X**2)
    with pytest.raises(ti.ad.GradientError, match="which Python has overwritten since"):
        check(x, loss, cube, add, change, gradient=X)


def test_kernels_that_meet_in_memory_under_two_names() -> None:
    x, loss = make()
    y = ti.ndarray(ti.f32, 4, needs_grad=True)
    needs_view(y)

    @ti.kernel
    def square(a: ti.types.ndarray()):
        for i in a:
            a[i] = x[i] * x[i]

    @ti.kernel
    def add(a: ti.types.ndarray()):
        for i in a:
            loss[None] += a[i] * x[i]

    @ti.kernel
    def add_constant(a: ti.types.ndarray(needs_grad=False)):
        for i in a:
            loss[None] += a[i] * x[i]

    view = np.from_dlpack(y)

    def fill():
        y.fill(2)
        ti.sync()

    def square_y():
        square(y)

    def square_view():
        square(view)

    def add_y():
        add(y)

    def add_view():
        ti.sync()
        add(view)

    def add_constants():
        ti.sync()
        add_constant(view)

    for _ in range(2):  # memory has the same values already
        refuse("flows through what Python computed or copied", loss, square_view, add_y)
        refuse("flows through `a`, which has none", loss, square_y, add_view)
    check(x, loss, square_view, square_y, add_y, gradient=3 * X**2)
    check(x, loss, square_view, fill, add_y, gradient=[2] * 4)
    check(x, loss, square_y, fill, add_view, gradient=[2] * 4)
    check(x, loss, square_y, add_constants, gradient=X**2)


def test_overwritten_before_a_gradient_of_ones_own() -> None:
    x, loss = make()
    y, z = field(4), field(4)
    needs_view(y)
    first, _ = make_steps(x, y, loss)

    @ti.kernel
    def square():
        for i in y:
            z[i] = y[i] * y[i]

    @ti.kernel
    def add():
        for i in z:
            loss[None] += z[i]

    @ti.ad.grad_replaced
    def own():
        square()

    @ti.ad.grad_for(own)
    def own_back():
        square.grad()

    @ti.ad.grad_replaced
    def deaf():
        square()

    @ti.ad.grad_for(deaf)
    def deaf_back():
        z.grad.fill(0)

    def put():
        y[1] = 0.5

    def scale():
        y[1] *= 0.5

    def put_in_place():
        np.from_dlpack(y)[1] = 0.5

    check(x, loss, first, put, own, add, gradient=[8 * X[0], 0, 8 * X[2], 8 * X[3]])
    for change in (scale, put_in_place):
        refuse("`y` was overwritten by Python, which had read it", loss, first, change, own, add)
        check(x, loss, first, change, deaf, add, gradient=[0] * 4)


@pytest.mark.parametrize("form", ["copy_from", "from_numpy", "from_torch"])
def test_copies_of_single_numbers(form: str) -> None:
    x, loss = make()
    sum_ = field()

    @ti.kernel
    def add():
        for i in x:
            sum_[None] += x[i] * x[i]

    @ti.kernel
    def square():
        loss[None] += loss[None] * sum_[None]

    def copy_number():
        if form == "from_torch":
            torch = pytest.importorskip("torch")
            weight = torch.tensor(2.0, requires_grad=True)
            sum_.from_torch(weight)
            loss.copy_from(sum_)
        else:
            getattr(loss, form)(sum_)

    total = float((X * X).sum())
    want = np.zeros(4) if form == "from_torch" else (1 + 2 * total) * 2 * X
    check(x, loss, add, copy_number, square, gradient=want)


def test_components_after_a_function_with_a_gradient_of_its_own() -> None:
    x, loss = make()
    v = ti.Vector.field(2, ti.f32, 4)

    @ti.kernel
    def square():
        for i in x:
            loss[None] += x[i] * x[i]

    @ti.ad.grad_replaced
    def own():
        square()

    @ti.ad.grad_for(own)
    def own_back():
        square.grad()

    @ti.kernel
    def use():
        for i in x:
            loss[None] += v[i][1] * x[i]

    check(x, loss, own, lambda: v.get_scalar_field(1).fill(3), use, gradient=2 * X + 3)


# --- numpy arrays and tensors that gradients of one's own read -----------------------------------


class Weighted:
    """`loss += w * x` with a gradient of its own, which reads w, an array of the host; `before` is
    its first action."""

    def __init__(self, w: Any, before: Any = lambda: None) -> None:
        self.w, (self.x, self.loss) = w, make()
        x, loss = self.x, self.loss

        @ti.kernel
        def add(w: ti.types.ndarray()):
            for i in x:
                loss[None] += w[i] * x[i]

        @ti.kernel
        def put(w: ti.types.ndarray(), number: ti.f32):
            for i in x:
                w[i] = number

        @ti.kernel
        def put_all(w: ti.types.ndarray(), number: ti.f32):
            for i in range(w.shape[0]):
                w[i] = number

        @ti.ad.grad_replaced
        def run():
            add(w)

        @ti.ad.grad_for(run)
        def its_gradient():
            before()
            add.grad(w)

        self.put, self.put_all, self.run = put, put_all, run


def host_array(library: str) -> Any:
    if library == "torch":
        return pytest.importorskip("torch").ones(8)[2:6]
    return np.ones(8, np.float32)[2:6]


@pytest.mark.parametrize("memory", [None, "1KiB"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_host_arrays_overwritten_before_a_gradient_of_ones_own(library: str, memory: Any) -> None:
    w = host_array(library)
    p = Weighted(w)

    def by_python() -> None:
        w[1] = 7

    changes = {"put()": lambda: p.put(w, 7.0), "Python": by_python}
    for who, change in changes.items():
        w[:] = 1
        with (
            pytest.raises(ti.ad.GradientError, match=f"`w`, which {re.escape(who)} has overwr"),
            ti.ad.Tape(p.loss, memory=memory),
        ):
            p.run()
            change()
    w[:] = 1
    with ti.ad.Tape(p.loss, memory=memory):
        p.run()
    is_near(p.x.grad, np.ones(4))
    with ti.ad.Tape(p.loss, memory=memory):
        by_python()  # before the call
        p.run()
    is_near(p.x.grad, np.array([1, 7, 1, 1]))


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_host_arrays_that_a_gradient_of_ones_own_restores(library: str) -> None:
    w = host_array(library)

    def by_python() -> None:
        w[:] = 3

    for restore in (lambda: p.put(w, 3.0), by_python):
        p = Weighted(w, restore)
        w[:] = 3
        with ti.ad.Tape(p.loss):
            p.run()
            p.put(w, 7.0)
        is_near(p.x.grad, np.full(4, 3.0))


def test_a_host_array_that_is_another_view_of_one_overwritten() -> None:
    whole = np.ones(8, np.float32)
    p = Weighted(whole[2:6])
    with pytest.raises(ti.ad.GradientError, match="has overwritten since"), ti.ad.Tape(p.loss):
        p.run()
        p.put(whole[:4], 7.0)
    whole[:] = 1
    with ti.ad.Tape(p.loss):
        p.run()
        whole[7] = 7.0  # beside it
    is_near(p.x.grad, np.ones(4))


@pytest.mark.parametrize("library", ["numpy", "torch", "ndarray"])
def test_arrays_without_gradient_reset_in_functions_without_gradient(library: str) -> None:
    w = ti.ndarray(ti.f32, 4) if library == "ndarray" else host_array(library)
    x, loss = make()

    @ti.kernel
    def put(w: ti.types.ndarray()):
        for i in x:
            w[i] = 2 * x[i]

    @ti.kernel
    def reset(w: ti.types.ndarray()):
        for i in w:
            w[i] = 3.0

    @ti.kernel
    def add(w: ti.types.ndarray()):
        for i in x:
            loss[None] += w[i] * x[i]

    reset_all = ti.ad.no_grad(lambda: reset(w))
    check(x, loss, lambda: put(w), reset_all, lambda: add(w), gradient=[3] * 4)
    if library != "ndarray":
        reset_half = ti.ad.no_grad(lambda: reset(w[:2]))
        message = "the gradient flows through `w`, which has none"
        refuse(message, loss, lambda: put(w), reset_half, lambda: add(w))


def test_parts_of_host_arrays_that_a_gradient_of_ones_own_restores() -> None:
    whole = np.ones(8, np.float32)
    w = whole[2:6]

    def by_python() -> None:
        w[:2] = 3

    def by_a_kernel() -> None:
        p.put_all(w[:2], 3.0)

    for restore in (by_python, by_a_kernel):
        p = Weighted(w, restore)
        w[:] = 3
        with pytest.raises(ti.ad.GradientError, match="has overwritten since"), ti.ad.Tape(p.loss):
            p.run()
            w[:] = 7
        w[:] = 3
        with ti.ad.Tape(p.loss):
            p.run()
            w[:2] = 7
        is_near(p.x.grad, np.full(4, 3.0))


def test_parts_of_arrays_that_a_gradient_of_ones_own_restores() -> None:
    w, (x, loss) = ti.field(ti.f32, (4, 4)), make()

    @ti.kernel
    def put(first: ti.i32, last: ti.i32, number: ti.f32):
        for i, j in ti.ndrange((first, last), 4):
            w[i, j] = number

    @ti.kernel
    def add():
        for i in x:
            for j in range(4):
                loss[None] += w[i, j] * x[i]

    def by_rows() -> None:
        put(0, 2, 3.0)
        put(2, 4, 3.0)

    def by_elements(rows: int) -> None:
        for i, j in product(range(rows), range(4)):
            w[i, j] = 3.0

    def outcome(restore: Callable[[], Any], change: Callable[[], Any]) -> None:
        run = ti.ad.grad_replaced(lambda: add())

        @ti.ad.grad_for(run)
        def its_gradient():
            restore()
            add.grad()

        w.fill(3.0)
        with ti.ad.Tape(loss):
            run()
            change()

    for change, rows in ((lambda: w.fill(7), 4), (lambda: put(1, 2, 7.0), 2)):
        for restore in (by_rows, partial(by_elements, rows), lambda rows=rows: put(0, rows, 3.0)):
            outcome(restore, change)
            is_near(x.grad, np.full(4, 12.0))
        for too_little in (lambda: put(2, 4, 3.0), partial(by_elements, 1)):
            with pytest.raises(ti.ad.GradientError, match="has overwritten since"):
                outcome(too_little, change)


def test_a_part_of_a_host_array_beside_one_overwritten() -> None:
    whole = np.ones(8, np.float32)
    x, loss = make()

    @ti.kernel
    def add(w: ti.types.ndarray()):
        for i in x:
            loss[None] += w[i] * x[i]

    @ti.ad.grad_replaced
    def run():
        add(whole)

    @ti.ad.grad_for(run)
    def its_gradient():
        add.grad(whole[:4])

    with ti.ad.Tape(loss):
        run()
        whole[4:] = 7.0
    is_near(x.grad, np.ones(4))
    with pytest.raises(ti.ad.GradientError, match="has overwritten since"), ti.ad.Tape(loss):
        run()
        whole[3] = 7.0


@pytest.mark.parametrize("kind", ["host", "device"])
@pytest.mark.parametrize("is_whole", [False, True])
def test_partial_writes_of_a_custom_gradient_restore_no_array(kind: str, is_whole: bool) -> None:
    x, loss = make()
    w: Any = np.zeros(4, np.float32) if kind == "host" else ti.ndarray(ti.f32, 4)

    @ti.kernel
    def add(w: ti.types.ndarray()):
        for i in x:
            loss[None] += x[i] * w[i]

    @ti.kernel
    def put(w: ti.types.ndarray(), count: ti.i32, number: ti.f32):
        for i in range(4):
            if is_whole or i * i < count:
                w[i] = number

    @ti.ad.grad_replaced
    def run():
        add(w)

    @ti.ad.grad_for(run)
    def its_gradient():
        put(w, 4, 3.0)  # two of four elements, unless it is the whole
        add.grad(w)

    put(w, 99, 3.0)
    with ti.ad.Tape(loss) if is_whole else refusal_of_a_tape(loss):
        run()
        put(w, 99, 10.0)
    if is_whole:
        is_near(x.grad, np.full(4, 3.0))


@contextmanager
def refusal_of_a_tape(loss: Any) -> Iterator[None]:
    """A tape that ends with the error for overwritten inputs."""
    with pytest.raises(ti.ad.GradientError, match="has overwritten since"), ti.ad.Tape(loss):
        yield


# --- literals ------------------------------------------------------------------------------------


def test_literals_are_constants_also_where_python_has_read() -> None:
    """`y[0] = 0.0` does not depend on what was read; computed and chosen values may."""
    x, loss = make()
    y = field(4)
    first, second = make_steps(x, y, loss)
    seen: list[Any] = []

    def look():
        seen[:] = [y.to_numpy(), y[0]]

    def put_literals():
        y[0] = 0.0
        y[int(seen[0][2] < 100)] = -2
        if seen[0][1] > 0:
            y[2] = 1.5

    def put_in_a_loop():
        for i in range(2):
            y[i] = 0

    def put_computed():
        y[0] = seen[0][0] + 1.0

    def put_negated():
        y[0] = -seen[0][0]

    def put_chosen():
        y[0] = seen[0][0] if len(seen) == 2 else 0.0

    def put_one_or_other():
        y[0] = seen[0][0] or 0.0

    def put_name():
        value = 0.0
        y[0] = value

    def put_old_value():
        y[0] = seen[1] + 1

    check(x, loss, first, look, put_literals, second, gradient=[0, -2, 1.5, 4 * X[3]])
    check(x, loss, first, look, put_in_a_loop, second, gradient=[0, 0, 4 * X[2], 4 * X[3]])
    message = "`y` was overwritten by Python, which had read it"
    for put in (put_computed, put_negated, put_chosen, put_one_or_other, put_name):
        refuse(message, loss, first, look, put, second)
    want = 4 * X + np.array([1, 0, 0, 0])
    check(x, loss, first, look, put_old_value, second, gradient=want)
    refuse(message, loss, first, look, put_literals, put_old_value, second)


@pytest.mark.parametrize("has_looked", [False, True])
def test_literals_in_components_and_members(has_looked: bool) -> None:
    pair = ti.types.struct(a=ti.f32, v=ti.math.vec2)
    x, y = (ti.Vector.field(2, ti.f32, 2, needs_grad=True) for _ in range(2))
    s, loss = pair.field(shape=2, needs_grad=True), field()

    @ti.kernel
    def first():
        for i in x:
            y[i] = x[i] * x[i]
            s[i].a = x[i][0] ** 2
            s[i].v = x[i] * x[i]

    @ti.kernel
    def second():
        for i in x:
            loss[None] += y[i].sum() + s[i].a * 10 + s[i].v.sum() * 100

    x.fill(0.5)
    with ti.ad.Tape(loss):
        first()
        if has_looked:
            assert y.to_numpy().all() and s.to_numpy()["a"].all() and s[0].v[0] == 0.25
        y[0][1] = 0.0
        y[1].x = 0.0
        s[0].a = 1.0
        s[1].v[0] = 2.0
        second()
    is_near(x.grad, [[101, 100], [10, 101]])
