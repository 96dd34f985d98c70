"""Sizes and docstrings of vkchi, as docs/design.md, part 8, wants them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "vkchi").rglob("*.py"))
FUNCTION_LINES, FILE_LINES, LINE_COLUMNS = 40, 500, 100


def count_lines(fn: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function from its `def` to its end, without its docstring."""
    assert fn.end_lineno is not None
    total = fn.end_lineno - fn.lineno + 1
    first = fn.body[0]
    if ast.get_docstring(fn, clean=False) is None or first.end_lineno is None:
        return total
    return total - (first.end_lineno - first.lineno + 1)


def long_functions(source: str) -> Iterator[tuple[int, str, int]]:
    """Line, name and length of every function that is too long."""
    for n in ast.walk(ast.parse(source)):
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if (lines := count_lines(n)) > FUNCTION_LINES:
                yield n.lineno, n.name, lines


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_functions_are_short() -> None:
    wrong = [
        f"{name_of(path)}:{line}: {name} has {lines} lines, more than {FUNCTION_LINES}"
        for path in FILES
        for line, name, lines in long_functions(path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


def test_files_are_short() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in FILES}
    assert {name: n for name, n in lengths.items() if n > FILE_LINES} == {}


def test_lines_are_short() -> None:
    wrong = [
        f"{name_of(path)}:{number}"
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if len(line) > LINE_COLUMNS
    ]
    assert wrong == []


def test_every_module_has_a_docstring() -> None:
    assert [
        name_of(path) for path in FILES if not ast.get_docstring(ast.parse(path.read_text()))
    ] == []


@pytest.mark.parametrize(("body_lines", "is_long"), [(39, False), (40, True)])
def test_a_docstring_does_not_count(body_lines: int, is_long: bool) -> None:
    source = 'def f():\n    """One.\n\n    More.\n    """\n' + "    x = 1\n" * body_lines
    assert bool(list(long_functions(source))) == is_long
