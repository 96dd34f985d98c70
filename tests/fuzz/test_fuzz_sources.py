"""Random programs in the kernel language: the device matches the interpreter on unoptimised IR.

Results agree bit for bit, those of rounding operations within the precision tables.

`VKCHI_FUZZ=n` runs n batches in place of BATCHES. To see a failing batch:

    python -c "from tests.fuzz.sources import *; print(write_batch(SEED, PROGRAMS).text)"
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.fuzz.sources import SCALES, Batch, define, write_batch
from tests.ops.precision import is_near
from vkchi.frontend.argspec import ArgSpec
from vkchi.frontend.lowering import lower_kernel
from vkchi.ir.interp import run_reference
from vkchi.runtime import current_runtime
from vkchi.types import f32, i32

PROGRAMS = 10  # in a batch, which is one kernel
BATCHES = int(os.environ.get("VKCHI_FUZZ", "100"))
ARGUMENT = 5
ROWS = 4  # iterations of the kernel's loops


@ti.dataclass
class Pair:
    n: ti.i32
    x: ti.f32
    v: ti.math.vec3

    @ti.func
    def total(self):
        return self.x + self.v.sum()


@pytest.fixture(scope="module", autouse=True)
def runtime() -> None:
    ti.init(random_seed=7)


def make_fields(seed: int) -> dict[str, Any]:
    """Fields of the programs; their layout depends on the seed."""
    cells, grid = ti.field(ti.i32), ti.field(ti.i32)
    if seed % 3 == 0:
        points = ti.Vector.field(3, ti.f32, ROWS, layout=ti.Layout.SOA)
        ti.root.dense(ti.j, 4).dense(ti.i, ROWS).place(cells)
    else:
        points = ti.Vector.field(3, ti.f32)
        ti.root.dense(ti.i, 2).dense(ti.i, 2).place(points)
        ti.root.dense(ti.ij, (2, 2)).dense(ti.ij, (2, 2)).place(cells)
    if seed % 2:
        ti.root.dense(ti.ijk, (ROWS, 2, 2)).place(grid)
    else:
        ti.root.dense(ti.i, ROWS).dense(ti.k, 2).dense(ti.j, 2).place(grid)
    out = {name: ti.field(dt, (PROGRAMS, ROWS)) for name, dt in OUTPUTS.items()}
    total = ti.field(ti.i32, ())
    return {**out, "cells": cells, "grid": grid, "points": points, "total": total}


OUTPUTS = {"ints": ti.i32, "floats": ti.f32, "first": ti.f32, "second": ti.f32, "near": ti.f32}


def run_interpreter(kernel: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Contents of each field after the interpreter has run the unoptimised IR."""
    spec = (ArgSpec("c", "scalar", i32),)
    lowered = lower_kernel(kernel.__vkchi_func__, spec, current_runtime().options)
    bound = {name: b[1] for name, b in lowered.bindings.items() if b[0] == "field"}
    args = {name: obj.to_numpy() for name, obj in bound.items()}
    run_reference(lowered.func, {**args, "c": np.int32(ARGUMENT)})
    by_object = {id(obj): args[name] for name, obj in bound.items()}
    return {name: by_object.get(id(x), x.to_numpy()) for name, x in fields.items()}


def check_rounded(batch: Batch, got: dict[str, Any], want: dict[str, Any]) -> None:
    """Assert that results of rounding operations are within the precision tables."""
    for k, kind in enumerate(batch.rounded):
        count = 2 if kind == "div" else 1
        scale = np.float32(SCALES.get(kind, 1))
        args = [want["first"][k] * scale, want["second"][k]][:count]
        good = is_near(kind, f32, args, got["near"][k], want["near"][k])
        assert good.all(), f"seed {batch.seed}, f{k}: {kind} of {args}: {got['near'][k]}"


@pytest.mark.parametrize("seed", range(BATCHES))
def test_device_agrees_with_interpreter(seed: int) -> None:
    batch = write_batch(seed, PROGRAMS)
    fields = make_fields(seed)
    fields["cells"].from_numpy(np.arange(ROWS * 4, dtype=np.int32).reshape(ROWS, 4) - 5)
    kernel = define(batch, {"ti": ti, "Pair": Pair, **fields})["run"]
    want = run_interpreter(kernel, fields)
    kernel(ARGUMENT)
    got = {name: x.to_numpy() for name, x in fields.items()}
    for name in fields:
        if name != "near":
            np.testing.assert_array_equal(got[name], want[name], err_msg=f"seed {seed}: {name}")
    check_rounded(batch, got, want)
