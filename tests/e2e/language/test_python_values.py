"""Values, elements and arrays in Python scope: one-line programs, and their output.

`python_values.txt` has them as `program  -->  output`, lines of output apart by ` | `; outputs are
those of Taichi 1.7.4.
"""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

import vkchi as ti

ROWS = (Path(__file__).parent / "python_values.txt").read_text().splitlines()
PROGRAMS = dict(row.split("  -->  ") for row in ROWS)
SCOPE = {"ti": ti, "np": np, "copy": copy, "pickle": pickle}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(program, dict(SCOPE))
    assert capsys.readouterr().out.strip().replace("\n", " | ") == PROGRAMS[program]
