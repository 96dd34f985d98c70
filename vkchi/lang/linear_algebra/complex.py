"""Complex numbers as vectors of 2 components: `ti.math.cmul` and the like, in both scopes.

>>> cmul(Vector([0.0, 1.0]), Vector([0.0, 1.0]))
[-1.  0.]
"""

from __future__ import annotations

from typing import Any

from vkchi.lang.elementwise import atan2, cos, exp, log, pow, sin, sqrt
from vkchi.lang.function import composite
from vkchi.lang.linear_algebra.linear import check_vectors, norm, norm_sqr
from vkchi.lang.matrix import pack


@composite
def cconj(z: Any) -> Any:
    """The conjugate."""
    check_vectors("cconj", z)
    return pack([z.x, -z.y])


@composite
def cmul(z1: Any, z2: Any) -> Any:
    """z1 times z2."""
    check_vectors("cmul", z1, z2)
    return pack([z1.x * z2.x - z1.y * z2.y, z1.x * z2.y + z1.y * z2.x])


@composite
def cinv(z: Any) -> Any:
    """1 / z."""
    return cconj(z) / norm_sqr(z)


@composite
def cdiv(z1: Any, z2: Any) -> Any:
    """z1 / z2."""
    return cmul(z1, cconj(z2)) / norm_sqr(z2)


def _polar(r: Any, angle: Any) -> Any:
    return pack([r * cos(angle), r * sin(angle)])


@composite
def csqrt(z: Any) -> Any:
    """The square root with nonnegative real part, of the complex number z."""
    return _polar(sqrt(norm(z)), atan2(z.y, z.x) * 0.5)


@composite
def cpow(z: Any, n: Any) -> Any:
    """z to the real power n, the principal value."""
    return _polar(pow(norm_sqr(z), n * 0.5), atan2(z.y, z.x) * n)


@composite
def cexp(z: Any) -> Any:
    """e to the power z."""
    check_vectors("cexp", z)
    return _polar(exp(z.x), z.y)


@composite
def clog(z: Any) -> Any:
    """The logarithm with imaginary part in [-pi, pi]."""
    check_vectors("clog", z)
    return pack([log(norm(z)), atan2(z.y, z.x)])
