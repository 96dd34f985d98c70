"""Uncaught errors end in the user's line: no frame of vkchi is shown in scripts, threads, notebooks
and pytest, unless VKCHI_TRACEBACK=full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vkchi.errors import ArgumentError, InternalError, VkchiError
from vkchi.tracebacks import tidy

PROGRAM = """
import vkchi as ti

ti.init()
x = ti.field(ti.f32, 4)


class Plain:
    @ti.kernel
    def run(self):
        x[0] = 1


@ti.kernel
def k(n: ti.f32):
    x[0] = nowhere


"""
WRONG = {
    "compile error": "k(1)",
    "missing argument": "k()",
    "missing name": "ti.zeros(4)",
    "index": "x[9]",
    "operator": "x + 1",
    "annotation": "ti.kernel(eval('lambda n: 1', {}))",
    "undecorated class": "Plain().run()",
}


def run_program(folder: Path, last: str, **variables: str) -> str:
    """Output of Python for a program that ends in an error."""
    path = folder / "program.py"
    path.write_text(PROGRAM + last + "\n")
    env = {k: v for k, v in os.environ.items() if k != "VKCHI_TRACEBACK"} | variables
    done = subprocess.run(
        [sys.executable, str(path)], env=env, capture_output=True, text=True, timeout=300
    )
    return done.stderr


def frames_in(said: str) -> list[str]:
    """Files of the frames of a printed traceback."""
    return [line.split('"')[1] for line in said.splitlines() if line.startswith("  File ")]


@pytest.mark.parametrize("last", WRONG.values(), ids=WRONG)
def test_a_script_shows_its_own_frames_only(tmp_path: Path, last: str) -> None:
    said = run_program(tmp_path, last)
    assert "Traceback" in said and "vkchi.errors." in said
    assert {Path(file).name for file in frames_in(said)} <= {"program.py", "<string>"}
    assert "called at" not in said  # the traceback shows this line


def test_the_line_of_an_undecorated_class_is_shown(tmp_path: Path) -> None:
    said = run_program(tmp_path, "Plain().run()")
    assert "| class Plain:\n      | ^^^^^^^^^^^\n" in said


def test_the_variable_shows_all_frames(tmp_path: Path) -> None:
    said = run_program(tmp_path, "k(1)", VKCHI_TRACEBACK="full")
    assert any("frontend" in file for file in frames_in(said))


def test_a_thread_shows_its_own_frames_only(tmp_path: Path) -> None:
    said = run_program(
        tmp_path,
        "import threading\nt = threading.Thread(target=lambda: x[9])\nt.start()\nt.join()",
    )
    assert "KernelBoundsError" in said
    assert {Path(file).name for file in frames_in(said)} == {"program.py", "threading.py"}


def test_a_hook_of_the_program_still_runs(tmp_path: Path) -> None:
    said = run_program(
        tmp_path,
        "import sys\nsys.excepthook = lambda kind, error, tb: print('hook', kind.__name__, "
        "tb.tb_next, file=sys.stderr)\nx[9]",
    )
    assert "hook KernelBoundsError None" in said


def test_a_hook_that_calls_the_earlier_one_ends(tmp_path: Path) -> None:
    said = run_program(
        tmp_path,
        "import sys\nti.Wrong if hasattr(ti, 'Wrong') else 0\nearlier = sys.excepthook\n"
        "def hook(*error):\n    print('mine', file=sys.stderr)\n    earlier(*error)\n"
        "sys.excepthook = hook\nx[9]",
    )
    assert said.count("mine") == 1 and said.count("KernelBoundsError") == 1


def test_a_notebook_shows_the_cell_only(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    said = subprocess.run(
        [sys.executable, "-c", f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="NoColor")
shell.run_cell({PROGRAM!r})
shell.run_cell("x[9]")
"""],
        capture_output=True, text=True, timeout=300,
    ).stdout  # fmt: skip
    assert "KernelBoundsError" in said and "1 x[9]" in said
    assert "elements.py" not in said


def test_pytest_shows_the_test_only(tmp_path: Path) -> None:
    (tmp_path / "test_wrong.py").write_text(
        "import vkchi as ti\n\n\ndef test_wrong():\n    ti.init()\n    ti.field(ti.f32, 4)[9]\n"
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
         str(tmp_path / "test_wrong.py")],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300,
    ).stdout  # fmt: skip
    assert "KernelBoundsError" in said
    assert "elements.py" not in said


def test_errors_of_vkchi_itself_keep_their_frames() -> None:
    try:
        raise InternalError("a bug")
    except InternalError as e:
        before = e.__traceback__
        tidy(e)
        assert e.__traceback__ is before


def test_an_error_in_the_users_chain_is_shown() -> None:
    with pytest.raises(ArgumentError) as e:
        try:
            raise ValueError("mine")
        except ValueError:
            raise ArgumentError("wrong") from None
    tidy(e.value)
    assert isinstance(e.value.__context__, ValueError)


def test_every_error_but_internal_ones_hides_frames() -> None:
    todo = [VkchiError]
    while todo:
        cls = todo.pop()
        assert cls.hides_frames != issubclass(cls, InternalError)
        todo += cls.__subclasses__()


def test_a_console_of_the_module_code_writes_its_errors_itself() -> None:
    """Before and after the first error of vkchi, with the same text."""
    program = """
import code
class Console(code.InteractiveConsole):
    def write(self, data): texts.append(data)
texts, console = [], Console()
def run(*lines):
    texts.clear()
    for line in lines: console.push(line)
    return "".join(texts)
others = [("1 / 0",), ("1 +* 2",), ("def f(): g()", "", "f()")]
before = [run(*lines) for lines in others]
run("import vkchi as ti")
print(run("ti.field(ti.f32, shape=-1)"))
print(before == [run(*lines) for lines in others], len(set(before)), all(before))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    *told, last = done.stdout.splitlines()
    assert (done.stderr, last) == ("", "True 3 True")
    assert told[:2] == [
        "Traceback (most recent call last):",
        '  File "<console>", line 1, in <module>',
    ]
    assert "constructors.py" not in done.stdout and "vkchi.errors." in done.stdout


def test_a_hook_that_the_program_removed_is_not_called() -> None:
    """After an error: the hook at that time, and one that the program sets for a while."""
    program = """
import sys
import vkchi as ti
def mine(*args): print("mine")
try: ti.field(ti.f32, shape=-1)
except ti.VkchiError: pass
before = sys.excepthook
sys.excepthook = mine
try: ti.field(ti.f32, shape=-1)
except ti.VkchiError: pass
sys.excepthook = before
1 / 0
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "mine" not in done.stdout and "ZeroDivisionError" in done.stderr
