"""Every `VKCHI_*` environment flag, in one table, read when asked for.

Owns: names, defaults, meaning and values of flags; writing into the folders that flags name. Must
not know: who acts on them.

    >>> flag("VKCHI_TIME")
    ''
"""

from __future__ import annotations

import os
from threading import get_ident

from vkchi.errors import ArgumentError
from vkchi.interrupts.local import local, make_folders

FLAGS: dict[str, tuple[str, str]] = {
    "VKCHI_DEVICE": ("", "which Vulkan device: an index, or part of its name"),
    "VKCHI_DEBUG": ("", "1: debug=True where ti.init does not say"),
    "VKCHI_VALIDATE": (
        "",
        "1: load the Khronos validation layer, keep what it says; sync: more",
    ),
    "VKCHI_CACHE": ("1", "0: compiled shaders are neither looked for nor kept on disk"),
    "VKCHI_CACHE_DIR": ("", "folder where compiled shaders are kept"),
    "VKCHI_PIPELINE_CACHE": ("1", "0: what the driver compiles is not kept on disk"),
    "VKCHI_PRINT": (
        "",
        "comma list of ir, opt, grad, strip_mine: print these of all kernels to stderr",
    ),
    "VKCHI_SHAPES": (
        "1",
        "0: kernels are compiled once, for any extents of arrays; first: for those of their first "
        "launches, and in the last form, at once, not when launches have repeated them",
    ),
    "VKCHI_PASSES": ("", "comma list of passes to leave out, as in -jam,-commoning"),
    "VKCHI_VERIFY": ("", "1: check the IR behind every pass, not only behind every stage"),
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
    "VKCHI_LOG": ("info", "trace, debug, info, warn, error or critical: least severe line logged"),
}
# The values of flags that do not take any text.
VALUES: dict[str, tuple[str, ...]] = {
    "VKCHI_DEBUG": ("0", "1"),
    "VKCHI_VALIDATE": ("0", "1", "sync"),
    "VKCHI_VERIFY": ("0", "1"),
    "VKCHI_TIME": ("0", "1"),
    "VKCHI_SHAPES": ("0", "1", "first"),
    "VKCHI_CACHE": ("0", "1"),
    "VKCHI_PIPELINE_CACHE": ("0", "1"),
    "VKCHI_MISSING_GRADIENT": ("error", "warn"),
    "VKCHI_LOG": ("trace", "debug", "info", "warn", "error", "critical"),
}
STAGES = ("ir", "opt", "grad", "strip_mine")


def flag(name: str) -> str:
    """The flag's value, or its default. Raises KeyError for a flag that is not in the table."""
    default, _ = FLAGS[name]
    return os.environ.get(name) or default


def is_on(name: str) -> bool:
    """Whether a 0/1 flag is set to anything but `0` and the empty string."""
    return flag(name) not in ("", "0")


def stages_to_print() -> frozenset[str]:
    """The stages named in `VKCHI_PRINT`."""
    return frozenset(part.strip() for part in flag("VKCHI_PRINT").split(",") if part.strip())


def shows_stages() -> bool:
    """Whether something of every compilation is to be seen or to be different, so that none may be
    left out."""
    return any(map(flag, ("VKCHI_PRINT", "VKCHI_DUMP", "VKCHI_DUMP_SPV", "VKCHI_PASSES")))


def passes_left_out() -> frozenset[str]:
    """The passes named in `VKCHI_PASSES`. Raises ArgumentError where one is not -NAME."""
    parts = [part.strip() for part in flag("VKCHI_PASSES").split(",") if part.strip()]
    for part in parts:
        if not part.startswith("-"):
            raise ArgumentError(f"VKCHI_PASSES says {part!r}; it can leave passes out, as in -jam")
    return frozenset(part[1:] for part in parts)


def check_flags() -> None:
    """Raise ArgumentError, naming the variable, for a value that its flag does not have."""
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
    """Write a file into the folder that flag `name` names, if it is set; safe against other
    writers. Raises ArgumentError, naming the variable, where that cannot be."""
    folder = flag(name)
    if not folder:
        return
    path = os.path.join(folder, file)
    part = f"{path}.{os.getpid()}-{get_ident()}.part"
    try:
        make_folders(folder)
        with open(part, "wb") as out:
            out.write(data)
        os.replace(part, path)
    except local(OSError, ValueError) as e:  # ValueError: a NUL in the name
        reason = e.strerror if isinstance(e, OSError) else e
        raise ArgumentError(
            f"{name} is {folder!r}, and nothing can be written there: {reason}; name a folder "
            "that can be written to, or unset it"
        ) from None
