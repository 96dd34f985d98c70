"""The compiler's version, on which compiled code depends: a digest of its own sources.

Must not know: what is compiled.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import cache

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
IMPORTED = time.time() - 1  # s; modules that were imported before this one count as well
APART = ("tools", "__pycache__")  # folders that no compiled code depends on


@cache
def compiler_version() -> str:
    """SHA-256 over all sources of the package, by their names; 10 ms, once. Empty where they are
    not there to be read, as in an archive: then nothing may be kept."""
    try:
        return "" if is_changed(PACKAGE, IMPORTED) else digest_of(PACKAGE)
    except OSError:
        return ""


def digest_of(package: str) -> str:
    """SHA-256 over the sources in a folder; empty if there are none. Raises OSError."""
    import hashlib  # not before there is a cache

    found, count = hashlib.sha256(), 0
    for path in sources_in(package):
        with open(path, "rb") as source:
            text = source.read()
        found.update(f"{os.path.relpath(path, package)}\0{len(text)}\0".encode())
        found.update(text)
        count += 1
    return found.hexdigest() if count else ""


def sources_in(package: str) -> Iterator[str]:
    """The files that compiled code depends on, in order."""
    for folder, folders, files in os.walk(package):
        folders[:] = sorted(name for name in folders if name not in APART)
        yield from (os.path.join(folder, name) for name in sorted(files) if name.endswith(".py"))


def is_changed(package: str = PACKAGE, since: float = IMPORTED) -> bool:
    """Whether sources were written since a time: what runs may then be other than what stands
    there, and what it makes must not be kept under their version. 3 ms."""
    try:
        return any(changed_at(os.stat(path)) > since for path in sources_in(package))
    except OSError:
        return True


def changed_at(info: os.stat_result) -> float:
    """When a file was last written, or came to stand there. Of Windows, the latter is not told."""
    return max(info.st_mtime, info.st_ctime) if os.name == "nt" else info.st_ctime
