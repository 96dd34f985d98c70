"""Geometry queries in kernels: points near a point."""

import vkchi.spatial.near_loop  # noqa: F401
from vkchi.spatial.hash_grid import HashGrid

__all__ = ["HashGrid"]
