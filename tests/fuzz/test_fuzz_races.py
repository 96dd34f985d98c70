"""Accepted gradients of random kernels that may conflict hold for every tried order of iterations.

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
STEP, TOLERANCE = 1e-5, 2e-2


@pytest.fixture(autouse=True, scope="module")
def device() -> None:
    ti.init(random_seed=7)


def draw_values(seed: int) -> dict[str, np.ndarray]:
    """Random contents of the arrays of `races.py`."""
    rng = np.random.default_rng(seed)
    found = {"x": rng.permutation(np.linspace(0.1, 1, N)), "z": np.full(N, 0.7)}
    found["y"] = rng.permutation(np.linspace(-1, 1, N)) * (seed % 5 > 0)
    found["mask"] = rng.integers(0, 2, N).astype(float)
    found["own"], found["perm"] = rng.permutation(N), rng.permutation(N)
    found["near"] = rng.integers(0, N, N) if seed % 2 else rng.permutation(N)
    found["flag"] = rng.integers(0, 2, N)
    return found


def draw_slopes(body: str, values: dict[str, np.ndarray], seed: int) -> list[np.ndarray]:
    """The gradient of the loss by `x`, by differences, for eight orders of iterations.

    Loops that assign the kernel's variable `last` run in order.
    """
    run, rng = compile_serial(body), np.random.default_rng(seed)

    def loss(x: np.ndarray, orders: Any) -> float:
        total = np.zeros(1)
        run(**{k: v.copy() for k, v in values.items()} | {"x": x}, loss=total, orders=orders)
        return float(total[0])

    ways = [[list(range(N))] * 3, [list(range(N))[::-1]] * 3]
    ways += [[list(rng.permutation(N)) for _ in range(3)] for _ in range(6)]
    for k, loop in enumerate(body.split("for i in ")[1:]):
        if "last = " in loop:  # a loop that assigns a variable of the kernel runs in order
            ways = [[*way[:k], list(range(N)), *way[k + 1 :]] for way in ways]
    steps = STEP * np.eye(N)
    return [
        np.array([loss(values["x"] + d, w) - loss(values["x"] - d, w) for d in steps]) / (2 * STEP)
        for w in ways
    ]


def make_kernel(body: str, name: str, arrays: dict[str, Any]) -> Any:
    text = "@ti.kernel\ndef run():\n" + body + "\n"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space = {"ti": ti, **arrays}
    exec(compile(text, name, "exec"), space)
    return space["run"]


def find_gradient(body: str, name: str, values: dict[str, np.ndarray], how: str) -> Any:
    """The gradient of the loss by `x`, or for `how` "forward" a product with it.

    None where vkchi refuses with a GradientError.
    """
    kind = {"needs_dual": True} if how == "forward" else {"needs_grad": True}
    arrays: dict[str, Any] = {n: ti.field(ti.f32, N, **kind) for n in FLOATS}
    arrays |= {n: ti.field(ti.i32, N) for n in INTEGERS} | {"loss": ti.field(ti.f32, (), **kind)}
    for key, v in values.items():
        arrays[key].from_numpy(v.astype(np.float32 if key in FLOATS else np.int32))
    run, x, loss = make_kernel(body, name, arrays), arrays["x"], arrays["loss"]
    try:
        if how == "forward":
            with ti.ad.FwdMode(loss, x, seed=np.arange(1.0, N + 1)):
                run()
            return loss.dual[None]
        with ti.ad.Tape(loss):
            run()
        return x.grad.to_numpy()
    except ti.ad.GradientError:
        return None
    finally:
        del linecache.cache[name]


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_accepted_gradients_hold_in_every_order(seed: int) -> None:
    body, values = write_program(seed), draw_values(seed)
    how = "forward" if seed % 4 == 3 else "reverse"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", KernelRaceWarning)
        found = find_gradient(body, f"<races {seed}>", values, how)
    if found is None:
        return
    for slope in draw_slopes(body, values, seed):
        want = slope @ np.arange(1.0, N + 1) if how == "forward" else slope
        scale = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(found, want, TOLERANCE, TOLERANCE * scale, err_msg=body)


def test_some_programs_compile() -> None:
    """Of programs whose gradients no order changes, most are accepted."""
    taken = refused = 0
    for seed in range(0, 3 * PROGRAMS, 3):
        body, values = write_program(seed), draw_values(seed)
        slopes = np.array(draw_slopes(body, values, seed))
        if np.ptp(slopes, axis=0).max() < 1e-4:
            found = find_gradient(body, f"<races {seed}>", values, "reverse")
            taken, refused = taken + (found is not None), refused + (found is None)
    assert taken > refused
