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
    x, c = make(numbers(0, 40), needs_grad=True), make(numbers(1, 40))

    @ti.kernel
    def run():
        ti.loop_config(block_dim=8)
        for i in range(40):
            tid = i % 8
            tile = block.SharedArray((8,), ti.f32)
            total = 0.0
            for t in range(5):
                tile[tid] = c[t * 8 + tid]
                block.sync()
                for k in range(8):
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


# --- tiles of values with derivatives ------------------------------------------------------------


def test_products_of_matrices_in_tiles(loss: ti.ScalarField) -> None:
    """Gradients of both operands, which are loaded in tiles."""
    n, side = 12, 4
    a, b, c = (ti.field(ti.f32, (n, n), needs_grad=True) for _ in range(3))
    random = np.random.default_rng(0)
    a0, b0 = random.random((2, n, n)).astype(np.float32)
    a.from_numpy(a0)
    b.from_numpy(b0)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=side * side)
        for k in range(n * n):
            tid, group = k % (side * side), k // (side * side)
            i, j = tid // side, tid % side
            row, column = group // (n // side) * side + i, group % (n // side) * side + j
            left = block.SharedArray((side, side), ti.f32)
            right = block.SharedArray((side, side), ti.f32)
            total = 0.0
            for t in range(n // side):
                left[i, j] = a[row, t * side + j]
                right[i, j] = b[t * side + i, column]
                block.sync()
                for m in range(side):
                    total += left[i, m] * right[m, j]
                block.sync()
            c[row, column] = total
        for i, j in c:
            loss[None] += c[i, j] * c[i, j]

    with ti.ad.Tape(loss):
        run()
    product = a0 @ b0
    np.testing.assert_allclose(c.to_numpy(), product, rtol=1e-4)
    np.testing.assert_allclose(a.grad.to_numpy(), 2 * product @ b0.T, rtol=1e-3)
    np.testing.assert_allclose(b.grad.to_numpy(), a0.T @ (2 * product), rtol=1e-3)


def test_trees_and_histograms(loss: ti.ScalarField) -> None:
    """A reduction in a `while`, whose iterations read and write other elements, and additions at
    indices from data. The last workgroup is not full."""
    x = make(numbers(0), needs_grad=True)
    bin_of = make(np.random.default_rng(1).integers(0, 4, N).astype(np.int32))

    @ti.kernel
    def run():
        ti.loop_config(block_dim=16)
        for i in range(N):
            tid = i % 16
            tree, bins = block.SharedArray((16,), ti.f32), block.SharedArray((4,), ti.math.vec2)
            tree[tid] = x[i] * x[i]
            if tid < 4:
                bins[tid] = [0, 0]
            block.sync()
            ti.atomic_add(bins[bin_of[i]], ti.math.vec2(x[i], x[i] * x[i]))
            step = 8
            while step > 0:
                if tid < step and i + step < N:
                    tree[tid] += tree[tid + step]
                block.sync()
                step //= 2
            loss[None] += x[i] * tree[0] * tree[0] + bins[bin_of[i]].x * bins[bin_of[i]].y

    check(run, x, loss)

    def both() -> None:
        loss[None] = 0
        run()

    x0, ends = x.to_numpy(), []
    found = ti.ad.hvp(both, loss, x, np.ones(N, np.float32))
    for step in (1e-2, -1e-2):
        x.from_numpy(x0 + np.float32(step))
        with ti.ad.Tape(loss):
            run()
        ends.append(x.grad.to_numpy())
    want = (ends[0] - ends[1]) / 2e-2
    np.testing.assert_allclose(found, want, rtol=2e-2, atol=1e-2 * np.abs(want).max())


def test_a_tile_that_is_written_again(loss: ti.ScalarField) -> None:
    """A branch of the whole workgroup changes the tile, and each iteration fills several
    elements."""
    x, c = make(numbers(0, 40), needs_grad=True), make(numbers(1, 40))

    @ti.kernel
    def run():
        ti.loop_config(block_dim=8)
        for i in range(40):
            tid = i % 8
            tile = block.SharedArray((32,), ti.f32)
            for k in range(4):
                tile[tid + 8 * k] = x[(i + k) % 40] * k
            block.sync()
            first = tile[9]
            block.sync()
            tile[tid] = first * x[i] * c[i]
            block.sync()
            if c[i // 8 * 8] > 1:
                tile[tid] *= x[i]
                block.sync()
            for k in range(4):
                loss[None] += tile[4 * tid + k] * x[i]

    check(run, x, loss)


@pytest.mark.parametrize("case", ["two writers", "no barrier", "no second barrier", "maximum"])
def test_accesses_without_an_order_raise(case: str, loss: ti.ScalarField) -> None:
    x = make(numbers(0, 40), needs_grad=True)

    @ti.kernel
    def run(kind: ti.template()):
        ti.loop_config(block_dim=8)
        for i in range(40):
            tid = i % 8
            tile = block.SharedArray((8,), ti.f32)
            tile[tid] = 0.0
            block.sync()
            if ti.static(kind == "two writers"):
                tile[tid // 2] = x[i]
                block.sync()
            elif ti.static(kind == "no barrier"):
                tile[tid] = x[i]
            elif ti.static(kind == "maximum"):
                ti.atomic_max(tile[0], x[i])
                block.sync()
            else:
                for t in range(3):
                    tile[tid] = x[(i + t) % 40]
                    block.sync()
                    loss[None] += tile[7 - tid] * x[i]
            loss[None] += tile[7 - tid] * x[i]

    match = "barriers provably separate" if case != "maximum" else "barriers provably|no gradient"
    with pytest.raises(ti.ad.GradientError, match=match), ti.ad.Tape(loss):
        run(case)


def test_tiles_before_the_loop_and_without_a_size_raise(loss: ti.ScalarField) -> None:
    x = make(numbers(0), needs_grad=True)

    @ti.kernel
    def before():
        tile = block.SharedArray((8,), ti.f32)
        ti.loop_config(block_dim=8)
        for i in range(N):
            tile[i % 8] = x[i]
            block.sync()
            loss[None] += tile[0] * x[i]

    @ti.kernel
    def sizeless():
        for i in range(N):
            tile = block.SharedArray((1024,), ti.f32)
            tile[block.thread_idx()] = x[i]
            block.sync()
            loss[None] += tile[0] * x[i]

    for run, message in ((before, "invocations share"), (sizeless, "barriers provably separate")):
        with pytest.raises(ti.ad.GradientError, match=message), ti.ad.Tape(loss):
            run()
