"""Random programs through the whole pipeline give the interpreter's results on the device.

Programs of exact operations agree in every bit; others nearly, in their floats. `VKCHI_FUZZ=n` runs
n programs in place of PROGRAMS. Programs with types that the device lacks are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.fuzz.programs import EXACT, NEAR, Case, Profile, generate
from tests.ops.launch import lacks_of, launch_program, store_truths_as_words
from vkchi.device import Device, open_device
from vkchi.errors import Unsupported
from vkchi.ir.interp import run_reference
from vkchi.opt.pipeline import optimize_kernel
from vkchi.target.options import Options

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "40"))
# Rounding differs per op and accumulates; these tolerances still expose wrong programs.
TOLERANCES = {"f16": 0.05, "f32": 2e-3, "f64": 2e-3}


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    opened = open_device()
    yield opened
    opened.close()


def run_both(device: Device, seed: int, profile: Profile) -> Iterator[tuple[str, Any, Any]]:
    """Name, the device's contents and the interpreter's contents of every array.

    Skips the test if the device lacks a type of the program.
    """
    case: Case = generate(seed, profile)
    store_truths_as_words(case.fn, device.caps)
    lacks = lacks_of(case.fn, device.caps)
    if lacks:
        pytest.skip(f"{device.info.name} has no {', '.join(lacks)}")
    try:
        program, temps = optimize_kernel(case.fn, device.caps, Options())
    except Unsupported as e:
        pytest.skip(str(e).splitlines()[0])
    got, want = case.args(), case.args()
    launch_program(device, program, temps, got)
    run_reference(case.fn, want)
    arrays = {name for name, v in case.values.items() if isinstance(v, np.ndarray)}
    return ((name, got[name], want[name]) for name in sorted(arrays))


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_exact_programs(device: Device, seed: int) -> None:
    for name, got, want in run_both(device, seed, EXACT):
        np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}: {name}")


@pytest.mark.parametrize("seed", range(PROGRAMS, 2 * PROGRAMS))
def test_arithmetic_is_near_the_interpreter(device: Device, seed: int) -> None:
    for name, got, want in run_both(device, seed, NEAR):
        note = f"seed {seed}: {name}"
        if want.dtype.kind == "f":
            near = TOLERANCES[f"f{want.dtype.itemsize * 8}"]
            np.testing.assert_allclose(got, want, rtol=near, atol=near, err_msg=note)
        else:
            np.testing.assert_array_equal(got, want, err_msg=note)
