"""Conversion between directions and angles of cameras, in radians.

Yaw is measured from the z axis towards the x axis, pitch from the horizontal plane towards the y
axis.

>>> vec_to_euler(euler_to_vec(0.5, 0.25))
(0.5, 0.25)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from vkchi.lang.matrix import Vector

if TYPE_CHECKING:
    from collections.abc import Sequence


def euler_to_vec(yaw: float, pitch: float) -> Vector:
    """The unit vector with the angles `yaw` and `pitch`."""
    across = math.cos(pitch)
    return Vector([math.sin(yaw) * across, math.sin(pitch), math.cos(yaw) * across])


def vec_to_euler(v: Vector | Sequence[float], eps: float = 1e-6) -> tuple[float, float]:
    """Yaw and pitch of a vector `v` of any length; `eps` has no effect, as in Taichi."""
    x, y, z = (float(c) for c in _components(v))
    return math.atan2(x, z), math.atan2(y, math.hypot(x, z))


def _components(v: Any) -> list[float]:
    return list(v.to_list() if isinstance(v, Vector) else v)
