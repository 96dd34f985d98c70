"""The benchmark that puts all beside each other: ratios, the table, the history and its picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
FIGURES: dict[str, dict[str, float]] = {
    "vkchi": {"saxpy": 2e-3, "first/saxpy": 1e-2, "launch": 1e-5},
    "taichi cpu": {"saxpy": 4e-3, "first/saxpy": 5e-2, "launch": 1e-5},
    "torch": {"saxpy": 1e-3},
    "limits": {"bytes": 12.0 * (1 << 22) / 1e-3, "operations": 1e12},
}


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "board", raising=False)
    import board  # type: ignore[import-not-found]

    return board  # type: ignore[no-any-return]


def test_ratios_are_to_ours_and_limits_are_parts(board: Any, capsys: Any) -> None:
    table = board.ratios_of(FIGURES)
    assert table["saxpy"] == pytest.approx({"taichi cpu": 2.0, "torch": 0.5, "limit": 0.5})
    assert table["launch"] == {"taichi cpu": 1.0}
    board.show(FIGURES, table)
    told = capsys.readouterr().out.splitlines()
    assert told[0].split() == ["program", "ms", "taichi", "cpu", "torch", "limit"]
    mean = next(line for line in told if line.startswith("geometric mean"))
    assert float(mean.split()[2]) == pytest.approx(2**0.5, abs=0.01)
    assert any("of first calls" in line and "5.00" in line for line in told)


def test_the_history_grows_by_a_line(board: Any, tmp_path: Path) -> None:
    path, table = tmp_path / "history.jsonl", board.ratios_of(FIGURES)
    for count in (1, 2):
        assert len(board.remember(str(path), FIGURES, table, "cpu")) == count
    last = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    assert last["ratios"] == table and last["seconds"] == FIGURES["vkchi"]
    pytest.importorskip("matplotlib")
    board.draw(str(tmp_path / "history.png"), board.remember(str(path), FIGURES, table, "cpu"))
    assert (tmp_path / "history.png").stat().st_size > 1000


def test_medians_leave_out_errors(board: Any) -> None:
    assert board.medians([{"a": 1.0, "b": "failed"}, {"a": 3.0}, {"a": 2.0}]) == {"a": 2.0}
