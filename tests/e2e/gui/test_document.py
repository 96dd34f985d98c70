"""The snippets of docs/gui.md run, and print their documented output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

BLOCKS = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[3] / "docs" / "gui.md").read_text(), re.S
)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_snippet(number: int, tmp_path: Path, monkeypatch, capsys, own_runtime: None) -> None:
    pytest.importorskip("PIL")
    monkeypatch.setenv("TI_GUI_SHOW", "0")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "snippet.py"
    path.write_text(BLOCKS[number])
    exec(compile(BLOCKS[number], str(path), "exec"), {"__name__": "__main__"})
    said = [line.split("#")[-1].strip() for line in BLOCKS[number].splitlines()
            if line.startswith("print(")]  # fmt: skip
    assert capsys.readouterr().out.split("\n")[: len(said)] == said
