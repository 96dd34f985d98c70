"""No pass makes the benchmark programs worse than shaders that were written by hand: instructions
that a GPU vendor's compiler makes of both, counted (`benchmarks/isa/hand.py` has the bars)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.devices import needs_radv

HAND = Path(__file__).parents[2] / "benchmarks" / "isa" / "hand.py"


def run_hand(*words: str, passes: str = "") -> subprocess.CompletedProcess[str]:
    around = {**os.environ, "VKCHI_PASSES": passes}
    command = [sys.executable, str(HAND), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=around)


@needs_radv
@pytest.mark.skipif(
    shutil.which("glslangValidator") is None, reason="no glslangValidator (glslang-tools)"
)
def test_programs_beside_shaders_by_hand() -> None:
    done = run_hand()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "wanted: 1.1 and 2.5 at most" in done.stdout and "TOO MANY" not in done.stdout
    worse = run_hand("matmul_shared", passes="-jam,-unroll")
    assert worse.returncode == 1 and "TOO MANY" in worse.stdout, worse.stdout + worse.stderr
