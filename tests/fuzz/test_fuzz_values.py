"""Random edits of Python values between calls of kernels that read them.

Each call gives the result of the kernel's function as plain Python at that moment.

`VKCHI_FUZZ=n` runs n programs in place of PROGRAMS, and about a tenth of them in processes that
share a cache on disk. To see the program of a seed:

    python -c "from tests.fuzz.values import *; print(write_program(SEED))"
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import vkchi as ti
from tests.fuzz.values import World, load, write_program

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "8"))
FIRST = int(os.environ.get("VKCHI_FUZZ_FIRST", "0"))
EDITS = 12
TOGETHER = 10  # programs of a process


def run_program(path: Path, seed: int, edits: int) -> None:
    """Load the module at `path`, with values drawn from `seed`, and check it after each edit."""
    r = random.Random(seed)
    world = World(load(path, r), r)
    world.check()
    for _ in range(edits):
        world.edit()
        world.check()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + PROGRAMS))
def test_edits_between_calls(seed: int, tmp_path: Path) -> None:
    ti.init(offline_cache=False, log_level=ti.ERROR)
    path = tmp_path / f"program_{seed}.py"
    path.write_text(write_program(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_program(path, seed, EDITS)


@pytest.mark.parametrize("first", range(0, max(1, PROGRAMS // 10), TOGETHER))
def test_edits_between_processes_that_share_a_cache(first: int, tmp_path: Path) -> None:
    count = min(TOGETHER, max(2, PROGRAMS // 10))
    for seed in range(first, first + count):
        (tmp_path / f"program_{seed}.py").write_text(write_program(seed))
    env = {k: v for k, v in os.environ.items() if not k.startswith("VKCHI_DUMP")}
    env |= {"VKCHI_CACHE": "1", "VKCHI_CACHE_DIR": str(tmp_path / "cache")}
    for values in range(3):
        command = [sys.executable, "-m", "tests.fuzz.test_fuzz_values", str(tmp_path), str(values)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def main(folder: Path, values: int) -> None:
    """Run the programs in a folder, with other values for each number `values`."""
    ti.init(log_level=ti.ERROR)
    for path in sorted(folder.glob("*.py")):
        run_program(path, 1000 * values + int(path.stem.rpartition("_")[2]), 3)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
