"""The tree of commands: one style, words in any order, exit statuses."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

import vkchi as ti
from vkchi.__main__ import main
from vkchi.cli import tree
from vkchi.cli.tree import ROOT, Command, WrongCommandLine, configure_of, make_parser, parse

DOCUMENT = Path(__file__).parents[2] / "docs" / "command-line.md"


def paths(path: tuple[Command, ...] = (ROOT,)) -> list[tuple[Command, ...]]:
    """Every command of the tree, as the path that leads to it."""
    return [path, *(found for nested in path[-1].commands for found in paths((*path, nested)))]


def words_of(path: tuple[Command, ...]) -> list[str]:
    return [command.name for command in path[1:]]


EVERY = pytest.mark.parametrize("path", paths(), ids=lambda path: " ".join(words_of(path)))


@EVERY
def test_help_is_complete(path: tuple[Command, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words_of(path), "--help"]) == 0
    said = capsys.readouterr()
    assert said.err == "" and said.out.startswith(f"usage: {' '.join(c.name for c in path)} [")
    assert "exit status: " in said.out and "2 wrong command line" in said.out
    for nested in path[-1].commands:
        assert f"  {nested.name} " in said.out and nested.summary in said.out
    parser = make_parser(path)
    assert all(action.help for action in parser._actions)


@EVERY
def test_unknown_options_are_status_2(
    path: tuple[Command, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words_of(path), "--colour-of-money"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and f"{' '.join(c.name for c in path)}: error: " in said.err


@EVERY
def test_leaves_run_and_groups_do_not(path: tuple[Command, ...]) -> None:
    parser = argparse.ArgumentParser()
    configure_of(path[-1])(parser)
    assert (parser.get_default("run") is None) == bool(path[-1].commands)


@pytest.mark.parametrize("words", [[], ["cache"]])
def test_a_group_alone_is_status_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "commands:" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["cache"], ["cache", "ls"], ["nonsense"]])
def test_version(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version", *words]) == 0
    assert capsys.readouterr().out == f"vkchi {ti.__version__}\n"


@pytest.mark.parametrize(
    ("words", "help_"),
    [
        (["cach"], "did you mean 'cache'?"),
        (["cache", "lst"], "did you mean 'ls'?"),
        (["zzz"], "there are doctor, example, "),
        (["--version=3"], "ignored explicit argument"),
    ],
)
def test_wrong_names_are_status_2(
    words: list[str], help_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert help_ in capsys.readouterr().err


ORDERS = (
    ["cache", "--folder", "f", "ls", "last", "--json", "--sort", "hits"],
    ["cache", "ls", "--json", "last", "--sort", "hits", "--folder", "f"],
    ["cache", "ls", "--sort", "hits", "--folder=f", "--json", "last"],
    ["cache", "--sort", "hits", "--json", "--folder", "f", "ls", "last"],
    ["cache", "--sort=hits", "--json", "ls", "--folder", "f", "last"],
)


@pytest.mark.parametrize("words", ORDERS)
def test_words_in_any_order(words: list[str]) -> None:
    given = parse(words)[1]
    assert (given.name, given.as_json, given.sort, given.folder) == ("last", True, "hits", "f")


def test_words_that_go_to_a_program() -> None:
    given = parse(["compile", "p.py", "--isa", "--", "--isa", "x", "--", "y"])[1]
    assert (given.what, given.isa, given.rest) == ("p.py", True, ["--isa", "x", "--", "y"])
    given = parse(["compile", "--arg", "x=f32[2]", "p.py", "--arg", "n=1"])[1]
    assert (given.what, given.arg, given.rest) == ("p.py", ["x=f32[2]", "n=1"], [])
    given = parse(["example", "--frames", "3", "mpm99", "--headless", "--rounds", "2", "-h"])[1]
    assert (given.name, given.frames, given.headless) == ("mpm99", "3", False)
    assert given.rest == ["--headless", "--rounds", "2", "-h"]
    assert parse(["example"])[1].name is None and parse(["example"])[1].rest == []


def test_compile_alone_asks_for_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile"]) == 2
    assert "no file is given: vkchi compile FILE.py:KERNEL" in capsys.readouterr().err


def test_errors_of_a_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from vkchi.cli import doctor
    from vkchi.errors import ArgumentError

    def fail(given: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(doctor, "run", fail)
    error: Exception = WrongCommandLine("no such thing")
    assert main(["doctor"]) == tree.WRONG_COMMAND_LINE
    said = capsys.readouterr().err
    assert said == "usage: vkchi doctor [-h] [--json]\nvkchi doctor: error: no such thing\n"
    error = ArgumentError("it is broken")
    assert main(["doctor"]) == tree.FAILURE
    assert capsys.readouterr().err == "it is broken\n"


def test_the_document_lists_every_command() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `vkchi ([a-z ]+?)(?: [\[A-Z].*?)?` \|", text, re.M))
    assert rows == {" ".join(words_of(path)) for path in paths() if not path[-1].commands}
