"""Arrays made with `needs_grad`: kernels read and write `x.grad` as they do any array."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti


def test_grad_of_an_ndarray_argument() -> None:
    x = ti.ndarray(ti.f32, 5, needs_grad=True)

    @ti.kernel
    def run(x: ti.types.ndarray()):
        for i in x:
            x.grad[i] = i * 2
            x[i] = x.grad[i] + 1

    run(x)
    np.testing.assert_array_equal(x.grad.to_numpy(), [0, 2, 4, 6, 8])
    np.testing.assert_array_equal(x.to_numpy(), [1, 3, 5, 7, 9])
    with pytest.raises(ti.TaichiRuntimeError, match="needs_grad=True"):
        run(ti.ndarray(ti.f32, 5))


def test_grad_of_a_field() -> None:
    x = ti.Vector.field(2, ti.f32, 3, needs_grad=True)

    @ti.kernel
    def run() -> ti.f32:
        for i in x:
            x.grad[i] = [i, 3]
        return x.grad[2].sum()

    assert run() == 5


def test_a_tuple_of_one_is_returned_as_a_tuple() -> None:
    @ti.kernel
    def run() -> tuple[ti.i32, ti.f32]:
        return 3, 0.5

    assert run() == (3, 0.5)


def test_members_that_are_no_floats_have_no_gradients() -> None:
    cell = ti.types.struct(m=ti.f32, kind=ti.i32, v=ti.types.vector(2, ti.f32))
    f = cell.field(shape=3, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def run():
        for i in f:
            if f[i].kind == 0:
                loss[None] += f[i].m * f[i].v[1]

    f.m.fill(2)
    f.kind[1] = 1
    with ti.ad.Tape(loss):
        run()
    np.testing.assert_array_equal(f.v.grad.to_numpy(), [[0, 2], [0, 0], [0, 2]])
    assert f.grad.keys == ["m", "v"]
    made = ti.ndarray(cell, 3, needs_grad=True)
    assert made.kind.grad is None and made.m.grad is not None


def test_gradients_that_are_not_there_can_be_looked_at() -> None:
    x, v = ti.field(ti.f32, 4), ti.Vector.field(3, ti.f32, (2, 3))
    cells = ti.types.struct(a=ti.f32, b=ti.i32).field(shape=3)
    for gradient, shape in ((x.grad, (4,)), (v.dual, (2, 3)), (cells.grad, (3,))):
        assert hasattr(gradient, "shape") and gradient.shape == shape
        assert str(gradient) and repr(gradient) and not hasattr(gradient, "else")
        with pytest.raises(ti.TaichiRuntimeError, match="has no (gradient|dual)"):
            gradient.to_numpy()
    assert (v.grad.n, v.grad.dtype, v.get_scalar_field(0).grad.shape) == (3, ti.f32, (2, 3))
    assert ti.field(ti.i32, 4).grad is None and x.grad.grad is None
