"""Taichi's public names that vkchi does not have yet, and what to do without them: one table.

Owns: the table and the error. Must not know: anything of what is there.

    >>> import vkchi as ti; ti.GUI
    vkchi.errors.Unsupported: ti.GUI is not supported yet: draw x.to_numpy() with another library
"""

from __future__ import annotations

from vkchi.errors import Unsupported


class UnsupportedName(Unsupported, AttributeError):
    """A public name that is not there; an AttributeError too, so that `hasattr` answers."""


_GRADIENTS = "automatic differentiation is not there yet; write the gradient as a kernel"
_LAYOUTS = "give fields a shape: ti.field(dtype, shape=...)"
_SPARSE = "sparse fields are not there; keep dense fields and a mask"
_STRUCTS = "use one field or argument per member"
_DRAW = "draw x.to_numpy() with another library"
_LOG = "use Python's logging: logging.getLogger('vkchi').setLevel(...)"

TABLE: dict[str, str] = {
    **dict.fromkeys(("ad", "Tape", "clear_all_gradients", "grad_replaced"), _GRADIENTS),
    **dict.fromkeys(("root", "FieldsBuilder", "SNode", "axes", "length"), _LAYOUTS),
    **dict.fromkeys(("i", "j", "k", "l", "ij", "ik", "il", "jk", "jl", "kl"), _LAYOUTS),
    **dict.fromkeys(("ijk", "ijl", "ikl", "jkl", "ijkl"), _LAYOUTS),
    **dict.fromkeys(("activate", "deactivate", "is_active", "append"), _SPARSE),
    **dict.fromkeys(("deactivate_all_snodes", "rescale_index", "get_addr", "sparse"), _SPARSE),
    **dict.fromkeys(("BitpackedFields", "extension", "sparse_matrix_builder"), _SPARSE),
    **dict.fromkeys(("Struct", "StructField", "dataclass", "ArgPack"), _STRUCTS),
    **dict.fromkeys(("GUI", "ui"), _DRAW),
    **dict.fromkeys(("set_logging_level", "is_logging_effective"), _LOG),
    **dict.fromkeys(("Mesh", "MeshInstance", "mesh_local", "mesh_patch_idx"), "use index arrays"),
    **dict.fromkeys(("real_func", "ref", "experimental"), "use ti.func: it is inlined"),
    "global_thread_idx": "use ti.simt.block.global_thread_idx()",
    "linalg": "use numpy or scipy on x.to_numpy()",
    "algorithms": "write the passes as kernels, or use numpy on x.to_numpy()",
    "profiler": "set VKCHI_TIME=1 for compile times; time kernels around ti.sync()",
    "graph": "call the kernels in a Python function: launches are batched anyway",
    "aot": "kernels are compiled when they are first called",
    "DeviceCapability": "see vkchi.runtime.current().device.caps",
    "x86_64": "use ti.cpu",
}


def refuse(name: str) -> Exception:
    """The error for a public name that is not there."""
    if name in TABLE:
        return UnsupportedName(f"ti.{name} is not supported yet: {TABLE[name]}")
    return AttributeError(f"module 'vkchi' has no attribute {name!r}")
