"""Gradients of loops whose bounds depend on enclosing loops and branches."""

from __future__ import annotations

import numpy as np

import vkchi as ti


def test_inner_loop_bounded_by_the_index_of_the_parallel_one() -> None:
    n = 6
    x, loss = ti.field(ti.f32, n, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(np.linspace(0.5, 1.5, n).astype(np.float32))

    @ti.kernel
    def powers():
        for i in x:
            p = x[i]
            for _j in range(i):
                p = p * x[i]
            loss[None] += p  # x[i] ** (i + 1)

    with ti.ad.Tape(loss):
        powers()
    a, i = x.to_numpy(), np.arange(n)
    np.testing.assert_allclose(x.grad.to_numpy(), (i + 1) * a**i, rtol=1e-5)


def test_bound_with_the_name_of_an_argument_that_is_less() -> None:
    """`i` is an argument of the kernel, and in the function the index of a loop."""
    n = 5
    x, loss = ti.field(ti.f32, n, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    x.fill(1.25)

    @ti.func
    def triangle(a):
        p = a
        for i in range(4):
            for _j in range(i):
                p = p * a
        return p  # a ** 7

    @ti.kernel
    def powers(i: ti.i32):
        for k in range(n):
            loss[None] += triangle(x[k]) * i

    with ti.ad.Tape(loss):
        powers(1)
    np.testing.assert_allclose(x.grad.to_numpy(), np.full(n, 7 * 1.25**6), rtol=1e-5)


def test_triangle_of_loops() -> None:
    n = 4
    x, loss = ti.field(ti.f32, n, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(np.array([0.5, 0.7, 1.1, 1.3], np.float32))

    @ti.kernel
    def triangle():
        for i in x:
            p = 1.0
            for j in range(i + 1):
                for _k in range(j):
                    p = p * x[i]
            loss[None] += p  # x[i] ** (i (i + 1) / 2)

    with ti.ad.Tape(loss):
        triangle()
    a, i = x.to_numpy(), np.arange(n)
    e = i * (i + 1) // 2
    np.testing.assert_allclose(x.grad.to_numpy(), e * a ** np.maximum(e - 1, 0), rtol=1e-5)


def test_a_long_chain_in_a_loop() -> None:
    """Of values that the gradient computes again: more than Python's stack is deep."""
    x, loss = ti.field(ti.f32, 4, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    x.fill(0.5)

    @ti.kernel
    def run():
        for i in x:
            for _ in range(2):
                s = x[i]
                for _ in ti.static(range(400)):
                    s = s * 0.999 + 0.001 * x[0]
                loss[None] += s * s

    with ti.ad.Tape(loss):
        run()
    own = 0.999**400
    slopes = [2 * own * 0.5 * 2] * 4
    slopes[0] += 4 * (1 - own) * 0.5 * 2 * 2
    np.testing.assert_allclose(x.grad.to_numpy(), slopes, rtol=1e-3)
