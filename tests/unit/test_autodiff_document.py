"""Tables of docs/autodiff.md, "Errors": a row for each message of a GradientError."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLES = (
    (ROOT / "docs" / "autodiff.md")
    .read_text(encoding="utf-8")
    .split("\n## Errors\n")[1]
    .split("```")[0]
)
ROWS = re.findall(r"^\| (?!message|---)(.+?) \| .+ \|$", TABLES, re.M)


def sentences(tree: ast.AST) -> Iterator[ast.expr]:
    """Messages of GradientErrors, also those passed to the function that makes some of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in (
                "GradientError",
                "LostValueError",
                "kind",
            ):  # `kind` is one of several such
                yield node.args[0]
            elif node.func.id == "no_derivative_error":
                yield from node.args[1:2]
        elif isinstance(node, ast.FunctionDef) and node.name == "no_derivative_error":
            yield from node.args.defaults
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "sentence":
            yield node.value


def patterns() -> list[str]:
    """The messages as regular expressions."""
    found = []
    folders = [ROOT / "vkchi" / name for name in ("autodiff", "calls", "tape", "races")]
    for path in sorted(path for folder in folders for path in folder.glob("*.py")):
        for x in sentences(ast.parse(path.read_text(encoding="utf-8"))):
            parts = x.values if isinstance(x, ast.JoinedStr) else [x]
            texts = [p.value if isinstance(p, ast.Constant) else None for p in parts]
            if any(isinstance(t, str) for t in texts):
                found.append("".join(re.escape(t) if isinstance(t, str) else ".+" for t in texts))
    return found


def is_said(row: str, pattern: str) -> bool:
    """True if a row is a message, or its beginning before the dots."""
    begin, dots, _ = row.partition(" …")
    if not dots:
        return re.fullmatch(pattern, row) is not None
    ends = [k for k in range(len(pattern)) if pattern[k] == " "]
    return any(re.fullmatch(pattern[:k].removesuffix("\\"), begin) for k in ends)


def test_every_message_has_a_row() -> None:
    found = patterns()
    assert len(found) > 20
    missing = [p for p in found if not any(is_said(row, p) for row in ROWS)]
    assert not missing, missing


def test_every_row_is_a_message() -> None:
    found = patterns()
    unknown = [row for row in ROWS if not any(is_said(row, p) for p in found)]
    assert not unknown, unknown
