"""docs/modules.md names every module with the first sentence of its docstring, package by package.
`pytest --bless` rewrites it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAP = ROOT / "docs" / "modules.md"
HEAD = """# Modules

What each module is, in the words of its docstring's first sentence; the docstring says the rest:
what it owns, and what it must not know. Made by `pytest tests/unit/test_module_map.py --bless`.
Which package may import which: [design.md](design.md).
"""


def first_sentence(path: Path) -> str:
    """The first sentence of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    line = " ".join(text.split("\n\n")[0].split())
    found = re.match(r".*?[.:](?= [A-Z`]|$)", line)
    return (found[0] if found else line).rstrip(":.").replace("|", "\\|") + "."


def modules_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.py"), key=lambda path: (path.name != "__init__.py", path.name))


def build_map() -> str:
    """The page."""
    package = ROOT / "vkchi"
    folders = [package, *sorted({path.parent for path in package.rglob("*.py")} - {package})]
    parts = [HEAD]
    for folder in folders:
        rows = [f"| `{path.stem}` | {first_sentence(path)} |" for path in modules_of(folder)]
        title = folder.relative_to(ROOT).as_posix()
        parts.append(f"\n## {title}/\n\n| module | |\n| --- | --- |\n" + "\n".join(rows) + "\n")
    return "".join(parts)


def test_the_map_names_every_module(bless: bool) -> None:
    if bless:
        MAP.write_text(build_map())
    assert MAP.read_text() == build_map(), "run pytest --bless and read the diff"
    assert MAP.read_text().count("| . |") == 0, "a module has no docstring"
