"""File length, line length and module docstrings of vkchi."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "vkchi").rglob("*.py"))
FILE_LINES, LINE_COLUMNS = 800, 100


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_files_are_short() -> None:
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {name: n for name, n in lengths.items() if n > FILE_LINES} == {}


def test_lines_are_short() -> None:
    wrong = [
        f"{name_of(path)}:{number}"
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > LINE_COLUMNS
    ]
    assert wrong == []


def test_every_module_has_a_docstring() -> None:
    assert [
        name_of(path)
        for path in FILES
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ] == []
