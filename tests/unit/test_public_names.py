"""Public names are loaded when they are first used, and type checkers see all of them."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import vkchi as ti
from vkchi import hooks, public_names
from vkchi.lang import atomic_functions, elementwise

ROOT = Path(__file__).parents[2]
TABLE = public_names.read_names()


def names_for_type_checkers() -> dict[str, tuple[str, str]]:
    """Source of each public name in `vkchi/__init__.pyi`; its own definitions count as right."""
    found: dict[str, tuple[str, str]] = {}
    imported: dict[str, tuple[str, str]] = {}
    for node in ast.parse((ROOT / "vkchi" / "__init__.pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vkchi"):
            module = (node.module or "").removeprefix("vkchi").lstrip(".")
            for alias in node.names:
                assert alias.asname in (None, alias.name), "no checker takes this for public"
                imported[alias.name] = (module, alias.name)
                if alias.asname:  # a protocol counts as its class
                    place = TABLE[alias.name] if module == "protocols" else (module, alias.name)
                    found[alias.name] = place
        elif isinstance(node, ast.Assign):
            value, name = ast.unparse(node.value), ast.unparse(node.targets[0])
            module, _, inner = value.rpartition(".")
            found[name] = imported.get(value, (module, inner))
        elif isinstance(node, ast.AnnAssign):  # number types, as checkers are to see them
            name = ast.unparse(node.target)
            found |= {name: TABLE[name]} if name in TABLE else {}
    return found


# --- lists that follow from where functions stand -------------------------------------------------


def listed(path: str, pattern: str) -> re.Match[str]:
    """The part of a file of ours that a pattern finds."""
    found = re.search(pattern, (ROOT / path).read_text(encoding="utf-8"), re.DOTALL)
    assert found, (path, pattern)
    return found


def filled(words: Iterable[str], width: int, indent: str) -> str:
    """Words in lines that begin with an indent."""
    return textwrap.fill(
        " ".join(words), width, initial_indent=indent, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def import_of(module: str, found: Iterable[str], *, gives_out: bool = False) -> str:
    """An import of several names, as the formatter writes it."""
    names = [f"{name} as {name}" if gives_out else name for name in sorted(found)]
    return f"from vkchi.{module} import (\n{''.join(f'    {name},' + chr(10) for name in names)})\n"


def public_lists() -> Iterator[tuple[str, re.Match[str], str]]:
    """Files, the lists in them, and their expected contents."""
    functions = {
        "lang.elementwise": elementwise.PUBLIC["ti"],
        "lang.atomic_functions": [function.__name__ for function in atomic_functions.ATOMICS],
    }
    for module, words in functions.items():
        at = listed("vkchi/public_names.py", rf'    "{module}": """\n.*?\n    """,\n')
        text = f'    "{module}": """\n{filled(sorted(words), 100, " " * 8)}\n    """,\n'
        yield "vkchi/public_names.py", at, text
        at = listed("vkchi/__init__.pyi", rf"from vkchi\.{module} import \(\n.*?\n\)\n")
        yield "vkchi/__init__.pyi", at, import_of(module, words, gives_out=True)
    words = sorted(elementwise.PUBLIC["ti.math"])
    at = listed("vkchi/lang/math.py", r'(?<="mat4",\n)    ".*?,\n(?=    "clamp")')
    text = filled([f'"{word}",' for word in words], 100, " " * 4) + "\n"
    used = set(re.findall(r'"(\w+)"', at[0]))
    yield "vkchi/lang/math.py", at, text
    at = listed("vkchi/lang/math.py", r"from vkchi\.lang\.elementwise import \(\n.*?\n\)\n")
    inside = set(re.findall(r"^    (\w+),$", at[0], re.MULTILINE)) - used
    yield "vkchi/lang/math.py", at, import_of("lang.elementwise", {*words, *inside})


def test_functions_are_where_their_module_says(bless: bool):
    for path, at, text in list(public_lists()):
        if bless:
            whole = (ROOT / path).read_text(encoding="utf-8")
            (ROOT / path).write_text(whole.replace(at[0], text), encoding="utf-8")
        else:
            assert at[0] == text, f"{path}: run pytest --bless {Path(__file__).name}"


def test_type_checkers_see_all_names():
    seen = names_for_type_checkers()
    assert {
        name: place for name, place in seen.items() if name not in public_names.MODULES
    } == TABLE
    assert set(public_names.MODULES) <= set(seen)


def test_star_import_gives_all_names():
    held: dict[str, object] = {}
    exec("from vkchi import *", held)
    assert {*TABLE, *public_names.MODULES} == held.keys() - {"__builtins__"} == set(ti.__all__)
    assert set(ti.__all__) <= set(dir(ti))


def test_hooks_lead_somewhere():
    for place in hooks.PLACES.values():
        assert callable(hooks.load_place(place))
    assert hooks.PLACES == public_names.read_hooks()


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
    modules = {
        f"vkchi.{module}" for module, _ in [*TABLE.values(), *public_names.read_hooks().values()]
    }
    modules |= {f"vkchi.{module}" for module in public_names.MODULES}
    done = subprocess.run(
        [sys.executable, "-c", FIRST, *sorted(modules)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


LOADED = "import sys; print(*sys.modules)"
loads_by_itself = pytest.mark.skipif(
    "EMULATED_SYSTEM" in os.environ, reason="the emulation of a system imports modules"
)


@loads_by_itself
def test_import_loads_little():
    loaded = run(f"import vkchi as ti; {LOADED}").split()
    ours = [name for name in loaded if name.partition(".")[0] == "vkchi"]
    assert "numpy" not in loaded and "inspect" not in loaded
    assert len(ours) < 16, ours


@loads_by_itself
@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["doctor", "-h"], ["cache", "-h"], ["cache", "ls", "--json"]],
)
def test_the_command_line_loads_neither_numpy_nor_the_compiler(arguments, tmp_path):
    program = (
        f"import sys; sys.argv[1:] = {arguments}; from vkchi.__main__ import main\n"
        "try: main(sys.argv[1:])\n"
        f"except SystemExit: pass\nprint(); {LOADED}"
    )
    loaded = run(program, "-W", "ignore").splitlines()[-1].split()
    heavy = ("numpy", "vkchi.ir", "vkchi.opt", "vkchi.spirv", "vkchi.frontend", "vkchi.fields")
    assert not [name for name in loaded if name.startswith(heavy)]


@pytest.mark.parametrize("name", ["zero", "one", "identity", "diag", "unit", "rows", "cols"])
def test_matrices_have_their_makers_from_the_start(name: str) -> None:
    program = f"import vkchi as ti; print(ti.Matrix.{name}, ti.Vector.{name})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert name in done.stdout, done.stderr


def test_python_without_the_gil_is_rejected() -> None:
    program = "import sys; sys._is_gil_enabled = lambda: False; import vkchi"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "ImportError: vkchi does not support Python without the GIL"
    )
