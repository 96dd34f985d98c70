"""Location of the cache: `shaders_cache/` in a source checkout, else the user's cache folder."""

from __future__ import annotations

import os
import sys

from vkchi import env
from vkchi.interrupts.local import is_file


def find_folder(given: str | os.PathLike[str] | None = None) -> str:
    """Return the given folder, VKCHI_CACHE_DIR, or the default one. It may not exist yet."""
    chosen = given or env.flag("VKCHI_CACHE_DIR")
    if chosen:
        return os.path.abspath(os.path.expanduser(os.fspath(chosen)))
    checkout = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if is_file(os.path.join(checkout, "pyproject.toml")):
        return os.path.join(checkout, "shaders_cache")
    return os.path.join(user_cache_folder(), "vkchi")


def user_cache_folder() -> str:
    """Return the user's cache folder.

    Source: XDG Base Directory Specification; for macOS and Windows, the conventions of the package
    platformdirs.
    """
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        return os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Caches")
    given = os.environ.get("XDG_CACHE_HOME", "")
    return given if os.path.isabs(given) else os.path.join(home, ".cache")
