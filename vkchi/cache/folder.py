"""Location of the cache: `shaders_cache/` in a source checkout, else the user's cache folder."""

from __future__ import annotations

import os

from vkchi import env, platform
from vkchi.interrupts.local import is_file


def find_folder(given: str | os.PathLike[str] | None = None) -> str:
    """Return the given folder, VKCHI_CACHE_DIR, or the default one. It may not exist yet."""
    chosen = given or env.flag("VKCHI_CACHE_DIR")
    if chosen:
        return os.path.abspath(os.path.expanduser(os.fspath(chosen)))
    checkout = find_checkout()
    if checkout:
        return os.path.join(checkout, "shaders_cache")
    return os.path.join(platform.find_cache_folder(), "vkchi")


def find_checkout() -> str:
    """Return the source checkout that this package runs from, or ""."""
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return folder if is_file(os.path.join(folder, "pyproject.toml")) else ""
