"""Pixel coverage of shapes: one formula per shape, used by numpy and by kernels.

Lengths are in pixels; the centre of pixel (i, j) is (i + 0.5, j + 0.5).

    >>> capsule(2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 3.0)  # the centre of a disc of radius 3
    1.0
"""

from __future__ import annotations

from typing import Any

from vkchi.kernel import pyfunc
from vkchi.lang.elementwise import max, min, select, sqrt

TINY = 1e-12  # least squared length of a segment, pixels^2: no division by 0


@pyfunc  # type: ignore[arg-type]
def capsule(x: Any, y: Any, ax: Any, ay: Any, bx: Any, by: Any, radius: Any) -> Any:
    """Approximate coverage of the pixel centred at (x, y) by the points within `radius` of the
    segment a-b.

    It is `radius` minus the distance of (x, y) from the segment, clamped to [0, 1].
    """
    dx, dy = bx - ax, by - ay
    per_length = 1.0 / max(dx * dx + dy * dy, TINY)
    along = ((x - ax) * dx + (y - ay) * dy) * per_length
    t = min(max(along, 0.0), 1.0)
    px, py = x - ax - t * dx, y - ay - t * dy
    return disc(px, py, radius)


@pyfunc  # type: ignore[arg-type]
def disc(x: Any, y: Any, radius: Any) -> Any:
    """Coverage, as in `capsule`, of the pixel centred at (x, y) by a disc around the origin."""
    return min(max(radius - sqrt(x * x + y * y), 0.0), 1.0)


@pyfunc  # type: ignore[arg-type]
def triangle(x: Any, y: Any, ax: Any, ay: Any, bx: Any, by: Any, cx: Any, cy: Any) -> Any:
    """1 where (x, y) is in the triangle or on its edge, else 0."""
    e = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
    f = (cx - bx) * (y - by) - (cy - by) * (x - bx)
    g = (ax - cx) * (y - cy) - (ay - cy) * (x - cx)
    inside = max(min(min(e, f), g), -max(max(e, f), g))
    return select(inside >= 0.0, 1.0, 0.0)
