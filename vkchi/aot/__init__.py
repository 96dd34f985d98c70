"""`ti.aot`: save compiled kernels and graphs as files, and run them without the compiler.

Public names are imported lazily, so loading a module does not load the compiler.

    >>> m = ti.aot.Module(); m.add_kernel(step); m.save("steps")
    >>> ti.load("steps").step(x, 0.1)               # in another process, without the compiler
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vkchi.aot.kernel_module import Module, export, export_as
    from vkchi.aot.loaded import LoadedGraph, LoadedKernel, LoadedModule, load

NAMES = {
    **dict.fromkeys(("Module", "export", "export_as"), "kernel_module"),
    **dict.fromkeys(("LoadedGraph", "LoadedKernel", "LoadedModule", "load"), "loaded"),
}


def include() -> str:
    """Return the folder of vkchi.h, the C header that loads saved modules."""
    return os.path.join(os.path.dirname(__file__), "c")


__all__ = [
    "LoadedGraph", "LoadedKernel", "LoadedModule", "Module", "export", "export_as", "include",
    "load",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{NAMES[name]}"), name)
