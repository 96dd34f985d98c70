"""A program run by three processes that share a cache: cold, warm, and warm after a change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_thrice(program: str, folder: Path, moved: str) -> tuple[str, str, str]:
    """Run the program three times, and return the stderr of each run. Fails if a run fails.

    `{shift}` in the program is replaced by "#", and by `moved` for the third run. The program's
    arguments are the cache folder, and "warm" for the second and third.
    """
    file, env = folder / "program.py", {**os.environ, "VKCHI_CACHE": "1"}
    env.pop("VKCHI_DUMP_SPV", None)

    def run(shift: str, *args: str) -> str:
        file.write_text(program.replace("{shift}", shift))
        command = [sys.executable, str(file), str(folder / "cache"), *args]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, env=env, check=False
        )
        assert not done.returncode, done.stderr
        return done.stderr

    return run("#"), run("#", "warm"), run(moved, "warm")
