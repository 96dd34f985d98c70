"""The lines of each package, as the table of docs/design.md, part 1, has them: nearly, for every
change moves them. `pytest --bless` writes them anew."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design.md"
ROW = re.compile(r"^\| (`[^|]+) \| ([^|]+) \| ([\d,]+) \|$", re.M)
NEARLY = 0.05  # how far off a row may be


def count_lines() -> dict[str, int]:
    """Lines of each package, docstrings and blank ones too; `vkchi` is what stands in none."""
    found: dict[str, int] = {}
    for path in (ROOT / "vkchi").rglob("*.py"):
        parts = path.relative_to(ROOT / "vkchi").parts
        package = parts[0] if len(parts) > 1 else "vkchi"
        found[package] = found.get(package, 0) + len(path.read_text().splitlines())
    return found


def table() -> str:
    """The table, as it stands on the page."""
    return PAGE.read_text().split("Lines of each package")[1].split("\n## ")[0]


def lines_of(names: str) -> int:
    """The lines of a row's packages."""
    counts = count_lines()
    packages = counts if names == "`all`" else names_in(names)
    return sum(counts[name] for name in packages)


def names_in(names: str) -> list[str]:
    return re.findall(r"`(\w+)`", names)


def test_the_table_has_the_lines_of_each_package(bless: bool) -> None:
    def as_it_is(row: re.Match[str]) -> str:
        return f"| {row[1]} | {row[2]} | {lines_of(row[1]):,} |"

    if bless:
        PAGE.write_text(PAGE.read_text().replace(table(), ROW.sub(as_it_is, table())))
    wrong = [
        as_it_is(row) for row in ROW.finditer(table())
        if abs(int(row[3].replace(",", "")) - lines_of(row[1])) > NEARLY * lines_of(row[1])
    ]  # fmt: skip
    assert not wrong, wrong


def test_every_package_has_a_row() -> None:
    rows = [name for row in ROW.finditer(table()) for name in names_in(row[1])]
    assert sorted(rows) == sorted([*count_lines(), "all"])
