"""Docstrings of public functions name every parameter, and the exceptions that the function itself
raises."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vkchi as ti
from vkchi import errors, public_names

DOCS = Path(__file__).parents[2] / "docs"
INNER = ("design.md", "modules.md", "status.md")  # about vkchi, not for its users
GUIDE = "".join(
    p.read_text(encoding="utf-8") for p in sorted(DOCS.rglob("*.md")) if p.name not in INNER
)
CALLED = set(re.findall(r"\.(\w+)\(", GUIDE))
# Methods of ours that have the name of one that the guide calls.
OURS = frozenset("index offset put write pack parent".split())
ERRORS = {
    name for name, found in vars(errors).items()
    if inspect.isclass(found) and issubclass(found, errors.VkchiError)
    and found is not errors.InternalError
}  # fmt: skip


def is_ours(found: object) -> bool:
    return (getattr(found, "__module__", None) or "").startswith("vkchi")


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Functions that `ti` exports, and methods of classes it exports that the guide calls."""
    found: dict[Callable[..., Any], str] = {}
    for name in public_names.read_names():
        thing = getattr(ti, name)
        if inspect.isfunction(thing) and is_ours(thing):
            found.setdefault(thing, name)
        elif inspect.isclass(thing) and is_ours(thing) and thing is not ti.ad.Tape:
            for method, value in inspect.getmembers(thing, inspect.isfunction):
                plain = inspect.unwrap(value)
                is_public = method in CALLED - OURS and not method.startswith("_")
                if is_public and is_ours(plain):
                    found.setdefault(plain, f"{name}.{method}")
    yield from ((name, fn) for fn, name in found.items())


FUNCTIONS = dict(public_functions())
# Functions of `ti`, `ti.ad` and `ti.tools`, and the makers of fields: their docstrings have
# sections.
MODULES = {"ad": ti.ad, "tools": ti.tools}
DOCUMENTED = {
    **{name: fn for name, fn in FUNCTIONS.items() if "." not in name},
    **{name: FUNCTIONS[name] for name in ("Matrix.field", "Vector.field")},
    **{
        f"{module}.{name}": fn
        for module, holder in MODULES.items()
        for name in holder.__all__
        if inspect.isfunction(fn := getattr(holder, name))
    },
}


def parameters(fn: Callable[..., Any]) -> list[str]:
    found = list(inspect.signature(fn).parameters)
    return [name for name in found if name not in ("self", "cls") and not name.startswith("_")]


def raises_ours(fn: Callable[..., Any]) -> bool:
    """True if the function's own statements raise an error of vkchi's."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
    raised = (n.exc for n in ast.walk(tree) if isinstance(n, ast.Raise) and n.exc is not None)
    called = (n.func if isinstance(n, ast.Call) else n for n in raised)
    return any(isinstance(n, ast.Name) and n.id in ERRORS for n in called)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_docstrings_name_parameters_and_errors(name: str) -> None:
    fn = FUNCTIONS[name]
    text = inspect.getdoc(fn) or ""
    missing = [p for p in parameters(fn) if not re.search(rf"\b{re.escape(p)}\b", text)]
    assert text and not missing, f"{fn.__module__} says nothing of {', '.join(missing)}: {text!r}"
    assert re.search("[Rr]aises", text) or not raises_ours(fn), f"{fn.__module__} raises: {text!r}"


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_docstrings_of_public_functions_have_sections(name: str) -> None:
    fn = inspect.unwrap(DOCUMENTED[name])
    text = inspect.getdoc(fn) or ""
    sections = re.findall(r"^(Args|Returns|Raises):$", text, re.M)
    given = re.findall(r"^    \**(\w+): ", text.split("Args:\n")[-1].split("\n\n")[0], re.M)
    assert ("Args" in sections) == bool(inspect.signature(fn).parameters)
    assert [p for p in parameters(fn) if p not in given] == []
    assert ("Returns" in sections) == (
        inspect.signature(fn).return_annotation not in ("None", None)
    )
    assert "Raises" in sections or not (raises_ours(fn) or re.search("[Rr]aises", text))
    assert sections == [s for s in ("Args", "Returns", "Raises") if s in sections]


def test_methods_that_the_guide_calls_are_found() -> None:
    assert {
        "Field.fill",
        "GUI.circle",
        "Matrix.norm",
        "FieldsBuilder.dense",
        "init",
    } <= FUNCTIONS.keys()


def test_documents_that_the_code_names_exist() -> None:
    root = DOCS.parent
    named = {
        (str(path.relative_to(root)), document)
        for path in sorted((root / "vkchi").rglob("*.py"))
        for document in re.findall(r"docs/[a-z_/-]+\.md", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    assert [pair for pair in sorted(named) if not (root / pair[1]).is_file()] == []
