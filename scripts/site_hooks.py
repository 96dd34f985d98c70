"""Hooks of mkdocs: the reference of all public names, and pages from outside `docs/`.

`reference.md` is generated from the table of public names (`vkchi.public_names`). Names defined by
`def` or `class` get their docstrings by mkdocstrings, others a table row. Names without a chapter
come last. CHANGELOG.md and CONTRIBUTING.md become pages unchanged.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from types import ModuleType

from vkchi import public_names

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
# Chapters: title, and the modules of its public names, as in the table of names.
CHAPTERS = {
    "Beginning": ("runtime", "launch.elsewhere"),
    "Kernels": ("kernel", "lang.compile_time", "lang.ndrange", "lang.argpack", "lang.rescale"),
    "Fields": ("fields.constructors", "fields.field", "fields.struct_arrays",
               "fields.fields_builder",
               "fields.tree_axes", "fields.snode"),
    "Arrays": ("ndarray", "texture", "interop.cuda.pool"),
    "Types": ("types", "types.formats", "lang.matrix", "lang.struct"),
    "Functions in kernels": ("lang.elementwise", "lang.atomic_functions", "lang.decompose",
                             "lang.random", "lang.simt.block"),
    "Gradients": ("tape.ad",),
    "Graphs, modules, operators": ("graph.record", "aot.loaded", "aot.capabilities",
                                   "operators.torch_op"),
    "Solvers": ("linalg.sparse_builder",),
    "Drawing": ("gui.gui", "tools.image"),
    "Checks": ("launch.crosscheck", "compat.core_stubs"),
    "Errors": ("errors",),
}  # fmt: skip
# Public modules with names of their own -> the defining module.
MODULES = {
    "ti.ad": "tape.ad", "ti.algorithms": "algorithms", "ti.graph": "graph", "ti.linalg": "linalg",
    "ti.math": "lang.math", "ti.simt.block": "lang.simt.block", "ti.tools": "tools",
    "ti.profiler": "reports.profiler", "ti.aot": "aot", "ti.ui": "ui",
}  # fmt: skip


def on_page_markdown(markdown: str, page, **_) -> str:
    path = page.file.src_uri
    if path in OUTSIDE:
        text = (ROOT / OUTSIDE[path]).read_text(encoding="utf-8")
        return re.sub(r"\]\(docs/", "](", text)
    return markdown + reference() if path == "reference.md" else markdown


def reference() -> str:
    """Markdown of all chapters."""
    table = public_names.read_names()
    known = {module for modules in CHAPTERS.values() for module in modules}
    others = {module for module, _ in table.values()} - known
    parts = []
    for title, modules in {**CHAPTERS, **({"Others": tuple(others)} if others else {})}.items():
        found = [
            (f"ti.{name}", module, attribute)
            for name, (module, attribute) in sorted(table.items())
            if module in modules
        ]
        parts += [f"## {title}", *entries(found)]
    for title, module in MODULES.items():
        holder = importlib.import_module(f"vkchi.{module}")
        listed = [n for n in getattr(holder, "__all__", ()) if is_own(holder, n)]
        public = listed or [n for n in definitions(holder.__name__) if not n.startswith("_")]
        parts += [f"## {title}", "", first_line(holder), "",
                  *entries([(f"{title}.{n}", module, n) for n in sorted(public)])]  # fmt: skip
    return "\n".join(parts) + "\n"


def entries(found: list[tuple[str, str, str]]) -> list[str]:
    """Docstrings for mkdocstrings, a table of other names with a docstring, and a list of the
    rest."""
    shown, rows, plain, seen = [], [], [], set()
    for name, module, attribute in found:
        thing = getattr(importlib.import_module(f"vkchi.{module}"), attribute)
        place, text = defined_at(thing, module, attribute), first_line(thing)
        if place is not None and place not in seen:
            seen.add(place)
            shown += ["", f"::: {place}", "    options:", f"      heading: {name}"]
            shown += [f"      toc_label: {name}", "      heading_level: 3", ""]
        elif text:
            rows.append(f"| `{name}` | {text} |")
        else:
            plain.append(f"`{name}`")
    table = ["", "| name | |", "| --- | --- |", *rows, ""] if rows else []
    return [*shown, *table, *(["", f"And {', '.join(plain)}.", ""] if plain else [])]


def defined_at(thing: object, module: str, attribute: str) -> str | None:
    """Dotted name of the documented `def` or `class` of an object; None if there is none."""
    home = getattr(thing, "__module__", None) or f"vkchi.{module}"
    for place, name in ((home, getattr(thing, "__qualname__", attribute)),
                        (f"vkchi.{module}", attribute)):  # fmt: skip
        if place.startswith("vkchi.") and name in definitions(place):
            return f"{place}.{name}"
    return None


def definitions(module: str) -> set[str]:
    """Names of the module-level functions and classes that have docstrings."""
    path = ROOT / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    kinds = (ast.FunctionDef, ast.ClassDef)
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, kinds) and ast.get_docstring(node)}


def is_own(holder: ModuleType, name: str) -> bool:
    """True for a public name that the module's package defines and that is no module."""
    if name.startswith("_"):
        return False
    thing = getattr(holder, name)
    home = getattr(thing, "__module__", None)
    return isinstance(home, str) and home.startswith(home_of(holder))


def home_of(holder: ModuleType) -> str:
    """The package of a module's own names; for modules of `lang` this is the whole of `lang`."""
    return "vkchi.lang" if holder.__name__.startswith("vkchi.lang") else holder.__name__


def first_line(thing: object) -> str:
    """The first paragraph of a docstring, as one line."""
    own = callable(thing) or isinstance(thing, ModuleType)
    text = (getattr(thing, "__doc__", "") or "") if own else ""
    return " ".join(text.strip().split("\n\n")[0].split()).replace("|", "\\|")
