"""Hooks of mkdocs: the reference of all public names, and pages from outside `docs/`.

The reference has a page per chapter, generated from the table of public names
(`vkchi.public_names`). Names defined by `def` or `class` get their signatures and docstrings by
mkdocstrings, others a table row. Classes show their public members (`vkchi.public_names`). The
page of errors is generated from the golden messages (`error_page`). The gallery links to a page per
example with its program.
CHANGELOG.md and CONTRIBUTING.md become pages unchanged.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import os
import re
from pathlib import Path
from types import ModuleType

from error_page import error_page
from mkdocs.structure.files import File, Files

from vkchi import public_names
from vkchi.cli.example import list_examples, title_of
from vkchi.ir.ops import TABLE
from vkchi.lang.elementwise import INTRINSICS
from vkchi.lang.function import Function
from vkchi.public_names import public_members
from vkchi.tuples import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}


class Chapter(NamedTuple):
    """A page of the reference.

    modules: their names in the table of public names are shown. own: public modules that are shown
    with names of their own, and the defining modules.
    """

    title: str
    modules: tuple[str, ...] = ()
    own: dict[str, str] = {}


CHAPTERS = {
    "start": Chapter("Start and devices", ("runtime", "launch.elsewhere", "logs")),
    "kernels": Chapter("Kernels and functions", (
        "kernel", "lang.compile_time", "lang.ndrange", "lang.argpack")),
    "fields": Chapter("Fields", (
        "fields.constructors", "fields.field", "fields.struct_arrays",
        "fields.trees.fields_builder", "fields.trees.snode", "fields.trees.snode",
        "fields.trees.bitpacked", "lang.sparse_cells")),
    "arrays": Chapter("Arrays and textures", (
        "ndarray", "fields.storage", "fields.tensor_constructors", "texture", "interop.from_dlpack",
        "interop.cuda.pool")),
    "types": Chapter("Types", ("types", "types.formats", "lang.matrix", "lang.struct")),
    "math": Chapter("Mathematical functions", (
        "lang.elementwise", "lang.linear_algebra.decompose", "lang.random"),
        {"ti.math": "lang.math"}),
    "parallel": Chapter("Atomics, workgroups, subgroups", (
        "lang.atomic_functions", "lang.simt.block"),
        {"ti.simt.block": "lang.simt.block", "ti.algorithms": "algorithms"}),
    "gradients": Chapter("Gradients", ("tape.ad",), {"ti.ad": "tape.ad"}),
    "shipping": Chapter("Graphs, modules, torch operators", (
        "graph.record", "aot.loaded", "aot.capabilities", "operators.torch_op",
        "operators.jax_op"),
        {"ti.graph": "graph", "ti.aot": "aot"}),
    "linalg": Chapter("Linear algebra", (
        "linalg.coo_matrix",), {"ti.linalg": "linalg"}),
    "drawing": Chapter("Drawing and files", (
        "gui.gui", "tools.image"), {"ti.tools": "tools", "ti.ui": "ui"}),
    "checks": Chapter("Checks, profiler, errors", (
        "launch.crosscheck", "reports.perf_dispatch", "errors", "compat.core_stubs"),
        {"ti.profiler": "reports.profiler"}),
}  # fmt: skip


def on_config(config, **_):
    """Set the site's address: `SITE_URL`, or `Documentation` of the project's addresses.

    `mkdocs serve` has set its own.
    """
    config.site_url = config.site_url or os.environ.get("SITE_URL") or documentation_address()
    return config


def documentation_address() -> str:
    """Return the address of the documentation in pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.search(r'(?m)^Documentation = "(.*)"', text)[1]


def on_files(files: Files, config, **_) -> Files:
    for name, chapter in CHAPTERS.items():
        page = File.generated(config, f"reference/{name}.md", content=chapter_page(chapter))
        files.append(page)
    files.append(File.generated(config, "errors.md", content=error_page()))
    for name in list_examples():
        files.append(File.generated(config, f"examples/{name}.md", content=example_page(name)))
    return files


def on_page_markdown(markdown: str, page, **_) -> str:
    path = page.file.src_uri
    if path in OUTSIDE:
        text = (ROOT / OUTSIDE[path]).read_text(encoding="utf-8")
        return re.sub(r"\]\(docs/", "](", text)
    if path == "examples.md":
        return re.sub(r"\]\([./\w]*examples/(\w+)\.py\)", r"](examples/\1.md)", markdown)
    return markdown + contents() if path == "reference.md" else markdown


def on_page_content(html: str, page, **_) -> str:
    return html.replace("<img ", '<img loading="lazy" ')


def example_page(name: str) -> str:
    """Picture, command and program of an example."""
    path = list_examples()[name]
    found = sorted((ROOT / "docs" / "pictures").glob(f"{name}.*"))
    picture = [f"![{name}](../pictures/{found[-1].name})", ""] if found else []
    source = path.read_text(encoding="utf-8").rstrip()
    parts = [f"# {name}", "", title_of(path), "", *picture, "```", f"vkchi example {name}", "```"]
    return "\n".join([*parts, "", "```python", source, "```", ""])


def check_every_name_has_a_chapter() -> None:
    known = {module for chapter in CHAPTERS.values() for module in chapter.modules}
    others = {module for module, _ in public_names.read_names().values()} - known
    if others:
        raise SystemExit(f"site_hooks: no chapter of the reference has {sorted(others)}")


def contents() -> str:
    """Table of chapters and their names. Raises SystemExit if a public name has no chapter."""
    check_every_name_has_a_chapter()
    rows = ["", "## Chapters", "", "| chapter | names |", "| --- | --- |"]
    for page, chapter in CHAPTERS.items():
        names = [name for name, *_ in names_of(chapter)]
        names += [f"{module}.*" for module in chapter.own]
        words = ", ".join(f"`{name}`" for name in names)
        rows.append(f"| [{chapter.title}](reference/{page}.md) | {words} |")
    return "\n".join(rows) + "\n"


def names_of(chapter: Chapter) -> list[tuple[str, str, str]]:
    """(public name, module, name in it) of a chapter's names in the table."""
    return [
        (f"ti.{name}", module, attribute)
        for name, (module, attribute) in sorted(public_names.read_names().items())
        if module in chapter.modules
    ]


def chapter_page(chapter: Chapter) -> str:
    """Markdown of a chapter. A name that it has twice is shown once."""
    parts = [f"# {chapter.title}", ""]
    listed = names_of(chapter)
    seen: set[str] = set()
    parts += entries(listed, seen)
    for title, module in chapter.own.items():
        holder = importlib.import_module(f"vkchi.{module}")
        listed = [n for n in getattr(holder, "__all__", ()) if is_own(holder, n)]
        public = listed or [n for n in definitions(holder.__name__) if not n.startswith("_")]
        parts += [f"## {title}", "", first_line(holder), ""]
        parts += entries([(f"{title}.{n}", module, n) for n in sorted(public)], seen)
    return "\n".join(parts) + "\n"


def entries(found: list[tuple[str, str, str]], seen: set[str]) -> list[str]:
    """Markdown of public names: documented ones, a table of others with a docstring, and the rest.

    `seen` collects the documented ones; a repeated one becomes a link.
    """
    shown, rows, plain = [], [], []
    for name, module, attribute in found:
        thing = getattr(importlib.import_module(f"vkchi.{module}"), attribute)
        place, text = defined_at(thing, module, attribute), first_line(thing)
        if place is not None and place not in seen:
            seen.add(place)
            shown += ["", f"::: {place}", "    options:", f"      heading: {name}"]
            shown += [f"      toc_label: {name}", "      heading_level: 3"]
            shown += [*member_options(thing), ""]
        elif place is not None:
            plain.append(f"[`{name}`][{place}]")
        elif text:
            rows.append(f"| `{name}` | {parameters_of(thing)} | {text} |")
        else:
            plain.append(f"`{name}`")
    head = ["", "| name | parameters | |", "| --- | --- | --- |"]
    table = [*head, *rows, ""] if rows else []
    return [*shown, *table, *(["", f"And {', '.join(plain)}.", ""] if plain else [])]


def parameters_of(thing: object) -> str:
    """Parameter list of a function of the language, as Markdown; empty for other objects."""
    if not isinstance(thing, Function):
        return ""
    if thing in INTRINSICS and thing.__name__ in TABLE:
        count = TABLE[thing.__name__].sig.split("->")[0].count(",") + 1
        words = ["x"] if count == 1 else [f"x{k + 1}" for k in range(count)]
    elif thing.python is not None:
        found = inspect.signature(thing.python).parameters.values()
        words = [str(p.replace(annotation=inspect.Parameter.empty)) for p in found]
    else:
        return ""
    return f"`({', '.join(words)})`"


def member_options(thing: object) -> list[str]:
    """Options of mkdocstrings that select the public members of a class."""
    if not isinstance(thing, type):
        return []
    if issubclass(thing, BaseException | enum.Enum):
        return ["      members: false"]
    found = public_members(thing)
    if found is None:
        found = frozenset(
            name for base in thing.__mro__[:-1] for name, value in vars(base).items()
            if not name.startswith("_") and documented(value)
        )  # fmt: skip
    if not found:
        return ["      members: false"]
    names = ", ".join(sorted(found))
    return [f"      members: [{names}]", "      inherited_members: true"]


def documented(value: object) -> bool:
    """True for a function, property or class with a docstring, wrapped or not."""
    value = getattr(value, "__func__", value)
    kinds = inspect.isfunction(value) or isinstance(value, property | type)
    return bool(kinds and getattr(value, "__doc__", None))


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
    """The package of a module's own names: all of `lang` and `tape` for the modules in them."""
    whole = ("vkchi.lang", "vkchi.tape")
    return next((name for name in whole if holder.__name__.startswith(name)), holder.__name__)


def first_line(thing: object) -> str:
    """The first paragraph of a docstring, as one line."""
    own = callable(thing) or isinstance(thing, ModuleType)
    text = (getattr(thing, "__doc__", "") or "") if own else ""
    return " ".join(text.strip().split("\n\n")[0].split()).replace("|", "\\|")
