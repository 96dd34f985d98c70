"""Number of files that name one op, one atomic or one layout.

Lists that `pytest --bless` writes are not counted (`test_public_names`), nor are formulas that
stand in for ops on devices without them.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import vkchi
from tests.unit.recipes import read_recipe

ROOT = Path(vkchi.__file__).parent
WRITTEN = {"public_names", "__init__", "lang/math"}
OTHER_LIBRARIES = {"compat/foreign_names"}  # replacements of names of numpy and others
STAND_INS = {"opt/math/f32_math", "opt/math/f64_math"}


@cache
def trees() -> dict[str, ast.Module]:
    """Every module of ours, by its path."""
    return {
        str(path.relative_to(ROOT).with_suffix("")): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(ROOT.rglob("*.py"))
    }


def names(tree: ast.Module) -> set[str]:
    """Names in a module: strings, functions, assigned variables."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def files_of(name: str) -> set[str]:
    """The files in which somebody wrote a name."""
    found = {path for path, tree in trees().items() if name in names(tree)}
    return found - WRITTEN - STAND_INS - OTHER_LIBRARIES


def files_of_recipe(title: str) -> set[str]:
    """The modules of vkchi that a recipe of CONTRIBUTING.md edits."""
    files = {Path(edit.file) for edit in read_recipe(title).edits}
    return {
        str(file.relative_to("vkchi").with_suffix("")) for file in files if file.parts[0] == "vkchi"
    }


@pytest.mark.parametrize("op", ["tan", "cosh", "asin", "acos", "atan", "sinh"])
def test_an_elementwise_op_is_named_in_the_files_of_its_recipe(op: str) -> None:
    files = files_of_recipe("Add an elementwise op")
    assert len(files) == 4
    assert files_of(op) | {"opt/math/f64_math"} == files


def test_a_pass_is_a_file_and_an_entry_of_the_pipeline() -> None:
    edits = read_recipe("Add a pass").edits
    old = {edit.file for edit in edits if edit.side}
    assert old == {"vkchi/opt/pipeline.py"}
    assert len({edit.file for edit in edits} - old) == 2  # the pass and its golden


@pytest.mark.parametrize("op", ["atomic_and", "atomic_xor"])
def test_an_atomic_is_known_to_four_files(op: str) -> None:
    """The fourth gives it an operator (`^=`)."""
    assert files_of(op) == {
        "ir/op_table/memory_ops", "spirv/pointers", "lang/atomic_functions",
        "frontend/values/tensor_values",
    }  # fmt: skip


def knows_affine(node: ast.AST) -> bool:
    """True if an expression names the one kind of layout that there is, or reads its terms."""
    if isinstance(node, ast.Name | ast.alias):
        name = node.id if isinstance(node, ast.Name) else node.name
        return name in ("Affine", "AxisTerm")
    if not isinstance(node, ast.Attribute) or node.attr != "axes":
        return False
    owner = node.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return name == "layout"


def test_layout_kinds_are_named_only_by_their_constructors() -> None:
    """All others ask the protocol, `types.layout.Layout`: another kind is its class, where fields
    and views make it, and, where its elements are no plain scalars, a class and a row in
    `opt.lowering.lower_access`. `tests/e2e/test_layouts.py` adds two; `packed` says by an affine
    one where its words lie."""
    found = {path for path, tree in trees().items() if any(map(knows_affine, ast.walk(tree)))}
    makers = {"types/layout", "types/packed_numbers", "fields/trees/tree_layout", "fields/views"}
    assert found == {"types/__init__", *makers}  # the first gives it out


def test_few_modules_are_at_the_top_level() -> None:
    """Beside `__init__`, `__main__`, and the name that programs import `lang.math` by."""
    top = {path.stem for path in ROOT.glob("*.py")} - {"__init__", "__main__", "math"}
    assert len(top) <= 19, sorted(top)
