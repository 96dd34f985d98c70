"""`python -m vkchi ir`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vkchi.ir.cli import main
from vkchi.ir.core import Func, Program

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
    raise KeyError(f"there is no pass `{name}`")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "twice.chi"
    path.write_text(TEXT)
    return str(path)


def test_prints_what_it_read(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file, "--pass", "same,same"], find_pass) == 0
    assert capsys.readouterr().out == TEXT


def test_a_pass_may_split(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file, "--pass", "split"], find_pass) == 0
    assert capsys.readouterr().out == TEXT + "\n" + TEXT.replace("@twice", "@twice.1")


def test_interprets(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file, "--interp", "--extent", "3", "--set", "a=2.5"], find_pass) == 0
    assert capsys.readouterr().out == TEXT + "; x = [2.5, 2. , 3. ]\n"


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--pass", "nothing"], "there is no pass `nothing`"),
        (["--interp", "--set", "b=1"], "--set: the parameters are x, a"),
        (["--interp", "--set", "a=one"], "--set: could not convert"),
    ],
)
def test_mistakes(
    argv: list[str], text: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([file, *argv], find_pass) == 1
    assert text in capsys.readouterr().err


def test_bad_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.chi"
    path.write_text("func @f() {\n  %a = neg %b : i32\n  yield\n}\n")
    assert main([str(path)], find_pass) == 1
    assert f"{path}:2:12: %b is not defined\n    2 |   %a = neg %b" in capsys.readouterr().err
    assert main([str(tmp_path / "none.chi")], find_pass) == 1
