"""`vkchi cache ls`: list cache entries.

It imports neither typer, rich nor the compiler, which take longer to load than a thousand entries
take to read.

    $ vkchi cache ls 'step*' --sort hits
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from vkchi.cache.folder import find_folder
from vkchi.cache.store import CacheEntry, CacheStore

VERB = "ls"
SHORT = 12  # printed characters of a key
COLUMNS = ("key", "kind", "kernel", "size", "hits", "age", "device", "place", "signature")
SORTS: dict[str, Callable[[CacheEntry], Any]] = {
    "name": lambda e: (str(e.header.get("name", "")), e.key),
    "size": lambda e: -e.size_bytes,
    "hits": lambda e: -e.hits,
    "age": lambda e: -e.written,
    "used": lambda e: -e.used,
}
WITH_VALUE = ("--folder",)  # options before the command that take a value


def verb_of(argv: Sequence[str]) -> str:
    """Return the command word of a `vkchi cache` command line, or ""."""
    words = iter(argv)
    for word in words:
        if word in WITH_VALUE:
            next(words, "")
        elif not word.startswith("-"):
            return word
    return ""


def main(argv: Sequence[str]) -> int:
    """List entries; return the exit status. `argv` is a `vkchi cache` command line with this
    command."""
    try:
        given = parser().parse_args(list(argv))
    except SystemExit as e:  # argparse has printed the reason
        return e.code if isinstance(e.code, int) else 2
    found = [
        e for e in CacheStore(find_folder(given.folder or None)).entries() if is_meant(e, given)
    ]
    found.sort(key=SORTS[given.sort])
    if given.as_json:
        print(json.dumps([as_row(e) for e in found], indent=1))
    else:
        print_table(found, is_bold=given.color and is_terminal())
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="vkchi cache ls", description="List entries.")
    made.add_argument("--folder", default="", help="the folder, if not the usual one")
    made.add_argument("--color", action=argparse.BooleanOptionalAction, default=True)
    made.add_argument("verb", choices=[VERB], help=argparse.SUPPRESS)
    made.add_argument("name", nargs="?", default="*", help="kernels; * and ? stand for any")
    made.add_argument("--kind", default="", help="kernel, shaders, answers or pipelines")
    made.add_argument("--device", default="", help="of devices with this in their names")
    made.add_argument("--sort", default="name", choices=list(SORTS))
    made.add_argument("--json", action="store_true", dest="as_json", help="one JSON array")
    return made


def is_terminal() -> bool:
    """True if stdout is a terminal with colours."""
    if sys.stdout is None or not sys.stdout.isatty():
        return False
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_meant(entry: CacheEntry, given: argparse.Namespace) -> bool:
    """True if the entry matches the filters."""
    head = entry.header
    is_of_kind = not given.kind or head.get("kind") == given.kind
    is_there = given.device.lower() in str(head.get("device", "")).lower()
    return is_of_kind and is_there and fnmatch.fnmatchcase(str(head.get("name", "")), given.name)


def print_table(entries: Sequence[CacheEntry], *, is_bold: bool) -> None:
    """Print one line per entry, under a header line."""
    rows = [COLUMNS, *map(row_of, entries)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    if is_bold:
        lines[0] = f"\x1b[1m{lines[0]}\x1b[0m"
    print("\n".join(lines))


def row_of(entry: CacheEntry) -> tuple[str, ...]:
    head = entry.header
    kind, name, *rest = (
        printable(str(head.get(field) or ""))
        for field in ("kind", "name", "device", "place", "signature")
    )
    numbers = (in_units(entry.size_bytes), str(entry.hits), in_time(time.time() - entry.written))
    return (entry.key[:SHORT], kind, name, *numbers, *rest)


def printable(text: str, keep: str = "") -> str:
    """Escape characters that are not printable, except those in `keep`.

    File names and entries may come from others, so control sequences must not reach the terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def as_row(entry: CacheEntry) -> dict[str, Any]:
    """Return the JSON object of an entry."""
    own = {"key": entry.key, "size_bytes": entry.size_bytes, "hits": entry.hits}
    times = {"written": entry.written, "used": entry.used}
    return {**entry.header, **own, **times}


def in_units(size_bytes: int) -> str:
    """Format a size in bytes."""
    size, units = float(size_bytes), iter(("B", "KiB", "MiB", "GiB"))
    unit = next(units)
    while size >= 1024 and unit != "GiB":
        size, unit = size / 1024, next(units)
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def in_time(seconds: float) -> str:
    """Format a duration."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
