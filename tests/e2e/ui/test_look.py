"""Pictures of scenes beside those of Taichi 1.7.4: mean squared errors, of 65,025.

`benchmarks/look.py --against PYTHON --bless` draws Taichi's again.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import vkchi as ti
from vkchi.runtime import current_runtime

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "look.py"
SPEC = importlib.util.spec_from_file_location("look", SCRIPT)
assert SPEC is not None and SPEC.loader is not None
look = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(look)

# Differences on purpose: the light of instances, the size of balls.
BOUNDS = {"instances": 25, "particles_in_a_wide_window": 900}


@pytest.fixture(scope="module")
def bound() -> float:
    """Taichi drew on lavapipe: other drivers cover other pixels along edges."""
    return 5 if "llvmpipe" in current_runtime().device.info.name else 15


@pytest.mark.parametrize("name", look.ALL)
def test_scenes_look_as_in_taichi(name: str, bound: float) -> None:
    error = look.error_of(look.read(name), look.draw(ti, name))
    assert error <= BOUNDS.get(name, bound)
    assert (error > bound) == (name in look.DIFFERENT)
