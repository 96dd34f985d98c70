"""The namespace `ti.math`: constants, vector types, and the functions of shading languages.

Functions such as `mix`, `reflect` and `inverse` are defined here, others re-exported. Most are
composites, written once for both scopes.

    >>> mix(1.0, 2.0, 0.25)
    1.25
"""

from __future__ import annotations

from math import e, inf, nan, pi
from typing import TYPE_CHECKING, Any

from vkchi.hooks import ModuleNameHook
from vkchi.lang.elementwise import (
    acos,
    asin,
    atan,
    atan2,
    ceil,
    clz,
    cos,
    cosh,
    exp,
    exp2,
    floor,
    isinf,
    isnan,
    log,
    log2,
    max,
    min,
    mod,
    popcnt,
    pow,
    round,
    select,
    sign,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
)
from vkchi.lang.function import composite
from vkchi.lang.linear_algebra import linear
from vkchi.lang.linear_algebra.complex import cconj, cdiv, cexp, cinv, clog, cmul, cpow, csqrt
from vkchi.lang.linear_algebra.transforms import (
    eye,
    rot_by_axis,
    rot_yaw_pitch_roll,
    rotation2d,
    rotation3d,
    scale,
    translate,
    vdir,
)

if TYPE_CHECKING:  # argument types and constructors
    from vkchi.protocols import MatrixType as mat2
    from vkchi.protocols import MatrixType as mat3
    from vkchi.protocols import MatrixType as mat4
    from vkchi.protocols import VectorType as ivec2
    from vkchi.protocols import VectorType as ivec3
    from vkchi.protocols import VectorType as ivec4
    from vkchi.protocols import VectorType as uvec2
    from vkchi.protocols import VectorType as uvec3
    from vkchi.protocols import VectorType as uvec4
    from vkchi.protocols import VectorType as vec2
    from vkchi.protocols import VectorType as vec3
    from vkchi.protocols import VectorType as vec4
else:
    from vkchi.lang.type_calls import (
        ivec2,
        ivec3,
        ivec4,
        mat2,
        mat3,
        mat4,
        uvec2,
        uvec3,
        uvec4,
        vec2,
        vec3,
        vec4,
    )

__all__ = [
    "e", "inf", "nan", "pi",
    "vec2", "vec3", "vec4", "ivec2", "ivec3", "ivec4", "uvec2", "uvec3", "uvec4",
    "mat2", "mat3", "mat4",
    "acos", "asin", "atan", "atan2", "ceil", "clz", "cos", "cosh", "exp", "exp2", "floor", "isinf",
    "isnan", "log", "log2", "max", "min", "mod", "popcnt", "pow", "round", "sign", "sin", "sinh",
    "sqrt", "tan", "tanh", "trunc",
    "clamp", "degrees", "distance", "dot", "cross", "determinant", "fract", "inverse", "length",
    "mix", "normalize", "radians", "reflect", "refract", "smoothstep", "step",
    "cconj", "cdiv", "cexp", "cinv", "clog", "cmul", "cpow", "csqrt",
    "eye", "rot_by_axis", "rot_yaw_pitch_roll", "rotation2d", "rotation3d", "scale", "translate",
    "vdir",
]  # fmt: skip


@composite
def mix(x: Any, y: Any, a: Any) -> Any:
    """x * (1 - a) + y * a."""
    return x * (1.0 - a) + y * a


@composite
def clamp(x: Any, xmin: Any, xmax: Any) -> Any:
    """x limited to the range [xmin, xmax]."""
    return min(xmax, max(xmin, x))


@composite
def step(edge: Any, x: Any) -> Any:
    """1.0 if x >= edge, else 0.0."""
    return select(x >= edge, 1.0, 0.0)


@composite
def smoothstep(edge0: Any, edge1: Any, x: Any) -> Any:
    """Hermite interpolation from 0 at edge0 to 1 at edge1, constant outside."""
    t = clamp((x - edge0) * (1.0 / (edge1 - edge0)), 0.0, 1.0)
    return t * t * (3.0 - 2.0 * t)


@composite
def fract(x: Any) -> Any:
    """x - floor(x)."""
    return x - floor(x)


@composite
def degrees(x: Any) -> Any:
    """Convert radians to degrees."""
    return x * (180.0 / pi)


@composite
def radians(x: Any) -> Any:
    """Convert degrees to radians."""
    return x * (pi / 180.0)


@composite
def dot(x: Any, y: Any) -> Any:
    """Inner product of two vectors."""
    return linear.dot(x, y)


@composite
def cross(x: Any, y: Any) -> Any:
    """Cross product of two vectors of 3 (a vector) or of 2 (a scalar).

    Raises KernelTypeError for other shapes.
    """
    return linear.cross(x, y)


@composite
def length(x: Any) -> Any:
    """Euclidean length of a vector."""
    return linear.norm(x)


@composite
def distance(x: Any, y: Any) -> Any:
    """Euclidean distance of two points."""
    return linear.norm(x - y)


@composite
def normalize(v: Any) -> Any:
    """v scaled to length 1; nan for the zero vector."""
    return linear.normalized(v)


@composite
def reflect(x: Any, n: Any) -> Any:
    """The direction x reflected at a mirror with unit normal n."""
    return x - n * (2.0 * linear.dot(x, n))


@composite
def refract(x: Any, n: Any, eta: Any) -> Any:
    """The unit direction x refracted at a surface with unit normal n.

    `eta` is the refractive index on the side of x divided by that behind the surface. Total
    reflection gives the zero vector.
    """
    cosine = linear.dot(x, n)
    k = 1.0 - eta * eta * (1.0 - cosine * cosine)
    bent = x * eta - n * (eta * cosine + sqrt(max(k, 0.0)))
    return select(k >= 0.0, bent, bent * 0.0)


@composite
def determinant(m: Any) -> Any:
    """Determinant of a square matrix up to 4 by 4. Raises KernelTypeError for other shapes."""
    return linear.determinant(m)


@composite
def inverse(mat: Any) -> Any:
    """Inverse of a square matrix up to 4 by 4. Raises KernelTypeError for other shapes."""
    return linear.inverse(mat)


def __getattr__(name: str) -> Any:
    raise ModuleNameHook.missing(f"math.{name}", lambda: __all__)
