"""Random programs about structs: kernels give the results of the same source as plain Python.

`VKCHI_FUZZ=n` runs n programs in place of PROGRAMS. To see the program of a seed:

    python -c "from tests.fuzz.structs import *; print(write_program(SEED))"
"""

from __future__ import annotations

import os

import pytest

import vkchi as ti
from tests.fuzz.structs import run_kernel, run_python, write_program

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "15"))


@pytest.fixture(scope="module", autouse=True)
def runtime() -> None:
    ti.init(random_seed=7)


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_struct_program_matches_python(seed: int) -> None:
    text = write_program(seed)
    assert run_kernel(text, seed % 5) == run_python(text, seed % 5), text
