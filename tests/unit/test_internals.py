"""The pages of docs/internals: their references exist, and they cover every package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "vkchi"
PAGES = sorted((ROOT / "docs" / "internals").glob("*.md"))
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
QUOTED = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"\w+(?:\.\w+)+")
PATH = re.compile(r"(?:vkchi|tests|docs|scripts|examples|benchmarks)/[\w./*{},-]*")
FOLDERS = {path.parent for path in PACKAGE.rglob("__init__.py")} - {PACKAGE}
TOP = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path in FOLDERS}


def references(page: Path) -> Iterator[str]:
    """The words in backticks, and the code blocks."""
    text = page.read_text(encoding="utf-8")
    yield from FENCE.findall(text)
    yield from QUOTED.findall(FENCE.sub("", text))


@cache
def members_of(path: Path, cls: str = "") -> frozenset[str]:
    """Names that a module, or one of its classes, defines or imports; bases in the same module
    count."""
    body: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    found: set[str] = set()
    if cls:
        node = next((n for n in body if isinstance(n, ast.ClassDef) and n.name == cls), None)
        if node is None:
            return frozenset()
        body = node.body
        for base in node.bases:
            found |= members_of(path, ast.unparse(base)) if isinstance(base, ast.Name) else set()
    for statement in body:
        for n in ast.walk(statement):
            if isinstance(n, (ast.FunctionDef, ast.ClassDef)):
                found.add(n.name)
            elif isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
                found.add(n.id)
            elif isinstance(n, ast.ImportFrom):
                found |= {alias.asname or alias.name for alias in n.names}
            elif isinstance(n, ast.Attribute) and ast.unparse(n.value) == "self":
                found.add(n.attr)
    return frozenset(found)


def exists(name: str) -> bool:
    """True if a dotted name `vkchi.package.module.Class.member` is in the sources."""
    path, words = PACKAGE, name.split(".")[1:]
    while words and (path / words[0]).is_dir():
        path /= words.pop(0)
    module = path / "__init__.py"
    if words and (path / f"{words[0]}.py").is_file():
        module = path / f"{words.pop(0)}.py"
    if not words:
        return True
    if len(words) == 1:
        return words[0] in members_of(module)
    return len(words) == 2 and words[1] in members_of(module, words[0])


def braces(pattern: str) -> list[str]:
    """Expand `a/{b,c}.py` to its alternatives."""
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None:
        return [pattern]
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [one for part in found[1].split(",") for one in braces(f"{before}{part}{after}")]


def missing(text: str) -> Iterator[str]:
    """References in a quoted text that do not exist."""
    for path in PATH.findall(text):
        for one in braces(path.rstrip(".")):
            if not any(ROOT.glob(one.rstrip("/"))):
                yield one
    if NAME.fullmatch(text.removesuffix("()")):
        name = text.removesuffix("()")
        first = name.partition(".")[0]
        if first == "vkchi" and not exists(name):
            yield name
        elif first in TOP:
            yield f"{name}: write vkchi.{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_references_exist(page: Path) -> None:
    assert [one for text in references(page) for one in missing(text)] == []


def test_every_package_has_a_page() -> None:
    """A page covers the packages inside of those that it names."""
    covered = {
        name
        for page in PAGES
        for line in re.findall(r"^Packages: (.*)$", page.read_text(encoding="utf-8"), re.M)
        for name in QUOTED.findall(line)
    }
    packages = {".".join(path.relative_to(ROOT).parts) for path in FOLDERS}
    assert covered <= packages
    assert {name for name in packages if name.count(".") == 1} <= covered


def test_every_page_is_in_the_index_and_the_site() -> None:
    index = (ROOT / "docs" / "internals" / "index.md").read_text(encoding="utf-8")
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES:
        assert page.stem == "index" or f"({page.name})" in index
        assert f"internals/{page.name}" in site


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("vkchi.ir.core.Func", []),
        ("vkchi.ir.core.Region.yielded", []),
        ("vkchi.ir.core.Region.absent", ["vkchi.ir.core.Region.absent"]),
        ("vkchi/ir/{core,absent}.py", ["vkchi/ir/absent.py"]),
        ("ir.core", ["ir.core: write vkchi.ir.core"]),
        ("pytest tests/absent", ["tests/absent"]),
        ("x.grad", []),
    ],
)
def test_missing_references_are_found(text: str, wrong: list[str]) -> None:
    assert list(missing(text)) == wrong


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs", "scripts"])
def test_named_test_files_exist(name: str) -> None:
    paths = [ROOT / name] if name.endswith(".md") else sorted((ROOT / name).rglob("*"))
    found = {
        match[0]
        for path in paths
        if path.is_file() and path.suffix in ("", ".md", ".py")
        for match in re.finditer(
            r"\btests/[\w/]+\.py\b", path.read_text(errors="ignore", encoding="utf-8")
        )
        if "NAME" not in match[0]
    }
    assert [path for path in sorted(found) if not (ROOT / path).exists()] == []
