"""Intended differences from Taichi are in one table, and every row has a test."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
TABLE = HERE.parents[2] / "docs" / "language" / "differences.md"
ROW = re.compile(r"^\| `([a-z0-9-]+)` \|(.+)\|(.+)\|$", re.M)
MARK = re.compile(r"pytest\.mark\.ours\(\s*\"([a-z0-9-]+)\"")


def marked() -> set[str]:
    """The rows that tests name, of this folder or, where Taichi is not to run them, of others."""
    paths = [path for path in HERE.parent.rglob("test_*.py") if path.name != Path(__file__).name]
    return {key for path in paths for key in MARK.findall(path.read_text())}


def test_every_difference_is_explained() -> None:
    rows = [row[0] for row in ROW.findall(TABLE.read_text())]
    assert len(rows) == len(set(rows))
    assert marked() == set(rows)
