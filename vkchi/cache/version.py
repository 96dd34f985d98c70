"""The compiler's version, on which compiled code depends: a digest of its own sources.

Must not know: what is compiled.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
APART = ("tools", "gui", "__pycache__")  # folders that no compiled code depends on


@cache
def compiler_version() -> str:
    """SHA-256 over all sources of the package, by their names; 10 ms, once."""
    found = hashlib.sha256()
    for folder, folders, files in os.walk(PACKAGE):
        folders[:] = sorted(name for name in folders if name not in APART)
        for name in sorted(files):
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                with open(path, "rb") as source:
                    text = source.read()
                found.update(f"{os.path.relpath(path, PACKAGE)}\0{len(text)}\0".encode())
                found.update(text)
    return found.hexdigest()
