"""`python -m vkchi example`: the list of examples, and running one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vkchi.cli.example import list_examples, main, title_of


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    for name, path in list_examples().items():
        assert f"  {name:15} {title_of(path)}\n" in said and len(title_of(path)) > 20
    assert "viewer" not in said


def test_a_name_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "there is no example 'nothing'; there are ad_gravity, " in capsys.readouterr().err


def test_running_one(tmp_path: Path, capsys, own_runtime: None) -> None:
    pytest.importorskip("PIL")
    before, argv = list(sys.path), sys.argv
    arguments = ["--headless", "--frames", "2", "--save", str(tmp_path / "life")]
    assert main(["game_of_life", *arguments]) == 0
    assert "game of life: 2 frames" in capsys.readouterr().out
    assert len(list((tmp_path / "life" / "frames").glob("*.png"))) == 2
    assert sys.path == before and sys.argv is argv
    sys.modules.pop("viewer")


def test_a_wrong_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["game_of_life", "--frames", "many"]) == 2
    assert "invalid int value" in capsys.readouterr().err
    sys.modules.pop("viewer")
