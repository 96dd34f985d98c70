"""Docstrings, comments and documents in plain technical English; plain and unique names."""

from __future__ import annotations

import ast
import io
import re
import statistics
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "vkchi").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

OPENING = re.compile(r"(what|whether|who|whose|whom|where|how|which)\b", re.IGNORECASE)
FORBIDDEN = re.compile(
    r"\b(graphics cards?|truth values?|strays?|by turns|done again|gone through|hands? on"
    r"|comes? to (?:one|a) place|is told|are told|must not know|while compiling"
    r"|numbers of any width)\b|^Owns:",
    re.IGNORECASE | re.MULTILINE,
)
# `place` and `round` are functions of users; in_place, round_trip and round_to are other words.
TEST_NAMES = re.compile(
    r"_(what|whatever|refused?|refuses|tell|tells|told|strays?|truth_values?|while_compiling"
    r"|done_again|by_turns|gone_through|places|(?<!in_)(?<!of_)place(?!_returns)"
    r"|rounds|(?<!of_)round(?!_to|_trip)|stands?(?!_in))(?=_|$)"
)
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def docstrings() -> list[tuple[str, str]]:
    """Place and text of every docstring of vkchi."""
    return docstrings_of(MODULES)


def docstrings_of(paths: list[Path]) -> list[tuple[str, str]]:
    return [
        (f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text)
        for path in paths
        for node in ast.walk(parse(path))
        if isinstance(node, DEFINITIONS) and (text := ast.get_docstring(node))
    ]


def comments_of(path: Path) -> Iterator[tuple[str, str]]:
    """Location and text of every comment. Adjacent comment lines are one."""
    source = path.read_text(encoding="utf-8")
    end, first, text = -1, 0, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or re.match(r"#\s*(type:|noqa|fmt:|!)", token.string):
            continue
        row, is_alone = token.start[0], token.line.lstrip().startswith("#")
        if text and not (is_alone and row == end + 1):
            yield f"{path.relative_to(ROOT)}:{first}", text
            text = ""
        first, text = (first, f"{text}\n") if text else (row, "")
        text += token.string.lstrip("# ")
        end = row if is_alone else -1
    if text:
        yield f"{path.relative_to(ROOT)}:{first}", text


@cache
def paragraphs() -> list[tuple[str, str]]:
    """Place and text of every paragraph of the documents, without code blocks."""
    found = []
    for path in DOCUMENTS:
        text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        found += [(str(path.relative_to(ROOT)), p.strip()) for p in re.split(r"\n\s*\n", text)]
    return [(place, text) for place, text in found if text]


def words_of(text: str) -> list[str]:
    return re.findall(r"[A-Za-z][\w'-]*", text)


def opens_with_a_relative(text: str) -> bool:
    """True unless the first line is a question of a list of questions."""
    first = text.lstrip("#*-> ").split("\n")[0]
    return bool(OPENING.match(first)) and not first.rstrip().endswith("?")


def sentence_lengths(text: str) -> Iterator[int]:
    """Words of each sentence, list item and table cell of three words or more."""
    text = re.sub(r"`[^`]*`", "x", text)
    for part in re.split(r"(?<=[.!?])\s+|\n\s*[-*|]\s+|\n\s*\n|\|", text):
        count = len(words_of(part))
        if count >= 3:
            yield count


def check(units: list[tuple[str, str]], longest: int) -> None:
    openings = [place for place, text in units if opens_with_a_relative(text)]
    assert len(openings) <= 0.01 * len(units), openings
    words = [word.lower() for _, text in units for word in words_of(text)]
    whats = [place for place, text in units if "what" in map(str.lower, words_of(text))]
    assert words.count("what") <= 0.001 * len(words), whats
    forbidden = [(place, m[0]) for place, text in units for m in FORBIDDEN.finditer(text)]
    assert forbidden == []
    lengths = [n for _, text in units for n in sentence_lengths(text)]
    assert statistics.quantiles(lengths, n=10)[-1] <= longest


def test_docstrings_are_plain() -> None:
    check(docstrings(), longest=20)


def test_documents_are_plain() -> None:
    check(paragraphs(), longest=22)


def test_docstrings_and_comments_of_tests_are_plain() -> None:
    check([*docstrings_of(TESTS), *(unit for path in TESTS for unit in comments_of(path))], 20)


def test_class_names_occur_once() -> None:
    count = Counter(
        node.name for path in MODULES for node in parse(path).body if isinstance(node, ast.ClassDef)
    )
    assert len([name for name, n in count.items() if n > 1]) <= 10


def test_names_of_tests_are_plain() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in TESTS
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if TEST_NAMES.search(node.name)
    ]
    assert found == []
