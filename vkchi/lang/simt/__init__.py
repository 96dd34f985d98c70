"""`ti.simt`: functions of workgroups, subgroups and dispatches, for kernels."""

from vkchi.lang.simt import block, grid, subgroup, warp

__all__ = ["block", "grid", "subgroup", "warp"]
