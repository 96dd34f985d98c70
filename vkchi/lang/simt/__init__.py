"""`ti.simt`: workgroups, subgroups and the dispatch, named in kernels."""

from vkchi.lang.simt import block, grid, subgroup, warp

__all__ = ["block", "grid", "subgroup", "warp"]
