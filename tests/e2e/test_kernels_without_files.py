"""Kernels that stand in no file: `python -c`, standard input, the prompt."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.terminals import open_terminal

PROGRAM = """import vkchi as ti
ti.init(log_level=ti.ERROR)
@ti.kernel
def add(a: ti.i32, b: ti.i32) -> ti.i32:
    return a + b

print("sum", add(1, 2))
"""
ENVIRONMENT = {
    **{k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
    "PYTHONPATH": str(Path(__file__).parents[2]),
    "PYTHONHISTFILE": os.devnull,
    "TERM": "dumb",
}


def run(*argv: str, stdin: object = subprocess.DEVNULL, text: str | None = None) -> tuple[str, str]:
    """(standard output, standard error) of Python with these arguments."""
    source = {"input": text} if text is not None else {"stdin": stdin}
    done = subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, env=ENVIRONMENT, check=False,
        **source,  # type: ignore[call-overload]
    )  # fmt: skip
    return done.stdout, done.stderr


def test_on_the_command_line() -> None:
    assert run("-Bc", PROGRAM, "-c", "pass") == ("sum 3\n", "")


@pytest.mark.parametrize("options", [[], ["-i"]])
def test_standard_input_from_a_file(options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "program.txt"
    path.write_text(PROGRAM)
    with open(path) as opened:
        said, _ = run(*options, stdin=opened)
    assert said.startswith("sum 3\n")


def test_piped_source_is_not_available() -> None:
    said, errors = run(text=PROGRAM)
    assert said == ""
    assert "the source of add() is not available, and kernels are compiled from it" in errors
    assert errors.rstrip().splitlines()[-1].startswith("help: write it to a file and run that")


TYPED = """import vkchi as ti
ti.init(log_level=ti.ERROR)
@ti.kernel
def add(a: ti.i32, b: ti.i32) -> ti.i32:
    return a + b

@ti.func
def thrice(x):
    y = x
    y += x
    y += x
    return y

def cut(x):
    y: ti.i32 = x
    return y

@ti.kernel
def again(a: ti.f32) -> ti.f32:
    return thrice(a) + cut(a)

def make(n):
    @ti.kernel
    def k() -> ti.i32:
        return n
    return k

print("sum", add(1, 2), again(1.5), make(7)())
@ti.kernel
def wrong() -> ti.i32:
    return nothing_here

wrong()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
@pytest.mark.skipif(
    sys.version_info < (3, 13) and find_spec("readline") is None, reason="a prompt without history"
)
def test_at_the_prompt() -> None:
    """Python's own prompt, with a history or with its own buffer."""
    said = type_in(TYPED)
    assert "sum 3 5.5 7" in said
    assert ":3:12: `nothing_here` is not defined" in said
    assert "    3 |     return nothing_here" in said


def type_in(text: str, limit_s: float = 120.0) -> str:
    """Python's output for these lines, each typed when it asks for the next."""
    ours, theirs = open_terminal()
    process = subprocess.Popen(
        [sys.executable, "-q"], stdin=theirs, stdout=theirs, stderr=theirs, env=ENVIRONMENT,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    lines, said, answered, end = [*text.splitlines(), "exit()"], "", 0, time.time() + limit_s
    output = selectors.DefaultSelector()  # select.select refuses descriptors above 1023
    output.register(ours, selectors.EVENT_READ)
    try:
        while time.time() < end and process.poll() is None:
            if output.select(0.03):
                try:
                    said += os.read(ours, 65536).decode(errors="replace")
                except OSError:  # the terminal is closed
                    break
            elif lines and said[answered:].rstrip().endswith((">>>", "...")):
                answered = len(said)
                os.write(ours, lines.pop(0).encode() + b"\n")
    finally:
        process.kill()
        process.wait()
        output.close()
        os.close(ours)
    return said
