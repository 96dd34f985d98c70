"""Random programs whose iterations own rows of arrays (`rows.py`): gradients match dual numbers.

Loss and gradients are compared with plain Python's under a tape, with limited memory and in forward
mode.

`VKCHI_FUZZ=n` runs n programs in place of PROGRAMS. To see the program of a seed:

    python -c "from tests.fuzz.rows import *; print(write_program(SEED))"
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.fuzz.rows import GRIDS, LINES, M, N, write_program
from tests.fuzz.second_opinion import Arrays, World, check
from vkchi.runtime import current_runtime

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "8"))
MEMORY = 3000  # bytes; a few states of all fields
SHAPES = {**dict.fromkeys(GRIDS, (N, M)), **dict.fromkeys(LINES, (N,))}


@pytest.fixture(scope="module")
def fields() -> Iterator[Arrays]:
    ti.init(random_seed=7)
    caps = current_runtime().device.caps
    if not (caps.has_type("f64") and caps.can_store("f64")):
        pytest.skip("needs f64: programs may magnify errors")
    ti.init(random_seed=7, default_fp=ti.f64)
    both: Any = {"needs_grad": True, "needs_dual": True}
    made: Arrays = {name: ti.field(ti.f64, s, **both) for name, s in SHAPES.items()}
    made["loss"] = ti.field(ti.f64, (), **both)
    yield made | {"K": ti.field(ti.f64, (N, M))} | {k: ti.field(ti.i32, N) for k in ("perm", "c")}
    ti.reset()  # others want f32


def contents(seed: int) -> Arrays:
    r = np.random.default_rng(seed)
    made: Arrays = {name: r.uniform(0.2, 1.4, shape) for name, shape in SHAPES.items()}
    made["K"] = r.uniform(0.2, 1.4, (N, M))
    made["perm"] = r.permutation(N).astype(np.int32)
    return made | {"c": r.integers(0, 4, N).astype(np.int32)}


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_row_program_matches_dual_numbers(seed: int, fields: Arrays) -> None:
    check(write_program(seed), seed, World(fields, tuple(SHAPES), contents, MEMORY))
