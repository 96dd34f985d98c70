"""Triangles: the point closest to a point, and the intersection with a ray."""

from __future__ import annotations

from typing import Any

from vkchi.algorithms.array_kernels import library_func
from vkchi.lang.elementwise import abs, select, zero
from vkchi.lang.math import cross, inf
from vkchi.lang.matrix import Vector


@library_func
def closest_weights(p: Any, a: Any, b: Any, c: Any) -> Any:
    """Weights of b and c for the point of a triangle that is closest to p, as a vector.

    Source: C. Ericson, Real-Time Collision Detection, 2005, section 5.1.5.
    """
    ab, ac, ap, bp, cp = b - a, c - a, p - a, p - b, p - c
    d1, d2 = ab.dot(ap), ac.dot(ap)
    d3, d4 = ab.dot(bp), ac.dot(bp)
    d5, d6 = ab.dot(cp), ac.dot(cp)
    va, vb, vc = d3 * d6 - d5 * d4, d5 * d2 - d1 * d6, d1 * d4 - d3 * d2
    v, w = zero(d1), zero(d1)
    if d1 <= 0 and d2 <= 0:
        pass
    elif d3 >= 0 and d4 <= d3:
        v = 1.0
    elif d6 >= 0 and d5 <= d6:
        w = 1.0
    elif vc <= 0 and d1 >= 0 and d3 <= 0:
        v = d1 / (d1 - d3)
    elif vb <= 0 and d2 >= 0 and d6 <= 0:
        w = d2 / (d2 - d6)
    elif va <= 0 and d4 >= d3 and d5 >= d6:
        w = (d4 - d3) / ((d4 - d3) + (d5 - d6))
        v = 1.0 - w
    else:
        v = vb / (va + vb + vc)
        w = vc / (va + vb + vc)
    return Vector([v, w])


@library_func
def ray_distance(o: Any, d: Any, a: Any, b: Any, c: Any) -> Any:
    """The t >= 0 at which o + t d is on a triangle, from either side; infinity if there is none.

    Source: T. Möller and B. Trumbore, "Fast, minimum storage ray-triangle intersection", 1997.
    """
    ab, ac, oa = b - a, c - a, o - a
    h, q = cross(d, ac), cross(oa, ab)
    det = ab.dot(h)
    u, v, t = oa.dot(h), d.dot(q), ac.dot(q)
    found = select(False, det, inf)
    if det < 0:
        u, v, t = -u, -v, -t
    size = abs(det)
    if size > 0 and u >= 0 and v >= 0 and u + v <= size and t >= 0:
        found = t / size
    return found
