"""`ti.aot`: kernels and graphs saved as files, to be run where no compiler is.

Owns: the public names. Must not know: anything else.

    >>> m = ti.aot.Module(); m.add_kernel(step); m.save("steps")
    >>> ti.load("steps").step(x, 0.1)               # in another process, without the compiler
"""

from pathlib import Path

from vkchi.aot.export import export, export_as
from vkchi.aot.loaded import LoadedGraph, LoadedKernel, LoadedModule, load
from vkchi.aot.module import Module


def include() -> str:
    """The folder of vkchi.h, which reads saved modules in C programs."""
    return str(Path(__file__).parent / "c")


__all__ = [
    "LoadedGraph",
    "LoadedKernel",
    "LoadedModule",
    "Module",
    "export",
    "export_as",
    "include",
    "load",
]
