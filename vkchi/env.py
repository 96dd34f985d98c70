"""Table of vkchi's `VKCHI_*` environment variables, read at each use.

Also validates their values, and writes files into folders that they name.

    >>> flag("VKCHI_TIME")
    ''
"""

from __future__ import annotations

import os
from threading import get_ident

from vkchi import platform
from vkchi.errors import ArgumentError
from vkchi.interrupts.local import local, make_folders

FLAGS: dict[str, tuple[str, str]] = {
    "VKCHI_DEVICE": ("", "which Vulkan device: an index, or part of its name"),
    "VKCHI_DEBUG": ("", '1: debug=True where ti.init does not say; nan: debug="nan"'),
    "VKCHI_PYTHON": ("", "1: kernels run as plain Python, for debuggers"),
    "VKCHI_VALIDATE": (
        "",
        "1: load the Khronos validation layer, keep what it says; sync: more",
    ),
    "VKCHI_CACHE": ("1", "0: compiled shaders are neither looked for nor kept on disk"),
    "VKCHI_CACHE_DIR": ("", "folder where compiled shaders are kept"),
    "VKCHI_PIPELINE_CACHE": ("1", "0: what the driver compiles is not kept on disk"),
    "VKCHI_RADV": ("", "manifest of the RADV (Mesa 23.1 to 25) that compiles for AMD GPUs"),
    "VKCHI_PRINT": (
        "",
        "comma list of ir, opt, grad, strip_mine: print these of all kernels to stderr",
    ),
    "VKCHI_SHAPES": (
        "1",
        "0: kernels are compiled once, for any extents of arrays; first: for those of their first "
        "launches at once, not when launches have repeated them",
    ),
    "VKCHI_POOLS": (
        "1",
        "0: sparse blocks have memory for all cells; all: small ones too have it for active cells "
        "alone, where that is possible",
    ),
    "VKCHI_PASSES": ("", "comma list of passes to leave out, as in -jam,-commoning"),
    "VKCHI_VERIFY": ("", "1: check the IR behind every pass, and its form behind every stage"),
    "VKCHI_TIME": ("", "1: print what each compile step took to stderr"),
    "VKCHI_DUMP": ("", "folder: write the IR text of every kernel there"),
    "VKCHI_DUMP_SPV": ("", "folder: write every emitted module to <sha256>.spv there"),
    "VKCHI_MISSING_GRADIENT": (
        "error",
        "warn: what a gradient flows through without having one is a constant, with a warning",
    ),
    "VKCHI_ACCEPT_RACES": (
        "",
        "comma list of kernels whose gradients are to be taken in spite of races",
    ),
    "VKCHI_TRACEBACK": ("", "full: tracebacks of uncaught errors show vkchi's own frames too"),
    "VKCHI_LOG": ("info", "trace, debug, info, warn, error or critical: least severe line logged"),
}
# Variables with a fixed set of values.
VALUES: dict[str, tuple[str, ...]] = {
    "VKCHI_DEBUG": ("0", "1", "nan"),
    "VKCHI_PYTHON": ("0", "1"),
    "VKCHI_VALIDATE": ("0", "1", "sync"),
    "VKCHI_VERIFY": ("0", "1"),
    "VKCHI_TIME": ("0", "1"),
    "VKCHI_SHAPES": ("0", "1", "first"),
    "VKCHI_POOLS": ("0", "1", "all"),
    "VKCHI_CACHE": ("0", "1"),
    "VKCHI_PIPELINE_CACHE": ("0", "1"),
    "VKCHI_MISSING_GRADIENT": ("error", "warn"),
    "VKCHI_TRACEBACK": ("full",),
    "VKCHI_LOG": ("trace", "debug", "info", "warn", "error", "critical"),
}
STAGES = ("ir", "opt", "grad", "strip_mine")


def flag(name: str) -> str:
    """Value of a variable, or its default if it is unset or empty.

    Raises KeyError for an unknown variable.
    """
    default, _ = FLAGS[name]
    return os.environ.get(name) or default


def is_on(name: str) -> bool:
    """True if the value of a 0/1 variable, or its default, is neither `0` nor the empty string.

    The default applies if the variable is unset or empty.
    """
    return flag(name) not in ("", "0")


def stages_to_print() -> frozenset[str]:
    """Stages named in `VKCHI_PRINT`."""
    return frozenset(part.strip() for part in flag("VKCHI_PRINT").split(",") if part.strip())


def shows_stages() -> bool:
    """True if VKCHI_PRINT, VKCHI_DUMP, VKCHI_DUMP_SPV or VKCHI_PASSES is set.

    The cache of compiled kernels is then not used.
    """
    return any(map(flag, ("VKCHI_PRINT", "VKCHI_DUMP", "VKCHI_DUMP_SPV", "VKCHI_PASSES")))


def passes_left_out() -> frozenset[str]:
    """Passes disabled by `VKCHI_PASSES`. Raises ArgumentError if an item is not -NAME."""
    parts = [part.strip() for part in flag("VKCHI_PASSES").split(",") if part.strip()]
    for part in parts:
        if not part.startswith("-"):
            raise ArgumentError(f"VKCHI_PASSES says {part!r}; it can leave passes out, as in -jam")
    return frozenset(part[1:] for part in parts)


def check_flags() -> None:
    """Raise ArgumentError, with the variable's name, for an invalid value (VALUES, VKCHI_PRINT)."""
    for name, values in VALUES.items():
        value = flag(name)
        if value and value not in values:
            raise ArgumentError(f"{name} is {value!r}, and may be {', '.join(values)}")
    strange = sorted(stages_to_print().difference(STAGES))
    if strange:
        raise ArgumentError(
            f"VKCHI_PRINT asks for {strange[0]!r}, and may be a comma list of {', '.join(STAGES)}"
        )


def dump(name: str, file: str, data: bytes) -> None:
    """Write a file into the folder that variable `name` names, if it is set; create the folder.

    The file is replaced atomically. Raises ArgumentError, with the variable's name, if it cannot be
    written.
    """
    folder = flag(name)
    if not folder:
        return
    path = os.path.join(folder, file)
    part = f"{path}.{os.getpid()}-{get_ident()}.part"
    try:
        make_folders(folder)
        with open(part, "wb") as out:
            out.write(data)
        platform.replace(part, path)
    except local(OSError, ValueError) as e:  # ValueError: a NUL in the name
        reason = e.strerror if isinstance(e, OSError) else e
        raise ArgumentError(
            f"{name} is {folder!r}, and nothing can be written there: {reason}; name a folder "
            "that can be written to, or unset it"
        ) from None
