"""Workgroups: shared arrays, synchronisation, one workgroup per run of block_dim iterations."""

import numpy as np
import pytest

import vkchi as ti


@pytest.mark.parametrize("block", [8, 32, 64, 128])
def test_reverse_within_blocks(block):
    n = block * 5
    x, y = ti.field(ti.f32, n), ti.field(ti.f32, n)
    x.from_numpy(np.arange(n, dtype=np.float32))

    @ti.kernel
    def run():
        ti.loop_config(block_dim=block)
        for i in range(n):
            tid = i % block
            pad = ti.simt.block.SharedArray((block,), ti.f32)
            pad[tid] = x[i]
            ti.simt.block.sync()
            y[i] = pad[block - 1 - tid]

    run()
    want = np.arange(n).reshape(-1, block)[:, ::-1].ravel()
    np.testing.assert_array_equal(y.to_numpy(), want)


@pytest.mark.parametrize("t", ["f32", "i32"])
def test_tile_sums(t):
    """A tree over shared memory: one sum per block."""
    block, blocks = 64, 13
    n = block * blocks
    values = np.random.default_rng(2).integers(-9, 9, n).astype(np.int32)
    dtype = getattr(ti, t)
    x, sums = ti.field(dtype, n), ti.field(dtype, blocks)
    x.from_numpy(values)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=block)
        for i in range(n):
            tid = i % block
            pad = ti.simt.block.SharedArray((block,), dtype)
            pad[tid] = x[i]
            ti.simt.block.sync()
            step = block // 2
            while step > 0:
                if tid < step:
                    pad[tid] += pad[tid + step]
                ti.simt.block.sync()
                step //= 2
            if tid == 0:
                sums[i // block] = pad[0]

    run()
    np.testing.assert_array_equal(sums.to_numpy(), values.reshape(-1, block).sum(1))


def test_ndarray_argument_and_two_arrays():
    block = 32

    @ti.kernel
    def run(x: ti.types.ndarray(ndim=1), y: ti.types.ndarray(ndim=1)):
        ti.loop_config(block_dim=block)
        for i in range(x.shape[0]):
            a = ti.simt.block.SharedArray((block,), ti.i32)
            b = ti.simt.block.SharedArray((2 * block,), ti.i32)
            tid = i % block
            a[tid] = x[i]
            b[2 * tid] = -x[i]
            b[2 * tid + 1] = 10 * x[i]
            ti.simt.block.sync()
            k = (tid + 1) % block
            y[i] = a[k] + b[2 * k] + b[2 * k + 1]

    x = np.arange(4 * block, dtype=np.int32)
    y = np.zeros_like(x)
    run(x, y)
    tid = x % block
    np.testing.assert_array_equal(y, 10 * (x - tid + (tid + 1) % block))


def test_shared_array_of_two_axes():
    """Transpose in tiles."""
    tile, n = 8, 32
    x, y = ti.field(ti.f32, (n, n)), ti.field(ti.f32, (n, n))
    values = np.random.default_rng(3).random((n, n), np.float32)
    x.from_numpy(values)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=tile * tile)
        for t in range(n * n):
            pad = ti.simt.block.SharedArray((tile, tile), ti.f32)
            group, tid = t // (tile * tile), t % (tile * tile)
            r, c = tid // tile, tid % tile
            gr, gc = group // (n // tile), group % (n // tile)
            pad[r, c] = x[gr * tile + r, gc * tile + c]
            ti.simt.block.sync()
            y[gc * tile + r, gr * tile + c] = pad[c, r]

    run()
    np.testing.assert_array_equal(y.to_numpy(), values.T)


def test_atomics_on_shared_memory():
    block, bins = 64, 8
    n = block * 6
    values = np.random.default_rng(4).integers(0, bins, n).astype(np.int32)
    x, counts = ti.field(ti.i32, n), ti.field(ti.i32, (6, bins))
    x.from_numpy(values)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=block)
        for i in range(n):
            tid = i % block
            local = ti.simt.block.SharedArray((bins,), ti.i32)
            if tid < bins:
                local[tid] = 0
            ti.simt.block.sync()
            ti.atomic_add(local[x[i]], 1)
            ti.simt.block.sync()
            if tid < bins:
                counts[i // block, tid] = local[tid]

    run()
    want = [np.bincount(v, minlength=bins) for v in values.reshape(6, block)]
    np.testing.assert_array_equal(counts.to_numpy(), want)


def test_sync_in_a_loop():
    """A stencil iterated in shared memory; each block wraps around."""
    block, steps = 32, 5
    n = block * 4
    values = np.random.default_rng(5).integers(0, 3, n).astype(np.int32)
    x = ti.field(ti.i32, n)
    x.from_numpy(values)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=block)
        for i in range(n):
            tid = i % block
            pad = ti.simt.block.SharedArray((block,), ti.i32)
            pad[tid] = x[i]
            ti.simt.block.sync()
            for _ in range(steps):
                v = pad[tid] + pad[(tid + 1) % block] - pad[(tid + block - 1) % block]
                ti.simt.block.sync()
                pad[tid] = v
                ti.simt.block.sync()
            x[i] = pad[tid]

    run()
    want = values.reshape(-1, block)
    for _ in range(steps):
        want = want + np.roll(want, -1, 1) - np.roll(want, 1, 1)
    np.testing.assert_array_equal(x.to_numpy(), want.ravel())


def test_vectors_in_shared_memory():
    block = 16
    x = ti.Vector.field(3, ti.f32, block * 3)
    values = np.random.default_rng(6).random((block * 3, 3), np.float32)
    x.from_numpy(values)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=block)
        for i in x:
            pad = ti.simt.block.SharedArray((block,), ti.types.vector(3, ti.f32))
            pad[i % block] = x[i]
            ti.simt.block.sync()
            x[i] = pad[(i + 1) % block] * 2

    run()
    want = 2 * np.roll(values.reshape(3, block, 3), -1, 1).reshape(-1, 3)
    np.testing.assert_array_equal(x.to_numpy(), want)


@pytest.mark.parametrize("n", [1, 40, 64])
def test_one_workgroup_of_default_size(n: int) -> None:
    """The index in the workgroup is in range: the workgroup has n invocations."""
    x, y = ti.field(ti.f32, n), ti.field(ti.f32, n)

    @ti.kernel
    def reverse():
        for i in range(n):
            tile = ti.simt.block.SharedArray((64,), ti.f32)
            t = ti.simt.block.thread_idx()
            tile[t] = x[i]
            ti.simt.block.sync()
            y[i] = tile[n - 1 - t]

    x.from_numpy(np.arange(n, dtype=np.float32))
    reverse()
    assert (y.to_numpy() == np.arange(n)[::-1]).all()
