"""`ti.simt.warp`: CUDA's names of subgroup functions.

A warp is a subgroup. Subgroups of more than 32 invocations are divided into aligned warps of 32.
Bit k of a mask stands for invocation k of the warp.
"""

from __future__ import annotations

from vkchi.lang.function import Function

# name -> result
DOCS: dict[str, str] = {
    "active_mask": "The bits of the invocations that are here.",
    "all_nonzero": "1 if the predicate is nonzero in all invocations of the mask, else 0.",
    "any_nonzero": "1 if the predicate is nonzero in some invocation of the mask, else 0.",
    "unique": "1 if the predicate is as true in all invocations of the mask, else 0.",
    "ballot": "The bits of the invocations in which the predicate is nonzero.",
    "match_any": "The bits of the mask's invocations that have this one's value.",
    "match_all": "The mask if all its invocations have the same value, else 0.",
    "sync": "Wait until all invocations of the warp are here.",
    "shfl_sync_i32": "The i32 of the invocation at index `offset`.",
    "shfl_sync_f32": "The f32 of the invocation at index `offset`.",
    "shfl_up_i32": "The i32 of the invocation `offset` before this one; without one, its own.",
    "shfl_up_f32": "The f32 of the invocation `offset` before this one; without one, its own.",
    "shfl_down_i32": "The i32 of the invocation `offset` behind this one; without one, its own.",
    "shfl_down_f32": "The f32 of the invocation `offset` behind this one; without one, its own.",
    "shfl_xor_i32": "The i32 of the invocation at this one's index xor `offset`.",
}

FUNCTIONS = {name: Function(name, None, doc) for name, doc in DOCS.items()}


def __getattr__(name: str) -> Function:
    try:
        return FUNCTIONS[name]
    except KeyError:
        raise AttributeError(f"ti.simt.warp has no `{name}`") from None
