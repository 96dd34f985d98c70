"""Modules of Taichi's that programs import from, under our name: `from vkchi.lang.impl import ...`.

Owns: the table of such modules, and how Python's import finds them. Most have no file: they give
the public names of vkchi, or refuse (`unsupported`). Must not know: what the names mean.

    >>> from vkchi.math import vec3
    >>> from vkchi.lang.kernel_impl import kernel
    >>> from vkchi.ui import Window
    UnsupportedName: ti.ui.Window is not supported yet: draw with ti.GUI, or ...
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from vkchi.compat.unsupported import MODULES, reason_for, refuse
from vkchi.runtime import current_config

# Modules of ours that Taichi has under another name.
SAME = {
    "math": "lang.math",
    "simt": "lang.simt",
    **{f"simt.{name}": f"lang.simt.{name}" for name in ("block", "grid", "subgroup", "warp")},
}

# Modules of Taichi's that are no files here: their names are looked up in vkchi and `types`.
_LANG = """
    _ndarray _ndrange _texture any_array common_ops enums exception expr field impl
    kernel_arguments kernel_impl matrix_ops mesh misc ops runtime_ops snode util
"""
_TYPES = """
    annotations compound_types ndarray_type primitive_types texture_type utils
"""
_PRIVATE = """
    _lib _lib.core _logging _snode _snode.fields_builder _snode.snode_tree algorithms._algorithms
    linalg.matrixfree_cg linalg.sparse_cg linalg.sparse_matrix linalg.sparse_solver
    math._complex math.mathimpl
"""
WITHOUT_FILE = frozenset(
    [f"lang.{name}" for name in _LANG.split()]
    + [f"types.{name}" for name in _TYPES.split()]
    + _PRIVATE.split()
    + list(MODULES)
)

# Files of ours that have fewer names than Taichi's modules of that name.
WITH_FILE = ("lang", "lang.argpack", "lang.matrix", "lang.struct", "types")

# Public modules that are loaded when they are first used.
LATER = ("ad", "algorithms", "aot", "graph", "linalg", "profiler", "tools", *MODULES)

# Names whose module is loaded when they are first used.
MOVED = {
    **dict.fromkeys(("Tape", "clear_all_gradients", "grad_replaced", "grad_for", "no_grad"), "ad"),
    **dict.fromkeys(("hex_to_rgb", "rgb_to_hex"), "tools.image"),
    **dict.fromkeys(
        ("eig", "polar_decompose", "solve", "stop_grad", "svd", "sym_eig"), "lang.decompose"
    ),
    **dict.fromkeys(("Texture", "types.rw_texture", "types.texture"), "texture"),
    "GUI": "gui.gui",
    **dict.fromkeys(("sparse_matrix_builder", "types.sparse_matrix_builder"), "linalg.builder"),
    "Format": "types.formats",
    "torch_op": "operators.torch_op",
    "load": "aot.loaded",
    "DeviceCapability": "aot.capabilities",
    **dict.fromkeys(("extension", "is_extension_supported"), "compat.core"),
}

# Public modules that are loaded with vkchi.
AT_ONCE = ("experimental", "lang", "math", "simt", "types")

_CORE = """
    with_amdgpu with_cuda with_dx11 with_dx12 with_metal with_opengl with_vulkan is_arch_supported
    get_host_arch_list host_arch arch_name arch_from_name arch_uses_llvm real_types integer_types
    all_types get_runtime in_python_scope in_taichi_scope trace debug info warn error critical
    GGUI_AVAILABLE
"""
# Names that only such modules have, and where to find what they mean.
RENAMED = {
    "MatrixType": ("types", "Tensor"),
    "VectorType": ("types", "Tensor"),
    "NdarrayType": ("types", "ndarray"),
    "Template": ("types", "template"),
    "cook_dtype": ("types", "cook"),
    "to_numpy_type": ("interop.dtypes", "to_numpy_type"),
    "to_pytorch_type": ("interop.dtypes", "to_pytorch_type"),
    "to_taichi_type": ("interop.dtypes", "to_taichi_type"),
    "has_pytorch": ("interop.dtypes", "has_pytorch"),
    "DataType": ("types", "Scalar"),
    "Arch": ("runtime", "Arch"),
    "Kernel": ("kernel", "Kernel"),
    "Func": ("kernel", "Func"),
    "StructType": ("structs", "StructType"),
    "ArgPackType": ("structs", "ArgPackType"),
    "SNodeTree": ("fields.builder", "SNodeTree"),
    "current_cfg": ("runtime", "current_config"),
    **{name: ("compat.core", name) for name in _CORE.split()},
}
NAME = "vkchi"


def find(path: str) -> Any:
    """What the dotted path of a public name means. Raises AttributeError or Unsupported."""
    module, _, name = path.rpartition(".")
    if path in LATER or path in WITHOUT_FILE:
        return importlib.import_module(f"{NAME}.{path}")
    if path in MOVED:
        return getattr(importlib.import_module(f"{NAME}.{MOVED[path]}"), name)
    if path == "cfg":
        return current_config()
    if name.startswith("__") or not module or module in MODULES:
        raise refuse(path)
    if name in RENAMED:
        place, original = RENAMED[name]
        return getattr(importlib.import_module(f"{NAME}.{place}"), original)
    parent = module.rpartition(".")[0]
    for place in (NAME, f"{NAME}.types", f"{NAME}.{parent}"):
        found = vars(sys.modules.get(place, object)).get(name)
        if found is not None:
            return found
    for public in (name, f"types.{name}"):
        if module and public in MOVED:
            return find(public)
    raise refuse(known_path(path))


def public_names(names: Mapping[str, Any]) -> list[str]:
    """What `from vkchi import *` gives, and `dir(vkchi)` besides: public `names` of vkchi that are
    no modules of its own, and those that are loaded later."""
    found = [n for n, v in names.items() if n[0] != "_" and not isinstance(v, ModuleType)]
    later = [n for n in (*LATER, *MOVED) if "." not in n and n not in MODULES]
    return sorted({*found, *AT_ONCE, *later})


def known_path(path: str) -> str:
    """The path under which a name is in the table of `unsupported`, if it is there at all."""
    name = path.rpartition(".")[2]
    return name if reason_for(path) is None and reason_for(name) is not None else path


class AliasModule(ModuleType):
    """A module without a file."""

    def __getattr__(self, name: str) -> Any:
        return find(f"{self.__name__.removeprefix(NAME + '.')}.{name}")


class Finder:
    """What `import` asks for modules that have no file: it makes an AliasModule, or says why a name
    of a module cannot be imported."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module in the table. Raises Unsupported for a name in that of
        `unsupported`, so that `from vkchi import Mesh` says what `ti.Mesh` says."""
        package, _, name = fullname.partition(".")
        if package != NAME or not name:
            return None
        if name in WITHOUT_FILE:
            return ModuleSpec(fullname, cls, is_package=True)  # type: ignore[arg-type]
        known = known_path(name)
        if reason_for(known) is not None:
            raise refuse(known)
        return None

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        """An empty module."""
        return AliasModule(spec.name, f"Taichi's {spec.name.replace(NAME, 'taichi')}.")

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Nothing: names are looked up when they are used."""


def install() -> None:
    """Let `import` find the modules of the tables."""
    for alias, name in SAME.items():
        module = sys.modules[f"{NAME}.{alias}"] = importlib.import_module(f"{NAME}.{name}")
        module.__dict__.setdefault("__path__", [])
    for name in WITH_FILE:
        module = importlib.import_module(f"{NAME}.{name}")
        module.__dict__.setdefault("__path__", [])
        module.__dict__.pop("annotations", None)  # of __future__: Taichi has a module of that name
        module.__dict__["__getattr__"] = lambda attr, name=name: find(f"{name}.{attr}")
    if Finder not in sys.meta_path:
        sys.meta_path.append(Finder)
