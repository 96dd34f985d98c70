"""Import aliases for Taichi's module paths: `from vkchi.lang.impl import ...`.

The tables list the modules, and an import hook finds them. Most have no file: they export the
public names of vkchi, or raise UnsupportedName.

    >>> from vkchi.math import vec3
    >>> from vkchi.lang.kernel_impl import kernel
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from vkchi import public_names as table
from vkchi.compat.unsupported import missing_name_error, reason_for
from vkchi.hooks import NAMES, PACKAGE, load_place

# --- the version ---------------------------------------------------------------------------------
#
# The version of vkchi; in comparisons with tuples it is the supported version of Taichi.
#
# >>> ti.__version__ >= (1, 1, 0), str(ti.__version__)
# (True, '0.1.0')

TAICHI = (1, 7, 4)  # the supported version of Taichi


class Version(str):
    """A version string. Comparisons with tuples use TAICHI, the supported version of Taichi."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other == TAICHI if isinstance(other, tuple) else str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: str | tuple[int, ...]) -> bool:
        return other > TAICHI if isinstance(other, tuple) else str.__lt__(self, other)

    def __le__(self, other: str | tuple[int, ...]) -> bool:
        return other >= TAICHI if isinstance(other, tuple) else str.__le__(self, other)

    def __gt__(self, other: str | tuple[int, ...]) -> bool:
        return other < TAICHI if isinstance(other, tuple) else str.__gt__(self, other)

    def __ge__(self, other: str | tuple[int, ...]) -> bool:
        return other <= TAICHI if isinstance(other, tuple) else str.__ge__(self, other)

    __hash__ = str.__hash__


# --- modules -------------------------------------------------------------------------------------

# Taichi's module name -> vkchi's module.
SAME = {
    "ad": "tape.ad",
    "experimental": "compat.experimental",
    "profiler": "reports.profiler",
    "simt": "lang.simt",
    "sparse": "algorithms.sparse",
    "ui.utils": "ui.camera",
    **{f"simt.{name}": f"lang.simt.{name}" for name in ("block", "grid", "subgroup", "warp")},
}

# Taichi's modules without a file here: their names are looked up in vkchi and `types`.
_LANG = """
    _ndarray _ndrange _texture any_array common_ops enums exception expr field impl
    kernel_arguments kernel_impl matrix_ops mesh misc ops runtime_ops snode util
"""
_TYPES = """
    annotations compound_types ndarray_type primitive_types texture_type utils
"""
_PRIVATE = """
    _lib _lib.core _lib.core.taichi_python _logging
    _snode _snode.fields_builder _snode.snode_tree algorithms._algorithms ad._ad graph._graph
    linalg.matrixfree_cg linalg.sparse_cg linalg.sparse_matrix linalg.sparse_solver
    math._complex math.mathimpl
    profiler.kernel_profiler profiler.memory_profiler profiler.scoped_profiler
    sparse._sparse_grid ui.gui ui.imgui ui.ui
"""
WITHOUT_FILE = frozenset(
    [f"lang.{name}" for name in _LANG.split()]
    + [f"types.{name}" for name in _TYPES.split()]
    + _PRIVATE.split()
)

# Modules that are loaded on first use.
PUBLIC_MODULES = frozenset((*table.MODULES, "types.quant"))

# Public names defined in another module.
MOVED = {
    "types.rw_texture": "texture",
    "types.texture": "texture",
    "types.sparse_matrix_builder": "linalg.coo_matrix",
}

_CORE = """
    with_amdgpu with_cuda with_dx11 with_dx12 with_metal with_opengl with_vulkan is_arch_supported
    get_host_arch_list host_arch arch_name arch_from_name arch_uses_llvm real_types integer_types
    all_types get_runtime in_python_scope in_taichi_scope trace debug info warn error critical
    GGUI_AVAILABLE
"""
# Names that only Taichi's modules have -> vkchi's module and name.
RENAMED = {
    "MatrixType": ("compat.core_stubs", "MatrixType"),
    "VectorType": ("compat.core_stubs", "VectorType"),
    "NdarrayType": ("types", "ndarray"),
    "Template": ("types", "template"),
    "cook_dtype": ("types", "cook"),
    "to_numpy_type": ("interop.host_views", "to_numpy_type"),
    "to_pytorch_type": ("interop.host_views", "to_pytorch_type"),
    "to_taichi_type": ("interop.host_views", "to_taichi_type"),
    "has_pytorch": ("interop.host_views", "has_pytorch"),
    "DataType": ("types", "Scalar"),
    "Arch": ("runtime", "Arch"),
    "Kernel": ("kernel", "Kernel"),
    "Func": ("kernel", "UserFunc"),
    "StructType": ("types.struct_types", "StructType"),
    "ArgPackType": ("types.struct_types", "ArgPackType"),
    "SNodeTree": ("fields.trees.fields_builder", "SNodeTree"),
    "current_cfg": ("runtime", "current_config"),
    **{name: ("compat.core_stubs", name) for name in _CORE.split()},
}


def resolve_name(path: str) -> Any:
    """Return the object at a dotted path of Taichi's, without the leading `taichi.`.

    Imports its module. Raises UnsupportedName for names in the table of `unsupported`,
    AttributeError for other unknown names.
    """
    module, _, name = path.rpartition(".")
    if path in PUBLIC_MODULES or path in WITHOUT_FILE:
        return importlib.import_module(f"{PACKAGE}.{path}")
    if path in NAMES:
        return load_place(NAMES[path])
    if path in MOVED:
        return load_place((MOVED[path], name))
    if path == "cfg":
        return load_place(("runtime", "current_config"))()
    if not module and reason_for(name) is None and is_own(name):
        return importlib.import_module(f"{PACKAGE}.{name}")
    if name.startswith("__") or not module:
        raise missing_name_error(path, lambda: names_of(module))
    if name in RENAMED:
        return load_place(RENAMED[name])
    if name in NAMES:
        return load_place(NAMES[name])
    if f"types.{name}" in MOVED:
        return load_place((MOVED[f"types.{name}"], name))
    if name in PUBLIC_MODULES:
        return importlib.import_module(f"{PACKAGE}.{name}")
    for place in ("types", module.rpartition(".")[0]):
        around = importlib.import_module(f"{PACKAGE}.{place}".rstrip("."))
        # Lazily loaded names are in `__all__` only.
        if name in vars(around) or name in vars(around).get("__all__", ()):
            return getattr(around, name)
    raise missing_name_error(known_path(path), lambda: names_of(module))


def is_own(name: str) -> bool:
    """True if vkchi has a top-level module or package file of this name, such as `runtime`.

    False for names that begin with an underscore.
    """
    return (
        not name.startswith("_")
        and PathFinder.find_spec(name, [os.path.dirname(os.path.dirname(__file__))]) is not None
    )


def public_names() -> list[str]:
    """Names exported by `from vkchi import *` and listed by `dir(vkchi)`."""
    return sorted({*NAMES, *table.MODULES})


def names_of(module: str) -> list[str]:
    """Public names of a loaded module, given by its path in vkchi.

    Those of vkchi itself for "", for modules that are not loaded, and for modules without a file.
    """
    found = sys.modules.get(f"{PACKAGE}.{module}")
    if not module or found is None or isinstance(found, AliasModule):
        return public_names()
    names: list[str] = [*getattr(found, "__all__", vars(found))]
    return [name for name in names if not name.startswith("_")]


def known_path(path: str) -> str:
    """The last name of a path if only that is in the table of `unsupported`; otherwise the path."""
    name = path.rpartition(".")[2]
    return name if reason_for(path) is None and reason_for(name) is not None else path


class AliasModule(ModuleType):
    """A module without a file; `resolve_name` resolves its attributes on each access."""

    def __getattr__(self, name: str) -> Any:
        return resolve_name(f"{self.__name__.removeprefix(PACKAGE + '.')}.{name}")


class AliasFinder:
    """Import hook: finder and loader of the modules in `WITHOUT_FILE` and `SAME`."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module in these tables; None for others.

        Raises UnsupportedName for names in the table of `unsupported`, so that `from vkchi import
        Mesh` has the message of `ti.Mesh`.
        """
        package, _, name = fullname.partition(".")
        if package != PACKAGE or not name:
            return None
        if name in WITHOUT_FILE or name in SAME:
            return ModuleSpec(fullname, cls, is_package=True)  # type: ignore[arg-type]
        known = known_path(name)
        if reason_for(known) is not None:
            raise missing_name_error(known)
        return None

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return AliasModule(spec.name, f"Taichi's {spec.name.replace(PACKAGE, 'taichi')}.")

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Replace an alias in SAME, and those nested in it, by vkchi's own modules in
        `sys.modules`.

        Modules without a file stay: their names are resolved at each access.
        """
        alias = module.__name__.removeprefix(f"{PACKAGE}.")
        for other, name in SAME.items():
            if f"{other}.".startswith(f"{alias}."):
                found = importlib.import_module(f"{PACKAGE}.{name}")
                vars(found).setdefault("__path__", [])
                sys.modules[f"{PACKAGE}.{other}"] = found


def install_finder() -> None:
    """Append AliasFinder to `sys.meta_path`, unless it is there."""
    if AliasFinder not in sys.meta_path:
        sys.meta_path.append(AliasFinder)
