"""The recipes of CONTRIBUTING.md work: applied to a copy of the repository, their tests pass."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.recipes import ROOT, read_recipe

COPIED = ("vkchi", "tests", "docs", "scripts", "pyproject.toml", "CONTRIBUTING.md")
PROGRAMS = {"pytest": ("pytest", "-q", "--no-spirv-val", "-p", "no:cacheprovider"),
            "ruff": ("ruff",)}  # fmt: skip


def copy_repository(to: Path) -> None:
    """Copy the sources with their compiled modules, which stay valid."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name)
        else:
            shutil.copy2(ROOT / name, to / name)


def run_command(command: str, root: Path) -> None:
    """Run a command of a recipe in a copy of the repository."""
    program, *arguments = shlex.split(command)
    done = subprocess.run(
        [sys.executable, "-m", *PROGRAMS[program], *arguments],
        cwd=root, env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("title", ["Add an elementwise op", "Add a pass"])
def test_recipe(title: str, tmp_path: Path) -> None:
    recipe = read_recipe(title)
    assert recipe.edits and recipe.commands
    copy_repository(tmp_path)
    for edit in recipe.edits:
        edit.apply(tmp_path)
    for command in recipe.commands:
        run_command(command, tmp_path)
