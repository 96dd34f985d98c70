"""Sparse blocks with node pools: memory for active cells alone."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ArgumentError, KernelRuntimeError, Unsupported
from vkchi.fields.trees import pools
from vkchi.frontend.values import pool_access
from vkchi.launch import pool_launches


@pytest.fixture(autouse=True)
def pooled(monkeypatch) -> None:
    monkeypatch.setenv("VKCHI_POOLS", "all")


def in_pool(n: int = 64, m: int = 4, **options: Any) -> tuple[Any, Any, Any]:
    """A field of n * m numbers in a block of n cells, and the block with its pool."""
    ti.init(offline_cache=False, **options)
    x = ti.field(ti.i32)
    block = ti.root.pointer(ti.i, n)
    block.dense(ti.i, m).place(x)
    x[0] = 0
    block.deactivate_all()
    return x, block, block.tree.pool


def writer(x: Any, m: int = 4) -> Any:
    @ti.kernel
    def write(n: ti.i32, times: ti.i32):
        for k in range(n * times):
            x[k % n * m] = k % n + 1

    return write


@pytest.mark.ours("sparse-memory", run=False)
def test_a_large_block_has_memory_for_active_cells(monkeypatch) -> None:
    monkeypatch.setenv("VKCHI_POOLS", "1")
    ti.init()
    x, y, small = ti.field(ti.f32), ti.Vector.field(2, ti.i32), ti.field(ti.f32)
    block = ti.root.pointer(ti.ij, 2**10)
    block.dense(ti.ij, 32).place(x, y)
    ti.root.pointer(ti.i, 8).dense(ti.i, 8).place(small)
    small[3] = 1.0

    @ti.kernel
    def put():
        for i in range(1000):
            x[i * 31, i * 17] = i
            y[i * 31, i * 17][1] += i

    @ti.kernel
    def total() -> ti.f32:
        found = 0.0
        for i, j in x:
            found += x[i, j] + y[i, j][1]
        return found

    put()
    assert total() == 999 * 1000 and x.shape == (2**15, 2**15)
    assert x[31, 17] == 1.0 and y[62, 34].to_list() == [0, 2] and x[1, 0] == 0.0
    usage = block.tree.pool.usage()
    block.tree.pool.check()
    assert usage.active < 1000 and usage.node_bytes + usage.table_bytes < 32 << 20
    assert small.tree.pool is None
    assert ti.sparse.usage(x) == usage.active / 2**20
    assert ti.sparse.memory(y) < 32 << 20 and ti.sparse.memory(small) >= 8 * 8 * 4


def test_elements_have_addresses_in_nested_blocks_with_offsets() -> None:
    ti.init(offline_cache=False)
    x, y, z = ti.field(ti.f32), ti.Matrix.field(2, 2, ti.i32), ti.field(ti.i32)
    block = ti.root.pointer(ti.ij, (3, 5))
    inner = block.dense(ti.ij, (2, 3))
    inner.place(x, offset=(-4, 7))
    inner.dense(ti.j, 2).place(y, z)

    @ti.kernel
    def put():
        for i, j in ti.ndrange((-4, 2), (7, 22)):
            x[i, j] = 100 * i + j
        for i, j in ti.ndrange(6, 30):
            y[i, j] = [[i, j], [i + j, 7]]
            z[i, j] = i * 30 + j

    put()
    i, j = np.indices((6, 15))
    assert (x.to_numpy() == 100 * (i - 4) + j + 7).all() and x[-4, 7] == -393.0
    i, j = np.indices((6, 30))
    assert (z.to_numpy() == i * 30 + j).all() and y[5, 29].to_list() == [[5, 29], [34, 7]]
    z[5, 28] = 250
    assert z[5, 28] == 250 and z[5, 29] == 179 and y[5, 28].to_list() == [[5, 28], [33, 7]]
    block.tree.pool.check()


@pytest.mark.parametrize("tries", [0, 64])
def test_many_writes_of_one_cell_take_one_node(tries: int, monkeypatch) -> None:
    monkeypatch.setattr(pool_access, "TRIES", tries)
    x, block, pool = in_pool(64)
    block.reserve(64)
    for n in (1, 10, 64):
        writer(x)(n, 20000 // n)
        pool.check()
        assert pool.usage().active == n
        assert x.to_numpy()[::4].tolist() == [*range(1, n + 1), *[0] * (64 - n)]
        block.deactivate_all()


@pytest.mark.parametrize("room", [1, 7, 8])
def test_a_launch_without_room_raises_and_leaves_the_pool_whole(room: int, monkeypatch) -> None:
    monkeypatch.setattr(pool_launches, "MOST_SAVED_BYTES", -1)
    monkeypatch.setattr(pools, "SLACK", 0)
    monkeypatch.setattr(pools, "FIRST_BYTES", 0)
    x, block, pool = in_pool(64)
    block.reserve(room)
    write = writer(x)
    if room >= 8:
        write(8, 3)
    else:
        why = rf"write\(\): `x` needs 8 blocks .* room for {room} "
        with pytest.raises(KernelRuntimeError, match=why):
            write(8, 1)
    pool.check()
    block.reserve(64)
    write(64, 2)
    pool.check()
    assert x.to_numpy()[::4].tolist() == list(range(1, 65))


@pytest.mark.parametrize("room", [1, 7, 8])
@pytest.mark.ours("sparse-room", run=False)
def test_a_launch_without_room_runs_again(room: int, monkeypatch) -> None:
    monkeypatch.setattr(pools, "SLACK", 0)
    monkeypatch.setattr(pools, "FIRST_BYTES", 0)
    x, block, pool = in_pool(512)
    y, z = ti.field(ti.i32, shape=()), ti.ndarray(ti.i32, 8)
    block.reserve(room)

    @ti.kernel
    def add(n: ti.i32, z: ti.types.ndarray()):
        for k in range(8 * n):
            x[k % n * 4] += k // n + 1
            z[k // n] += 1
            y[None] += 1
        for i in x:
            x[i] += 1

    add(8, z)
    x[2000] += 5
    add(300, z)
    pool.check()
    want = np.zeros(2048, np.int64)
    want[:32:4] += 36
    want[:32] += 1
    want[2000] += 5
    want[:1200:4] += 36
    want[:1200] += 1
    want[2000:2004] += 1
    assert (x.to_numpy() == want).all()
    assert y[None] == 8 * 308 and z.to_numpy().tolist() == [308] * 8


def test_a_kernel_may_suddenly_activate_many_cells() -> None:
    x, _, pool = in_pool(2**16, 16)
    write = writer(x, 16)
    write(1, 1)
    write(1, 1)  # known to need few nodes
    room = pool.usage().room
    assert room < 65000
    write(65000, 1)
    pool.check()
    assert pool.usage().active == 65000 and x[64999 * 16] == 65000


@pytest.mark.parametrize("debug", [False, True])
def test_a_launch_with_reports_runs_again(debug: bool, monkeypatch, capfd) -> None:
    monkeypatch.setattr(pools, "SLACK", 0)
    monkeypatch.setattr(pools, "FIRST_BYTES", 0)
    x, _, pool = in_pool(64, debug=debug)
    y = ti.field(ti.i32, ())

    @ti.kernel
    def add(n: ti.i32, end: ti.i32):
        for k in range(n):
            x[k * 4] += 1
            y[None] += 1
            assert k != end
            if k == 2:
                print("at", k)

    add(16, -1)
    add(40, -1)
    fails = pytest.raises(ti.TaichiAssertionError, match="k != end")
    with fails if debug else contextlib.nullcontext():
        add(64, 50)
    pool.check()
    assert capfd.readouterr().out.count("at 2") == 3
    assert y[None] == 120 and x.to_numpy().sum() == 120


def test_a_launch_may_activate_a_cell_many_times(monkeypatch) -> None:
    """Nodes of deactivated cells are used again after the launch alone."""
    monkeypatch.setattr(pools, "SLACK", 0)
    monkeypatch.setattr(pools, "FIRST_BYTES", 0)
    x, block, pool = in_pool(16)

    @ti.kernel
    def cycle(times: ti.i32):
        for c in range(16):
            for k in range(times):
                x[4 * c + k % 4] += 1
                ti.deactivate(block, [c])
            x[4 * c] = 7

    for times in (1, 2, 30):
        cycle(times)
        pool.check()
        assert pool.usage().active == 16
        assert x.to_numpy().reshape(16, 4).tolist() == [[7, 0, 0, 0]] * 16


def test_a_pool_grows_between_launches(monkeypatch) -> None:
    monkeypatch.setattr(pools, "SLACK", 0)
    monkeypatch.setattr(pools, "FIRST_BYTES", 0)
    x, block, pool = in_pool(64)
    write, n = writer(x), ti.field(ti.i32, shape=())

    @ti.kernel
    def count():
        for i in x:
            n[None] += x[i]

    for k in range(1, 40):
        write(k, 1)
        count()  # in flight while the next launch grows the pool
    pool.check()
    assert n[None] == sum(k * (k + 1) // 2 for k in range(1, 40)) and pool.usage().room >= 39


def test_the_limit_of_memory_is_an_option(monkeypatch) -> None:
    monkeypatch.setattr(pools, "FIRST_BYTES", 0)
    monkeypatch.setattr(pools, "SLACK", 0)
    _, block, _ = in_pool(2**16, 16, device_memory_GB=0.001)
    with pytest.raises(KernelRuntimeError, match=r"ti.init\(device_memory_GB="):
        block.reserve(2**16)


def test_a_loop_iterates_over_the_cells_that_are_active_at_its_start() -> None:
    x, block, pool = in_pool(64)
    x[0] = 1
    n = ti.field(ti.i32, shape=2)

    @ti.kernel
    def spread():
        for i in x:
            if i + 4 < 256:
                x[i + 4] = x[i] + 1
        for i in x:
            n[0] += 1
        for i in block:
            if i == 0:
                ti.deactivate(block, [i])
        for i in x:
            n[1] += 1

    spread()
    pool.check()
    assert n.to_numpy().tolist() == [8, 4] and x.to_numpy()[:8].tolist() == [0] * 4 + [2, 1, 1, 1]


def test_a_node_is_zero_when_it_is_used_again() -> None:
    x, block, pool = in_pool(64)

    @ti.kernel
    def clear():
        for i in range(64):
            ti.deactivate(block, [i])

    @ti.kernel
    def activate() -> ti.i32:
        for i in range(64):
            ti.activate(block, [i])
        found = 0
        for i in range(256):
            found += x[i]
        return found

    for _ in range(3):
        writer(x)(64, 1)
        clear()
        pool.check()
        assert pool.usage().active == 0 and not x.to_numpy().any()
        assert activate() == 0 and pool.usage().active == 64


def test_python_reads_and_writes_whole_fields() -> None:
    x, block, pool = in_pool(8)
    y = ti.Vector.field(2, ti.f32)
    other = ti.root.pointer(ti.ij, 4)
    other.dense(ti.ij, 2).place(y)
    x[5], x[30] = 7, 9
    y[3, 3] = [1, 2]
    index, values = x.to_coo()
    assert index.ravel().tolist() == [4, 5, 6, 7, 28, 29, 30, 31]
    assert values.tolist() == [0, 7, 0, 0, 0, 0, 9, 0]
    x.fill(2)
    assert x.to_numpy().sum() == 16
    x.from_numpy(np.arange(32))
    assert x.to_numpy().tolist() == [*[0] * 4, 4, 5, 6, 7, *[0] * 20, 28, 29, 30, 31]
    x.from_coo(np.array([[12], [5]]), np.array([3, 4]))
    assert x[12] == 3 and x[5] == 4 and pool.usage().active == 3
    part = y.get_scalar_field(1)
    part.fill(5)
    part[0, 0] = 6
    assert y[3, 3].to_list() == [1, 5] and y[0, 0].to_list() == [0, 6] and part[2, 2] == 5
    dense = ti.field(ti.i32, shape=32)
    dense.copy_from(x)
    assert (dense.to_numpy() == x.to_numpy()).all()
    x.copy_from(dense)
    assert pool.usage().active == 8
    with pytest.raises(ArgumentError, match="out of range"):
        x.from_coo([[32]], [1])
    pool.check()


def test_uses_that_need_memory_for_all_cells_raise() -> None:
    x, block, _ = in_pool()
    loss = ti.field(ti.f32, shape=(), needs_grad=True)

    @ti.kernel
    def read():
        for i in x:
            loss[None] += x[i]

    with pytest.raises(Unsupported, match=r"read\(\): `x`.*VKCHI_POOLS=0"), ti.ad.Tape(loss):
        read()
    with pytest.raises(Unsupported, match="VKCHI_POOLS=0"):
        read.grad()
    with pytest.raises(Unsupported, match="VKCHI_POOLS=0"):
        ti.verify(read)
    with pytest.raises(BufferError, match="VKCHI_POOLS=0"):
        x.__dlpack__()
    with pytest.raises(ArgumentError, match="VKCHI_POOLS=0"):
        x.to_numpy(copy=False)
    read()


def test_fields_with_gradients_have_memory_for_all_cells() -> None:
    ti.init()
    x = ti.field(ti.f32, needs_grad=True)
    ti.root.pointer(ti.i, 8).dense(ti.i, 4).place(x)
    x[3] = 1.0
    assert x.tree.pool is None


def test_blocks_with_further_axes_have_memory_for_all_cells() -> None:
    ti.init()
    x = ti.field(ti.i32)
    ti.root.pointer(ti.i, 8).dense(ti.j, 4).place(x)
    x[3, 2] = 1
    assert x.tree.pool is None and x.to_numpy().sum() == 1


def test_a_recorded_launch_uses_memory_of_a_pool_that_grew() -> None:
    x, block, pool = in_pool(64)
    n = ti.field(ti.i32, shape=())

    @ti.kernel
    def count():
        for i in x:
            n[None] += x[i]

    with ti.record() as recorded:
        count()
    write = writer(x)
    want = 0
    for k in (1, 5, 64):
        block.reserve(min(64, 2 * k))
        write(k, 1)
        recorded.run()
        want += k * (k + 1) // 2
    assert n[None] == want


def test_a_destroyed_tree_frees_its_pool() -> None:
    ti.init()
    for _ in range(2):
        builder, x = ti.FieldsBuilder(), ti.field(ti.f32)
        builder.pointer(ti.i, 8).dense(ti.i, 4).place(x)
        tree = builder.finalize()
        x[3] = 2.0

        @ti.kernel
        def read(x=x) -> ti.f32:
            return x[3]

        assert x[3] == 2.0
        tree.destroy()
        with pytest.raises(KernelRuntimeError, match="destroyed"):
            x[3]


PROGRAM = """
import sys, vkchi as ti
ti.init(offline_cache_file_path=sys.argv[1])
x = ti.field(ti.i32)
ti.root.pointer(ti.i, 64).dense(ti.i, 4).place(x)
@ti.kernel
def put(n: ti.i32):
    for i in range(n): x[i * 8] = i
    for i in x: x[i] += 1
put(int(sys.argv[2]))
print(int(x.to_numpy().sum()))
"""


def test_another_process_finds_the_kernel_in_the_cache(tmp_path: Path) -> None:
    source = tmp_path / "program.py"
    source.write_text(PROGRAM)
    found = {}
    for form in ("all", "0"):
        for n in (3, 9):
            env = {**os.environ, "VKCHI_POOLS": form, "VKCHI_DUMP_SPV": ""}
            args = [sys.executable, str(source), str(tmp_path / "cache"), str(n)]
            run = subprocess.run(args, env=env, capture_output=True, text=True, check=True)
            found[form, n] = int(run.stdout.split()[-1])
    assert found == {(form, n): n * (n - 1) // 2 + 4 * n for form in ("all", "0") for n in (3, 9)}


def test_a_copy_of_another_sparse_field_zeroes_the_rest() -> None:
    x, _, pool = in_pool()
    y = ti.field(ti.i32)
    ti.root.pointer(ti.i, 64).dense(ti.i, 4).place(y)
    x[3], x[100] = 1, 2
    y[9] = 5
    x.copy_from(y)
    assert x.to_numpy().sum() == 5 and x[9] == 5 and pool.usage().active == 3


class Interrupt:
    """A trace function that raises KeyboardInterrupt at a bytecode of the modules of pools."""

    files = (pools.__file__, pool_launches.__file__)

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, 0

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in self.files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.seen += 1
            if self.seen == self.at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


def test_an_interrupt_at_any_time_leaves_a_pool_whole(monkeypatch) -> None:
    monkeypatch.setattr(pools, "SLACK", 2)
    monkeypatch.setattr(pools, "FIRST_BYTES", 0)
    x, block, pool = in_pool(128)

    @ti.kernel
    def put(n: ti.i32):
        for i in range(n):
            x[i * 4] += 1

    @ti.kernel
    def remove(n: ti.i32):
        for i in range(n):
            ti.deactivate(block, [i * 2])

    def change() -> None:
        put(10)
        put(40)
        remove(8)
        x[200] = 3
        put(100)
        x.from_coo([[300], [310]], [1, 2])
        remove(50)
        put(64)

    def interrupted(at: int) -> int:
        trace = Interrupt(at)
        sys.settrace(trace)
        try:
            change()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        return trace.seen

    change()
    want = x.to_numpy()
    block.deactivate_all()
    count = interrupted(-1)
    for at in range(1, count, count // 80):
        block.deactivate_all()
        interrupted(at)
        try:
            put(3)
        except KernelRuntimeError as e:  # the interrupted launch had no room
            assert "needs" in str(e)
        block.deactivate_all()
        change()
        assert (x.to_numpy() == want).all()
        pool.check()


@pytest.mark.parametrize("first", ["to_numpy", "from_numpy", "fill", "copy_from", "to_coo"])
def test_any_use_of_a_field_may_be_the_first(first: str) -> None:
    ti.init()
    x, y = ti.field(ti.i32), ti.field(ti.i32, 32)
    ti.root.pointer(ti.i, 8).dense(ti.i, 4).place(x)
    args = {"from_numpy": (np.ones(32),), "fill": (3,), "copy_from": (y,)}.get(first, ())
    getattr(x, first)(*args)
    assert x.tree.pool is not None and not x.to_numpy().any()


def test_lists_follow_activity_through_any_order_of_launches(monkeypatch) -> None:
    """A list is rebuilt on the device only if the launch changed the activity."""
    monkeypatch.setattr(pools, "SLACK", 2)
    monkeypatch.setattr(pools, "FIRST_BYTES", 0)
    x, block, pool = in_pool(256, 8)
    found = ti.field(ti.i32, 2)

    @ti.kernel
    def run(first: ti.i32, n: ti.i32, gone: ti.i32, m: ti.i32):
        for i in x:
            found[0] += 1
        for k in range(n):
            x[(first + k) % 256 * 8] += 1
        for k in range(m):
            ti.deactivate(block, [(gone + k) % 256])
        for i in x:
            found[1] += 1

    @ti.kernel
    def count():
        for i in x:
            found[0] += 1

    draw, active = np.random.default_rng(3), set[int]()
    for step in range(150):
        first, n, gone, m = (int(k) for k in draw.integers(0, (256, 12, 256, 6)))
        if step % 3 == 1:
            n = 1 if active else 0
            first, m = min(active, default=0), 0  # changes nothing
        found.fill(0)
        want = 8 * len(active)
        if step % 7 == 6:
            x[first * 8] = 1
            active.add(first)
            count()
            assert found[0] == 8 * len(active)
        elif step % 20 == 19:
            block.deactivate_all()
            active.clear()
            count()
            assert found[0] == 0
        else:
            active |= {(first + k) % 256 for k in range(n)}
            active -= {(gone + k) % 256 for k in range(m)}
            run(first, n, gone, m)
            assert found.to_numpy().tolist() == [want, 8 * len(active)]
    pool.check()


def test_a_launch_that_changes_no_activity_keeps_the_list() -> None:
    x, block, pool = in_pool(256, 8)
    y = ti.field(ti.i32, ())

    @ti.kernel
    def put(n: ti.i32):
        for k in range(n):
            x[k * 8] += 1

    @ti.kernel
    def count():
        for i in x:
            y[None] += 1

    cells = None
    for n, is_stale in ((3, True), (3, False), (2, False), (4, True), (4, False)):
        put(n)
        if cells is not None:
            assert (cells.key in cells.device.stale) == is_stale
        count()
        cells = vars(pool.table)["active_list"]
    assert y[None] == 8 * (3 + 3 + 3 + 4 + 4)
