"""Names of Quadrants that vkchi lacks or has under another name, and the hook for its imports.

    >>> find_name("simt").subgroup.ballot is ti.simt.subgroup.ballot64
    True

Source: Quadrants' user guide.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import vkchi as ti
from vkchi.compat import quadrants_stubs as stubs
from vkchi.compat.aliases import public_names
from vkchi.compat.unsupported import UnsupportedName
from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.fields.struct_arrays import StructField, StructNdarray
from vkchi.lang.compile_time import do_while, parallel, parallel_context, stream_parallel
from vkchi.lang.simt import block, grid, subgroup, warp
from vkchi.types import shape_of

VERSION = "1.3.3"  # of the documentation that these names follow
PACKAGES = ("quadrants", "vkchi.quadrants")

_STREAMS = "launches run in order; ti.record() groups them"
_CHECKPOINTS = "call a kernel per stage, and test its flag in Python"
_TILES = "write loops over ti.simt.block.SharedArray, or ti.simt.subgroup functions"
UNSUPPORTED: dict[str, str] = {
    **dict.fromkeys(("Event", "Stream", "create_event", "create_stream"), _STREAMS),
    **dict.fromkeys(("GraphStatus", "checkpoint"), _CHECKPOINTS),
    **dict.fromkeys(("Tile16x16", "Tile32x32", "outer"), _TILES),
    "BufferView": "pass the array and the index of its first element",
}
# Options of `qd.init` without effect in vkchi.
IDLE_OPTIONS = {
    "ad_stack_experimental_enabled", "ad_stack_sparse_threshold_bytes", "cfg_optimization",
    "external_metal_command_queue", "external_metal_command_queue_is_torch_queue", "gdb_trigger",
    "num_compile_threads", "print_full_traceback", "print_non_pure", "require_version",
    "src_ll_cache",
}  # fmt: skip
# Variables of programs that `run_script` sets, unless they are set. Genesis then copies arrays,
# which waits for kernels; reading a view of memory does not.
ENVIRONMENT = {"GS_ENABLE_ZEROCOPY": "0"}


class _ByElements(type):
    """Metaclass: `isinstance` is True for tensors whose elements have `axes` axes."""

    axes: int

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Storage) and len(shape_of(x.elem)) == cls.axes


class VectorTensor(metaclass=_ByElements):
    """A field or ndarray of vectors, for `isinstance`."""

    axes = 1


class MatrixTensor(metaclass=_ByElements):
    """A field or ndarray of matrices, for `isinstance`."""

    axes = 2


def wrap(impl: Storage | StructField | StructNdarray) -> Storage | StructField | StructNdarray:
    """Return the array itself: fields and ndarrays are tensors. Raises ArgumentError for other
    objects."""
    if not isinstance(impl, Storage | StructField | StructNdarray):
        raise ArgumentError(f"qd.wrap takes a field or an ndarray, not {type(impl).__name__}")
    return impl


def init(arch: Any = None, **options: Any) -> None:
    """`ti.init`, without Quadrants' options in IDLE_OPTIONS."""
    ti.init(arch, **{name: x for name, x in options.items() if name not in IDLE_OPTIONS})


class SubgroupNames(ModuleType):
    """`qd.simt.subgroup`: that of vkchi, with ballots of 64 bits."""

    def __getattr__(self, name: str) -> Any:
        return getattr(subgroup, "ballot64" if name == "ballot" else name)


def make_simt() -> ModuleType:
    """`qd.simt`."""
    made = ModuleType("vkchi.quadrants.simt", "Functions of workgroups, subgroups and dispatches.")
    vars(made).update(
        block=block, grid=grid, warp=warp,
        subgroup=SubgroupNames("vkchi.quadrants.simt.subgroup", subgroup.__doc__),
    )  # fmt: skip
    return made


OWN: dict[str, Any] = {
    "graph_do_while": do_while,
    "graph_parallel": parallel,
    "graph_parallel_context": parallel_context,
    "MatrixTensor": MatrixTensor,
    "VectorTensor": VectorTensor,
    "init": init,
    "kernel": stubs.kernel,
    "reset": stubs.reset,
    "simt": make_simt(),
    "stream_parallel": stream_parallel,
    "wrap": wrap,
    **stubs.MODULES,
}


def list_names() -> list[str]:
    """Names exported by `from vkchi.quadrants import *`."""
    named = [name.replace("Taichi", "Quadrants") for name in public_names()]
    return sorted({*named, *OWN})


def find_name(path: str) -> Any:
    """Return the object at a dotted path of Quadrants'.

    Raises UnsupportedName for names in UNSUPPORTED, AttributeError for other unknown names.
    """
    first, _, rest = path.partition(".")
    if first in UNSUPPORTED:
        raise UnsupportedName(f"qd.{first} is not supported: {UNSUPPORTED[first]}")
    if first.startswith("Quadrants"):
        first = first.replace("Quadrants", "Taichi", 1)
    found = OWN[first] if first in OWN else getattr(ti, first)
    for name in rest.split(".") if rest else ():
        found = getattr(found, name)
    return found


class QuadrantsFinder:
    """Import hook: finder and loader of `quadrants` and modules of PACKAGES."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        is_inside = any(fullname.startswith(f"{package}.") for package in PACKAGES)
        if fullname != PACKAGES[0] and not is_inside:
            return None
        return ModuleSpec(fullname, cls, is_package=True)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Replace the module by vkchi's in `sys.modules`. Raises ImportError if there is none."""
        name = module.__name__
        rest = next(name.removeprefix(p).lstrip(".") for p in PACKAGES if name.startswith(p))
        if rest in OWN or rest.partition(".")[0] == "simt":
            sys.modules[name] = find_name(rest)
        else:
            sys.modules[name] = importlib.import_module(f"vkchi.{rest or 'quadrants'}")


def install_finder() -> None:
    """Append QuadrantsFinder to `sys.meta_path`, unless it is there: an installed `quadrants` is
    found before."""
    if QuadrantsFinder not in sys.meta_path:
        sys.meta_path.append(QuadrantsFinder)


def run_script(arguments: Sequence[str]) -> int:
    """Run a script with its arguments, in which `quadrants` is vkchi; return the exit status."""
    if not arguments or not Path(arguments[0]).is_file():
        problem = f"no file {arguments[0]!r}; " if arguments else ""
        print(f"{problem}usage: python -m vkchi.quadrants SCRIPT [ARGUMENT ...]", file=sys.stderr)
        return 2
    if QuadrantsFinder in sys.meta_path:
        sys.meta_path.remove(QuadrantsFinder)
    sys.meta_path.insert(0, QuadrantsFinder)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    sys.argv = list(arguments)
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    runpy.run_path(arguments[0], run_name="__main__")
    return 0
