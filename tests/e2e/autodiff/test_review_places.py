"""Where derivatives get lost, or seem to: tensors of torch, arrays filled anew."""

# No postponed annotations here: they are the kernels' types.
from typing import Any

import numpy as np
import pytest

import vkchi as ti
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

    with pytest.raises(Unsupported, match="own gradient"):
        ti.ad.hvp(run, loss, x, np.array(1.0))
