"""Names of Quadrants: options of decorators and loops, arguments, functions of kernels."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
import pytest

import vkchi as ti
from vkchi.runtime import current_runtime

Init = Callable[..., None]


# --- decorators ----------------------------------------------------------------------------------


def test_kernels_take_options() -> None:
    x = ti.field(ti.i32, 3)

    @ti.kernel(fastcache=True, graph=True)
    def fill(y: ti.template(), by: ti.i32):
        for i in y:
            y[i] = i * by

    fill(x, 2)
    assert x.to_numpy().tolist() == [0, 2, 4]
    with pytest.raises(ti.TaichiSyntaxError, match=r"graph=True has a return type"):

        @ti.kernel(graph=True)
        def count() -> ti.i32:
            return 1

    with pytest.raises(TypeError):
        ti.kernel(graphs=True)


def test_functions_that_require_the_top_level() -> None:
    x = ti.field(ti.i32, 3)

    @ti.func(requires_top_level=True)
    def step(y: ti.template()):
        for i in y:
            y[i] += 1

    @ti.kernel
    def run():
        step(x)
        for _ in ti.static(range(2)):
            step(x)

    @ti.kernel
    def conditional(n: ti.i32):
        if n > 0:
            step(x)

    @ti.kernel
    def looped():
        for _ in range(2):
            step(x)

    run()
    assert x.to_numpy().tolist() == [3, 3, 3]
    for kernel in (lambda: conditional(1), looped):
        with pytest.raises(ti.TaichiSyntaxError, match=r"step\(\) requires the top level"):
            kernel()


# --- loops ---------------------------------------------------------------------------------------


def test_the_profiler_shows_the_names_of_loops(init: Init) -> None:
    init(kernel_profiler=True)
    if current_runtime().profiler is None:
        pytest.skip("the device has no timestamps")
    if os.environ.get("VKCHI_PYTHON") == "1":
        pytest.skip("kernels as Python have no times of the device")
    x = ti.field(ti.i32, 70)

    @ti.kernel
    def run():
        ti.loop_config(name="fill")
        for i in range(70):
            x[i] = i
        ti.loop_config(name="sum up")
        for i in range(69):
            x[69] += x[i]

    run()
    assert x[69] == sum(range(70))
    profiler = current_runtime().profiler
    profiler.update()
    assert [name.partition(":")[2] for name in profiler.runs] == ["fill", "sum up"]
    counts = [ti.profiler.query_kernel_profiler_info(name).counter for name in ("run", "sum up")]
    assert counts == [2, 1]
    with pytest.raises(ti.TaichiCompilationError, match=r"`name` of ti.loop_config must be a str"):

        @ti.kernel
        def bad():
            ti.loop_config(name=3)
            for i in range(3):
                x[i] = i

        bad()


@pytest.mark.parametrize("arch", ["vulkan", "python"])
def test_ndrange_in_another_order(arch: str, init: Init) -> None:
    init(arch=getattr(ti, arch))
    x, seen = ti.field(ti.i32, (3, 4)), ti.field(ti.i32, (12, 2))

    @ti.kernel
    def fill(n: ti.i32):
        for i, j in ti.ndrange(3, n, axes=(1, 0)):
            x[i, j] = 10 * i + j

    @ti.kernel
    def follow(most: ti.i32):
        k = 0
        ti.loop_config(serialize=True)
        for I in ti.grouped(ti.ndrange((1, 3), 2, axes=(1, 0))):  # noqa: E741
            if k == most:
                break
            seen[k, 0], seen[k, 1] = I[0], I[1]
            k += 1

    @ti.kernel
    def unrolled():
        for i, j in ti.static(ti.ndrange(2, 2, axes=(1, 0))):
            seen[2 * i + j, 0] = 10 * i + j

    fill(4)
    assert x.to_numpy().tolist() == [[10 * i + j for j in range(4)] for i in range(3)]
    follow(3)
    assert seen.to_numpy()[:4].tolist() == [[1, 0], [2, 0], [1, 1], [0, 0]]
    unrolled()
    assert seen.to_numpy()[:4, 0].tolist() == [0, 1, 10, 11]
    assert list(ti.ndrange(2, 2, axes=(1, 0))) == [(0, 0), (1, 0), (0, 1), (1, 1)]
    for axes in ((0,), (0, 0), (1, 2)):
        with pytest.raises(ti.TaichiSyntaxError, match="a permutation of the axes"):
            ti.ndrange(2, 2, axes=axes)


def test_gradients_in_another_order() -> None:
    x, y = (ti.field(ti.f32, (3, 4), needs_grad=True) for _ in range(2))
    loss = ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(np.arange(12, dtype=np.float32).reshape(3, 4))

    @ti.kernel
    def run():
        for i, j in ti.ndrange(3, 4, axes=(1, 0)):
            y[i, j] = x[i, j] ** 2
        for i, j in ti.ndrange(3, 4, axes=(1, 0)):
            loss[None] += y[i, j] * (i + 1)

    with ti.ad.Tape(loss):
        run()
    weights = np.arange(1, 4)[:, None]
    assert np.allclose(x.grad.to_numpy(), 2 * x.to_numpy() * weights)


# --- functions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["i32", "u32", "u8", "i64", "u64"])
@pytest.mark.parametrize("arch", ["vulkan", "python"])
def test_ffs(name: str, arch: str, init: Init, need: Callable[..., None]) -> None:
    init(arch=getattr(ti, arch), debug=True)
    need(name)
    t = getattr(ti, name)
    bits = {"i": 31, "u": 32}[name[0]] * int(name[1:]) // 32
    values = [0, 1, 2, 12, 1 << (bits - 1)] + ([-1, -(1 << bits)] if name[0] == "i" else [])
    x, y = ti.field(t, len(values)), ti.field(ti.i32, len(values))
    x.from_numpy(np.array(values, f"{name[0]}{int(name[1:]) // 8}"))

    @ti.kernel
    def run():
        for i in x:
            y[i] = ti.math.ffs(x[i])

    run()
    assert y.to_numpy().tolist() == [(v & -v).bit_length() for v in values]
    assert [ti.math.ffs(v) for v in (0, 12, -1)] == [0, 3, 1]


# --- atomics -------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["vulkan", "cpu", "python"])
def test_atomic_exchange_and_cas(arch: str, init: Init) -> None:
    init(arch=getattr(ti, arch))
    x, counts, old = (ti.field(ti.i32, 4) for _ in range(3))
    f, was = ti.field(ti.f32, 4), ti.field(ti.f32, 4)
    v, pairs = ti.Vector.field(2, ti.i32, 3), ti.Vector.field(2, ti.i32, 3)
    last, total = ti.field(ti.i32, ()), ti.field(ti.i32, ())

    @ti.kernel
    def exchange():
        for i in range(4):
            was[i] = ti.atomic_exchange(f[i], 2.0 * i)
            old[i] = ti.atomic_exchange(x[i], 10 * i)
        for i in range(100):  # each value is taken out once
            total[None] += ti.atomic_exchange(last[None], i + 1)

    @ti.kernel
    def swap():
        for i in range(4):
            old[i] = ti.atomic_cas(x[i], 10, 7)
        for i in range(3):
            pairs[i] = ti.atomic_cas(v[i], ti.Vector([i, 1]), ti.Vector([8, 9]))

    @ti.kernel
    def largest():
        for i in range(100):
            k = (7 * i) % 100
            done = False
            while not done:
                seen = last[None]
                done = ti.atomic_cas(last[None], seen, ti.max(seen, k)) == seen

    @ti.kernel
    def own() -> ti.i32:
        a = 3
        b = ti.atomic_exchange(a, 5)
        c = ti.atomic_cas(a, 5, 6)
        return 100 * a + 10 * b + c

    x.fill(3), f.fill(1.5), v.fill(1)
    exchange()
    assert was.to_numpy().tolist() == [1.5] * 4 and f.to_numpy().tolist() == [0, 2, 4, 6]
    assert old.to_numpy().tolist() == [3] * 4 and x.to_numpy().tolist() == [0, 10, 20, 30]
    assert total[None] + last[None] == 5050
    swap()
    assert x.to_numpy().tolist() == [0, 7, 20, 30]
    assert old.to_numpy().tolist() == [0, 10, 20, 30]
    assert pairs.to_numpy().tolist() == [[1, 1]] * 3
    assert v.to_numpy().tolist() == [[1, 9], [8, 9], [1, 9]]
    last[None] = 0
    largest()
    assert last[None] == 99 and own() == 635


def test_atomic_exchange_of_packed_numbers_and_shared_memory() -> None:
    q = ti.field(ti.types.quant.int(5, True))
    pack = ti.BitpackedFields(max_num_bits=32)
    pack.place(q)
    ti.root.dense(ti.i, 4).place(pack)
    x = ti.field(ti.i32, 8)

    @ti.kernel
    def run():
        for i in range(4):
            x[i] = ti.atomic_exchange(q[i], i - 2) + ti.atomic_cas(q[i], -1, 7)
        ti.loop_config(block_dim=4)
        for i in range(4):
            tile = ti.simt.block.SharedArray(4, ti.i32)
            tile[i] = i
            ti.simt.block.sync()
            x[4 + i] = ti.atomic_exchange(tile[3 - i], 9)

    run()
    assert [q[i] for i in range(4)] == [-2, 7, 0, 1]
    assert x.to_numpy().tolist() == [-2, -1, 0, 1, 3, 2, 1, 0]


def test_gradients_of_exchanges() -> None:
    x, y = (ti.field(ti.f32, 4, needs_grad=True) for _ in range(2))
    loss, flags = ti.field(ti.f32, (), needs_grad=True), ti.field(ti.i32, 4)
    x.from_numpy(np.arange(1, 5, dtype=np.float32))

    @ti.kernel
    def own():
        for i in range(4):
            old = ti.atomic_exchange(y[i], x[i] * 2)
            if ti.atomic_cas(flags[i], 0, 1) == 0:
                loss[None] += y[i] ** 2 + old

    @ti.kernel
    def in_turn():
        ti.loop_config(serialize=True)
        for i in range(4):
            loss[None] += ti.atomic_exchange(y[0], x[i] ** 2)

    @ti.kernel
    def by_chance():
        for i in range(4):
            loss[None] += ti.atomic_exchange(y[0], x[i] ** 2)

    for kernel, slopes in ((own, [8, 16, 24, 32]), (in_turn, [2, 4, 6, 0])):
        loss[None] = 0
        y.fill(0)
        with ti.ad.Tape(loss):
            kernel()
        assert x.grad.to_numpy().tolist() == slopes
    with pytest.raises(ti.TaichiCompilationError, match="depends on the order of iterations"):
        with ti.ad.Tape(loss):
            by_chance()


# --- decompositions ------------------------------------------------------------------------------


def symmetric(n: int) -> np.ndarray:
    """Symmetric matrices: random ones of several sizes, and some with equal eigenvalues."""
    a = np.random.default_rng(n).normal(size=(7, n, n))
    a += a.transpose(0, 2, 1)
    a[0], a[1], a[2] = np.eye(n), 0, -np.diag(np.arange(n))
    a[3] *= 1e5
    a[4, n - 1], a[4, :, n - 1] = 0, 0
    return a.astype(np.float32)


def closest_spd(a: np.ndarray) -> np.ndarray:
    w, q = np.linalg.eigh(a.astype(np.float64))
    return np.einsum("...ij,...j,...kj->...ik", q, np.maximum(w, 0), q)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_sym_eig_and_make_spd(n: int) -> None:
    a = symmetric(n)
    m, q, s = (ti.Matrix.field(n, n, ti.f32, len(a)) for _ in range(3))
    w = ti.Vector.field(n, ti.f32, len(a))
    upper = np.triu(a) if n > 2 else a
    m.from_numpy(upper)  # components below the diagonal are not read

    @ti.kernel
    def run():
        for i in m:
            values, vectors = ti.sym_eig(m[i])
            w[i], q[i] = values, vectors
            s[i] = ti.make_spd(m[i])

    run()
    scale = np.maximum(np.abs(a).max((1, 2), keepdims=True), 1e-30)
    found, vectors = w.to_numpy(), q.to_numpy()
    assert np.allclose(
        np.einsum("bij,bj,bkj->bik", vectors, found, vectors) / scale, a / scale, atol=2e-6
    )
    assert np.allclose(np.einsum("bji,bjk->bik", vectors, vectors), np.eye(n), atol=2e-6)
    assert np.allclose(s.to_numpy() / scale, closest_spd(a) / scale, atol=2e-6)
    if n > 2:
        assert np.all(np.diff(found, axis=1) >= 0)
    values, _ = ti.sym_eig(ti.Matrix(a[5]))
    assert np.allclose(np.sort(values.to_numpy()), np.linalg.eigvalsh(a[5].astype(float)))
    assert np.allclose(ti.make_spd(ti.Matrix(a[5])).to_numpy(), closest_spd(a[5]))


@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_gradients_of_make_spd_and_sym_eig(n: int) -> None:
    a = symmetric(n)[5]
    equal = np.diag([1.0, 1.0, -2.0, -2.0, 3.0, 3.0][:n]).astype(np.float32)
    weights = np.random.default_rng(9).normal(size=(n, n)).astype(np.float32)
    m = ti.Matrix.field(n, n, ti.f32, (), needs_grad=True)
    c, loss = ti.Matrix.field(n, n, ti.f32, ()), ti.field(ti.f32, (), needs_grad=True)
    c.from_numpy(weights)

    @ti.kernel
    def projected():
        for _ in range(1):
            loss[None] += (ti.make_spd(m[None]) * c[None]).sum()

    @ti.kernel
    def summed():
        for _ in range(1):
            w, q = ti.sym_eig(m[None])
            for k in ti.static(range(n)):
                v = ti.Vector([q[j, k] for j in range(n)])
                loss[None] += w[k] ** 3 * (v.outer_product(v) * c[None]).sum()

    def numerical(f, x):
        slopes = np.zeros((n, n))
        for i in range(n):
            for j in range(i, n):
                step = np.zeros((n, n))
                step[i, j] = step[j, i] = 1e-5
                slopes[i, j] = (f(x + step) - f(x - step)) / 2e-5
        return slopes

    for kernel, function, given in (
        (projected, closest_spd, a),
        (projected, closest_spd, equal),
        (summed, lambda x: x @ x @ x, a),
        (summed, lambda x: x @ x @ x, equal),
    ):
        m.from_numpy(given)
        loss[None] = 0
        with ti.ad.Tape(loss):
            kernel()
        exact = given.astype(np.float64)
        want = numerical(lambda x: (function(x) * weights).sum(), exact)
        found = m.grad.to_numpy()
        found = np.triu(found + np.tril(found, -1).T)  # n == 2 reads below the diagonal
        assert np.allclose(found, want, rtol=2e-3, atol=2e-3 * np.abs(want).max())


def test_sym_eig_of_other_sizes() -> None:
    @ti.kernel
    def run():
        w, q = ti.sym_eig(ti.Matrix([[0.0] * 7] * 7))
        print(w)

    with pytest.raises(ti.TaichiTypeError, match="`sym_eig` takes matrices of 2 by 2 to 6 by 6"):
        run()


# --- subgroups -----------------------------------------------------------------------------------

LANES = 128


def tiles(values: np.ndarray, log2: int) -> np.ndarray:
    return values.reshape(-1, 1 << log2)


def exclusive(ufunc: np.ufunc, values: np.ndarray, log2: int, first: float) -> np.ndarray:
    parts = tiles(values, log2)
    firsts = np.full((len(parts), 1), first, values.dtype)
    return np.concatenate([firsts, ufunc.accumulate(parts, axis=1)[:, :-1]], axis=1).ravel()


def segmented_sums(values: np.ndarray, heads: np.ndarray) -> list[int]:
    total, found = 0, []
    for value, head in zip(values.tolist(), heads.tolist()):
        total = value if head else total + value
        found.append(total)
    return found


@pytest.mark.parametrize("log2", [0, 2, 3, 5, 6])
def test_tiles_of_subgroups(log2: int) -> None:
    """Tiles of 32 and more are larger than the subgroups of software devices."""
    if not current_runtime().device.caps.subgroup_shuffle:
        pytest.skip("the device has no shuffles")
    rng = np.random.default_rng(log2)
    a = rng.integers(0, 100, LANES).astype(np.int32)
    b = rng.uniform(0.5, 1.5, LANES).astype(np.float32)
    heads = (rng.random(LANES) < 0.2).astype(np.int32) * 7
    x, h, f = ti.field(ti.i32, LANES), ti.field(ti.i32, LANES), ti.field(ti.f32, LANES)
    x.from_numpy(a), h.from_numpy(heads), f.from_numpy(b)
    found, floats = ti.field(ti.i32, (7, LANES)), ti.field(ti.f32, (2, LANES))
    pairs = ti.Vector.field(2, ti.i32, LANES)
    subgroup = ti.simt.subgroup

    @ti.kernel
    def run():
        ti.loop_config(block_dim=64)
        for i in range(LANES):
            found[0, i] = subgroup.reduce_add_tiled(x[i], log2)
            found[1, i] = subgroup.reduce_all_max_tiled(x[i], log2)
            found[2, i] = subgroup.inclusive_add_tiled(x[i], log2)
            found[3, i] = subgroup.exclusive_min_tiled(x[i], log2)
            found[4, i] = subgroup.segmented_reduce_add_tiled(x[i], h[i], log2)
            found[5, i] = subgroup.all_true_tiled(x[i] > 5, log2)
            found[5, i] += 10 * subgroup.any_true_tiled(x[i] > 90, log2)
            found[6, i] = subgroup.all_equal_tiled(x[i] // 40, log2)
            floats[0, i] = subgroup.reduce_min_tiled(f[i], log2)
            floats[1, i] = subgroup.exclusive_mul_tiled(f[i], log2)
            pairs[i] = subgroup.exclusive_xor_tiled(ti.Vector([x[i], i]), log2)

    run()
    t, u, each = tiles(a, log2), tiles(b, log2), 1 << log2
    segments = np.concatenate(list(map(segmented_sums, t, tiles(heads, log2))))
    votes = (t > 5).all(1) + 10 * (t > 90).any(1)
    want = [
        np.repeat(t.sum(1), each), np.repeat(t.max(1), each), np.cumsum(t, axis=1).ravel(),
        exclusive(np.minimum, a, log2, 2**31 - 1), segments, np.repeat(votes, each),
        np.repeat((t // 40 == t[:, :1] // 40).all(1), each),
    ]  # fmt: skip
    for row, expected in zip(found.to_numpy(), want, strict=True):
        assert row.tolist() == expected.tolist()
    assert np.array_equal(floats.to_numpy()[0], np.repeat(u.min(1), each))
    assert np.allclose(floats.to_numpy()[1], exclusive(np.multiply, b, log2, 1), rtol=1e-5)
    numbers = np.arange(LANES, dtype=np.int32)
    assert pairs.to_numpy()[:, 1].tolist() == exclusive(np.bitwise_xor, numbers, log2, 0).tolist()


@pytest.mark.parametrize("count", [1, 7, 37, 72, 320, 1000])
def test_tiles_at_the_end_of_loops(count: int) -> None:
    """Reductions are over the iterations of a tile; workgroups have whole tiles."""
    if not current_runtime().device.caps.subgroup_shuffle:
        pytest.skip("the device has no shuffles")
    values = np.random.default_rng(count).integers(1, 100, count).astype(np.int32)
    subgroup, found = ti.simt.subgroup, ti.field(ti.i32, (3, count))
    fixed, given = ti.field(ti.i32, count), ti.ndarray(ti.i32, count)
    fixed.from_numpy(values), given.from_numpy(values)
    for log2 in (2, 3, 5, 6):

        @ti.kernel
        def run(given: ti.types.ndarray(), log2: ti.template()):
            for i in fixed:
                found[0, i] = subgroup.reduce_add_tiled(fixed[i], log2)
            for i in given:
                found[1, i] = subgroup.reduce_min_tiled(given[i], log2)
            for i in range(count):
                found[2, i] = subgroup.inclusive_add_tiled(given[i], log2)

        run(given, log2)
        parts = np.split(values, range(1 << log2, count, 1 << log2))
        want = [[p.sum() + 0 * p for p in parts], [p.min() + 0 * p for p in parts]]
        want.append([np.cumsum(p) for p in parts])
        assert found.to_numpy().tolist() == [np.concatenate(row).tolist() for row in want]


def test_serial_code_and_loops_have_other_invocations() -> None:
    first, x = ti.field(ti.i32, ()), ti.field(ti.i32, 64)

    @ti.kernel
    def run():
        first[None] = ti.simt.block.thread_idx()
        ti.loop_config(block_dim=64)
        for i in x:
            x[i] = ti.simt.block.thread_idx()

    run()
    assert first[None] == 0 and x.to_numpy().tolist() == list(range(64))


def test_workgroups_have_whole_tiles() -> None:
    x, subgroup = ti.field(ti.i32, 64), ti.simt.subgroup

    @ti.kernel
    def bad():
        ti.loop_config(block_dim=20)
        for i in x:
            x[i] = subgroup.reduce_add_tiled(i, 3)

    with pytest.raises(ti.TaichiTypeError, match="tiles of 8 invocations do not divide"):
        bad()


def test_functions_of_whole_subgroups() -> None:
    caps = current_runtime().device.caps
    if not (caps.subgroup_shuffle and caps.subgroup_arithmetic and caps.subgroup_ballot):
        pytest.skip("the device lacks subgroup operations")
    found, sizes = ti.field(ti.i32, (2, 64)), ti.field(ti.i32, 3)
    subgroup = ti.simt.subgroup

    @ti.kernel
    def run():
        ti.loop_config(block_dim=64)
        for i in range(64):
            k = subgroup.invocation_id()
            found[0, i] = subgroup.segmented_reduce_max(i, k % 4 == 1)
            found[1, i] = subgroup.reduce_all_add(1)
            subgroup.sync()
            subgroup.mem_fence()
            bits = subgroup.ballot_first_n(k % 2 == 1, 4)
            if i == 0:
                sizes[0], sizes[1] = subgroup.group_size(), subgroup.log2_group_size()
                sizes[2] = ti.cast(bits, ti.i32)

    run()
    size, log2, bits = sizes.to_numpy().tolist()
    assert size == 1 << log2 and bits == 0b1010 and np.all(found.to_numpy()[1] == size)
    assert found.to_numpy()[0].tolist() == list(range(64))
    with pytest.raises(ti.TaichiTypeError, match="log2_size must be a compile-time integer"):

        @ti.kernel
        def bad(n: ti.i32):
            for i in range(64):
                found[0, i] = subgroup.reduce_add_tiled(i, n)

        bad(3)


# --- masks ---------------------------------------------------------------------------------------


def nth_set_bit(mask: int, base: int, offset: int) -> int:
    """The definition of `fns`, a step at a time."""
    position, left = base, max(abs(offset), 1)
    while 0 <= position < 32:
        left -= mask >> position & 1
        if left == 0:
            return position
        if offset == 0:
            break
        position += 1 if offset > 0 else -1
    return 0xFFFFFFFF


def test_nth_set_bits() -> None:
    rng = np.random.default_rng(3)
    n = 2000
    masks = rng.integers(0, 2**32, n, np.uint32) & rng.integers(0, 2**32, n, np.uint32)
    bases, offsets = rng.integers(0, 32, n, np.int32), rng.integers(-9, 10, n, np.int32)
    masks[:4], offsets[4:6] = [0, 2**32 - 1, 1, 1 << 31], [2**31 - 1, -(2**31)]
    found = np.zeros(n, np.uint32)

    @ti.kernel
    def find(
        m: ti.types.ndarray(), b: ti.types.ndarray(), o: ti.types.ndarray(), y: ti.types.ndarray()
    ):
        for i in m:
            y[i] = ti.math.fns(m[i], b[i], o[i])

    find(masks, bases, offsets, found)
    given = list(zip(masks.tolist(), bases.tolist(), offsets.tolist(), strict=True))
    assert found.tolist() == [nth_set_bit(*one) for one in given]
    assert [ti.math.fns(*one) for one in given[:99]] == found[:99].tolist()


def test_masks_of_lanes() -> None:
    found, subgroup = ti.field(ti.u32, (32, 5)), ti.simt.subgroup

    @ti.kernel
    def fill():
        for i in range(32):
            found[i, 0] = subgroup.lanemask_lt(i)
            found[i, 1] = subgroup.lanemask_le(i)
            found[i, 2] = subgroup.lanemask_eq(i)
            found[i, 3] = subgroup.lanemask_ge(i)
            found[i, 4] = subgroup.lanemask_gt(i)

    fill()
    lanes = np.arange(32)
    tests = (np.less, np.less_equal, np.equal, np.greater_equal, np.greater)
    for k, test in enumerate(tests):
        bits = (test.outer(lanes, lanes).T * (1 << lanes)).sum(1)
        assert (found.to_numpy()[:, k] == bits).all()


# --- perf_dispatch -------------------------------------------------------------------------------


def test_the_fastest_implementation_is_called() -> None:
    calls: list[str] = []

    @ti.perf_dispatch(
        get_geometry_hash=lambda x, by: x.shape, first_warmup=2, warmup=1, repeat_after_count=3
    )  # fmt: skip
    def scale(x: ti.Tensor, by: ti.i32): ...

    @scale.register
    def slowly(x, by):
        calls.append("slow")
        time.sleep(0.05)
        x.from_numpy(x.to_numpy() * by)
        return "done"

    @scale.register(is_compatible=lambda x, by: by > 0)
    def quickly(x, by):
        calls.append("quick")
        multiply(x, by)
        return "done"

    @ti.kernel
    def multiply(x: ti.Tensor, by: ti.i32):
        for i in range(x.shape[0]):
            x[i] *= by

    x = ti.tensor(ti.i32, 3)
    x.fill(1)
    assert [scale(x, 2) for _ in range(6)] == ["done"] * 6
    assert calls == ["slow", "quick"] * 3
    for _ in range(3):
        scale(x, by=2)
    assert calls[6:] == ["quick"] * 3 and x.to_numpy().tolist() == [2**9] * 3
    scale(x, 1)  # a new measurement
    assert calls[9:] == ["slow"]
    scale(ti.tensor(ti.i32, 4), 1)  # another geometry
    assert calls[10:] == ["slow"]
    scale(x, -1)  # the only compatible one
    assert calls[11:] == ["slow"] and x.to_numpy().tolist() == [-(2**9)] * 3
    for _ in range(4):
        scale(x, 1)
    assert calls[12:] == ["quick", "slow", "quick", "quick"]  # a warmup, a timed call, the fastest


class Scaled:
    def __init__(self, by: int) -> None:
        self.by = by

    @ti.perf_dispatch(get_geometry_hash=lambda self, x: self.by)
    def scale(self, x: ti.Tensor) -> int: ...

    @scale.register
    def by_numpy(self, x):
        x.from_numpy(x.to_numpy() * self.by)
        return self.by


def test_methods_are_dispatched() -> None:
    x = ti.tensor(ti.i32, 3)
    x.fill(2)
    assert Scaled(3).scale(x) == 3 and Scaled.scale(Scaled(5), x=x) == 5
    assert x.to_numpy().tolist() == [30] * 3


def test_kernels_as_implementations() -> None:
    @ti.perf_dispatch(get_geometry_hash=lambda x: 0)
    def count(x: ti.Tensor) -> ti.i32: ...

    @count.register(is_compatible=lambda x: x.shape[0] > 100)
    @ti.kernel
    def many(x: ti.Tensor) -> ti.i32:
        return x.shape[0]

    with pytest.raises(ti.TaichiRuntimeTypeError, match="no implementation supports"):
        count(ti.tensor(ti.i32, 3))
    assert count(ti.tensor(ti.i32, 200)) == 200
    with pytest.raises(ti.TaichiSyntaxError, match=r"has the parameters \(y\), and count\(\)"):

        @count.register
        @ti.kernel
        def other(y: ti.Tensor) -> ti.i32:
            return 1

    with pytest.raises(ti.TaichiSyntaxError, match="goes on a plain function"):

        @ti.kernel
        @count.register
        def wrong(x: ti.Tensor) -> ti.i32:
            return 1

    with pytest.raises(ti.TaichiRuntimeTypeError, match="active=0"):
        ti.perf_dispatch(get_geometry_hash=hash, active=0)
