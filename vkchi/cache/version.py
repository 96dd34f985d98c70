"""The compiler's version, on which compiled code depends: a digest of its own sources.

Reading them all takes 10 ms. So a cache folder keeps a note of the version next to a digest of the
files' sizes, numbers and times: a process that finds these unchanged reads none. No note is made of
files that changed just now, whose times might not tell another change.

Must not know: what is compiled.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import cache
from typing import Protocol

from vkchi.interrupts.local import local

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
IMPORTED = time.time() - 1  # s; modules that were imported before this one count as well
APART = ("tools", "__pycache__")  # folders that no compiled code depends on
NOTE = "compiler"
JUST_NOW_S = 2.0


class Notes(Protocol):
    """Where a short text is kept by name, or not."""

    def note(self, name: str) -> str:
        """The text; empty where there is none."""

    def leave_note(self, name: str, text: str) -> None:
        """Keep a text."""


@cache
def compiler_version() -> str:
    """SHA-256 over all sources of the package, by their names; 10 ms, once. Empty where they are
    not there to be read, as in an archive: then nothing may be kept."""
    try:
        return "" if is_changed(PACKAGE, IMPORTED) else digest_of(PACKAGE)
    except local(OSError):
        return ""


def noted_version(notes: Notes, package: str = PACKAGE, since: float = IMPORTED) -> str:
    """The same, as a note says it where there is one of these sources; 2 ms. Empty too where
    sources were written since a time."""
    try:
        state, newest = state_of(package)
        if newest > since:
            return ""
        noted_state, _, version = notes.note(NOTE).partition(" ")
        if noted_state == state and len(version) == len(state):
            return version
        version = digest_of(package)
        if version and newest < time.time() - JUST_NOW_S and state_of(package)[0] == state:
            notes.leave_note(NOTE, f"{state} {version}")
    except local(OSError):
        return ""
    return version


def state_of(package: str) -> tuple[str, float]:
    """A digest of what the file system tells of the sources in a folder, and when the last of them
    was written. Raises OSError."""
    from vkchi.cache.store import digest  # not before there is a cache

    rows, newest = [package], 0.0
    for path, info in sources_in(package):
        rows.append(f"{path} {info.st_size} {info.st_mtime_ns} {info.st_ctime_ns} {info.st_ino}")
        newest = max(newest, changed_at(info))
    return digest(["\0".join(rows).encode()]), newest


def digest_of(package: str) -> str:
    """SHA-256 over the sources in a folder; empty if there are none. Raises OSError."""
    import hashlib  # not before there is a cache

    found, count = hashlib.sha256(), 0
    for path, _ in sources_in(package):
        with open(path, "rb") as source:
            text = source.read()
        found.update(f"{os.path.relpath(path, package)}\0{len(text)}\0".encode())
        found.update(text)
        count += 1
    return found.hexdigest() if count else ""


def sources_in(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """The files that compiled code depends on, in order, and what is known of each. Raises
    OSError."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.name.endswith(".py"):
            yield entry.path, entry.stat()
        elif entry.name not in APART and entry.is_dir():  # links too: what they lead to runs
            yield from sources_in(entry.path)


def is_changed(package: str = PACKAGE, since: float = IMPORTED) -> bool:
    """Whether sources were written since a time: what runs may then be other than what stands
    there, and what it makes must not be kept under their version. 1 ms."""
    try:
        return any(changed_at(info) > since for _, info in sources_in(package))
    except local(OSError):
        return True


def changed_at(info: os.stat_result) -> float:
    """When a file was last written, or came to stand there. Of Windows, the latter is not told."""
    return max(info.st_mtime, info.st_ctime) if os.name == "nt" else info.st_ctime
