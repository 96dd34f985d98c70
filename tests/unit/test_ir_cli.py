"""`vkchi ir`."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vkchi import __main__ as commands
from vkchi.cli import ir
from vkchi.errors import ArgumentError
from vkchi.ir.core import Func, Program
from vkchi.opt.pipeline import PASSES

GOLDEN = Path(__file__).parents[1] / "golden"

TEXT = """func @twice(%x: array<f32[?]>, %a: f32) {
  %c0 = const 0 : i32
  %p = elem %x, %c0 : ptr<f32 global>
  store %p, %a
  yield
}
"""


def find_pass(name: str) -> Callable[[Func], Any]:
    if name == "split":
        return lambda fn: Program("p", (fn, Func(fn.name + ".1", fn.params, fn.body)))
    if name == "same":
        return lambda fn: fn
    raise ArgumentError(f"there is no pass `{name}`")


@pytest.fixture
def own_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ir, "find_pass", find_pass)


def main(argv: list[str]) -> int:
    return commands.main(["ir", *argv])


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "twice.chi"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


@pytest.mark.usefixtures("own_passes")
def test_prints_its_input(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file, "--pass", "same,same"]) == 0
    assert capsys.readouterr().out == TEXT


@pytest.mark.usefixtures("own_passes")
def test_a_pass_may_split(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file, "--pass", "split"]) == 0
    assert capsys.readouterr().out == TEXT + "\n" + TEXT.replace("@twice", "@twice.1")


def test_interpreter_option_runs_program(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file, "--interp", "--extent", "3", "--set", "a=2.5"]) == 0
    assert capsys.readouterr().out == TEXT + "; x = [2.5, 2. , 3. ]\n"


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--pass", "nothing"], "there is no pass `nothing`"),
        (["--interp", "--set", "b=1"], "--set: the parameters are x, a"),
        (["--interp", "--set", "a=one"], "--set: could not convert"),
    ],
)
def test_invalid_arguments_are_reported(
    argv: list[str], text: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([file, *argv]) == 1
    assert text in capsys.readouterr().err


def test_bad_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.chi"
    path.write_text("func @f() {\n  %a = neg %b : i32\n  yield\n}\n", encoding="utf-8")
    assert main([str(path)]) == 1
    assert f"{path}:2:12: %b is not defined\n    2 |   %a = neg %b" in capsys.readouterr().err
    assert main([str(tmp_path / "none.chi")]) == 1


def nested(depth: int) -> str:
    return (
        "func @f(%c: u1) {\n" + "if %c {\n" * depth + "yield\n" + "} {\nyield\n}\nyield\n" * depth
    ) + "}\n"


AXES = "func @f(%x: array<f32[{}]>) {{\n  yield\n}}\n"


@pytest.mark.parametrize(
    ("text", "argv", "sentence"),
    [
        (b"\xe7\x00", [], "wrong.chi is not text in UTF-8 (byte 0)"),
        (b"\x00\x01", [], "wrong.chi:1:1: `func` expected"),
        ("func @f(%c: u1) {\n  %a, %b = if %c : f32, i32\n  yield\n}\n", [], "`if` has 0 regions"),
        (nested(3000), [], "wrong.chi: nested deeper than Python's recursion limit allows"),
        (f"func @f() {{\n  fence [{'(' * 3000}]\n}}\n", [], "nested deeper"),
        (f"func @f() {{\n  fence [{'9' * 9000}]\n}}\n", [], "Exceeds the limit"),
        (AXES.format("?" * 5000), ["--interp"], "%x: the interpreter takes arrays of 32 axes"),
        (AXES.format(2**31), ["--interp"], "arrays of 67108864 numbers at most, not 2147483648"),
        (AXES.format("?"), ["--interp", "--extent", str(10**30)], "arrays of 67108864 numbers"),
        (AXES.format("?"), ["--interp", "--set", "x=0xfffffffffff"], "out of bounds"),
        ("func @f(%x: f32<99999x99999>) {\n  yield\n}\n", [], "is no vector or matrix of at most"),
        (
            "func @f() {\n  %s = shared : array<f32[2147483648] shared>\n  yield\n}\n",
            ["--interp"],
            "shared memory: the interpreter takes arrays of 67108864 numbers at most",
        ),
        (
            "func @f() {\n  %a = const 0 : i32\n  %b = const 2147483647 : i32\n"
            "  for %a, %b {\n    ^(%i: i32)\n    yield\n  }\n  yield\n}\n",
            ["--interp"],
            "no end after 1000 iterations",
        ),
    ],
    ids=range(13),
)
def test_a_wrong_text_is_one_error(
    text: str | bytes,
    argv: list[str],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vkchi.ir.interp.STEP_LIMIT", 1000)
    path = tmp_path / "wrong.chi"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main([str(path), *argv]) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert "bug in vkchi" not in error or "iterations" in error
    assert error.startswith(str(path)) or error.count("\n") == 1


@pytest.mark.parametrize("argv", [["--extent", "-1"], ["--set", "x"], []])
def test_a_wrong_command_line_is_status_2(
    argv: list[str], file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([file, *argv] if argv else []) == 2
    assert "error: " in capsys.readouterr().err


def list_functions() -> list[str]:
    """The text of every function in the golden files, wherever it stands in them."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(GOLDEN.rglob("*.chi"))]
    return [found[0] for text in texts for found in re.finditer(r"(?ms)^func .*?^}\n", text)]


class Mutator:
    """Makes texts that are nearly IR, or not at all."""

    words = re.compile(r"%[\w.]+|\w+|\S|\s+")
    odd = ("-1", "0", "9" * 20, "nan", "0x", '"', "(", "]", "é", "\0", "f32<0>", "f32<2x2x2>", "٣")

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.texts = list_functions()
        self.all_words = [word for text in self.texts for word in self.words.findall(text)]

    def next(self) -> bytes:
        draw = self.random
        if draw.random() < 0.1:
            return draw.randbytes(draw.randrange(40))
        words = self.words.findall(draw.choice(self.texts))
        for _ in range(draw.choice((1, 1, 1, 2, 4))):
            at = draw.randrange(len(words))
            end = at + draw.randrange(8)
            source = draw.choice((self.all_words, words, self.odd))
            words[at : draw.choice((at, at + 1, end))] = [
                draw.choice(source) for _ in range(draw.randrange(3))
            ]
        return "".join(words).encode()


@pytest.mark.parametrize("seed", range(4))
def test_no_text_is_a_traceback(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vkchi.ir.interp.STEP_LIMIT", 1000)
    path, mutator = tmp_path / "wrong.chi", Mutator(seed)
    statuses = []
    for _ in range(int(os.environ.get("VKCHI_FUZZ", "50"))):
        path.write_bytes(mutator.next())
        passes = ",".join(mutator.random.sample(list(PASSES), 2))
        argv = [str(path), "--pass", passes, "--interp", "--extent", "3"]
        statuses.append(main(argv))
    assert set(statuses) <= {0, 1}


def run_command(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vkchi", "ir", *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_reads_standard_input() -> None:
    done = run_command("-", input=TEXT)
    assert (done.returncode, done.stdout, done.stderr) == (0, TEXT, "")
    done = run_command("-", input=TEXT.replace("%p, %a", "%q, %a"))
    assert done.returncode == 1
    assert done.stderr.startswith("<stdin>:4:9: %q is not defined\n    4 |   store %q, %a\n")


def test_names_that_the_terminal_cannot_show() -> None:
    text, environment = TEXT.replace("%a", '%"é"'), {**os.environ, "PYTHONIOENCODING": "ascii"}
    path_error = run_command("-", input=text, env={**environment, "PYTHONUTF8": "0"})
    assert path_error.returncode == 0
    assert r"%\xe9" in path_error.stdout


def test_output_that_nobody_takes(tmp_path: Path) -> None:
    path = tmp_path / "many.chi"
    path.write_text(
        "".join(TEXT.replace("@twice", f"@f{k}") for k in range(2000)), encoding="utf-8"
    )
    done = subprocess.run(
        f"'{sys.executable}' -m vkchi ir '{path}' | head -n 1",
        shell=True, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout[:8], done.stderr) == ("func @f0", "")
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "vkchi", "ir", str(path)]
        failed = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert failed.returncode == 1
    assert failed.stderr == "standard output cannot be written: No space left on device\n"


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_is_one_word(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    def wait(given: object) -> int:
        signal.raise_signal(signal.SIGINT)
        return 0

    monkeypatch.setattr(ir, "run", wait)
    assert commands.main(["ir", "-"]) == 130
    assert capfd.readouterr().err == "interrupted\n"
