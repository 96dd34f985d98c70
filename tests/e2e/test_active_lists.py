"""Loops over active lists: their order, when lists are rebuilt, and what they are combined with."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.algorithms.active_lists import cell_list
from vkchi.runtime import current_runtime
from vkchi.target.cell_lists import ENTRIES_AT, LEAST_SCALE, MOST_SCALE, chunk_of, groups_at

pytestmark = pytest.mark.device


def blocks(n: Any = 64, leaf: int = 8, kind: str = "pointer", axes: Any = ti.i) -> Any:
    """Two fields of integers in leaves of a sparse block: (x, y, block)."""
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    block = getattr(ti.root, kind)(axes, n)
    block.dense(axes, leaf).place(x, y)
    return x, y, block


def adding(x: Any) -> Any:
    @ti.kernel
    def add(k: ti.i32):
        for at in ti.grouped(x):
            x[at] += k

    return add


def writing(x: Any) -> Any:
    @ti.kernel
    def write(k: ti.i32):
        x[k] = 1

    return write


@contextmanager
def recorded_names() -> Iterator[list[str]]:
    """The shaders whose dispatches are recorded."""
    device, names = current_runtime().device, []
    record = device.record

    def note(pipeline: Any, *rest: Any) -> None:
        names.append(pipeline.name)
        record(pipeline, *rest)

    device.record = note
    try:
        yield names
    finally:
        del device.record


# --- lists ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1,), (7,), (257,), (70_001,), (37, 53), (5, 6, 7)])
@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
def test_a_list_is_in_row_major_order(shape: tuple[int, ...], density: float) -> None:
    x = ti.field(ti.i32)
    block = ti.root.pointer(ti.axes(*range(len(shape))), shape)
    block.place(x)
    numbers = block.activity.numbers
    chosen = (np.random.default_rng(3).random(shape) < density).astype(np.int32)
    cells = cell_list(numbers)
    for given in (chosen, 1 - chosen):
        numbers.from_numpy(given)
        want = np.flatnonzero(given)
        assert cells.count() == len(want)
        words = cells.memory.to_numpy()
        assert words[ENTRIES_AT : ENTRIES_AT + len(want)].tolist() == want.tolist()
        for scale in range(LEAST_SCALE, MOST_SCALE + 1):
            first, n = groups_at(scale), len(want)
            groups = -(-n // 2**-scale) if scale < 0 else min(n, 2**30 >> scale) << scale
            x_, y_, z_ = words[first : first + 3].tolist()
            assert groups <= x_ * y_ < groups + max(y_, 1) and z_ == 1
            assert x_ <= 65535 and y_ <= -(-groups // 65535)


@pytest.mark.parametrize("n", [65_534, 65_535, 65_536, 65_537])
def test_more_workgroups_than_fit_one_axis(n: int) -> None:
    x = ti.field(ti.i32)
    ti.root.pointer(ti.i, 66_000).dense(ti.ij, (33, 4)).place(x)
    total = ti.field(ti.i32, shape=2)

    @ti.kernel
    def activate(m: ti.i32):
        for k in range(m):
            x[k * 33, 0] = 1

    @ti.kernel
    def count():
        for i, j in x:
            x[i, j] += 1

    @ti.kernel
    def add_up():
        for i, j in ti.ndrange(66_000 * 33, 4):
            total[0] += x[i, j]

    activate(n)
    count()
    add_up()
    assert total[0] == n * (33 * 4 + 1)


@pytest.mark.parametrize("leaf", [3, 8, 20, 64, 100, 1000, 4096])
@pytest.mark.parametrize("active", [0, 1, 3, 5])
def test_leaves_of_any_length(leaf: int, active: int) -> None:
    x, _, block = blocks(5, leaf)
    for k in range(active):
        ti_index = (k * 2) % 5 * leaf
        x[ti_index] = 7
    adding(x)(3)
    want = np.zeros(5 * leaf)
    for k in range(active):
        first = (k * 2) % 5 * leaf
        want[first : first + leaf] = 3
        want[first] = 10
    assert x.to_numpy().tolist() == want.tolist()


def test_a_plane_of_long_leaves() -> None:
    x, y, _ = blocks((3, 5), 40, axes=ti.ij)
    x[45, 41] = 1

    @ti.kernel
    def step():
        for i, j in x:
            y[i, j] = i * 1000 + j + x[i - 1, j] + x[i, j + 1]

    step()
    want = np.zeros((120, 200), np.int64)
    i, j = np.meshgrid(range(40, 80), range(40, 80), indexing="ij")
    want[40:80, 40:80] = 1000 * i + j
    want[46, 41] += 1
    want[45, 40] += 1
    assert y.to_numpy().tolist() == want.tolist()


# --- when lists are rebuilt ----------------------------------------------------------------------


def test_unchanged_activity_records_nothing_for_lists() -> None:
    x, _, _ = blocks()
    add, write = adding(x), writing(x)
    write(9)
    add(1)
    with recorded_names() as names:
        for _ in range(5):
            add(1)
        x[10] = 3  # an active cell: announced all the same
        add(1)
        add(1)
    assert names.count("add.0") == 7
    assert [n for n in names if "cells" in n] == ["count_cells.0", "list_cells.0"]
    assert x.to_numpy()[8:16].tolist() == [8, 9, 5, 8, 8, 8, 8, 8]


def test_a_dense_program_has_no_lists() -> None:
    ti.init()
    x, y = ti.field(ti.f32, 100), ti.field(ti.f32, 100)

    @ti.kernel
    def step():
        for i in x:
            y[i] = x[i] + 1.0

    step()
    device = current_runtime().device
    with recorded_names() as names:
        step()
        step()
    assert names == ["step.0", "step.0"]
    assert not device.stale and not device._derived and not device.guards


@pytest.mark.parametrize("how", ["kernel", "python", "numpy", "fill", "copy", "all", "deactivate"])
def test_all_changes_of_activity_reach_the_next_loop(how: str) -> None:
    x, _, block = blocks()
    add, write = adding(x), writing(x)
    write(100)
    add(1)
    want = np.zeros(512, np.int32)
    want[96:104], want[100] = 1, 2

    @ti.kernel
    def deactivate():
        ti.deactivate(block, [12])

    if how == "kernel":
        write(9)
        want[9] = 1
    elif how == "python":
        x[9] = 1
        want[9] = 1
    elif how == "numpy":
        x.from_numpy(np.arange(512, dtype=np.int32))  # to active cells
        want[96:104] = np.arange(96, 104)
    elif how == "fill":
        x.fill(5)
        want[96:104] = 5
    elif how == "copy":
        other, _, _ = blocks()
        other[300] = 8
        x.copy_from(other)
        want = np.zeros(512, np.int32)
        want[300] = 8
    elif how == "all":
        block.deactivate_all()
        want[:] = 0
    else:
        deactivate()
        want[:] = 0
    active = active_of(x)
    add(4)
    want[active] += 4
    assert x.to_numpy().tolist() == want.tolist()


def active_of(x: Any) -> Any:
    """The indices that a serial loop visits, which uses no list."""
    seen = np.zeros(512, np.int32)

    @ti.kernel
    def visit(seen: ti.types.ndarray(ti.i32, 1)):
        for _ in range(1):
            for i in x:
                seen[i] = 1

    visit(seen)
    return seen == 1


def test_a_tree_that_is_made_again() -> None:
    for k in range(3):
        builder = ti.FieldsBuilder()
        x = ti.field(ti.i32)
        builder.pointer(ti.i, 8).dense(ti.i, 8).place(x)
        tree = builder.finalize()
        x[8 * k] = 1
        adding(x)(2)
        assert x.to_numpy().sum() == 17
        tree.destroy()


def test_lists_die_with_their_tree() -> None:
    ti.init()
    device = current_runtime().device

    def run() -> None:
        builder = ti.FieldsBuilder()
        x = ti.field(ti.i32)
        builder.pointer(ti.i, 8).dense(ti.i, 8).place(x)
        tree = builder.finalize()
        x[3] = 1
        adding(x)(2)
        assert device._derived
        tree.destroy()

    import gc

    run()
    gc.collect()
    ti.sync()
    device.sweep()
    assert not device._derived and not device.stale and not device.guards


def test_a_destroyed_tree_frees_its_list() -> None:
    ti.init()
    device = current_runtime().device

    @ti.kernel
    def step(x: ti.template()):
        for i in x:
            x[i] += 1

    for _ in range(3):
        builder = ti.FieldsBuilder()
        x = ti.field(ti.i32)
        builder.pointer(ti.i, 8).dense(ti.i, 8).place(x)
        tree = builder.finalize()
        x[3] = 1
        step(x)
        assert x.to_numpy().sum() == 9 and len(device._derived) == 1
        tree.destroy()
        assert not device._derived and not device.stale


def test_a_list_of_a_kernel_that_changes_activity_behind_its_loop() -> None:
    x, y, block = blocks()

    @ti.kernel
    def step(k: ti.i32):
        for i in x:
            y[i] += 1
        x[8 * k] = 1
        for i in x:
            y[i] += 100

    for k in range(3):
        step(k)
    want = [302, 201, 100]
    assert y.to_numpy()[:32:8].tolist() == [*want, 0]


@pytest.mark.parametrize("kind", ["pointer", "dynamic"])
@pytest.mark.parametrize("how", ["element", "copy"])
def test_a_list_that_another_thread_rebuilds_before_a_write(
    how: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = ti.field(ti.i32), ti.field(ti.i32, 512)
    if kind == "pointer":
        ti.root.pointer(ti.i, 64).dense(ti.i, 8).place(x)
    else:
        ti.root.dynamic(ti.i, 512).place(x)
    ones = ti.field(ti.i32, 512)
    device = current_runtime().device
    announce = device.announce

    @ti.kernel
    def count():
        for i in x:
            y[i] += 1

    def run() -> None:
        count()
        ti.sync()

    def announce_and_run(keys: Any) -> None:
        is_meant = not device.guards.keys().isdisjoint(keys)
        announce(keys)
        if is_meant and threading.current_thread() is threading.main_thread():
            other = threading.Thread(target=run)
            other.start()
            other.join()

    run()
    with monkeypatch.context() as patch:
        patch.setattr(device, "announce", announce_and_run)
        if how == "element":
            x[80] = 1
        else:
            x.copy_from(ones)
    y.fill(0)
    count()
    count_of_element = 8 if kind == "pointer" else 81
    assert y.to_numpy().sum() == (count_of_element if how == "element" else 512)


# --- recordings ----------------------------------------------------------------------------------


def test_a_graph_that_changes_activity() -> None:
    x, y, block = blocks()
    at = ti.field(ti.i32, shape=())
    add = adding(x)

    @ti.kernel
    def advance():
        x[8 * at[None]] = 0
        at[None] += 1

    with ti.record() as recorded:
        add(1)
        advance()
        add(10)
    block.deactivate_all()
    at[None] = 0
    recorded.run(3)
    want = np.zeros(512, np.int32)
    for k in range(3):
        want[: 8 * k] += 1
        want[8 * k] = 0
        want[: 8 * k + 8] += 10
    assert x.to_numpy().tolist() == want.tolist()
    add(1)
    want[:24] += 1
    assert x.to_numpy().tolist() == want.tolist()


def test_a_loop_on_the_device_that_changes_activity() -> None:
    x, y, block = blocks()
    left = ti.field(ti.i32, shape=())
    add = adding(x)

    @ti.kernel
    def advance():
        x[8 * left[None]] = 0
        left[None] -= 1

    with ti.record() as recorded:
        add(1)
        advance()
    block.deactivate_all()
    left[None] = 5
    assert recorded.run_while(left) == 5
    want = np.zeros(512, np.int32)
    for k in range(5, 0, -1):
        want[active_before(k)] += 1
        want[8 * k] = 0
    assert x.to_numpy().tolist() == want.tolist()


def active_before(k: int) -> slice:
    return slice(8 * (k + 1), 48)


def test_gradients_with_changes_between_launches() -> None:
    x = ti.field(ti.f32, needs_grad=True)
    loss = ti.field(ti.f32, shape=(), needs_grad=True)
    block = ti.root.pointer(ti.i, 8)
    block.dense(ti.i, 8).place(x, x.grad)

    @ti.kernel
    def add(k: ti.f32):
        for i in x:
            loss[None] += k * x[i]

    @ti.kernel
    def activate(k: ti.i32):
        ti.activate(block, [k])

    @ti.kernel
    def deactivate(k: ti.i32):
        ti.deactivate(block, [k])

    for _ in range(2):
        block.deactivate_all()
        loss[None] = 0
        activate(1)
        with ti.ad.Tape(loss):
            add(1.0)
            activate(2)
            add(10.0)
            deactivate(1)
            add(100.0)
        want = np.zeros(64)
        want[8:16], want[16:24] = 11, 110
        assert x.grad.to_numpy().tolist() == want.tolist()


def test_explain_counts_active_blocks(capsys: Any) -> None:
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    block = ti.root.pointer(ti.ij, 64)
    block.dense(ti.ij, 8).place(x, y)

    @ti.kernel
    def write(n: ti.i32):
        for k in range(n):
            x[8 * k, 8 * k] = 1

    @ti.kernel
    def step():
        for i, j in x:
            y[i, j] = x[i, j] + 1

    write(9)
    step.explain()
    assert "over a list of active blocks: 9 of 4,096" in capsys.readouterr().out
    step()
    assert y.to_numpy().sum() == 9 * 65


@pytest.fixture
def profiler() -> Iterator[None]:
    ti.init(kernel_profiler=True)
    yield
    ti.init()


@pytest.mark.usefixtures("profiler")
def test_measured_loops_are_right() -> None:
    x, _, _ = blocks()
    writing(x)(9)
    add = adding(x)
    add(1)
    add(1)
    ti.profiler.print_kernel_profiler_info()
    assert x.to_numpy()[8:16].tolist() == [2, 3, 2, 2, 2, 2, 2, 2]


def test_threads_that_activate_and_loop() -> None:
    x, y, _ = blocks(256)
    write = writing(x)

    @ti.kernel
    def count():
        for i in x:
            y[i] = 1

    def run(first: int) -> None:
        for k in range(first, 256, 4):
            write(8 * k)
            count()

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert y.to_numpy().tolist() == [1] * 2048


def test_a_loop_with_a_workgroup_size() -> None:
    x, y, _ = blocks()
    x[9] = 1

    @ti.kernel
    def in_groups():
        ti.loop_config(block_dim=32)
        for i in x:
            y[i] += 100

    in_groups()
    assert y.to_numpy().sum() == 800


def test_arguments_and_results_beside_a_list() -> None:
    x, _, _ = blocks()
    x[9], x[100] = 4, 5
    out = np.zeros(512, np.int32)
    held = ti.ndarray(ti.i32, 512)

    @ti.kernel
    def step(a: ti.types.ndarray(ti.i32, 1), b: ti.types.ndarray(ti.i32, 1), k: ti.i32) -> ti.i32:
        total = 0
        for i in x:
            a[i] = x[i] + k
            b[i] += a[i]
            total += x[i]
        return total

    for _ in range(300):  # enough for code for known shapes
        assert step(out, held, 2) == 9
    want = np.where(active_of(x), x.to_numpy() + 2, 0)
    assert out.tolist() == want.tolist()
    assert held.to_numpy().tolist() == (300 * want).tolist()


def test_the_list_of_a_template_argument() -> None:
    pairs = [blocks(), blocks()]

    @ti.kernel
    def step(x: ti.template()):
        for i in x:
            x[i] += 1

    pairs[0][0][9], pairs[1][0][40] = 1, 1
    for x, _, _ in (*pairs, *pairs):
        step(x)
    for (x, _, _), first, at in zip(pairs, (8, 40), (9, 40)):
        want = np.zeros(512)
        want[first : first + 8], want[at] = 2, 3
        assert x.to_numpy().tolist() == want.tolist()


# --- small cells, dynamic blocks -----------------------------------------------------------------


def counted(kernel: Any, capsys: Any, *args: Any) -> list[str]:
    """Run a kernel. Return the counts of active blocks that `explain` names, one per loop over a
    list."""
    kernel.explain(*args)
    found = re.findall(r"over a list of active blocks: (\S+ of \S+)", capsys.readouterr().out)
    kernel(*args)
    return [one.rstrip(".") for one in found]


@pytest.mark.parametrize(
    "kinds", [("pointer", "bitmasked"), ("hash", "pointer"), ("bitmasked", "bitmasked")]
)
def test_loops_over_small_cells_use_the_list_of_the_block_around(
    kinds: tuple[str, str], capsys: Any
) -> None:
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    outer = getattr(ti.root, kinds[0])(ti.ij, (4, 6))
    getattr(outer, kinds[1])(ti.ij, (8, 4)).place(x, y, offset=(-3, 5))
    want = np.zeros((32, 24), np.int32)
    for i, j in [(0, 0), (7, 3), (31, 23), (16, 8)]:
        x[i - 3, j + 5] = 1
        want[i, j] = 1000 * i + j

    @ti.kernel
    def step():
        for i, j in x:
            y[i, j] = 1000 * (i + 3) + j - 5

    assert counted(step, capsys) == ["3 of 24"]
    assert y.to_numpy().tolist() == want.tolist()
    outer.deactivate_all()
    step()
    assert y.to_numpy().sum() == 0


@pytest.mark.parametrize("room", [1, 7, 16, 100, 127, 1000, 4096])
def test_lists_of_dynamic_blocks_of_any_length(room: int) -> None:
    x = ti.field(ti.i32)
    lists = ti.root.pointer(ti.i, 5).dynamic(ti.j, room)
    lists.place(x)
    chunk = chunk_of(room)
    lengths = sorted({0, 1, chunk - 1, chunk, chunk + 1, room - 1, room} & {*range(room + 1)})

    @ti.kernel
    def fill(at: ti.i32, n: ti.i32):
        for _ in range(1):
            for _ in range(n):
                x[at].append(0)

    @ti.kernel
    def step():
        for i, j in x:
            x[i, j] += i * room + j + 1

    for k in range(len(lengths)):
        x.parent().deactivate_all()
        want = np.zeros((5, room), np.int32)
        for at in range(5):
            n = lengths[(k + at) % len(lengths)]
            fill(at, n)
            want[at, :n] = at * room + np.arange(n) + 1
        step()
        assert (x.to_numpy() == want).all()


def test_a_dynamic_block_at_the_root(capsys: Any) -> None:
    x = ti.field(ti.i32)
    ti.root.dynamic(ti.i, 100_000).place(x)

    @ti.kernel
    def append(n: ti.i32):
        for k in range(n):
            x[k] = k

    @ti.kernel
    def step():
        for k in x:
            x[k] += 1

    append(300)
    (found,) = counted(step, capsys)
    assert int(found.split()[0]) <= 300 // 8 + 1
    assert x.to_numpy()[:302].tolist() == [*range(1, 301), 0, 0]


@pytest.mark.parametrize("outer", ["root", "pointer"])
def test_small_cells_in_long_lists(outer: str) -> None:
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    above = ti.root if outer == "root" else ti.root.pointer(ti.k, 2)
    above.dynamic(ti.i, 384).bitmasked(ti.j, 8).place(x, y)
    at = [(0, 2, 0), (200, 5, 1), (383, 7, 0)]
    want = np.zeros(x.shape, np.int32)
    for one in at:
        index = one[: len(x.shape)]
        x[index], want[index] = 1, 3

    @ti.kernel
    def step():
        for K in ti.grouped(x):
            y[K] += 1
        for K in ti.grouped(x):
            y[K] += 2

    step()
    assert (y.to_numpy() == want).all()


def test_particles_in_lists_of_blocks() -> None:
    """A list of particles in each active block of a grid, made again in each step."""
    n = 500
    position = ti.field(ti.f32, n)
    mass, pid = ti.field(ti.f32), ti.field(ti.i32)
    block = ti.root.pointer(ti.i, 64)
    block.dense(ti.i, 8).place(mass)
    block.dynamic(ti.j, 256, chunk_size=32).place(pid)

    @ti.kernel
    def sort():
        for p in position:
            ti.append(pid.parent(), [ti.cast(position[p] / 8, ti.i32)], p)

    @ti.kernel
    def scatter():
        for b, k in pid:
            p = pid[b, k]
            mass[ti.cast(position[p], ti.i32)] += 1.0

    rng = np.random.default_rng(1)
    for k in range(3):
        block.deactivate_all()
        at = (rng.random(n) * 200 + 100 * k).astype(np.float32)
        position.from_numpy(at)
        sort()
        scatter()
        want = np.bincount(at.astype(int), minlength=512)
        assert mass.to_numpy().tolist() == want.tolist()


# --- kernels that change the activity ------------------------------------------------------------


def test_a_loop_that_activates_cells_of_its_own_block(capsys: Any) -> None:
    x, y, _ = blocks()

    @ti.kernel
    def grow():
        for i in x:
            if i + 8 < 512:
                y[i + 8] += 1

    x[3] = 1
    for k in range(1, 6):
        assert counted(grow, capsys) == [f"{k} of 64"]
        assert active_of(x).sum() == 8 * k + 8
    assert y.to_numpy()[:56].tolist() == np.repeat([0, 5, 4, 3, 2, 1, 0], 8).tolist()


@pytest.mark.parametrize("kind", ["pointer", "bitmasked"])
def test_loops_between_changes_in_one_kernel(kind: str) -> None:
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    block = ti.root.pointer(ti.i, 16)
    getattr(block, kind)(ti.i, 8).dense(ti.i, 2).place(x, y)
    size = 2

    @ti.kernel
    def step(k: ti.i32):
        x[k] = 1
        for i in x:
            y[i] += 1
        for n in range(2):
            x[k + 16 * (n + 1)] = 1
        for i in x:
            y[i] += 10
        for i in x:
            if i >= 32:
                x[i - 32] += 1
        for i in x:
            y[i] += 100
        for cell in ti.grouped(block):
            if cell[0] == k // 16 + 1:
                ti.deactivate(block, cell)
        for i in x:
            y[i] += 1000

    step(64)
    want = np.zeros(256, np.int32)
    want[64 : 64 + size] = 1111
    want[96 : 96 + size] = 1110
    want[48 : 48 + size] = 1100
    want[32 : 32 + size] = 1100
    assert y.to_numpy().tolist() == want.tolist()


def test_a_long_loop_that_activates_cells_stays_one_loop() -> None:
    x, y, _ = blocks()
    many = [ti.field(ti.i32, 512) for _ in range(40)]

    @ti.kernel
    def step():
        for i in x:
            if i + 8 < 512:
                y[i + 8] += 1
            for z in ti.static(many):
                z[i] += z[511 - i] + i

    x[0] = 1
    step()
    assert y.to_numpy().sum() == 8
    assert all(np.count_nonzero(z.to_numpy()) == 7 for z in many)


def test_a_graph_of_a_kernel_that_changes_its_own_activity() -> None:
    x, y, _ = blocks()

    @ti.kernel
    def grow():
        for i in x:
            y[(i + 8) % 512] += 1
        for i in x:
            y[i] += 100

    x[0] = 1
    with ti.record() as recorded:
        grow()
        grow()
    recorded.run(2)
    recorded.run(1)
    found = y.to_numpy()[::8]
    want = np.zeros(64, np.int32)
    for k in range(6):
        want[1 : k + 2] += 1
        want[: k + 2] += 100
    assert found.tolist() == want.tolist()


def test_gradients_of_a_kernel_that_changes_its_own_activity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run() -> tuple[Any, float]:
        ti.init()
        x = ti.field(ti.f32, needs_grad=True)
        loss = ti.field(ti.f32, shape=(), needs_grad=True)
        block = ti.root.pointer(ti.i, 8)
        block.bitmasked(ti.i, 8).place(x, x.grad)
        z = ti.field(ti.f32)
        ti.root.pointer(ti.i, 8).dense(ti.i, 8).place(z)

        @ti.kernel
        def grow(k: ti.f32):
            for i in z:
                z[(i + 8) % 64] += 1.0
            for i in z:
                loss[None] += k * x[i] * x[i]

        for i in range(0, 64, 3):
            x[i] = 1.0 + i
        z[16] = 1.0
        with ti.ad.Tape(loss):
            grow(1.0)
            grow(10.0)
        return x.grad.to_numpy().tolist(), loss[None]

    found = run()
    monkeypatch.setenv("VKCHI_PASSES", "-listing")
    want = run()
    assert found[0] == want[0] and found[1] == pytest.approx(want[1], rel=1e-5)
    assert np.count_nonzero(found[0]) > 5


# --- random numbers ------------------------------------------------------------------------------


def test_random_numbers_are_those_of_a_loop_over_all_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run() -> Any:
        ti.init(random_seed=7)
        x, y = ti.field(ti.f32), ti.field(ti.f32)
        ti.root.pointer(ti.ij, (4, 3)).dense(ti.ij, (8, 16)).place(x, y, offset=(-2, 5))
        for i, j in [(0, 7), (12, 6), (29, 52)]:
            x[i, j] = 1.0

        @ti.kernel
        def draw():
            for i, j in x:
                y[i, j] = ti.random()
                if i % 2 == 0:
                    y[i, j] += 2.0 * ti.random()
            for i, j in x:
                x[i, j] = ti.randn()

        draw()
        draw()
        return x.to_numpy(), y.to_numpy()

    found = run()
    monkeypatch.setenv("VKCHI_PASSES", "-listing")
    want = run()
    assert (found[0] == want[0]).all() and (found[1] == want[1]).all()
    assert np.count_nonzero(found[1]) == 3 * 8 * 16
