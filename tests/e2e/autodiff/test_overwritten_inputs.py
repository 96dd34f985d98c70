"""Writes over inputs that recorded kernels have used are constants: gradients are by the inputs'
contents when the tape began."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import X, check, field, is_near, make, refuse

pytestmark = pytest.mark.device
FIVES = np.full(4, 5, np.float32)


def squares(x: Any, loss: Any) -> Callable[[], None]:
    """The kernel that adds up squares."""

    @ti.kernel
    def square():
        for i in x:
            loss[None] += x[i] ** 2

    return square


WRITES: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    # Writes of Python, and elements that keep old values.
    "from_numpy": (lambda x: x.from_numpy(FIVES), [0, 0, 0, 0]),
    "fill": (lambda x: x.fill(5), [0, 0, 0, 0]),
    "element": (lambda x: x.__setitem__(1, 5), [1, 0, 1, 1]),
    "sum": (lambda x: x.__setitem__(1, x[1] + 5), [1, 1, 1, 1]),
}


@pytest.mark.parametrize("name", WRITES)
def test_python_over_a_used_input(name: str) -> None:
    x, loss = make()
    write, stays = WRITES[name]
    square = squares(x, loss)
    after = X + np.array([0, 5, 0, 0]) if name == "sum" else X
    for _ in range(3):  # noted, followed, left where Python writes
        x.from_numpy(X)
        check(x, loss, square, lambda: write(x), square, gradient=2 * X + 2 * after * stays)


@pytest.mark.parametrize("name", WRITES)
def test_python_over_a_used_input_in_limited_memory(name: str) -> None:
    x, loss = make()
    write, stays = WRITES[name]
    square = squares(x, loss)
    after = X + np.array([0, 5, 0, 0]) if name == "sum" else X
    with ti.ad.Tape(loss, memory=64):
        square()
        write(x)
        square()
    is_near(x.grad, 2 * X + 2 * after * stays)


@pytest.mark.parametrize("name", WRITES)
def test_python_over_a_used_input_in_forward_mode(name: str) -> None:
    x, loss = ti.field(ti.f32, 4, needs_dual=True), ti.field(ti.f32, (), needs_dual=True)
    x.from_numpy(X)
    write, stays = WRITES[name]
    square, seed = squares(x, loss), [1, -2, 3, 0.5]
    with ti.ad.FwdMode(loss, x, seed):
        square()
        write(x)
        square()
    after = X + np.array([0, 5, 0, 0]) if name == "sum" else X
    assert loss.dual[None] == pytest.approx(np.dot(2 * X + 2 * after * stays, seed), 1e-4)


@pytest.mark.parametrize("name", WRITES)
def test_python_over_a_used_input_in_a_product_with_the_hessian(name: str) -> None:
    x, loss = make()
    write, stays = WRITES[name]

    @ti.kernel
    def cube():
        for i in x:
            loss[None] += x[i] ** 3

    def run() -> None:
        cube()
        write(x)
        cube()

    along = np.array([1, -2, 3, 0.5])
    found = ti.ad.hvp(run, loss, x, along)
    after = X + np.array([0, 5, 0, 0]) if name == "sum" else X
    is_near(found, (6 * X + 6 * after * stays) * along)
    is_near(x.grad, 3 * X**2 + 3 * after**2 * stays)


def test_python_over_an_input_that_was_only_added_to() -> None:
    x, loss = make()

    @ti.kernel
    def shift():
        for i in x:
            x[i] += 1.0

    check(x, loss, shift, lambda: x.fill(5), squares(x, loss), gradient=[0] * 4)


def test_python_over_a_component_of_a_used_input() -> None:
    _, loss = make()
    x = ti.Vector.field(2, ti.f32, 4, needs_grad=True)
    x.from_numpy(np.stack([X, X], 1).astype(np.float32))

    @ti.kernel
    def square():
        for i in x:
            loss[None] += x[i].norm_sqr()

    def write() -> None:
        x.get_scalar_field(0).fill(5)

    check(x, loss, square, write, square, gradient=np.stack([2 * X, 4 * X], 1))


def test_python_before_the_first_use_gives_inputs() -> None:
    x, loss = make()

    def write() -> None:
        x.from_numpy(FIVES)

    check(x, loss, write, squares(x, loss), gradient=[10] * 4)


def test_python_beside_the_used_part_gives_inputs() -> None:
    """Controls that Python sets step by step stay inputs."""
    x, loss = make()

    @ti.kernel
    def step(t: ti.i32):
        loss[None] += x[t] ** 2

    def run() -> None:
        for t in range(4):
            x[t] = t + 1
            step(t)

    check(x, loss, run, gradient=[2, 4, 6, 8])


def test_arrays_without_gradient_may_be_written() -> None:
    x, loss = make()
    rate = ti.field(ti.f32, ())

    @ti.kernel
    def scale():
        for i in x:
            loss[None] += x[i] ** 2 * rate[None]

    rate[None] = 1
    check(x, loss, scale, lambda: rate.fill(3), scale, gradient=8 * X)


def test_python_that_has_read_a_used_input() -> None:
    x, loss = make()
    square = squares(x, loss)

    def halve() -> None:
        x.from_numpy(x.to_numpy() / 2)

    refuse("`x` was overwritten by Python, which had read it", loss, square, halve, square)
    x.from_numpy(X)
    check(x, loss, square, halve, gradient=2 * X)  # nothing reads it any more


@pytest.mark.parametrize("writer", ["Python", "no_grad"])
def test_the_help_on_used_inputs_that_are_constants(writer: str) -> None:
    """Weights w decay between two uses: 1, then 1 / 2. The help of the refusal is to the point."""

    def run(*, needs_grad: bool) -> Any:
        x, loss = make()
        w = ti.field(ti.f32, 4, needs_grad=needs_grad)
        w.fill(1)

        @ti.kernel
        def total():
            for i in x:
                loss[None] += w[i] * x[i] ** 2

        @ti.kernel
        def decay():
            for i in w:
                w[i] *= 0.5

        @ti.ad.no_grad
        def halve() -> None:
            decay()

        with ti.ad.Tape(loss):
            total()
            if writer == "Python":
                w.from_numpy(w.to_numpy() / 2)
            else:
                halve()
            total()
        return x.grad

    with pytest.raises(ti.ad.GradientError, match="or keep constants in an array without gradient"):
        run(needs_grad=True)
    is_near(run(needs_grad=False), 3 * X)


@pytest.mark.parametrize("is_used", [True, False])
def test_functions_that_are_not_differentiated(is_used: bool) -> None:
    x, loss = make()
    square = squares(x, loss)

    @ti.kernel
    def halve():
        for i in x:
            x[i] *= 0.5

    @ti.ad.no_grad
    def limit() -> None:
        halve()

    if is_used:
        message = "`x` was overwritten by limit.., which is not differentiated"
        refuse(message, loss, square, limit, square)
        x.from_numpy(X)
        check(x, loss, square, limit, gradient=2 * X)  # nothing reads it any more
    else:
        check(x, loss, limit, square, gradient=X)


def test_constants_of_functions_that_are_not_differentiated() -> None:
    x, loss = make()
    square = squares(x, loss)

    @ti.kernel
    def reset():
        for i in x:
            x[i] = 5.0

    @ti.kernel
    def add():
        for i in x:
            x[i] += 5.0

    check(x, loss, square, ti.ad.no_grad(lambda: reset()), square, gradient=2 * X)
    x.from_numpy(X)
    check(x, loss, square, ti.ad.no_grad(lambda: add()), square, gradient=4 * X + 10)


def test_undifferentiated_function_writes_other_elements() -> None:
    x, loss = make()

    @ti.kernel
    def step(t: ti.i32):
        loss[None] += x[t] ** 2

    @ti.kernel
    def control(t: ti.i32):
        x[t] = x[t] * 2

    @ti.ad.no_grad
    def choose(t: int) -> None:
        control(t)

    def run() -> None:
        for t in range(4):
            choose(t)
            step(t)

    check(x, loss, run, gradient=4 * X)


def test_deactivated_cells_between_two_uses() -> None:
    ti.init(arch=ti.vulkan)
    g, loss = ti.field(ti.f32, needs_grad=True), field()
    block = ti.root.pointer(ti.i, 4)
    block.place(g, g.grad)

    @ti.kernel
    def square():
        for i in range(4):
            loss[None] += g[i] ** 2

    @ti.kernel
    def reset():
        for i in range(4):
            g[i] = 5.0

    def clear() -> None:
        block.deactivate_all()

    for i in range(4):
        g[i] = 2
    with ti.ad.Tape(loss):
        square()
        clear()
        square()
    assert [g.grad[i] for i in range(4)] == [4] * 4


def test_gradients_of_several_tapes_add_up_beside_cuts() -> None:
    x, loss = make()
    square = squares(x, loss)
    x.grad.fill(100)
    with ti.ad.Tape(loss, clear_gradients=False):
        square()
        x.fill(5)
        square()
    is_near(x.grad, 100 + 2 * X)


def test_a_function_with_a_gradient_of_its_own_uses_inputs() -> None:
    x, loss = make()

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i] * 3

    @ti.ad.grad_replaced
    def whole() -> None:
        total()

    @ti.ad.grad_for(whole)
    def slope() -> None:
        total.grad()

    check(x, loss, whole, lambda: x.fill(5), squares(x, loss), gradient=[3] * 4)


# --- losses that Python wrote --------------------------------------------------------------------


@pytest.mark.parametrize("is_array", [True, False])
def test_a_loss_that_python_wrote_last(is_array: bool) -> None:
    x, loss = make()
    square = squares(x, loss)
    total = np.zeros((), np.float32)

    def write() -> None:
        if is_array:
            loss.from_numpy(total)
        else:
            loss[None] = 5

    message = "was last written by Python: it has no derivative"
    refuse(message, loss, square, write)
    refuse(message, loss, write)

    def add() -> None:
        loss[None] += 1

    refuse(message, loss, write, add)
    check(x, loss, write, square, gradient=2 * X)
    check(x, loss, square, add, gradient=2 * X)
    with pytest.raises(ti.ad.GradientError, match=message):
        ti.ad.hvp(lambda: (square(), write()), loss, x, X)


def test_a_loss_that_is_a_recorded_result_of_the_host() -> None:
    ti.init(arch=ti.vulkan)
    b, loss = field(1, values=[3.0]), ti.ndarray(ti.f32, 1, needs_grad=True)
    builder = ti.linalg.SparseMatrixBuilder(1, 1, 1)

    @ti.kernel
    def fill(out: ti.types.sparse_matrix_builder()):
        out[0, 0] += 2.0

    fill(builder)
    solver = ti.linalg.SparseSolver(solver_type="LDLT")
    solver.compute(builder.build())
    with ti.ad.Tape(loss):
        loss.from_numpy(solver.solve(b))
    assert b.grad[0] == 0.5


def test_a_direction_of_the_result_itself() -> None:
    ti.init(arch=ti.vulkan)
    x, y = ti.field(ti.f32, 2, needs_dual=True), ti.field(ti.f32, 2, needs_dual=True)

    @ti.kernel
    def square():
        for i in x:
            x[i] = x[i] ** 2

    @ti.kernel
    def double():
        for i in x:
            y[i] = 2 * x[i]

    x.from_numpy(np.array([3, 4], np.float32))
    with ti.ad.FwdMode(x, x, [1, 2]):
        square()
    assert x.dual.to_numpy().tolist() == [6, 16]
    with ti.ad.FwdMode([y, x], x, [1, 2]):
        double()
    assert (x.dual.to_numpy().tolist(), y.dual.to_numpy().tolist()) == ([1, 2], [2, 4])
    with ti.ad.FwdMode(y, x, [1, 2]):
        double()
    assert x.dual.to_numpy().tolist() == [0, 0]  # the direction is forgotten


# --- tensors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["torch", "numpy"])
def test_torch_over_a_used_tensor(by: str) -> None:
    torch = pytest.importorskip("torch")
    ti.init(arch=ti.vulkan)
    t, loss = torch.tensor(X, dtype=torch.float32, requires_grad=True), field()

    @ti.kernel
    def square(x: ti.types.ndarray()):
        for i in x:
            loss[None] += x[i] ** 2

    def halve() -> None:
        if by == "numpy":
            t.detach().numpy()[...] *= 0.5
            return
        with torch.no_grad():
            t.mul_(0.5)

    use = partial(square, t)
    refuse("`x` was overwritten by torch or numpy, and whether", loss, use, halve, use)
    t.grad = None
    with ti.ad.Tape(loss):
        halve()
        use()
        use()
        halve()  # nothing reads it any more
    is_near(t.grad, X)
