"""Regressions in programs that use tapes and forward mode."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti

NODE = ti.types.struct(a=ti.f32, n=ti.i32)


def test_forward_mode_through_a_shared_array() -> None:
    """Each iteration reads the value that another one put into the workgroup's memory."""
    n = 64
    x, y = (ti.field(ti.f32, n, needs_dual=True) for _ in range(2))

    @ti.kernel
    def run():
        ti.loop_config(block_dim=64)
        for i in range(n):
            shared = ti.simt.block.SharedArray((64,), ti.f32)
            shared[i] = x[i] * x[i]
            ti.simt.block.sync()
            y[i] = shared[63 - i] * x[i]

    random = np.random.default_rng(0)
    a, v = random.random((2, n)).astype(np.float32)
    x.from_numpy(a)
    with ti.ad.FwdMode(y, x, seed=v):
        run()
    b, w = a[::-1], v[::-1]
    np.testing.assert_allclose(y.to_numpy(), b * b * a, rtol=1e-5)
    np.testing.assert_allclose(y.dual.to_numpy(), 2 * b * w * a + b * b * v, rtol=1e-5)


def test_gradients_of_a_tape_evaluated_inside_it() -> None:
    """`tape.grad()` may be called before the tape ends; later calls are not recorded."""
    x = ti.field(ti.f32, 3, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def run():
        for i in x:
            loss[None] += x[i] ** 2

    @ti.ad.grad_replaced
    def own():
        run()

    @ti.ad.grad_for(own)
    def gradient():
        run.grad()

    x.fill(3)
    with ti.ad.Tape(loss) as tape:
        run()
        own()
        tape.grad()
        np.testing.assert_array_equal(x.grad.to_numpy(), 12)
        run()
        with pytest.raises(ti.TaichiRuntimeError, match="once"):
            tape.grad()
    np.testing.assert_array_equal(x.grad.to_numpy(), 12)


def test_gradcheck_takes_one_array() -> None:
    x = ti.field(ti.f32, 3, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def run():
        for i in x:
            loss[None] += x[i] ** 2

    x.fill(3)
    ti.ad.gradcheck(run, loss, x)
    np.testing.assert_array_equal(x.to_numpy(), 3)


def test_arrays_of_structs_with_integers_have_gradients() -> None:
    x = ti.ndarray(NODE, 3, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def run(x: ti.types.ndarray(dtype=NODE, ndim=1)):
        for i in x:
            loss[None] += x[i].a * x[i].n

    for i in range(3):
        x[i] = NODE(a=1.0, n=i + 1)
    with ti.ad.Tape(loss):
        run(x)
    np.testing.assert_array_equal(x.a.grad.to_numpy(), [1, 2, 3])
