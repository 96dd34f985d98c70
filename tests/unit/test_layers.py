"""The imports of every module, against a table of layers that repeats the one of docs/design.md,
part 1; and that no modules import each other in a circle, also not inside functions."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from vkchi.analysis.dataflow import closure

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "vkchi"


class Row(NamedTuple):
    """Units of one row of the table, and the units that they may import besides themselves."""

    units: tuple[str, ...]
    may_import: tuple[str, ...]


# A unit is a module, or a package with all that is in it; the longest name that fits decides.
# Units in one string ("errors span env") may import each other; separate strings may not, unless
# `may_import` names them.
L0 = (
    "errors span tracebacks tuples hooks public_names env logs platform interrupts "
    "compile_state progress compat.unsupported compat.foreign_names",
)
L1 = ("types target analysis.memory.boxes reports.sites cache.store cache.version",)
L2 = ("ir",)
ANALYSIS = ("analysis",)
L3 = ("opt", "autodiff", "spirv")
DEVICE = ("device vk runtime reports",)
L4 = ("fields ndarray interop",)
LANGUAGE = ("frontend lang",)
L5 = ("compiler cache",)
CALLS = ("launch signature calls races",)
L6 = ("kernel pickling launch.crosscheck python_mode tape texture tools operators",)
ALGORITHMS = ("algorithms spatial linalg gui ui graph aot distributed",)
L7 = ("__init__ math __main__ cli compat quadrants",)

UP_TO_1 = (*L0, *L1)
UP_TO_2 = (*UP_TO_1, *L2)
UP_TO_4 = (*UP_TO_2, *ANALYSIS, *L3, *DEVICE, *L4, *LANGUAGE)
UP_TO_5 = (*UP_TO_4, *L5)

TABLE = (
    Row(L0, ()),
    Row(L1, L0),
    Row(L2, UP_TO_1),
    Row(ANALYSIS, UP_TO_2),
    Row(L3, (*UP_TO_2, *ANALYSIS)),
    Row(DEVICE, UP_TO_1),
    Row(L4, (*UP_TO_1, "device runtime")),
    Row(LANGUAGE, UP_TO_2),
    Row(L5, UP_TO_4),
    Row(CALLS, UP_TO_5),
    Row(L6, (*UP_TO_5, *CALLS)),
    Row(ALGORITHMS, (*UP_TO_5, *CALLS, *L6)),
    Row(L7, (*UP_TO_5, *CALLS, *L6, *ALGORITHMS)),
)

# Third-party packages, and the units that may import them. numpy: every row but the first.
THIRD_PARTY = {
    "vulkan": "vk",
    "torch": "interop distributed",
    "jax": "interop",
    "cuda": "interop",
    "scipy": "linalg",
    "PIL": "tools gui",
    "cmap": "tools",
    "av": "tools",
    "meshio": "tools",
    "jinja2": "cache",
    "pygments": "cache",
    "pygame": "gui",
    "IPython": "tools gui",
    "pygfx": "ui",
    "wgpu": "ui",
    "rendercanvas": "ui",
    "imgui_bundle": "ui",
    "tqdm": "progress",
}
MOST_IN_CIRCLE = 14  # modules of calls, launches, tapes and races
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc", "base", "manager"}

UNITS = {unit: words for row in TABLE for words in row.units for unit in words.split()}
ALLOWED = {
    unit: {*words.split(), *" ".join(row.may_import).split()}
    for row in TABLE
    for words in row.units
    for unit in words.split()
}


class Import(NamedTuple):
    """One imported module, by its full name, and the line that imports it."""

    name: str
    line: int


def list_modules() -> dict[str, Path]:
    """Every module of the package: `ir.core` -> its file; a package by its own name."""
    modules = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
        if parts[-1] == "__init__" and len(parts) > 1:
            parts.pop()
        modules[".".join(parts)] = path
    return modules


MODULES = list_modules()


def unit_of(module: str) -> str | None:
    """The longest unit that `module` (`autodiff.tape`) is or lies in."""
    parts = module.split(".")
    prefixes = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in UNITS), None)


def is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def walk_runtime(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements at any depth, but those under `if TYPE_CHECKING`."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield node
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.If) and is_type_checking(node.test):
        children = list(node.orelse)
    for child in children:
        yield from walk_runtime(child)


def imported_names(node: ast.Import | ast.ImportFrom, package: list[str]) -> Iterator[str]:
    """Full names of the modules that one statement imports; `package` is where it stands."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    above = package[: len(package) - node.level + 1] if node.level else []
    origin = ".".join([*above, *([node.module] if node.module else [])])
    inside = origin.removeprefix("vkchi").lstrip(".")
    for alias in node.names:
        member = f"{inside}.{alias.name}".lstrip(".")
        is_module = origin.split(".")[0] == "vkchi" and member in MODULES
        yield f"{origin}.{alias.name}" if is_module else origin


def read_imports(module: str, path: Path) -> list[Import]:
    """All imports of one module that happen when it runs."""
    package = ["vkchi", *module.split(".")]
    if path.name != "__init__.py":
        package.pop()
    elif module == "__init__":
        package = ["vkchi"]
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return [
        Import(name, node.lineno)
        for node in walk_runtime(tree)
        for name in imported_names(node, package)
    ]


def judge(module: str, name: str) -> str | None:
    """Why `module` may not import `name`; None where it may."""
    top, _, rest = name.partition(".")
    if top in sys.stdlib_module_names or top in ("_sha2", "_sha256"):  # from Python 3.12 on, before
        return None
    unit = unit_of(module)
    if unit is None:
        return "is in no row of the layer table"
    if top == "vkchi":
        target = unit_of(rest or "__init__")
        return None if target in ALLOWED[unit] else f"({unit}) may not import {name}"
    if top == "numpy":
        return "may not import numpy" if unit in L0[0].split() else None
    if unit in THIRD_PARTY.get(top, "").split():
        return None
    return f"({unit}) may not import {name}"


def test_imports_follow_the_layer_table() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{found.line}: {module} {reason}"
        for module, path in MODULES.items()
        for found in read_imports(module, path)
        if (reason := judge(module, found.name))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_module_is_in_the_table() -> None:
    assert [module for module in MODULES if unit_of(module) is None] == []


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The greatest groups of nodes of which each leads to all others."""
    reach = {node: closure(graph[node], lambda n: graph[n]) for node in graph}
    return {
        frozenset(other for other in reach[node] if node in reach[other])
        for node in graph
        if node in reach[node]
    }


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions count: one may save start-up time, and breaks no cycle. Shared parts
    of two modules belong in one of them, or in a third below."""
    graph: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        found = (each.name.partition(".") for each in read_imports(module, path))
        ours = {rest for top, _, rest in found if top == "vkchi"}
        graph[module] = (ours & MODULES.keys()) - {module}
    assert circles(graph) == set()


def test_types_do_not_tie_modules_together() -> None:
    """Imports for type checkers alone may make circles, but no large ones: a reader follows them
    too. `vkchi.protocols` declares the types that lower modules name."""
    assert max(map(len, circles(graph_with_types()))) <= MOST_IN_CIRCLE


def graph_with_types() -> dict[str, set[str]]:
    """The modules that each module imports, also under `TYPE_CHECKING`."""
    graph: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        package = module.split(".")[: None if path.name == "__init__.py" else -1]
        tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        nodes = [node for node in tree if isinstance(node, (ast.Import, ast.ImportFrom))]
        names = {name for node in nodes for name in imported_names(node, ["vkchi", *package])}
        ours = {rest for top, _, rest in (name.partition(".") for name in names) if top == "vkchi"}
        graph[module] = ours & MODULES.keys() - {module}
    return graph


def test_circles_are_found() -> None:
    graph: dict[str, set[str]] = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert circles(graph) == {frozenset("bc")}


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [m for m in MODULES if FORBIDDEN_NAMES & set(m.split("."))] == []


@pytest.mark.parametrize(
    ("module", "name", "is_allowed"),
    [
        ("errors", "vkchi.span", True),
        ("errors", "numpy", False),
        ("errors", "vkchi.types", False),
        ("ir.core", "vkchi.types", True),
        ("ir.core", "vkchi.ir.ops", True),
        ("ir.core", "vkchi.opt", False),
        ("opt.rewrite.licm", "vkchi.spirv.module_builder", False),
        ("autodiff.reverse", "vkchi.ir", True),
        ("autodiff.reverse", "vkchi.tape.tape", False),
        ("autodiff.tape", "vkchi.autodiff.reverse", True),
        ("vk.memory.blocks", "vulkan", True),
        ("device", "vkchi.ir.core", False),
        ("frontend.lowering", "vkchi.device", False),
        ("frontend.lowering", "vulkan", False),
        ("kernel", "vkchi.compiler", True),
        ("kernel", "vkchi", False),
        ("__main__", "vkchi", True),
        ("nowhere", "vkchi.types", False),
    ],
)
def test_the_judge(module: str, name: str, is_allowed: bool) -> None:
    assert (judge(module, name) is None) == is_allowed


def test_imports_are_found_everywhere_in_a_file() -> None:
    source = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from vkchi.kernel import Kernel\n"
        "else:\n    import a\n"
        "def f():\n    from ..types import f32\n    from . import core\n"
    )
    nodes = walk_runtime(ast.parse(source))
    names = [name for node in nodes for name in imported_names(node, ["vkchi", "ir"])]
    assert names == ["typing", "a", "vkchi.types", "vkchi.ir.core"]


def test_numpy_is_imported_where_an_interrupt_leaves_it_whole() -> None:
    users = {
        module
        for module, path in MODULES.items()
        for node in walk_runtime(ast.parse(path.read_text(encoding="utf-8")))
        for name in (
            [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
        )
        if (name or "").split(".")[0] == "numpy"
    }
    assert not users  # only types are imported from them
