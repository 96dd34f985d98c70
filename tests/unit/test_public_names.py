"""Public names are loaded when they are first used, and type checkers see all of them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import vkchi as ti
from vkchi import hooks, names

ROOT = Path(__file__).parents[2]
TABLE = names.read_names()


def names_for_type_checkers() -> dict[str, tuple[str, str]]:
    """What the block of `vkchi/__init__` imports, by public name."""
    tree = ast.parse((ROOT / "vkchi" / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    return {
        alias.asname or alias.name: (
            (node.module or "").removeprefix("vkchi").lstrip("."),
            alias.name,
        )
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_type_checkers_see_what_there_is():
    seen = names_for_type_checkers()
    assert {name: place for name, place in seen.items() if name not in names.MODULES} == TABLE
    assert set(names.MODULES) <= set(seen)


def test_all_names_are_given_by_a_star():
    held: dict[str, object] = {}
    exec("from vkchi import *", held)
    assert {*TABLE, *names.MODULES} == held.keys() - {"__builtins__"} == set(ti.__all__)
    assert set(ti.__all__) <= set(dir(ti))


def test_hooks_lead_somewhere():
    for place in hooks.PLACES.values():
        assert callable(hooks.load(place))
    assert hooks.PLACES == names.read_hooks()


def test_the_decorator_stays_where_a_module_has_its_name():
    import vkchi.kernel  # noqa: F401
    import vkchi.ndarray  # noqa: F401

    assert ti.kernel is sys.modules["vkchi.kernel"].kernel
    assert ti.ndarray is sys.modules["vkchi.ndarray"].ndarray


def test_modules_of_ours_are_attributes():
    assert ti.runtime is sys.modules["vkchi.runtime"]
    assert not hasattr(ti, "no_such_name")
    assert ti.math is sys.modules["vkchi.lang.math"] is sys.modules["vkchi.math"]


def run(program: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, *options, "-c", program],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


FIRST = """
import os, sys
import numpy
status = 0
for module in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        try:
            __import__(module)
        except ImportError as e:
            print(module, e, flush=True)
            os._exit(1)
        os._exit(0)
    status |= os.waitpid(child, 0)[1]
sys.exit(1 if status else 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_every_module_with_public_names_can_be_the_first():
    modules = {f"vkchi.{module}" for module, _ in [*TABLE.values(), *names.read_hooks().values()]}
    modules |= {f"vkchi.{module}" for module in names.MODULES}
    done = subprocess.run(
        [sys.executable, "-c", FIRST, *sorted(modules)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


LOADED = "import sys; print(*sys.modules)"


def test_import_loads_little():
    loaded = run(f"import vkchi as ti; {LOADED}").split()
    ours = [name for name in loaded if name.partition(".")[0] == "vkchi"]
    assert "numpy" not in loaded and "inspect" not in loaded
    assert len(ours) < 15, ours


@pytest.mark.parametrize("arguments", [["--help"], ["cache", "--help"], ["cache", "ls", "--json"]])
def test_the_command_line_loads_neither_numpy_nor_the_compiler(arguments, tmp_path):
    pytest.importorskip("typer")
    program = (
        f"import sys; sys.argv[1:] = {arguments}; from vkchi.__main__ import main\n"
        "try: main(sys.argv[1:])\n"
        f"except SystemExit: pass\nprint(); {LOADED}"
    )
    loaded = run(program, "-W", "ignore").splitlines()[-1].split()
    heavy = ("numpy", "vkchi.ir", "vkchi.passes", "vkchi.spirv", "vkchi.frontend", "vkchi.fields")
    assert not [name for name in loaded if name.startswith(heavy)]
