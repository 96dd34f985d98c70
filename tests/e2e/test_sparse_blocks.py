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
from vkchi.errors import Unsupported

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


def test_copies_are_refused() -> None:
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
    want[:4] = 1.0  # what stood in 8 to 11 was overwritten
    want[1] = 7.0
    assert loss[None] == 12.0
    assert x.grad.to_numpy().tolist() == want.tolist()
