"""Geometry queries in kernels: near points, and boxes or triangles near a point or on a ray."""

import vkchi.spatial.near_loop  # noqa: F401
from vkchi.spatial.bvh import BVH
from vkchi.spatial.hash_grid import HashGrid
from vkchi.spatial.triangles import closest_weights

__all__ = ["BVH", "HashGrid", "closest_weights"]
