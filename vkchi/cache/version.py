"""The compiler's version, on which compiled code depends: a digest of its own sources.

Must not know: what is compiled.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
APART = ("tools", "__pycache__")  # folders that no compiled code depends on


@cache
def compiler_version() -> str:
    """SHA-256 over all sources of the package, by their names; 10 ms, once. Empty where they are
    not there to be read, as in an archive: then nothing may be kept."""
    try:
        return digest_of(PACKAGE)
    except OSError:
        return ""


def digest_of(package: str) -> str:
    """SHA-256 over the sources in a folder; empty if there are none. Raises OSError."""
    found, count = hashlib.sha256(), 0
    for folder, folders, files in os.walk(package):
        folders[:] = sorted(name for name in folders if name not in APART)
        for name in sorted(files):
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                with open(path, "rb") as source:
                    text = source.read()
                found.update(f"{os.path.relpath(path, package)}\0{len(text)}\0".encode())
                found.update(text)
                count += 1
    return found.hexdigest() if count else ""
