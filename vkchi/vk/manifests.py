"""Diagnosis of the Vulkan loader's environment variables and of the driver manifests they name.

A manifest is a JSON file that names a driver's library. Source: Vulkan-Loader,
docs/LoaderDriverInterface.md, "Driver Discovery".

    $ VK_DRIVER_FILES=/tmp/typo.json python -c "import vkchi; vkchi.init()"
    no Vulkan driver was found: VK_DRIVER_FILES chooses the drivers here, and /tmp/typo.json does
    not exist; correct or unset it
"""

from __future__ import annotations

import ctypes
import json
import os

from vkchi import platform
from vkchi.interrupts.local import local

FILES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")  # the first that is set takes effect
FILTERS = ("VK_LOADER_DRIVERS_SELECT", "VK_LOADER_DRIVERS_DISABLE")


def explain_broken_files() -> str:
    """Return a sentence with the faults of the manifests in VK_DRIVER_FILES or VK_ICD_FILENAMES.

    Only the first of these variables that is set counts. "" if neither is set, or if all manifests
    are valid; a variable that names no file is a fault.
    """
    name = next((name for name in FILES if name in os.environ), None)
    if name is None:
        return ""
    files = [file for file in os.environ[name].split(os.pathsep) if file]
    problems = [f"{file} {problem}" for file in files if (problem := find_problem(file))]
    if files and not problems:
        return ""
    found = "; ".join(problems) or "it names none"
    return f"{name} chooses the drivers here, and {found}; correct or unset it"


def explain_choice() -> str:
    """A sentence with the variables that choose drivers and their values; "" if none is set."""
    chosen = [f"{name}={os.environ[name]}" for name in (*FILES, *FILTERS) if name in os.environ]
    return f"{' and '.join(chosen)} leave none; correct or unset them" if chosen else ""


def find_problem(file: str) -> str:
    """Return the fault of a driver's manifest, as the end of a sentence; "" if it is valid. It is
    valid if it names a library that can be loaded, which is tried."""
    try:
        with open(file, "rb") as opened:
            manifest = json.load(opened)
        library = manifest["ICD"]["library_path"]
    except local(FileNotFoundError):
        return "does not exist"
    except local(OSError) as e:
        return f"cannot be read ({e.strerror})"
    except local(ValueError, KeyError, TypeError, RecursionError):
        return "is no manifest of a Vulkan driver (JSON with an ICD and its library_path)"
    if not isinstance(library, str):
        return "has a library_path that is no text"
    if platform.has_folder(library) and not os.path.isabs(library):
        library = os.path.join(os.path.dirname(os.path.abspath(file)), library)
    try:
        ctypes.CDLL(library)
    except local(OSError, ValueError) as e:
        return f"names a library that cannot be loaded ({e})"
    return ""
