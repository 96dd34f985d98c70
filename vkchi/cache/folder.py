"""Location of the cache folder.

It is VKCHI_CACHE_DIR if set, else `shaders_cache/` in a source checkout, else in the user's cache
folder.
"""

from __future__ import annotations

import os

from vkchi import env, platform
from vkchi.interrupts.local import is_file


def find_folder(given: str | os.PathLike[str] | None = None) -> str:
    """Return the absolute path of `given`, else of VKCHI_CACHE_DIR, else of the default folder. It
    may not exist."""
    chosen = given or env.flag("VKCHI_CACHE_DIR")
    if chosen:
        return os.path.abspath(os.path.expanduser(os.fspath(chosen)))
    checkout = find_checkout()
    if checkout:
        return os.path.join(checkout, "shaders_cache")
    return os.path.join(platform.find_cache_folder(), "vkchi")


def find_checkout() -> str:
    """Return the folder that contains this package if it has a pyproject.toml, else ""."""
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return folder if is_file(os.path.join(folder, "pyproject.toml")) else ""
