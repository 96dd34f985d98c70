"""`vkchi cache report --html`: cache entries as one self-contained HTML page.

A line's attribute `data-r` lists its source lines, innermost first. A script highlights all lines
of the same source line as the one under the mouse. The page's content security policy forbids
loading anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from vkchi.cache.listing import SHORT, in_units
from vkchi.cache.source_links import Line, Linked
from vkchi.cache.store import CacheEntry
from vkchi.tuples import NamedTuple
from vkchi.vk.statistics import PipelineExecutable

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; --line: #8884; --on: #ffd54f88; --pin: #ff9800; }
body { font: 14px system-ui, sans-serif; margin: 1.5rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1rem; margin: 0 0 .3rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { text-align: left; padding: .15rem .7rem .15rem 0; border-bottom: 1px solid var(--line); }
td.n, th.n { text-align: right; } td.n { white-space: nowrap; }
summary { cursor: pointer; padding: .3rem 0; font-weight: 600; }
.all { display: grid; grid-template-columns: 1fr 1fr 1fr; gap: 1rem; }
.all > div { min-width: 0; }
pre { font: 12px/1.45 ui-monospace, monospace; margin: 0 0 1rem; overflow: auto; max-height: 75vh;
  border: 1px solid var(--line); padding: .3rem 0; }
pre > span { display: block; min-width: max-content; padding: 0 .5rem; white-space: pre; }
pre > span:empty::before { content: " "; }
[data-r] { cursor: pointer; }
.on { background: var(--on); } .pin { box-shadow: inset 3px 0 var(--pin); }
.parts td { font: 12px ui-monospace, monospace; }
"""
SCRIPT = """
"use strict";
let pinned = null;
function peers(line) {
  const first = line.dataset.r.split(" ")[0];
  return line.closest("details").querySelectorAll(`[data-r~="${first}"]`);
}
function mark(line, name) {
  for (const old of document.querySelectorAll("." + name)) old.classList.remove(name);
  if (line) for (const found of peers(line)) found.classList.add(name);
}
function lineAt(event) { return event.target.closest ? event.target.closest("[data-r]") : null; }
document.addEventListener("mouseover", event => mark(lineAt(event) || pinned, "on"));
document.addEventListener("click", event => {
  const line = lineAt(event);
  if (!line) return;
  pinned = pinned === line ? null : line;
  mark(pinned, "pin");
  mark(pinned, "on");
  if (!pinned) return;
  const seen = new Set([line.closest("pre")]);
  for (const found of peers(line)) {
    const box = found.closest("pre");
    if (!seen.has(box)) box.scrollTop = found.offsetTop - box.offsetTop - box.clientHeight / 3;
    seen.add(box);
  }
});
addEventListener("hashchange", open_named);
function open_named() {
  const found = document.getElementById(location.hash.slice(1));
  if (found && found.tagName === "DETAILS") found.open = true;
}
open_named();
"""
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
    """Return the HTML page: a table of `entries`, then a section for each of `details`."""
    body = [f"<h1>{escape(title)}</h1>", *table(entries, {e.key for e, _ in details}, timings)]
    for entry, linked in details:
        body += detail(entry, linked)
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        *body, f"<script>{SCRIPT}</script></body></html>\n",
    ])  # fmt: skip


def table(entries: Sequence[CacheEntry], shown: set[str], timings: Timings) -> Iterator[str]:
    heads = [f"<th>{name}</th>" for name in COLUMNS]
    heads += [f'<th class="n">{name}</th>' for name in NUMBERS]
    yield f"<table><thead><tr>{''.join(heads)}</tr></thead><tbody>"
    for entry in entries:
        head = entry.header
        name = escape(str(head.get("name") or entry.key[:SHORT]))
        link = f'<a href="#k{entry.key[:SHORT]}">{name}</a>' if entry.key in shown else name
        texts = [link, *(escape(str(head.get(c, ""))) for c in COLUMNS[1:])]
        cells = [f"<td>{text}</td>" for text in texts]
        cells += [f'<td class="n">{escape(text)}</td>' for text in numbers_of(entry, timings)]
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table>"


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


def detail(entry: CacheEntry, linked: Linked) -> Iterator[str]:
    """Yield source, IR and SPIR-V of one entry as HTML, side by side, then the parts of its key."""
    name = escape(str(entry.header.get("name", "")))
    kind = escape(str(entry.header.get("kind", "")))
    short = entry.key[:SHORT]
    yield f'<details id="k{short}"><summary>{name} <small>{kind} {short}</small></summary>'
    if not linked.is_linked:
        yield "<p>Made by another version: instructions are not linked.</p>"
    yield '<div class="all"><div class="source"><h2>source</h2>'
    for part in linked.sources:
        yield f"<h2>{escape(part.title)}</h2>{block(part.lines)}"
    yield f'</div><div class="ir"><h2>IR</h2>{block(linked.ir)}</div><div class="spirv">'
    for part in linked.shaders:
        yield f"<h2>{escape(part.title)}</h2>{block(part.lines)}"
    yield '</div></div><details><summary>key</summary><table class="parts">'
    for part_name, value in dict(entry.header.get("parts", {})).items():
        yield f"<tr><td>{escape(str(part_name))}</td><td>{escape(str(value))}</td></tr>"
    yield "</table></details></details>"


def block(lines: Sequence[Line]) -> str:
    rows = []
    for line in lines:
        of = f' data-r="{escape(" ".join(line.refs))}"' if line.refs else ""
        rows.append(f"<span{of}>{escape(line.text)}</span>")
    return f"<pre>{''.join(rows)}</pre>"
