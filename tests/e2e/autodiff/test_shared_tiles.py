"""Gradients of kernels with workgroup arrays (`ti.simt.block.SharedArray`) and barriers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import vkchi as ti

N = 37  # the last workgroup is not full
block = ti.simt.block


def numbers(seed: int, n: int = N) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 1.5, n).astype(np.float32)


def make(values: np.ndarray, *, needs_grad: bool = False) -> ti.ScalarField:
    t = ti.f32 if values.dtype == np.float32 else ti.i32
    made = ti.field(t, values.shape, needs_grad=needs_grad)
    made.from_numpy(values)
    return made


def check(run: Callable[[], object], x: ti.ScalarField, loss: ti.ScalarField) -> None:
    """Compare the gradient with central differences."""
    x0, step = x.to_numpy(), 1e-2
    loss.fill(0)
    with ti.ad.Tape(loss):
        run()
    found, want = x.grad.to_numpy(), np.zeros_like(x0)
    for k in range(len(x0)):
        ends = []
        for sign in (1, -1):
            y = x0.copy()
            y[k] += sign * step
            x.from_numpy(y)
            loss.fill(0)
            run()
            ends.append(loss[None])
        want[k] = (ends[0] - ends[1]) / (2 * step)
    x.from_numpy(x0)
    np.testing.assert_allclose(found, want, rtol=2e-2, atol=2e-2 * np.abs(want).max())


@pytest.fixture
def loss() -> ti.ScalarField:
    return ti.field(ti.f32, (), needs_grad=True)


def test_tiles_of_a_table_in_a_loop(loss: ti.ScalarField) -> None:
    """Each iteration of a loop fills the tile anew, between barriers."""
    x, c = make(numbers(0), needs_grad=True), make(numbers(1))

    @ti.kernel
    def run():
        ti.loop_config(block_dim=8)
        for i in range(N):
            tid = i % 8
            tile = block.SharedArray((8,), ti.f32)
            total = 0.0
            for t in range((N + 7) // 8):
                tile[tid] = c[ti.min(t * 8 + tid, N - 1)]
                block.sync()
                for k in range(8):
                    if t * 8 + k < N:
                        total += tile[k] * ti.sin(x[i] * tile[k])
                block.sync()
            loss[None] += total * total

    check(run, x, loss)


def test_a_tile_without_a_given_size_of_workgroups(loss: ti.ScalarField) -> None:
    x, c = make(numbers(0), needs_grad=True), make(numbers(1))

    @ti.kernel
    def run():
        for i in range(N):
            tile = block.SharedArray((1024,), ti.f32)
            tile[block.thread_idx()] = c[i]
            block.sync()
            total = 0.0
            for k in range(3):
                total += tile[k] * x[i]
            loss[None] += total * total

    check(run, x, loss)


def test_indices_from_a_tile(loss: ti.ScalarField) -> None:
    x = make(numbers(0), needs_grad=True)
    near = make(np.random.default_rng(1).integers(0, N, N).astype(np.int32))

    @ti.kernel
    def run():
        ti.loop_config(block_dim=16)
        for i in range(N):
            tile = block.SharedArray((16,), ti.i32)
            tile[i % 16] = near[i]
            block.sync()
            loss[None] += x[tile[15 - i % 16] if i < 32 else tile[0]] * x[i] * x[i]

    check(run, x, loss)


def test_a_histogram_and_a_tree_of_constants(loss: ti.ScalarField) -> None:
    x, c = make(numbers(0), needs_grad=True), make(numbers(1))
    bin_of = make(np.random.default_rng(1).integers(0, 4, N).astype(np.int32))

    @ti.kernel
    def run():
        ti.loop_config(block_dim=16)
        for i in range(N):
            tid = i % 16
            bins, tree = block.SharedArray((4,), ti.f32), block.SharedArray((16,), ti.f32)
            tree[tid] = c[i]
            if tid < 4:
                bins[tid] = 0.0
            block.sync()
            ti.atomic_add(bins[bin_of[i]], c[i])
            step = 8
            while step > 0:
                if tid < step and i + step < N:
                    tree[tid] += tree[tid + step]
                block.sync()
                step //= 2
            loss[None] += x[i] * x[i] * bins[bin_of[i]] * tree[0]

    check(run, x, loss)


def test_a_list_of_the_workgroup(loss: ti.ScalarField) -> None:
    """Places in the list are results of atomics, which the tape records."""
    x = make(numbers(0), needs_grad=True)
    bin_of = make(np.random.default_rng(1).integers(0, 4, N).astype(np.int32))

    @ti.kernel
    def run():
        ti.loop_config(block_dim=8)
        for i in range(N):
            count, found = block.SharedArray((1,), ti.i32), block.SharedArray((8,), ti.i32)
            if i % 8 == 0:
                count[0] = 0
            block.sync()
            if bin_of[i] > 1:
                found[ti.atomic_add(count[0], 1)] = i
            block.sync()
            for k in range(count[0]):
                loss[None] += x[found[k]] * x[i]

    check(run, x, loss)


def test_values_without_a_derivative(loss: ti.ScalarField) -> None:
    """Vectors, stopped gradients and random numbers in tiles, one of them made before the loop."""
    x, y = make(numbers(0), needs_grad=True), ti.field(ti.f32, N, needs_grad=True)

    @ti.kernel
    def run():
        drawn = block.SharedArray((8,), ti.f32)
        ti.loop_config(block_dim=8)
        for i in range(N):
            pairs = block.SharedArray((8,), ti.math.vec2)
            pairs[i % 8] = ti.math.vec2(ti.stop_grad(x[i]), 2)
            drawn[i % 8] = ti.random()
            block.sync()
            p = pairs[0]
            y[i] = drawn[0] * p.x
            loss[None] += p.dot(ti.math.vec2(x[i] * x[i], x[i])) * drawn[0]

    with ti.ad.Tape(loss):
        run()
    a, first = x.to_numpy(), np.arange(N) // 8 * 8
    drawn = y.to_numpy() / a[first]
    np.testing.assert_allclose(x.grad.to_numpy(), drawn * (2 * a * a[first] + 2), rtol=1e-4)


def test_second_derivatives_and_kernel_grad(loss: ti.ScalarField) -> None:
    x, c = make(numbers(0), needs_grad=True), make(numbers(1))

    @ti.kernel
    def run():
        ti.loop_config(block_dim=8)
        for i in range(N):
            tile = block.SharedArray((8,), ti.f32)
            tile[i % 8] = c[i]
            block.sync()
            loss[None] += tile[0] * x[i] ** 3

    def both() -> None:
        loss[None] = 0
        run()

    a, w = x.to_numpy(), c.to_numpy()[np.arange(N) // 8 * 8]
    np.testing.assert_allclose(
        ti.ad.hvp(both, loss, x, np.ones(N, np.float32)), 6 * a * w, rtol=1e-4
    )
    x.grad.fill(0)
    loss.grad.fill(1)
    run.grad()
    np.testing.assert_allclose(x.grad.to_numpy(), 3 * a * a * w, rtol=1e-4)
