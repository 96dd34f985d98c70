"""ti.simt.block and ti.simt.grid: shared arrays of every type, barriers, whole workgroups."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.runtime import current_runtime

pytestmark = pytest.mark.ours("simt-on-cpu", run=False)

BLOCK = 32
TYPES = ("u1", "i8", "u8", "i16", "u16", "f16", "i32", "u32", "f32", "i64", "u64", "f64")


def dtype_of(t: str) -> Any:
    """numpy's dtype of a type's name."""
    return getattr(ti, t).dtype


def skip_without(lacks: Any, *types: str) -> None:
    """Skip where the device has not one of the types, bools in arrays being u8."""
    for t in types:
        if lacks("u8" if t == "u1" else t):
            pytest.skip(f"no {t}")


# --- shared arrays -------------------------------------------------------------------------------


@pytest.mark.parametrize("t", TYPES)
def test_shared_numbers(t: str, lacks: Any) -> None:
    skip_without(lacks, t)
    dtype = getattr(ti, t)
    x = ti.field(dtype, 2 * BLOCK)
    values = (np.arange(2 * BLOCK) % 5).astype(dtype_of(t))
    x.from_numpy(values)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=BLOCK)
        for i in range(2 * BLOCK):
            pad = ti.simt.block.SharedArray((BLOCK,), dtype)
            pad[i % BLOCK] = x[i]
            ti.simt.block.sync()
            x[i] = pad[BLOCK - 1 - i % BLOCK]

    run()
    np.testing.assert_array_equal(x.to_numpy(), values.reshape(2, -1)[:, ::-1].ravel())


ATOMICS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


@pytest.mark.parametrize("t", TYPES[1:])
@pytest.mark.parametrize("op", ATOMICS)
def test_shared_atomics(op: str, t: str, lacks: Any) -> None:
    skip_without(lacks, t)
    if t[0] == "f" and op in ("and", "or", "xor"):
        pytest.skip("no bits of floats")
    dtype, atomic, bins = getattr(ti, t), getattr(ti, f"atomic_{op}"), 3
    values = (np.arange(64) * 7 % 3 + (op == "mul")).astype(dtype_of(t))
    if op == "mul":
        values[9:] = 1
    start = np.array([1, 2, 9]).astype(dtype_of(t))
    x, y = ti.field(dtype, 64), ti.field(dtype, bins)
    x.from_numpy(values)
    y.from_numpy(start)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=64)
        for i in range(64):
            pad = ti.simt.block.SharedArray(bins, dtype)
            if i < bins:
                pad[i] = y[i]
            ti.simt.block.sync()
            atomic(pad[i % bins], x[i])
            ti.simt.block.sync()
            if i < bins:
                y[i] = pad[i]

    run()
    with np.errstate(over="ignore"):
        ATOMICS[op].at(start, np.arange(64) % bins, values)
    np.testing.assert_array_equal(y.to_numpy(), start)


def test_shared_vectors_and_matrices() -> None:
    x = ti.field(ti.f32, (2, 3))

    @ti.kernel
    def run():
        ti.loop_config(block_dim=BLOCK)
        for i in range(2 * BLOCK):
            pad = ti.simt.block.SharedArray((2,), ti.types.matrix(2, 2, ti.f32))
            v = ti.simt.block.SharedArray([BLOCK], ti.math.vec2)
            v[i % BLOCK] = [i, -i]
            if i % BLOCK < 2:
                pad[i % BLOCK] = ti.Matrix([[0.0, 0.0], [0.0, 0.0]])
            ti.simt.block.sync()
            pad[i % 2][0, 1] += 1.0
            pad[1] += ti.Matrix([[1.0, 0.0], [0.0, 2.0]])
            ti.atomic_max(pad[0][1, 1], v[(i + 1) % BLOCK].x)
            ti.simt.block.sync()
            if i % BLOCK == 0:
                x[i // BLOCK, 0] = pad[0][0, 1]
                x[i // BLOCK, 1] = pad[1][1, 1]
                x[i // BLOCK, 2] = pad[0][1, 1]

    run()
    np.testing.assert_array_equal(x.to_numpy(), [[16, 64, 31], [16, 64, 63]])


def test_shared_of_several_axes() -> None:
    x = ti.field(ti.i32, (4, 2, 8))

    @ti.kernel
    def run():
        ti.loop_config(block_dim=64)
        for i, j, k in x:
            pad = ti.simt.block.SharedArray((4, 2, 8), int)
            pad[i, j, k] = 100 * i + 10 * j + k
            ti.simt.block.sync()
            x[i, j, k] = pad[3 - i, 1 - j, 7 - k]

    run()
    i, j, k = np.indices((4, 2, 8))
    np.testing.assert_array_equal(x.to_numpy(), 100 * (3 - i) + 10 * (1 - j) + 7 - k)


def test_shared_in_functions() -> None:
    x = ti.field(ti.i32, 2 * BLOCK)

    @ti.func
    def reversed_in_block(i, value):
        pad = ti.simt.block.SharedArray((BLOCK,), ti.i32)
        pad[i % BLOCK] = value
        ti.simt.block.sync()
        return pad[BLOCK - 1 - i % BLOCK]

    @ti.func
    def add_to(pad: ti.template(), k, value):
        pad[k] += value

    @ti.kernel
    def run():
        ti.loop_config(block_dim=BLOCK)
        for i in range(2 * BLOCK):
            sums = ti.simt.block.SharedArray(1, ti.i32)
            if i % BLOCK == 0:
                sums[0] = 0
            ti.simt.block.sync()
            add_to(sums, 0, 1)
            ti.simt.block.sync()
            x[i] = reversed_in_block(i, i) + 1000 * sums[0]

    run()
    want = np.arange(2 * BLOCK).reshape(2, -1)[:, ::-1].ravel() + 1000 * BLOCK
    np.testing.assert_array_equal(x.to_numpy(), want)


def test_shared_structs() -> None:
    part = ti.types.struct(a=ti.i32, v=ti.math.vec2)
    whole = ti.types.struct(p=part, m=ti.f32)
    x = ti.field(ti.f32, 2 * BLOCK)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=BLOCK)
        for i in range(2 * BLOCK):
            tid = i % BLOCK
            pad, sums = ti.simt.block.SharedArray(BLOCK, whole), ti.simt.block.SharedArray(1, part)
            pad[tid] = whole(part(i, [1, i]), 2.0)
            if tid == 0:
                sums[0] = part(0, [0, 0])
            ti.simt.block.sync()
            sums[0].a += 1
            ti.atomic_max(sums[0].v.y, pad[BLOCK - 1 - tid].p.v.y)
            ti.simt.block.sync()
            x[i] = pad[0].p.a * pad[tid].m + sums[0].a + sums[0].v.y

    run()
    want = [0 * 2.0 + BLOCK + BLOCK - 1] * BLOCK + [BLOCK * 2.0 + BLOCK + 2 * BLOCK - 1] * BLOCK
    np.testing.assert_array_equal(x.to_numpy(), want)


# --- whole workgroups ----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
@pytest.mark.parametrize("how", ["constant", "shape", "argument", "loaded"])
def test_any_number_of_iterations(n: int, how: str) -> None:
    """All of the last workgroup come to the barriers; those beyond the end change nothing."""
    x, calls = ti.ndarray(ti.i32, n + 50), ti.field(ti.i32, ())
    sized, count = ti.ndarray(ti.i32, n), ti.field(ti.i32, ())
    count[None] = n
    x.fill(-1)

    @ti.func
    def work(i, x: ti.template()):
        pad = ti.simt.block.SharedArray((BLOCK,), ti.i32)
        tid = i % BLOCK
        pad[tid] = i * i
        ti.simt.block.sync()
        inside = min(BLOCK, n - i // BLOCK * BLOCK)
        x[i] = pad[inside - 1 - tid]
        calls[None] += 1

    @ti.kernel
    def run(x: ti.types.ndarray(), sized: ti.types.ndarray(), m: ti.i32):
        ti.loop_config(block_dim=BLOCK)
        if ti.static(how == "constant"):
            for i in range(n):
                work(i, x)
        elif ti.static(how == "shape"):
            for i in sized:
                work(i, x)
        elif ti.static(how == "argument"):
            for i in range(m):
                work(i, x)
        else:
            for i in range(count[None]):
                work(i, x)

    run(x, sized, n)
    k = np.arange(n)
    inside = np.minimum(BLOCK, n - k // BLOCK * BLOCK)
    want = (k // BLOCK * BLOCK + inside - 1 - k % BLOCK) ** 2
    np.testing.assert_array_equal(x.to_numpy(), [*want, *[-1] * 50])
    assert calls[None] == n


def test_more_iterations_than_are_counted_before() -> None:
    """The count stands in memory: workgroups run several pieces, one after the other."""
    n, x = ti.field(ti.i32, ()), ti.field(ti.i32, 20011)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=BLOCK)
        for i in range(n[None]):
            pad = ti.simt.block.SharedArray((BLOCK,), ti.i32)
            pad[i % BLOCK] = i
            ti.simt.block.sync()
            x[i] = pad[0]

    for count in (0, 3, 20011):
        n[None] = count
        x.fill(-1)
        run()
        k = np.arange(20011)
        np.testing.assert_array_equal(x.to_numpy(), np.where(k < count, k // BLOCK * BLOCK, -1))


def test_subgroups_of_a_short_workgroup() -> None:
    """Invocations beyond the end are not counted."""
    n = BLOCK + 3
    x, total = ti.field(ti.i32, n), ti.field(ti.i32, ())

    @ti.kernel
    def run():
        ti.loop_config(block_dim=BLOCK)
        for i in range(n):
            ti.simt.block.sync()
            s = ti.simt.subgroup.reduce_add(1)
            ti.simt.block.sync()
            if ti.simt.subgroup.elect():
                total[None] += s
            x[i] = ti.simt.subgroup.all_true(i < n)

    run()
    assert total[None] == n and x.to_numpy().all()


@pytest.mark.parametrize("n", [5, BLOCK, 2 * BLOCK + 9])
def test_counting_barriers(n: int) -> None:
    x = ti.field(ti.i32, n)
    found = ti.field(ti.i32, (3, n))
    values = np.random.default_rng(3).integers(0, 4, n).astype(np.int32)
    values[:5] = [1, 1, 2, 3, 1]
    x.from_numpy(values)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=BLOCK)
        for i in range(n):
            found[0, i] = ti.simt.block.sync_count_nonzero(x[i] % 2)
            found[1, i] = ti.simt.block.sync_any_nonzero(x[i] == 2)
            found[2, i] = ti.simt.block.sync_all_nonzero(x[i] >= 0)

    run()
    pieces = [values[k : k + BLOCK] for k in range(0, n, BLOCK)]
    want = [(p % 2, p == 2) for p in pieces for _ in p]
    np.testing.assert_array_equal(found.to_numpy()[0], [odd.sum() for odd, _ in want])
    np.testing.assert_array_equal(found.to_numpy()[1], [two.any() for _, two in want])
    assert found.to_numpy()[2].all()


def test_counting_in_loops() -> None:
    x = ti.field(ti.i32, BLOCK)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=BLOCK)
        for i in range(BLOCK):
            total = 0
            for step in range(10):
                total += ti.simt.block.sync_count_nonzero(i < step)
            x[i] = total

    run()
    assert set(x.to_numpy()) == {45}


def test_block_indices() -> None:
    x = ti.field(ti.i32, (3, 100))

    @ti.kernel
    def run():
        ti.loop_config(block_dim=20)
        for i in range(5, 100):
            x[0, i] = ti.simt.block.thread_idx()
            x[1, i] = ti.simt.block.global_thread_idx()
            x[2, i] = ti.global_thread_idx()

    run()
    k = np.arange(95)
    np.testing.assert_array_equal(x.to_numpy()[:, 5:], [k % 20, k, k])


def test_prefix_sum_and_tree() -> None:
    n = 8 * BLOCK
    values = np.random.default_rng(5).integers(-9, 9, n).astype(np.int32)
    x, sums = ti.field(ti.i32, n), ti.field(ti.i32, 8)
    x.from_numpy(values)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=BLOCK)
        for i in range(n):
            tid = ti.simt.block.thread_idx()
            pad = ti.simt.block.SharedArray((BLOCK,), ti.i32)
            pad[tid] = x[i]
            ti.simt.block.sync()
            step = 1
            while step < BLOCK:
                left = 0
                if tid >= step:
                    left = pad[tid - step]
                ti.simt.block.sync()
                pad[tid] += left
                ti.simt.block.sync()
                step *= 2
            x[i] = pad[tid]
            if tid == BLOCK - 1:
                sums[i // BLOCK] = pad[tid]

    run()
    want = np.cumsum(values.reshape(8, -1), 1)
    np.testing.assert_array_equal(x.to_numpy(), want.ravel())
    np.testing.assert_array_equal(sums.to_numpy(), want[:, -1])


def test_memory_fence_orders_writes() -> None:
    """The last iteration to arrive sees all others' earlier writes."""
    n = 64
    x, done, total = ti.field(ti.i32, n), ti.field(ti.i32, ()), ti.field(ti.i32, ())

    @ti.kernel
    def run():
        for i in range(n):
            x[i] = i
            ti.simt.block.mem_sync()
            ti.simt.block.mem_fence()
            ti.simt.grid.memfence()
            if ti.atomic_add(done[None], 1) == n - 1:
                for k in range(n):
                    total[None] += x[k]

    run()
    assert total[None] == n * (n - 1) // 2


# --- hints ---------------------------------------------------------------------------------------


def test_loop_hints() -> None:
    x, y = ti.field(ti.i32, 100), ti.field(ti.i32, 100)

    @ti.kernel
    def run():
        ti.block_local(x)
        ti.cache_read_only(y)
        ti.loop_config(serialize=True)
        for i in range(1, 100):
            x[i] = x[i - 1] + 1
        ti.loop_config(parallelize=4, block_dim_adaptive=False)
        for i in range(100):
            x[i] += 1
        ti.loop_config(block_dim=16, bit_vectorize=False)
        for i in x:
            x[i] *= 2

    run()
    np.testing.assert_array_equal(x.to_numpy(), 2 * (np.arange(100) + 1))


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    [
        lambda i: i % BLOCK < 7,
        lambda i: i % BLOCK == 3,
        lambda i: ti.simt.block.thread_idx() % 16 >= 5,
        lambda i: ti.simt.block.thread_idx() != 0,
        lambda i: ti.simt.subgroup.elect(),
    ],
)
def test_barrier_that_some_miss(condition: Any) -> None:
    @ti.kernel
    def run():
        ti.loop_config(block_dim=BLOCK)
        for i in range(2 * BLOCK):
            if condition(i):
                ti.simt.block.sync()

    with pytest.raises(ti.TaichiSyntaxError, match="only some invocations .* this `sync`"):
        run()


DEEP = 60  # branches around a barrier, more than nest without being made flat


def deep_kernel(folder: Path, lines: Sequence[str]) -> Any:
    body = "\n".join("    " * (k + 1) + line for k, line in enumerate(lines))
    depth = "    " * (len(lines) + 1)
    source = (
        "import vkchi as ti\n\n@ti.kernel\ndef run(a: ti.i32):\n"
        f"    ti.loop_config(block_dim={BLOCK})\n{body}\n{depth}ti.simt.block.sync()\n"
    )
    path = folder / "deep.py"
    path.write_text(source)
    return load_module(path).run


def load_module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("at", [0, 20, 40, DEEP - 1])
def test_barrier_deep_in_branches_of_which_one_diverges(tmp_path: Path, at: int) -> None:
    tests = [f"if a > {k}:" for k in range(DEEP)]
    tests[at] = f"if i % {BLOCK} < 7:"
    run = deep_kernel(tmp_path, [f"for i in range(2 * {BLOCK}):", *tests])
    with pytest.raises(ti.TaichiSyntaxError, match="only some invocations .* this `sync`"):
        run(DEEP)


def test_barrier_behind_many_branches_of_which_one_diverges(tmp_path: Path) -> None:
    body = "".join(
        f"        {'elif' if k else 'if'} {'i % 64 == 3' if k == 5 else f'a == {k}'}:\n"
        f"            x[i] = {k}\n"
        for k in range(DEEP)
    )
    path = tmp_path / "chain.py"
    path.write_text(
        "import vkchi as ti\n\n@ti.kernel\ndef run(a: ti.i32, x: ti.types.ndarray(ti.i32, 1)):\n"
        "    ti.loop_config(block_dim=64)\n    for i in range(128):\n"
        f"{body}        else:\n            ti.simt.block.sync()\n"
    )
    with pytest.raises(ti.TaichiSyntaxError, match="only some invocations .* this `sync`"):
        load_module(path).run(-1, np.zeros(128, np.int32))


def test_barrier_deep_in_branches_that_all_take(tmp_path: Path) -> None:
    tests = [f"if a > {k}:" for k in range(DEEP)]
    deep_kernel(tmp_path, [f"for i in range(2 * {BLOCK}):", *tests])(DEEP)


def test_barrier_in_a_loop_that_some_leave() -> None:
    @ti.kernel
    def run():
        ti.loop_config(block_dim=BLOCK)
        for i in range(2 * BLOCK):
            for _ in range(i % BLOCK):
                ti.simt.block.sync()

    with pytest.raises(ti.TaichiSyntaxError, match="whether they come is decided here"):
        run()


def test_barriers_that_all_come_to() -> None:
    x = ti.field(ti.i32, 2 * BLOCK)

    @ti.kernel
    def run(flag: ti.i32):
        ti.loop_config(block_dim=BLOCK)
        for i in range(2 * BLOCK):
            if i % BLOCK < BLOCK:
                ti.simt.block.sync()
            if i // BLOCK == 1 or i % (2 * BLOCK) < BLOCK:
                ti.simt.block.sync()
            if i % (2 * BLOCK) < BLOCK:
                ti.simt.block.sync()
            for _ in range(i % BLOCK, i % BLOCK + 2):
                ti.simt.block.sync()
            for _ in range(i % BLOCK, 3 * BLOCK, BLOCK):
                ti.simt.block.sync()
            if (i % BLOCK == 0) | (flag > 0):
                ti.simt.block.sync()
            for _ in range(i // BLOCK + flag):
                ti.simt.block.sync()
            x[i] = 1

    run(2)
    assert x.to_numpy().all()


@pytest.mark.parametrize("shape", [0, (4, -1), (), 2.5])
def test_shared_shapes(shape: Any) -> None:
    @ti.kernel
    def run():
        for _ in range(BLOCK):
            ti.simt.block.SharedArray(shape, ti.f32)

    with pytest.raises(ti.TaichiTypeError, match="positive compile-time constants"):
        run()


def test_too_much_shared_memory() -> None:
    x = ti.field(ti.f32, BLOCK)

    @ti.kernel
    def run():
        for i in range(BLOCK):
            pad = ti.simt.block.SharedArray((1 << 20,), ti.f32)
            pad[i] = x[i]
            ti.simt.block.sync()
            x[i] = pad[BLOCK - 1 - i]

    with pytest.raises(ti.TaichiRuntimeError, match="take 4194304 bytes, and this device has"):
        run()


def test_shared_vectors_and_indices_that_may_be_outside_take_their_memory() -> None:
    most = current_runtime().device.caps.shared_bytes
    x, at = ti.Vector.field(4, ti.f32, BLOCK), ti.field(ti.i32, BLOCK)

    def run(n: int) -> None:
        @ti.kernel
        def fill():
            for i in range(BLOCK):
                pad = ti.simt.block.SharedArray((n,), ti.types.vector(4, ti.f32))
                pad[at[i]] = ti.Vector([1.0, 2.0, 3.0, 4.0])
                ti.simt.block.sync()
                x[i] = pad[at[i]]

        fill()

    run(most // 16 - 1)  # and one element more for values outside
    assert x[BLOCK - 1].to_list() == [1, 2, 3, 4]
    with pytest.raises(ti.TaichiRuntimeError, match=f"take {most // 16 * 16 + 16} bytes"):
        run(most // 16)


@ti.func
def wait():
    ti.simt.block.sync()


def test_a_loop_with_barriers_in_a_function_is_never_serial() -> None:
    x = ti.field(ti.f32, 128)

    @ti.kernel
    def k():
        s = 0.0
        ti.loop_config(block_dim=64)
        for i in range(128):
            x[i] = s
            wait()
            s = s + 1.0

    with pytest.raises(ti.TaichiCompilationError, match="of ti.simt must be parallel, but line"):
        k()
