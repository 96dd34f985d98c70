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


def test_tests_of_classes_add_up() -> None:
    counts = {}
    for line in run("--tests").stdout.splitlines():
        count, words = line.split(maxsplit=1)
        counts[words.partition(":")[0]] = int(count)
    measured = run("--no-device").stdout.partition("isinstance in frontend/ (on kinds of values): ")
    assert counts.pop("in all") == sum(counts.values()) == int(measured[2].split()[0])
    assert 0 < counts["abstract values"] < counts["syntax"]


def test_wrong_words() -> None:
    done = run("--nothing")
    assert done.returncode == 1 and "scripts/structure [--no-device | --tests]" in done.stderr
