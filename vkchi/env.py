"""Every `VKCHI_*` environment flag, in one table, read when asked for.

Owns: names, defaults and meaning. Must not know: who acts on them.

    >>> flag("VKCHI_TIME")
    ''
"""

from __future__ import annotations

import os

FLAGS: dict[str, tuple[str, str]] = {
    "VKCHI_DEVICE": ("", "which Vulkan device: an index, or part of its name"),
    "VKCHI_DEBUG": ("", "1: debug=True where ti.init does not say"),
    "VKCHI_VALIDATE": (
        "",
        "1: load the Khronos validation layer, keep what it says; sync: more",
    ),
    "VKCHI_PRINT": ("", "comma list of ir, opt: print that stage of every kernel to stderr"),
    "VKCHI_TIME": ("", "1: print what each compile step took to stderr"),
    "VKCHI_DUMP": ("", "folder: write the IR text of every kernel there"),
    "VKCHI_DUMP_SPV": ("", "folder: write every emitted module to <sha256>.spv there"),
    "VKCHI_LOG": ("info", "trace, debug, info, warn, error or critical: least severe line logged"),
}


def flag(name: str) -> str:
    """The flag's value, or its default. Raises KeyError for a flag that is not in the table."""
    default, _ = FLAGS[name]
    return os.environ.get(name, default)


def is_on(name: str) -> bool:
    """Whether a 0/1 flag is set to anything but `0` and the empty string."""
    return flag(name) not in ("", "0")


def stages_to_print() -> frozenset[str]:
    """The stages named in `VKCHI_PRINT`."""
    return frozenset(part for part in flag("VKCHI_PRINT").split(",") if part)
