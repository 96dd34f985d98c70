"""Functions that stand in no file: which texts are taken for theirs, and which are not."""

from __future__ import annotations

import ast
import doctest
import gc
import importlib
import linecache
import py_compile
import sys
import zipfile
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from vkchi.errors import KernelSyntaxError
from vkchi.frontend.syntax import interactive as interactive_source
from vkchi.frontend.syntax import matching, source
from vkchi.frontend.syntax.source import keep_source, source_of


def typed_code(text: str, file: str = "<stdin>") -> FunctionType:
    """The function `f` of a statement that was typed."""
    names: dict[str, Any] = {}
    exec(compile(text, file, "exec", dont_inherit=True), names)
    f = names["f"]
    assert isinstance(f, FunctionType)
    return f


def tree_of(text: str) -> str:
    """The syntax of the function `f` in a text."""
    found = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
    return next(ast.dump(n) for n in found if n.name == "f")


def found_in(text: str, history: list[str]) -> bool:
    """True if the history gives the text of the function in it, and not another."""
    code = typed_code(text).__code__
    for statement in interactive_source.typed_statements(code, history):
        lines = interactive_source.lines_in(statement, code)
        if lines:
            assert tree_of("".join(lines)) == tree_of(text)
            return True
    return False


PLAIN = "def f(x):\n    y: int = x\n    return y + 1\n"
NESTED = "def make(n):\n    def f():\n        return 1\n    return f\nf = make(2)\n"
DECORATED = "@(lambda f: f)\n@(lambda f: f)\ndef f():\n    return [\n        1,\n    ]\n"
REPEATED = "def f(x):\n    x += 1\n    x += 1\n    x += 2\n    x += 2\n    return x\n"


@pytest.mark.parametrize("text", [PLAIN, NESTED, REPEATED, DECORATED])
def test_a_history_has_typed_lines(text: str) -> None:
    lines = text.splitlines()
    kept = [line for k, line in enumerate(lines) if k == 0 or line != lines[k - 1]]
    before, after = ["import x", "def f(x):", "    return 9", "f(1)"], ["f(2)", "if x:", "    f(3)"]
    assert found_in(text, kept)
    assert found_in(text, before + kept + after)
    assert not found_in(text, before + after)


def test_complete_history_entry_is_found_quickly() -> None:
    body = "".join(f"    x += {k}\n" for k in range(30))
    text = f"@(lambda f: f)\ndef f(x):\n{body}    return x\n"
    statements = interactive_source.typed_statements(typed_code(text).__code__, text.splitlines())
    assert text in [next(statements) for _ in range(2)]


@pytest.mark.parametrize(
    "other",
    [
        "def f(x):\n    y: int = x\n    return y + 2\n",
        "def f(x):\n    y: int = x\n    return y - 1\n",
        "def f(z):\n    y: int = z\n    return y + 1\n",
        "def f(x):\n    y: int = x\n\n    return y + 1\n",
        "def f(x):\n    y: int = x\n    return y + 1.0\n",
        "def f(x, *a):\n    y: int = x\n    return y + 1\n",
        "def g(x):\n    y: int = x\n    return y + 1\n",
    ],
)
def test_another_text_is_not_taken(other: str) -> None:
    code = typed_code(PLAIN).__code__
    assert interactive_source.lines_in(PLAIN, code) == PLAIN.splitlines(keepends=True)
    assert interactive_source.lines_in(other, code) == []


def test_constants_are_compared_by_type_and_value() -> None:
    texts = [f"def f():\n    return {number}\n" for number in ("0.0", "-0.0", "0", "False", "'0'")]
    codes = [typed_code(text).__code__ for text in texts]
    same = [[bool(interactive_source.lines_in(text, code)) for text in texts] for code in codes]
    assert same == [[k == n for k in range(5)] for n in range(5)]


def test_the_line_is_that_of_the_statement() -> None:
    whole = "import math\n\n\n" + PLAIN
    code = typed_code(PLAIN).__code__
    assert interactive_source.lines_in(whole, code)[0] == "def f(x):\n"
    far = typed_code("\n" * 5 + PLAIN).__code__
    assert interactive_source.lines_in(whole, far)[5] == "def f(x):\n"


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["python", "-c", "code", "-c", "no"], "code"),
        (["python", "-ccode"], "code"),
        (["python", "-Bc", "code"], "code"),
        (["python", "-W", "ignore", "-X", "dev", "-c", "code"], "code"),
        (["python", "-Wcode", "-Xc", "-uc", "code"], "code"),
        (["python", "--check-hash-based-pycs", "always", "-c", "code"], "code"),
        (["python", "file.py", "-c", "no"], ""),
        (["python", "-m", "module", "-c", "no"], ""),
        (["python", "-mcode"], ""),
        (["python", "-"], ""),
        (["python"], ""),
    ],
)
def test_command_line_source(argv: list[str], text: str) -> None:
    assert interactive_source.given_on_command_line(argv) == text


def test_redirected_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes("# -*- coding: latin-1 -*-\nx = 'ö'\n".encode("latin-1"))
    with open(path, encoding="utf-8") as opened:
        opened.seek(5)
        assert interactive_source.redirected_to(opened.fileno()).endswith("x = 'ö'\n")
        assert opened.tell() == 5
    path.write_bytes(b"\xff\xfe")
    with open(path, encoding="utf-8") as opened:
        assert interactive_source.redirected_to(opened.fileno()) == ""
    assert interactive_source.redirected_to(-1) == ""


# --- in source_of ------------------------------------------------------------------------------


def test_equal_code_of_different_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both make equal code: annotations of variables leave no trace in it."""
    history: list[str] = []
    monkeypatch.setattr(interactive_source, "_readline_history", lambda: history)
    monkeypatch.setattr(interactive_source, "redirected_to", lambda descriptor: "")
    kept = []
    for word in ("int", "str"):
        text = f"def f():\n    x: {word} = 1\n    return x\n"
        history += text.splitlines()
        f = typed_code(text)
        keep_source(f)
        kept.append(f)
    first, second = (ast.unparse(source_of(f).node) for f in kept)
    assert "x: int" in first and "x: str" in second
    assert kept[0].__code__ == kept[1].__code__


def test_sources_live_as_long_as_their_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactive_source, "_readline_history", lambda: PLAIN.splitlines())
    f = typed_code(PLAIN)
    number = id(f.__code__)
    assert source_of(f) is source_of(f)
    assert source._PARSED.get(number) is not None
    del f
    gc.collect()
    assert source._PARSED.get(number) is None


def test_a_span_shows_typed_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactive_source, "_readline_history", lambda: PLAIN.splitlines())
    found = source_of(typed_code(PLAIN))
    span = found.span(found.node.body[1])
    assert span.place.startswith("<stdin-") and span.place.endswith(">:3:5")
    assert linecache.getline(span.file, 3) == "    return y + 1\n"


@pytest.mark.parametrize(
    ("file", "help"),
    [("<stdin>", "write it to a file and run that"), ("<string>", "tell Python's linecache")],
)
def test_a_text_that_is_gone(file: str, help: str) -> None:
    f = typed_code("def f(x):\n    return x + 12345\n", file)
    keep_source(f)  # says nothing yet
    with pytest.raises(KernelSyntaxError, match=f"(?s)source of f\\(\\) is not avail.*{help}"):
        source_of(f)


def test_a_source_registered_in_linecache() -> None:
    text, name = PLAIN, "<my text>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    assert source_of(typed_code(text, name)).node.name == "f"


def import_from(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


def test_a_module_in_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.writestr("archived_module.py", "\n\n" + PLAIN)
    module = import_from(tmp_path / "m.zip", monkeypatch, "archived_module")
    found = source_of(module.f)
    assert found.node.name == "f" and found.span(found.node).line == 3


def test_a_module_without_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "bare_module.py"
    text.write_text(PLAIN, encoding="utf-8")
    py_compile.compile(str(text), cfile=str(tmp_path / "bare_module.pyc"))
    text.unlink()
    module = import_from(tmp_path, monkeypatch, "bare_module")
    with pytest.raises(KernelSyntaxError, match=r"(?s)not available.*\.py file beside a \.pyc"):
        source_of(module.f)


def test_an_example_in_a_documentation() -> None:
    example = ">>> def f(x):\n...     return x + 1\n>>> keep(f)\n>>> name(f)\n'f'\n"
    names = {"keep": keep_source, "name": lambda f: source_of(f).node.name}
    test = doctest.DocTestParser().get_doctest(example, names, "example", None, 0)
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


def test_code_is_compared_whole() -> None:
    inner = "def f():\n    def g():\n        return {}\n    return g\n"
    one, two = (typed_code(inner.format(k)).__code__ for k in (1, 2))
    assert matching.is_same(one, one) and not interactive_source.is_same(one, two)
