"""`vkchi cache report --html`: cache entries as one self-contained HTML page.

The template is `report.html.jinja`, by Jinja; Pygments highlights the code. A line's attribute
`data-r` lists its source lines, innermost first. A script highlights all lines of the same source
line as the one under the mouse. The page's content security policy forbids loading anything.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from vkchi.cache.inspection.lookup import SHORT, in_units
from vkchi.cache.inspection.source_links import Line, Linked, Listing
from vkchi.cache.store import CacheEntry
from vkchi.errors import MissingPackageError
from vkchi.tuples import NamedTuple
from vkchi.vk.pipelines import PipelineExecutable

TEMPLATE = "report.html.jinja"
STYLES = ("default", "github-dark")  # of Pygments: light, dark
COLUMNS = ("kernel", "kind", "place", "signature", "device")
NUMBERS = (
    "size",
    "SPIR-V",
    "compiled in",
    "hits",
    "saved",
    "dispatches",
    "on the device",
    "driver",
)


class KernelTiming(NamedTuple):
    """Number of a kernel's dispatches in a profiler trace, and their total seconds."""

    dispatches: int
    seconds: float


Shown = tuple[CacheEntry, Linked]
Highlight = Callable[[str, str], list[str]]  # text, and `python` or `ir`: lines of HTML
Timings = dict[str, KernelTiming]


def read_trace(path: str) -> Timings:
    """Read timings per kernel from a trace of `ti.profiler.export_trace`. Raises OSError,
    ValueError."""
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    found: Timings = {}
    try:
        for event in trace["traceEvents"]:
            name = str(event["name"]).partition(".")[0]
            before = found.get(name, KernelTiming(0, 0.0))
            found[name] = KernelTiming(
                before.dispatches + 1, before.seconds + 1e-6 * float(event["dur"])
            )
    except (TypeError, LookupError):
        raise ValueError("it is no trace") from None
    return found


def page(
    entries: Sequence[CacheEntry], details: Sequence[Shown], timings: Timings, title: str
) -> str:
    """Return the HTML page: a table of `entries`, then a section for each of `details`.

    Raises MissingPackageError without Jinja or Pygments.
    """
    try:
        import jinja2
        import pygments  # noqa: F401
    except ImportError:
        raise MissingPackageError(
            'the report needs Jinja and Pygments, which are not installed: pip install "vkchi[cli]"'
        ) from None
    folder = jinja2.FileSystemLoader(os.path.dirname(__file__))
    made = jinja2.Environment(loader=folder, autoescape=True, trim_blocks=True)
    highlight, colours = highlighter()
    shown = {e.key for e, _ in details}
    return str(
        made.get_template(TEMPLATE).render(
            title=title, colours=colours, columns=COLUMNS, numbers=NUMBERS,
            rows=[row_of(entry, entry.key in shown, timings) for entry in entries],
            details=[detail(entry, linked, highlight) for entry, linked in details],
        )
    )  # fmt: skip


def row_of(entry: CacheEntry, is_shown: bool, timings: Timings) -> dict[str, Any]:
    head, short = entry.header, entry.key[:SHORT]
    return {
        "short": short, "is_shown": is_shown, "name": head.get("name") or short,
        "texts": [head.get(c, "") for c in COLUMNS[1:]], "numbers": numbers_of(entry, timings),
    }  # fmt: skip


def numbers_of(entry: CacheEntry, timings: Timings) -> list[str]:
    head = entry.header
    seconds = float(head.get("seconds", 0))
    name = str(head.get("name", "")).rpartition(".")[2]
    timing = timings.get(name) if head.get("kind") == "kernel" else None
    return [
        in_units(entry.size_bytes), in_units(int(head.get("spirv_bytes", 0))),
        f"{1e3 * seconds:.1f} ms" if seconds else "", str(entry.hits),
        f"{1e3 * seconds * entry.hits:.0f} ms" if seconds else "",
        str(timing.dispatches) if timing else "",
        f"{1e3 * timing.seconds:.3f} ms" if timing else "",
        "; ".join(statistics_of(head)),
    ]  # fmt: skip


def statistics_of(header: dict[str, Any]) -> list[str]:
    answer = header.get("driver")
    rows = answer.get("statistics", []) if isinstance(answer, dict) else []
    found = [PipelineExecutable("", 0, row, {}).common() for row in rows if isinstance(row, dict)]
    return [", ".join(f"{name} {n}" for name, n in row.items()) for row in found if row]


def detail(entry: CacheEntry, linked: Linked, highlight: Highlight) -> dict[str, Any]:
    """Source, IR and SPIR-V of one entry, and the parts of its key, for the template."""
    head = entry.header

    def block(lines: Sequence[Line], language: str) -> list[dict[str, Any]]:
        texts = highlight("\n".join(line.text for line in lines), language) if lines else []
        return [
            {"refs": " ".join(line.refs), "html": text}
            for line, text in zip(lines, texts, strict=True)
        ]

    def parts(listings: Sequence[Listing], language: str) -> list[dict[str, Any]]:
        return [{"title": part.title, "lines": block(part.lines, language)} for part in listings]

    return {
        "short": entry.key[:SHORT], "name": head.get("name", ""), "kind": head.get("kind", ""),
        "is_linked": linked.is_linked, "parts": dict(head.get("parts", {})),
        "sources": parts(linked.sources, "python"), "ir": block(linked.ir, "ir"),
        "shaders": parts(linked.shaders, "ir"),
    }  # fmt: skip


def highlighter() -> tuple[Highlight, str]:
    """Return a function that highlights code, and the style sheet of its classes."""
    from pygments.formatters import HtmlFormatter
    from pygments.lexer import RegexLexer
    from pygments.lexers import PythonLexer
    from pygments.token import Comment, Keyword, Name, Number, String, Text

    rules = [
        (r"^;.*", Comment),
        (r'"[^"\n]*"', String),
        (r"(?<!\w)[%@][\w.$]+", Name.Variable),
        (r"\b(bool|[fiu]\d+)\b", Keyword.Type),
        (r"\bOp\w+|(?<== )[a-z]\w*", Keyword),
        (r"\b\d[\w.]*", Number),
        (r"\w+|\s+|.", Text),
    ]
    ir_lexer = type("IrLexer", (RegexLexer,), {"tokens": {"root": rules}})
    lexers = {"python": PythonLexer(), "ir": ir_lexer()}
    formatter = HtmlFormatter(nowrap=True)

    def highlight(text: str, language: str) -> list[str]:
        found = lexers[language].get_tokens_unprocessed(text)
        out = io.StringIO()
        formatter.format(((kind, value) for _, kind, value in found), out)
        lines = out.getvalue().split("\n")
        return lines[: text.count("\n") + 1]

    rows = [HtmlFormatter(style=name).get_token_style_defs("pre") for name in STYLES]
    light, dark = ("\n".join(lines) for lines in rows)
    return highlight, f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"
