"""Random kernels that warn of a race have results that depend on the order of iterations.

`VKCHI_FUZZ=n` runs n programs in place of PROGRAMS.
"""

from __future__ import annotations

import linecache
import os
import warnings
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.fuzz.races import FLOATS, INTEGERS, N, compile_serial, write_program
from vkchi.errors import KernelRaceWarning

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "8"))
ORDERS = 40


@pytest.fixture(autouse=True, scope="module")
def device() -> None:
    ti.init(arch=ti.vulkan)


def draw_values(seed: int) -> dict[str, np.ndarray]:
    """Random contents of the arrays of `races.py`."""
    rng = np.random.default_rng(seed)
    found = {name: rng.uniform(0.1, 1, N) for name in FLOATS}
    found |= {name: rng.integers(0, N, N) for name in INTEGERS}
    found["perm"], found["flag"] = rng.permutation(N), rng.integers(0, 2, N)
    return found


def warns(body: str, name: str, values: dict[str, np.ndarray]) -> bool:
    """True if a kernel of this body, run once on `values`, warns of a race."""
    arrays: dict[str, Any] = {n: ti.field(ti.f32, N) for n in FLOATS}
    arrays |= {n: ti.field(ti.i32, N) for n in INTEGERS} | {"loss": ti.field(ti.f32, ())}
    for key, v in values.items():
        arrays[key].from_numpy(v.astype(np.float32 if key in FLOATS else np.int32))
    text = "@ti.kernel\ndef run():\n" + body + "\n"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space = {"ti": ti, **arrays}
    exec(compile(text, name, "exec"), space)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        space["run"]()
    del linecache.cache[name]
    return any(w.category is KernelRaceWarning for w in found)


def depends_on_order(body: str, values: dict[str, np.ndarray], seed: int) -> bool:
    """True if some loop, run after those before it, gives different results in another order.

    Tries both directions and ORDERS random orders of each loop.
    """
    run, rng = compile_serial(body), np.random.default_rng(seed)
    count = body.count("for i in range(8):")
    for k in range(count):
        results = []
        for order in [*range(2), *[None] * ORDERS]:
            loop = list(range(N))[:: 1 - 2 * order] if order is not None else rng.permutation(N)
            arrays = {name: v.copy() for name, v in values.items()} | {"loss": np.zeros(1)}
            run(**arrays, orders=[list(range(N))] * k + [list(loop)] + [[]] * (count - k - 1))
            results.append(np.concatenate([v.ravel() for v in arrays.values()]))
        if np.ptp(np.array(results), axis=0).max() > 1e-9:
            return True
    return False


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_warned_kernels_depend_on_order(seed: int) -> None:
    body, values = write_program(seed), draw_values(seed)
    if warns(body, f"<race warnings {seed}>", values):
        assert depends_on_order(body, values, seed), body
