"""Programs under the emulations of Windows and macOS, and under the system itself."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.systems.missing_names import MODULES, NAMES
from vkchi import platform

FOLDER = Path(__file__).parents[1] / "systems"
PLATFORMS = {"windows": "win32", "macos": "darwin"}


def run(system: str, program: str, *arguments: str, **variables: str) -> str:
    """Run a program under the emulation of a system; return its output."""
    paths = [str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ, "EMULATED_SYSTEM": system, "PYTHONPATH": os.pathsep.join(paths), **variables
    }  # fmt: skip
    command = [sys.executable, "-X", "warn_default_encoding", "-c", textwrap.dedent(program)]
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("system", list(PLATFORMS))
def test_the_first_program_runs_and_is_cached(system: str, tmp_path: Path) -> None:
    """Neither a warning nor an error; the second process finds the kernel."""
    program = """
        import warnings
        warnings.simplefilter("error")
        import vkchi as ti
        ti.init(log_level="warn")
        x = ti.field(ti.i32, 5)
        @ti.kernel
        def double():
            for i in x: x[i] = 2 * i + 10
        double()
        print(x.to_numpy().tolist())
    """
    variables = {"VKCHI_CACHE": "1", "VKCHI_CACHE_DIR": str(tmp_path), "VKCHI_DUMP_SPV": ""}
    for _ in range(2):
        assert run(system, program, **variables).strip() == "[10, 12, 14, 16, 18]"
    uses = [path for path in (tmp_path / "2").iterdir() if path.name.endswith(".hits")]
    assert uses, "no kernel was found in the cache"


@pytest.mark.parametrize("system", list(PLATFORMS))
def test_the_emulation_removes_all_names(system: str) -> None:
    program = f"""
        import importlib, sys, warnings
        warnings.simplefilter("ignore")
        from vkchi import platform
        print(sys.platform, platform.SYSTEM.name)
        for name in {MODULES[system]!r}:
            try:
                importlib.import_module(name)
            except ImportError:
                continue
            print("there is", name)
        for name, names in {NAMES[system]!r}.items():
            module = sys.modules.get(name)
            found = [each for each in names if hasattr(module, each)]
            if found:
                print("there are", name, *found)
    """
    name = platform.find_system(PLATFORMS[system]).name
    assert run(system, program).strip() == f"{PLATFORMS[system]} {name}"


def test_files_behave_as_on_windows(tmp_path: Path) -> None:
    """The emulation itself: text mode, locked files, folders that cannot be opened."""
    program = """
        import os, sys, vkchi
        os.chdir(sys.argv[1])
        with open("old", "w") as old, open("new", "w"):
            pass
        held = os.open("old", os.O_RDWR)
        for act in (lambda: os.replace("new", "old"), lambda: os.unlink("old"),
                    lambda: os.open(".", os.O_RDONLY)):
            try:
                act()
            except PermissionError as e:
                print(type(e).__name__)
        os.write(held, b"a\\nb")
        os.close(held)
        os.replace("old", "new")
        with open("new", "rb") as new:
            print(new.read())
        held = os.open("new", os.O_RDONLY)
        print(os.read(held, 9))
        held = os.open("new", os.O_RDONLY | os.O_BINARY)
        print(os.read(held, 9))
        print(os.name, repr(os.linesep))
    """
    assert run("windows", program, str(tmp_path)).split("\n") == [
        *["PermissionError"] * 3, r"b'a\r\nb'", r"b'a\nb'", r"b'a\r\nb'", r"nt '\r\n'", "",
    ]  # fmt: skip
