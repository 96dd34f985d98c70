"""Run the tests that need no device, in plain Python: the same on Linux, macOS and Windows.

Makes `.venv` with the extra `dev`, if it is missing. With `--here`, uses the running Python. Other
arguments go to pytest. `make unit` calls this file.

    python scripts/unit.py [--here] [PYTEST-ARGUMENT ...]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
SELECTED = [
    "tests/unit",
    "tests/passes",
    "tests/test_golden_ir.py",
    "-m",
    "not device and not budget",
]


def python_of(folder: Path) -> Path:
    """Return the interpreter of a virtual environment."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def prepare() -> str:
    """Return the interpreter of the virtual environment; make it and install `dev` if missing."""
    python = python_of(VENV)
    if not python.exists():
        venv.create(VENV, with_pip=True)
    is_ready = [str(python), "-c", "import pytest, xdist, hypothesis, numpy, vulkan, PIL"]
    if subprocess.run(is_ready, stderr=subprocess.DEVNULL, check=False).returncode:
        install = ["-m", "pip", "install", "--quiet", "--editable", f"{ROOT}[dev]"]
        subprocess.run([str(python), *install], check=True)
    return str(python)


def main(words: list[str]) -> int:
    """Run the tests; return pytest's exit status."""
    is_here = "--here" in words
    python = sys.executable if is_here else prepare()
    others = [word for word in words if word != "--here"]
    workers = ["-n", "auto"] if not any(word.startswith("-n") for word in others) else []
    if shutil.which("spirv-val") is None:
        others.append("--no-spirv-val")
    command = [python, "-m", "pytest", "-q", *workers, *SELECTED, *others]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
