"""The package loads under the oldest Python that pyproject.toml names, whichever runs the tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "vkchi"
# Names that Python 3.10 does not have, by module. Source: "New in" notes of Python's library.
LATER = {
    "typing": {
        "LiteralString", "Never", "NotRequired", "ReadOnly", "Required", "Self", "TypeAliasType",
        "TypeIs", "TypeVarTuple", "Unpack", "assert_never", "assert_type", "override",
        "reveal_type", "get_overloads", "clear_overloads", "dataclass_transform",
    },
    "enum": {"StrEnum", "ReprEnum", "verify", "member", "nonmember"},
    "datetime": {"UTC"},
    "itertools": {"batched"},
    "contextlib": {"chdir"},
    "collections.abc": {"Buffer"},
    "math": {"cbrt", "exp2", "sumprod", "fma"},
    "operator": {"call"},
    "warnings": {"deprecated"},
}  # fmt: skip
MODULES = {"tomllib", "wsgiref.types"}  # that came later


def run_imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that are run: not those for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        yield from run_imports(node)


def too_new(text: str) -> list[str]:
    """Run-time imports of a module that Python 3.10 lacks."""
    found: list[str] = []
    for node in run_imports(ast.parse(text, feature_version=(3, 10))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in MODULES]
        elif node.module in MODULES:
            found.append(str(node.module))
        else:
            later = LATER.get(node.module or "", set())
            found += [f"{node.module}.{a.name}" for a in node.names if a.name in later]
    return found


def test_no_module_imports_newer_names() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    assert len(texts) > 100
    found = {str(path): names for path, text in texts.items() if (names := too_new(text))}
    assert found == {}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("from typing import Any, Self", ["typing.Self"]),
        ("if TYPE_CHECKING:\n    from typing import Self", []),
        ("def f():\n    import tomllib", ["tomllib"]),
        ("from enum import Enum", []),
    ],
)
def test_such_imports_are_found(text: str, names: list[str]) -> None:
    assert too_new(text) == names
