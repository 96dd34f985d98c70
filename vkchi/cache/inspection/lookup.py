"""Lookup of cache entries by key prefix, kernel or name, and rows about them, for `vkchi cache`.

Example:

    >>> lookup.by_key(store, "3f9")
    Missing: no entries have a key that begins with '3f9'
"""

from __future__ import annotations

import fnmatch
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vkchi import platform
from vkchi.cache.store import CacheEntry, CacheStore, Damaged, read_entry
from vkchi.cache.version import compiler_version
from vkchi.errors import CompilationError, VkchiError
from vkchi.interrupts.local import local

if TYPE_CHECKING:
    from vkchi.cache.inspection.source_links import Linked
    from vkchi.target.artifact import Artifact


SHORT = 12  # printed characters of a key
SPIRV_VAL = ("spirv-val", "--target-env", "vulkan1.3", "--scalar-block-layout", "-")
ANSWERS = "answers"
# Kinds of entries without IR, and their contents.
WITHOUT_TEXT = {"pipelines": "what a driver compiled", ANSWERS: "what was found out of a kernel"}


SOURCE = "source of "  # parts of keys of this name depend on a function's source
DEFINITION = re.compile(r"^\s*def\s+(\w+)", re.MULTILINE)


class Missing(VkchiError):
    """Error: an entry or file that a cache tool needs is missing or unusable."""


class OtherVersion(Missing):
    """Error: an entry was written by another version of vkchi and cannot be decoded."""


def unreadable(header: Mapping[str, object], key: str, fault: Exception) -> Missing:
    """Return the error for an intact entry that cannot be decoded. It is OtherVersion if the
    entry's version is not the running one, else Missing."""
    if header.get("version") != compiler_version():
        return OtherVersion(f"{key[:SHORT]} is of another version of vkchi, and in its form")
    return Missing(f"{key[:SHORT]} cannot be read: {fault}")


# --- selection of entries ------------------------------------------------------------------------


def by_key(store: CacheStore, key: str) -> CacheEntry:
    """Return the entry whose key begins with `key`. Raises Missing if `key` is empty, not exactly
    one key begins with it, or the entry's header is unreadable."""
    keys = store.keys() if key else []
    found = [k for k in keys if k.startswith(key)]
    if len(found) != 1:
        raise Missing(f"{len(found) or 'no'} entries have a key that begins with {key!r}")
    try:
        return store.entry(found[0])
    except local(OSError, Damaged) as e:
        raise Missing(f"{key}: {e}") from None


def by_kernel(store: CacheStore, what: str) -> list[CacheEntry]:
    """Return the entries of `FILE.py:kernel`, of kind `kernel`, newest first. Raises Missing if
    there are none. Only the last component of a dotted kernel name is compared."""
    file, _, name = what.rpartition(":")
    found = [
        e
        for e in store.entries()
        if e.header.get("kind") == "kernel"
        and str(e.header.get("name", "")).rpartition(".")[2] == name.rpartition(".")[2]
        and platform.is_same_file(str(e.header.get("place", "")).rpartition(":")[0], file)
    ]
    if not found:
        raise Missing(
            f"the cache has no kernel {name} of {file}: see `vkchi cache ls`; a kernel that "
            "depends on what has no digest (docs/cache.md) has only its shaders there"
        )
    return sorted(found, key=lambda e: -e.written)


def by_name(
    store: CacheStore, *names: str, kind: str = "", device: str = ""
) -> Iterator[CacheEntry]:
    """Yield the entries whose kernel name matches one of these patterns (`*` and `?` are
    wildcards).

    If given, `kind` is that of the entries, and `device` a part of their device, ignoring case.
    """
    for entry in store.entries():
        head = entry.header
        is_named = any(fnmatch.fnmatchcase(str(head.get("name", "")), name) for name in names)
        is_of_device = device.lower() in str(head.get("device", "")).lower()
        if is_named and is_of_device and (not kind or head.get("kind") == kind):
            yield entry


def newest(store: CacheStore, name: str) -> list[CacheEntry]:
    """Return the entries with IR whose kernel name matches a pattern, newest first."""
    found = [e for e in by_name(store, name) if e.header.get("kind") not in WITHOUT_TEXT]
    return sorted(found, key=lambda e: (-e.written, e.key))


# --- entry bodies --------------------------------------------------------------------------------


def body_of(store: CacheStore, entry: CacheEntry) -> bytes:
    """Return an entry's body. Raises Missing if it is damaged or cannot be read."""
    try:
        return read_entry(store.path_of(entry.key))[1]
    except local(OSError, Damaged) as e:
        raise Missing(f"{entry.key[:SHORT]} is damaged: {e}") from None


def artifact_of(entry: CacheEntry, body: bytes) -> Artifact:
    """Decode an entry's artifact. Raises Missing if that fails."""
    from vkchi.cache.inspection.source_links import open_body

    try:
        return open_body(entry.header, body)[0]
    except local(ValueError) as e:
        raise unreadable(entry.header, entry.key, e) from None


def answers_of(entry: CacheEntry, body: bytes) -> list[str]:
    """Return a line for each memoized analysis result in an entry. Raises Missing if it cannot be
    decoded."""
    from vkchi.cache.query_cache import lines_of

    try:
        return list(lines_of(body))
    except local(ValueError) as e:
        raise unreadable(entry.header, entry.key, e) from None


def artifacts_in(header: Mapping[str, object], body: bytes) -> list[Artifact]:
    """Decode all artifacts of an entry; return [] for driver pipelines. Raises Malformed."""
    if header.get("kind") not in WITHOUT_TEXT:
        from vkchi.cache.inspection.source_links import open_body

        return [open_body(header, body)[0]]
    if header["kind"] != ANSWERS:
        return []
    from vkchi.cache.query_cache import artifacts_in

    return artifacts_in(body)


def linked_of(entry: CacheEntry, body: bytes) -> Linked:
    """Return an entry's source, IR and SPIR-V with links between their lines. Raises Missing if it
    cannot be decoded."""
    from vkchi.cache.codec import Malformed
    from vkchi.cache.inspection.source_links import link

    try:
        return link(entry.header, body)
    except local(Malformed, ValueError, LookupError, CompilationError) as e:
        raise unreadable(entry.header, entry.key, e) from None


def fault_in(store: CacheStore, key: str, *, validates: bool) -> str:
    """Return a description of an entry's fault, or "".

    `validates`: also run spirv-val, which must be installed. Raises OtherVersion for an intact
    entry of another version that cannot be decoded.
    """
    from vkchi.cache.codec import Malformed

    try:
        header, body = read_entry(store.path_of(key))
        if header.get("key") != key:
            return "it is another entry under its name"
    except local(OSError, Damaged) as e:
        return str(e)
    try:
        made = artifacts_in(header, body)
    except Malformed as e:
        error = unreadable(header, key, e)
        if isinstance(error, OtherVersion):
            raise error from None
        return str(e)
    for dispatch in (d for one in made for d in one.dispatches if validates):
        words = dispatch.shader.words
        done = subprocess.run(SPIRV_VAL, input=words, capture_output=True, check=False)
        if done.returncode:
            return f"spirv-val: {(done.stdout + done.stderr).decode(errors='replace').strip()}"
    return ""


# --- parts of keys -------------------------------------------------------------------------------


def parts_of(entry: CacheEntry) -> dict[str, str]:
    found = entry.header.get("parts", {})
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def differing(old: CacheEntry, new: CacheEntry) -> Iterator[tuple[str, str, str]]:
    """Yield the differing parts of two keys: (name, old value, new value). An absent value is `(not
    there)`."""
    a, b = parts_of(old), parts_of(new)
    for name in {**a, **b}:
        if a.get(name) != b.get(name):
            yield name, a.get(name, "(not there)"), b.get(name, "(not there)")


def sources_of(store: CacheStore, entry: CacheEntry) -> dict[str, str]:
    """Return the sources of a kernel entry's functions, by the name of the key's part for each
    source.

    Lambdas have none. The result is empty for an entry of another kind, or that cannot be decoded.
    """
    if entry.header.get("kind") != "kernel":
        return {}
    from vkchi.cache.inspection.source_links import open_body

    try:
        sources = open_body(entry.header, body_of(store, entry))[1]
    except local(Missing, ValueError):
        return {}
    named: dict[str, list[str]] = {}
    for _, _, text in sources:
        found = DEFINITION.search(text)
        if found:
            named.setdefault(found[1], []).append(text)
    texts = {}
    for part in parts_of(entry):  # functions of the same name are in the order of their parts
        name = part.rstrip("'").rpartition(".")[2].rpartition(" ")[2]
        if part.startswith(SOURCE) and named.get(name):
            texts[part] = named[name].pop(0)
    return texts


# --- rows of entries ------------------------------------------------------------------------------

COLUMNS = ("key", "kind", "kernel", "size", "hits", "age", "device", "place", "signature")
SORTS: dict[str, Callable[[CacheEntry], Any]] = {
    "name": lambda e: (str(e.header.get("name", "")), e.key),
    "size": lambda e: -e.size_bytes,
    "hits": lambda e: -e.hits,
    "age": lambda e: -e.written,
    "used": lambda e: -e.used,
}


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
