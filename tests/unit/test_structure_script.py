"""`scripts/structure` counts what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.unit.test_layers import MODULES

SCRIPT = Path(__file__).parents[2] / "scripts" / "structure"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True)


def test_measures_without_a_device() -> None:
    done = run("--no-device")
    assert done.returncode == 0, done.stderr
    found = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert found["modules in vkchi/"] == str(len(MODULES))
    assert int(found["pipeline entries"]) > 0
    total, kinds = found["isinstance in frontend/ (on kinds of values)"].split()
    assert 0 < int(kinds.strip("()")) < int(total)


def test_wrong_words() -> None:
    done = run("--nothing")
    assert done.returncode == 1 and "scripts/structure [--no-device]" in done.stderr
