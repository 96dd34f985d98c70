"""Sparse blocks and the rest of vkchi: the cache, debug mode, recordings, builders, copies."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import (
    ArgumentError,
    DeviceError,
    KernelFieldError,
    KernelRaceWarning,
    KernelRuntimeError,
    Unsupported,
)

pytestmark = pytest.mark.device

PROGRAM = """
import vkchi as ti

ti.init()
x = ti.field(ti.i32)
block = ti.root.{kind}(ti.i, 8)
block.dense(ti.i, 4).place(x)

@ti.kernel
def put(k: ti.i32):
    x[k] = 1

@ti.kernel
def count() -> ti.i32:
    n = 0
    for i in x:
        n += 1
    return n

put(3)
print(count())
"""


def in_blocks(kind: str = "pointer") -> tuple[Any, Any]:
    """A field of 32 numbers, and its block of 8 cells."""
    x = ti.field(ti.f32)
    block = getattr(ti.root, kind)(ti.i, 8)
    block.dense(ti.i, 4).place(x)
    return x, block


def test_a_kernel_in_the_cache_is_of_one_kind_of_block(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("VKCHI_CACHE", "1")
    monkeypatch.setenv("VKCHI_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "program.py"
    found = []
    for kind in ("dense", "pointer", "dense", "bitmasked", "pointer"):
        path.write_text(PROGRAM.format(kind=kind))
        ran = subprocess.run(
            [sys.executable, str(path)], capture_output=True, text=True, check=True
        )
        found.append(int(ran.stdout.split()[-1]))
    assert found == [32, 4, 32, 4, 4]


def test_debug_mode_checks_indices_and_not_the_cells_numbers() -> None:
    ti.init(debug=True)
    x, _ = in_blocks()

    @ti.kernel
    def put(k: ti.i32):
        x[k] = 2.0

    put(5)
    assert x[5] == 2.0
    with pytest.raises(ti.TaichiAssertionError, match="x"):
        put(32)


def test_recorded_launches_mark_cells() -> None:
    x, block = in_blocks()

    @ti.kernel
    def put(k: ti.i32):
        x[k] += 1.0

    @ti.kernel
    def double():
        for i in x:
            x[i] *= 2.0

    with ti.record() as recorded:
        put(9)
        double()
    block.deactivate_all()
    recorded.run()
    recorded.run()
    want = np.zeros(32)
    want[9] = 6.0
    assert x.to_numpy().tolist() == want.tolist()


def test_copies_raise() -> None:
    x, _ = in_blocks()
    with pytest.raises(Unsupported, match="sparse blocks"):
        copy.deepcopy(x)


def test_a_copy_of_a_dense_field_makes_all_active() -> None:
    x, _ = in_blocks()
    y = ti.field(ti.f32, shape=32)
    y.from_numpy(np.arange(32, dtype=np.float32))
    n = ti.field(ti.i32, shape=())

    @ti.kernel
    def count():
        for i in x:
            n[None] += 1

    x.copy_from(y)
    count()
    assert n[None] == 32 and x.to_numpy().tolist() == list(range(32))


def test_a_copy_of_a_sparse_field_makes_the_same_active() -> None:
    x, _ = in_blocks()
    y, _ = in_blocks("bitmasked")
    y[20] = 3.0
    n = ti.field(ti.i32, shape=())

    @ti.kernel
    def count():
        for i in x:
            n[None] += 1

    x.copy_from(y)
    count()
    assert n[None] == 4 and x[20] == 3.0


def test_a_tree_of_a_builder() -> None:
    builder = ti.FieldsBuilder()
    x = ti.field(ti.f32)
    builder.pointer(ti.i, 4).dense(ti.i, 2).place(x)
    tree = builder.finalize()
    x[3] = 1.0
    builder.deactivate_all()
    assert x[3] == 0.0
    tree.destroy()


def test_gradients_of_loops_that_make_their_own_block_active() -> None:
    x = ti.field(ti.f32, needs_grad=True)
    loss = ti.field(ti.f32, shape=(), needs_grad=True)
    ti.root.pointer(ti.i, 8).dense(ti.i, 4).place(x, x.grad)

    @ti.kernel
    def grow():
        for i in x:
            if i < 4:
                x[i + 8] = x[i] * x[i]

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    x[1] = 3.0
    with ti.ad.Tape(loss):
        grow()
        total()
    want = np.zeros(32)
    want[:4] = 1.0  # elements 8 to 11 were overwritten
    want[1] = 7.0
    assert loss[None] == 12.0
    assert x.grad.to_numpy().tolist() == want.tolist()


def count_of(node: Any) -> int:
    """Number of indices that a loop over a field or block visits."""

    @ti.kernel
    def count() -> ti.i32:
        n = 0
        for _ in ti.grouped(node):
            n += 1
        return n

    return count()


@pytest.mark.parametrize("is_serial", [False, True])
def test_a_serial_loop_iterates_over_elements_active_at_its_start(is_serial: bool) -> None:
    x, _ = in_blocks()
    x[0] = 1.0

    @ti.kernel
    def grow() -> ti.i32:
        last = 0
        ti.loop_config(serialize=is_serial)
        for i in x:
            last = i  # the last of all: in order, whatever the config
            if i + 4 < 32:
                x[i + 4] += 1.0
        return last

    assert [grow(), grow()] == [3, 7]
    assert count_of(x) == 12


def test_activity_facts_are_per_template() -> None:
    kinds = ("pointer", "dense", "bitmasked", "pointer")
    pairs = [in_blocks(kind) for kind in kinds]

    @ti.kernel
    def put(x: ti.template(), k: ti.i32):
        x[k] = 1.0

    @ti.kernel
    def count(x: ti.template()) -> ti.i32:
        n = 0
        for _ in x:
            n += 1
        return n

    for k, (x, _) in enumerate(pairs):
        for at in range(k + 1):
            put(x, 4 * at)
    assert [count(x) for x, _ in pairs] == [4, 32, 12, 16]
    assert [count(block) for _, block in pairs] == [1, 8, 3, 4]


def test_items_are_appended_beside_a_gradient() -> None:
    x = ti.field(ti.f32, needs_grad=True)
    items = ti.root.dynamic(ti.i, 8)
    items.place(x, x.grad)

    @ti.kernel
    def put():
        ti.append(items, [], 2.0)

    put()
    put()
    assert x.to_numpy().tolist() == [2.0, 2.0] + [0.0] * 6
    assert x.grad.to_numpy().tolist() == [0.0] * 8


def test_a_list_is_passed_on() -> None:
    x = ti.field(ti.i32)
    ti.root.dense(ti.i, 3).dynamic(ti.j, 4).place(x, offset=(5, 1))

    @ti.func
    def push(items: ti.template(), v):
        items.append(v)

    @ti.kernel
    def put() -> ti.i32:
        push(x[6], 5)
        push(x[6], 6)
        return x[6].length()

    assert put() == 2
    assert x.to_numpy().tolist() == [[0, 0, 0, 0], [5, 6, 0, 0], [0, 0, 0, 0]]


def test_deactivation_allocates_nothing() -> None:
    x, _ = in_blocks()
    x[1] = 1.0
    y = ti.field(ti.f32)
    block = ti.root.pointer(ti.i, 4)
    ti.deactivate_all_snodes()
    block.deactivate_all()
    block.place(y)
    assert x[1] == 0.0
    y[2] = 3.0
    assert count_of(y) == 1


def test_trees_of_builders_are_among_all() -> None:
    found = []
    for _ in range(2):
        builder = ti.FieldsBuilder()
        x = ti.field(ti.f32)
        builder.pointer(ti.i, 4).place(x)
        found.append((builder.finalize(), x))
        x[1] = 2.0
    (tree, _), (_, x) = found
    tree.destroy()
    ti.deactivate_all_snodes()
    assert x[1] == 0.0 and count_of(x) == 0


def test_the_block_of_a_destroyed_tree_raises() -> None:
    builder = ti.FieldsBuilder()
    x = ti.field(ti.f32)
    block = builder.pointer(ti.i, 4)
    block.place(x)

    @ti.kernel
    def clear():
        for i in block:
            ti.deactivate(block, [i])

    with pytest.raises(KernelFieldError, match="not finalized") as e:
        clear()
    assert e.value.span.file == __file__
    tree = builder.finalize()
    clear()
    tree.destroy()
    with pytest.raises(KernelRuntimeError, match="destroyed"):
        clear()
    with pytest.raises(KernelRuntimeError, match="destroyed"):
        block.deactivate_all()
    with pytest.raises(KernelFieldError, match="destroyed"):
        count_of(block)


def test_debug_mode_checks_indices_of_cells() -> None:
    ti.init(debug=True)
    _, block = in_blocks()
    items = ti.field(ti.i32)
    ti.root.dense(ti.i, 2).dynamic(ti.j, 4).place(items, offset=(3, 0))

    @ti.kernel
    def activate(k: ti.i32):
        ti.activate(block, [k])

    @ti.kernel
    def put(k: ti.i32):
        items[k].append(1)

    activate(7)
    put(4)
    for launch in (lambda: activate(8), lambda: put(2), lambda: put(5)):
        with pytest.raises(ti.TaichiAssertionError, match="out of bounds"):
            launch()


def test_races_for_cells_are_at_lines_of_the_user() -> None:
    ti.init(debug=True)
    x, block = in_blocks()
    for k in range(32):
        x[k] = k

    @ti.kernel
    def clear():
        for i in x:
            if x[i] > 20:
                ti.deactivate(block, [i // 4])

    with pytest.warns(KernelRaceWarning, match=r"changes at .*test_sparse_blocks\.py") as found:
        clear()
    assert "activity.py" not in str(found[0].message)


def test_gradients_are_of_the_cells_that_were_active_then() -> None:
    x = ti.field(ti.f32, needs_grad=True)
    loss = ti.field(ti.f32, shape=(), needs_grad=True)
    block = ti.root.pointer(ti.i, 8)
    block.dense(ti.i, 4).place(x, x.grad)

    @ti.kernel
    def total():
        for i in x:
            loss[None] += 3.0 * x[i]

    @ti.kernel
    def move():
        for i in range(8, 12):
            x[i] = 1.0
        ti.deactivate(block, [1])

    x[5] = 2.0
    with ti.ad.Tape(loss):
        total()
        move()
    want = np.zeros(32)
    want[4:8] = 3.0
    assert x.grad.to_numpy().tolist() == want.tolist()


def test_deactivation_in_real_function_is_seen() -> None:
    x, block = in_blocks("bitmasked")
    x[1], x[9] = 1.0, 2.0

    @ti.real_func
    def clear(i: ti.i32):
        ti.deactivate(block, [i // 4])

    @ti.kernel
    def put():
        for i in x:
            if i % 4 == 0:
                clear(i)
                x[i] = 7.0

    put()
    want = np.zeros(32)
    want[[0, 8]] = 7.0
    assert x.to_numpy().tolist() == want.tolist()
    assert count_of(x) == 8


def test_a_tree_that_is_too_large_says_that_inactive_cells_count() -> None:
    x = ti.field(ti.f32)
    ti.root.pointer(ti.ijk, 2048).dense(ti.ijk, 4).place(x)
    with pytest.raises(DeviceError, match="active or not"):
        x[0, 0, 0] = 1.0


def test_a_sparse_grid() -> None:
    grid = ti.sparse.grid({"mass": ti.f32, "v": ti.math.vec2}, shape=(8, 4))
    grid[3, 2].mass = 1.0

    @ti.kernel
    def put():
        grid[0, 1].v.y = 2.0

    put()
    assert grid.shape == (8, 4) and ti.sparse.usage(grid) == 2 / 32
    assert grid[0, 1].v.y == 2.0 and grid[3, 2].mass == 1.0
    with pytest.raises(ArgumentError, match="in sparse blocks"):
        ti.sparse.usage(ti.field(ti.f32, shape=4))
    with pytest.raises(ArgumentError, match="takes a field, not"):
        ti.sparse.usage(ti.root.dense(ti.i, 4))


def test_items_of_structs_and_lists_are_appended() -> None:
    pair = ti.types.struct(a=ti.i32, b=ti.f32)
    x = pair.field()
    items = ti.root.dynamic(ti.i, 64)
    items.place(x)

    @ti.kernel
    def fill(k: ti.i32):
        ti.append(items, [], pair(a=k, b=2.0))
        ti.append(items, [], [k, 2.5])
        ti.append(items, [], [4, 3.5])

    fill(7)
    assert [(x[i].a, x[i].b) for i in range(3)] == [(7, 2.0), (7, 2.5), (4, 3.5)]
