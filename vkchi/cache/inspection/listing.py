"""Rows of cache entries for `vkchi cache ls`, and formats of sizes and durations.

>>> row_of(entry)[:6]
('3f9c1b2a4d5e', 'kernel', 'step', '12.3 KiB', '4', '2 h')
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from vkchi.cache.store import CacheEntry

SHORT = 12  # printed characters of a key
COLUMNS = ("key", "kind", "kernel", "size", "hits", "age", "device", "place", "signature")
SORTS: dict[str, Callable[[CacheEntry], Any]] = {
    "name": lambda e: (str(e.header.get("name", "")), e.key),
    "size": lambda e: -e.size_bytes,
    "hits": lambda e: -e.hits,
    "age": lambda e: -e.written,
    "used": lambda e: -e.used,
}


def select(entries: Iterable[CacheEntry], name: str, kind: str, device: str) -> list[CacheEntry]:
    """Return the entries of kind `kind` whose name matches the pattern `name` and whose device
    contains `device`, ignoring case. An empty kind or device matches all."""
    return [
        e
        for e in entries
        if (not kind or e.header.get("kind") == kind)
        and device.lower() in str(e.header.get("device", "")).lower()
        and fnmatch.fnmatchcase(str(e.header.get("name", "")), name)
    ]


def print_table(entries: Sequence[CacheEntry], *, is_bold: bool) -> None:
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
    """Escape the characters of `text` that are not printable, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def as_row(entry: CacheEntry) -> dict[str, Any]:
    own = {"key": entry.key, "size_bytes": entry.size_bytes, "hits": entry.hits}
    times = {"written": entry.written, "used": entry.used}
    return {**entry.header, **own, **times}


def in_units(size_bytes: int) -> str:
    size, units = float(size_bytes), iter(("B", "KiB", "MiB", "GiB"))
    unit = next(units)
    while size >= 1024 and unit != "GiB":
        size, unit = size / 1024, next(units)
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def in_time(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
