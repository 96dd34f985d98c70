"""`ti.simt.warp`: CUDA's names for subgroup operations. Not supported: none is portable.

Owns: names.
"""

from __future__ import annotations

from vkchi.lang.function import Function

NAMES = (
    "active_mask", "all_nonzero", "any_nonzero", "ballot", "match_all", "match_any",
    "shfl_down_f32", "shfl_down_i32", "shfl_sync_f32", "shfl_sync_i32", "shfl_up_f32",
    "shfl_up_i32", "shfl_xor_i32", "sync", "unique",
)  # fmt: skip

FUNCTIONS = {name: Function(name, None, "Not supported: use ti.simt.subgroup.") for name in NAMES}


def __getattr__(name: str) -> Function:
    try:
        return FUNCTIONS[name]
    except KeyError:
        raise AttributeError(f"ti.simt.warp has no `{name}`") from None
