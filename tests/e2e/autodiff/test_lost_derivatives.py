"""Lost and seemingly lost derivatives: tensors of torch, refilled arrays."""

# No postponed annotations here: they are the kernels' types.
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import X, check, field, is_near, make, refuse, slope
from vkchi.errors import Unsupported


def numbers(*shape: int) -> Any:
    return ti.field(ti.f32, shape, needs_grad=True)


def test_tensors_that_torch_computed_from_others() -> None:
    torch = pytest.importorskip("torch")
    base, loss = torch.ones(6, requires_grad=True), numbers()

    @ti.kernel
    def run(a: ti.types.ndarray()):
        for i in a:
            loss[None] += a[i] ** 2

    for tensor in (base[0:3], base * 2):
        with (
            pytest.raises(ti.ad.GradientError, match="computed the tensor `a` from others"),
            ti.ad.Tape(loss),
        ):
            run(tensor)
    kept = base * 3
    kept.retain_grad()
    with ti.ad.Tape(loss):
        run(kept)
    np.testing.assert_allclose(kept.grad.numpy(), 6)


def test_an_array_without_gradient_that_is_filled_anew() -> None:
    x, between, loss = numbers(3), ti.field(ti.f32, 3), numbers()
    x.fill(2)

    @ti.kernel
    def put():
        for i in x:
            between[i] = x[i] ** 2

    @ti.kernel
    def use():
        for i in x:
            loss[None] += between[i] * x[i]

    with ti.ad.Tape(loss):
        put()
        between.fill(3)
        use()
    np.testing.assert_allclose(x.grad.to_numpy(), 3)
    with pytest.raises(ti.ad.GradientError, match="`between`, which has none"), ti.ad.Tape(loss):
        between.fill(3)
        put()
        use()


def test_a_function_that_is_not_differentiated_overwrites_members_of_structs() -> None:
    cell = ti.types.struct(p=ti.f32, q=ti.f32)
    cells, loss = ti.ndarray(cell, 3, needs_grad=True), numbers()
    cells.p.fill(3)

    @ti.kernel
    def use(cells: ti.types.ndarray(dtype=cell)):
        for i in cells:
            loss[None] += cells[i].p ** 2

    @ti.kernel
    def clear(cells: ti.types.ndarray(dtype=cell)):
        for i in cells:
            cells[i].p = 0.0

    @ti.ad.no_grad
    def clear_all():
        clear(cells)

    with ti.ad.Tape(loss):
        use(cells)
        clear_all()
    np.testing.assert_allclose(cells.p.grad.to_numpy(), 6)


def test_hvp_through_a_function_with_a_gradient_of_its_own() -> None:
    x, loss = numbers(), numbers()

    @ti.kernel
    def cube():
        loss[None] += x[None] ** 3

    @ti.ad.grad_replaced
    def run():
        cube()

    with pytest.raises(Unsupported, match="ti.ad.grad_replaced"):
        ti.ad.hvp(run, loss, x, np.array(1.0))


def test_two_tensors_of_the_same_memory_have_gradients_of_their_own() -> None:
    torch = pytest.importorskip("torch")
    first = torch.tensor([1.0, 2.0], requires_grad=True)
    second = first.detach().requires_grad_()
    loss = numbers()

    @ti.kernel
    def run(a: ti.types.ndarray(), b: ti.types.ndarray(), c: ti.types.ndarray()):
        for i in a:
            loss[None] += a[i] ** 2 + 3 * b[i] + c[i]

    with ti.ad.Tape(loss):
        run(first, second, first)
    is_near(first.grad, [3, 5])
    is_near(second.grad, [3, 3])


# --- minima and maxima in one loop ---------------------------------------------------------------


def box_of(x: np.ndarray) -> Any:
    """The product of a least and a greatest number, and something else."""
    return (2 * x).min() * (x * x).max() + 3 * x[2]


def make_box(x: Any, loss: Any, ends: Any) -> Any:
    """The kernel of that."""

    @ti.kernel
    def run():
        ends[0], ends[1] = 100.0, -100.0
        for i in x:
            ti.atomic_min(ends[0], x[i] * 2)
            ti.atomic_max(ends[1], x[i] * x[i])
            if i == 2:
                ends[2] = x[i] * 3
        loss[None] = ends[0] * ends[1] + ends[2]

    return run


def test_minima_and_maxima_in_elements_of_one_array() -> None:
    x, loss = make()
    run = make_box(x, loss, field(3))
    check(x, loss, run, gradient=slope(box_of))
    step = 1e-6 * np.array([1.0, 2, 3, 4])
    want = (slope(box_of, X + step) - slope(box_of, X - step)) / 2e-6
    is_near(ti.ad.hvp(run, loss, x, [1, 2, 3, 4]), want, 1e-2)


def test_minima_and_maxima_in_components() -> None:
    x, loss = make()
    ends = ti.Vector.field(2, ti.f32, 2, needs_grad=True)

    @ti.kernel
    def run():
        ends[0], ends[1] = [100.0, -100.0], [-100.0, -100.0]
        for i in x:
            ti.atomic_min(ends[0][0], x[i] * 2)
            ti.atomic_max(ends[0].y, x[i] * x[i])
            ti.atomic_max(ends[1], ti.Vector([x[i], ti.sin(x[i])]))
        for i in x:
            loss[None] += ends[0][0] * ends[0][1] * ends[1][0] * ends[1][1] * x[i]

    def program(x):
        return (2 * x).min() * (x * x).max() * x.max() * np.sin(x).max() * x.sum()

    check(x, loss, run, gradient=slope(program))


def test_minima_and_maxima_in_one_array_in_forward_mode() -> None:
    x, ends, loss = (ti.field(ti.f32, n, needs_dual=True) for n in (4, 3, ()))
    x.from_numpy(X)
    run = make_box(x, loss, ends)
    for k, want in enumerate(slope(box_of)):
        with ti.ad.FwdMode(loss=loss, param=x, seed=np.eye(4)[k]):
            run()
        is_near(loss.dual, want)


def test_minima_and_maxima_that_may_conflict_raise() -> None:
    x, loss = make()
    ends = field(2)

    @ti.kernel
    def run():
        for i in x:
            ti.atomic_min(ends[i % 2], x[i])
            ti.atomic_max(ends[1], x[i])
        loss[None] = ends[0] * ends[1]

    refuse("no gradient flows through this operation", loss, run)


# --- Python that writes --------------------------------------------------------------------------


def test_numbers_that_python_read_before_and_puts_back() -> None:
    x, loss = make()
    y = ti.field(ti.f32, 4)

    @ti.kernel
    def first():
        for i in x:
            y[i] = x[i] * 2

    @ti.kernel
    def second():
        for i in x:
            loss[None] += y[i] * x[i]

    def again():
        kept = y.to_numpy()
        first()
        y.from_numpy(kept)

    refuse("flows through `y`, which has none", loss, first, again, second)


def test_constants_over_all_that_python_wrote() -> None:
    x, loss = make()
    y = field(4)

    @ti.kernel
    def first():
        for i in x:
            y[i] = x[i] * 2

    @ti.kernel
    def second():
        for i in x:
            loss[None] += y[i] * x[i]

    def write():
        y[1] *= 2
        y.fill(3)

    check(x, loss, first, write, second, gradient=[3, 3, 3, 3])
