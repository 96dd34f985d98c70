"""Random programs of several kernels and Python code: gradients match dual numbers in plain Python.

Loss and gradients are compared under a tape, with limited memory and in forward mode. Contents near
kinks are skipped.

`VKCHI_FUZZ=n` runs n programs in place of PROGRAMS. To see the program of a seed:

    python -c "from tests.fuzz.test_fuzz_programs import *; print(write_program(SEED))"
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.fuzz.second_opinion import Arrays, World, check
from tests.fuzz.smooth import FUNCS, NUMBERS, VECTORS, N, write_kernel
from vkchi.runtime import current_runtime

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "8"))
MEMORY = 1000  # bytes; a few states of all fields
KERNELS = 2  # in a program
ENDS = """\
@ti.kernel
def begin():
    for i in x:
        x[i], y[i], z[i] = ti.sin(x[i]), ti.cos(y[i]), 0.9 * z[i]
        v[i], w[i] = 0.8 * v[i], w[i].yx

@ti.kernel
def total():
    for i in x:
        loss[None] += x[i] * (i + 1.0) - y[i] + 0.3 * z[i] * z[i] + v[i].dot(w[i]) + v[i].x
"""


def write_program(seed: int) -> str:
    """Source of kernels run0, run1, ... and of `drive`, which calls them."""
    r = random.Random(seed)
    kernels = [write_kernel(r.randrange(10**9)).split("@ti.kernel")[1] for _ in range(KERNELS)]
    texts = [f"@ti.kernel{k.replace('def run', f'def run{i}')}" for i, k in enumerate(kernels)]
    return "\n".join([FUNCS, ENDS, *texts, "def drive():", "    begin()", *calls(r)]) + "\n"


def calls(r: random.Random) -> list[str]:
    """The statements of `drive`: calls of kernels, some repeated, and changes of fields."""
    lines = []
    for _ in range(r.randrange(2, 7)):
        k, (p, q) = r.randrange(KERNELS), r.sample(r.choice([NUMBERS, VECTORS]), 2)
        act = r.choices(
            [f"run{k}({r.randrange(N + 1)})", f"{p}.copy_from({q})", f"{p}.fill(0.4)",
             f"perm.fill({r.randrange(N)})", "total()"], [6, 2, 1, 1, 1])[0]  # fmt: skip
        if r.random() < 0.3:
            lines += ["    for c in range(4):", f"        run{k}(c)"]
        lines.append(f"    {act}")
    return [*lines, "    total()"]


@pytest.fixture(scope="module")
def fields() -> Iterator[Arrays]:
    ti.init(random_seed=7)
    caps = current_runtime().device.caps
    if not (caps.has_type("f64") and caps.can_store("f64")):
        pytest.skip("needs f64: programs may magnify errors")
    ti.init(random_seed=7, default_fp=ti.f64)
    both: Any = {"needs_grad": True, "needs_dual": True}
    made: Arrays = {name: ti.field(ti.f64, N, **both) for name in NUMBERS}
    made |= {name: ti.Vector.field(2, ti.f64, N, **both) for name in VECTORS}
    made["loss"] = ti.field(ti.f64, (), **both)
    yield made | {name: ti.field(ti.i32, N) for name in ("perm", "count")}
    ti.reset()  # others want f32


def contents(seed: int) -> Arrays:
    r = np.random.default_rng(seed)
    made = {name: r.uniform(0.2, 1.4, N) for name in NUMBERS}
    made |= {name: r.uniform(0.2, 1.4, (N, 2)) for name in VECTORS}
    made["perm"] = r.permutation(N).astype(np.int32)
    return made | {"count": np.array([0, 2, 1], np.int32)}


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_program_matches_dual_numbers(seed: int, fields: Arrays) -> None:
    world = World(fields, (*NUMBERS, *VECTORS), contents, MEMORY)
    check(write_program(seed), seed, world)
