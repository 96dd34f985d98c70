"""The compiler's version, part of all cache keys: a digest of its own Python sources.

The cache folder keeps a note: the version, with a digest of the files' sizes, inodes and
timestamps. A process that finds these unchanged reads no sources. No note is written within
JUST_NOW_S of a change, since timestamps might not reveal another one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from vkchi import platform
from vkchi.interrupts.local import local

if TYPE_CHECKING:
    from vkchi.cache.store import CacheStore

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
IMPORTED = time.time() - 1  # s; minus 1 for modules imported before this one
APART = ("tools", "__pycache__")  # folders that do not affect compiled code
NOTE = "compiler"
JUST_NOW_S = 2.0


@cache
def compiler_version() -> str:
    """Return the SHA-256 of the package's sources (`sources_in`), memoized. "" if the sources are
    unavailable, as in an archive, or changed since import. Nothing may be cached then."""
    try:
        return "" if is_changed(PACKAGE, IMPORTED) else digest_of(PACKAGE)
    except local(OSError):
        return ""


def noted_version(store: CacheStore, package: str = PACKAGE, since: float = IMPORTED) -> str:
    """Return the version, from a note if the sources are unchanged since it was written, else from
    the sources.

    The latter may leave a new note. "" if sources changed after `since`, are unavailable, or an
    error occurred.
    """
    try:
        state, newest = state_of(package)
        if newest > since:
            return ""
        noted_state, _, version = store.note(NOTE).partition(" ")
        if noted_state == state and len(version) == len(state):
            return version
        version = digest_of(package)
        if version and newest < time.time() - JUST_NOW_S and state_of(package)[0] == state:
            store.leave_note(NOTE, f"{state} {version}")
    except local(OSError):
        return ""
    except local(Exception) as e:  # the cache never stops a program
        store.warn(f"{package} cannot be read: {type(e).__name__}: {e}")
        return ""
    return version


def state_of(package: str) -> tuple[str, float]:
    """Return a digest of the sources' file status, and the latest change time. Raises OSError."""
    from vkchi.cache.store import digest  # lazy: only with a cache

    rows, newest = [package], 0.0
    for path, info in sources_in(package):
        rows.append(f"{path} {info.st_size} {info.st_mtime_ns} {info.st_ctime_ns} {info.st_ino}")
        newest = max(newest, platform.changed_at(info))
    return digest(["\0".join(rows).encode()]), newest


def digest_of(package: str) -> str:
    """Return the SHA-256 of the sources in a folder; "" if there are none. Raises OSError."""
    import hashlib  # lazy: only with a cache

    found, count = hashlib.sha256(), 0
    for path, _ in sources_in(package):
        with open(path, "rb") as source:
            text = source.read()
        found.update(f"{os.path.relpath(path, package)}\0{len(text)}\0".encode())
        found.update(text)
        count += 1
    return found.hexdigest() if count else ""


def sources_in(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield path and status of the Python sources under a folder, except those in folders of APART.
    Each folder is sorted by name. Raises OSError."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.name.endswith(".py"):
            yield entry.path, entry.stat()
        elif entry.name not in APART and entry.is_dir():  # links too: their targets are imported
            yield from sources_in(entry.path)


def is_changed(package: str = PACKAGE, since: float = IMPORTED) -> bool:
    """True if sources changed after `since` or are unavailable. The running code may then differ
    from the sources, so its results must not be cached."""
    try:
        return any(platform.changed_at(info) > since for _, info in sources_in(package))
    except local(OSError):
        return True
