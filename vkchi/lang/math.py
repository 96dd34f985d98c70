"""The namespace `ti.math`: constants, vector types, and the functions of shading languages.

Functions such as `mix`, `cmul` and `rotation2d` are defined here, others re-exported. Most are
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
    cast,
    ceil,
    clz,
    cos,
    cosh,
    exp,
    exp2,
    ffs,
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
from vkchi.lang.matrix import identity, pack
from vkchi.types import i32, u32

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
    "acos", "asin", "atan", "atan2", "ceil", "clz", "cos", "cosh", "exp", "exp2", "ffs", "floor",
    "isinf", "isnan", "log", "log2", "max", "min", "mod", "popcnt", "pow", "round", "sign", "sin",
    "sinh", "sqrt", "tan", "tanh", "trunc",
    "clamp", "degrees", "distance", "dot", "cross", "determinant", "fns", "fract", "inverse",
    "length",
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
def fns(mask: Any, base: Any, offset: Any) -> Any:
    """Find the n-th set bit of a 32-bit mask: its position, as a u32; 0xffffffff if there is none.

    Args:
        mask: an integer.
        base: the first position that counts, 0 to 31.
        offset: n; upwards from `base` if positive, downwards if negative. For 0, bit `base` itself.

    Returns:
        The position.

    Source: CUDA's `__fns`.
    """
    rest, first = cast(mask, u32), cast(base, u32)
    below = rest & ((cast(1, u32) << first) - cast(1, u32))
    at_base = (rest >> first) & cast(1, u32)
    # The rank of the bit among all set bits, from 1.
    rank = cast(popcnt(below), i32) + select(
        offset > 0, offset, select(offset < 0, cast(at_base, i32) + offset + 1, 1)
    )
    is_there = (rank > 0) & (rank <= cast(popcnt(rest), i32))
    is_there = is_there & ((offset != 0) | (at_base != 0))
    position = cast(0, u32)
    for width in (16, 8, 4, 2, 1):
        count = cast(popcnt(rest & cast((1 << width) - 1, u32)), i32)
        is_above = rank > count
        rank = select(is_above, rank - count, rank)
        rest = select(is_above, rest >> cast(width, u32), rest)
        position = select(is_above, position + cast(width, u32), position)
    return cast(select(is_there, position, ~cast(0, u32)), u32)


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


# --- complex numbers, as vectors of 2 components -------------------------------------------------


@composite
def cconj(z: Any) -> Any:
    """The conjugate."""
    linear.check_vectors("cconj", z)
    return pack([z.x, -z.y])


@composite
def cmul(z1: Any, z2: Any) -> Any:
    """z1 times z2."""
    linear.check_vectors("cmul", z1, z2)
    return pack([z1.x * z2.x - z1.y * z2.y, z1.x * z2.y + z1.y * z2.x])


@composite
def cinv(z: Any) -> Any:
    """1 / z."""
    return cconj(z) / linear.norm_sqr(z)


@composite
def cdiv(z1: Any, z2: Any) -> Any:
    """z1 / z2."""
    return cmul(z1, cconj(z2)) / linear.norm_sqr(z2)


def _polar(r: Any, angle: Any) -> Any:
    return pack([r * cos(angle), r * sin(angle)])


@composite
def csqrt(z: Any) -> Any:
    """The square root with nonnegative real part, of the complex number z."""
    return _polar(sqrt(linear.norm(z)), atan2(z.y, z.x) * 0.5)


@composite
def cpow(z: Any, n: Any) -> Any:
    """z to the real power n, the principal value."""
    return _polar(pow(linear.norm_sqr(z), n * 0.5), atan2(z.y, z.x) * n)


@composite
def cexp(z: Any) -> Any:
    """e to the power z."""
    linear.check_vectors("cexp", z)
    return _polar(exp(z.x), z.y)


@composite
def clog(z: Any) -> Any:
    """The logarithm with imaginary part in [-pi, pi]."""
    linear.check_vectors("clog", z)
    return pack([log(linear.norm(z)), atan2(z.y, z.x)])


# --- rotations, translation, scaling -------------------------------------------------------------

# Angles are in radians. The 4 by 4 matrices act on homogeneous coordinates. As in Taichi,
# `rotation2d` and `translate` act on column vectors, the rotations in space on row vectors.
_LAST = [0.0, 0.0, 0.0, 1.0]


@composite
def vdir(ang: Any) -> Any:
    """The 2D unit vector at this angle from the x axis."""
    return pack([cos(ang), sin(ang)])


@composite
def rotation2d(ang: Any) -> Any:
    """The 2 by 2 matrix of an anticlockwise rotation by `ang`."""
    c, s = cos(ang), sin(ang)
    return pack([[c, -s], [s, c]])


@composite
def rot_by_axis(axis: Any, ang: Any) -> Any:
    """The 4 by 4 matrix of a rotation by `ang` about `axis`, a vector of 3 of any nonzero length.

    It acts on row vectors. Raises KernelTypeError if `axis` is no vector of 3.
    """
    linear.check_vectors("rot_by_axis", axis, pack([0.0, 0.0, 0.0]))
    c, s = cos(ang), sin(ang)
    n = linear.normalized(axis)
    x, y, z = n.x, n.y, n.z
    t = 1.0 - c
    return pack([
        [t * x * x + c, t * x * y + s * z, t * x * z - s * y, 0.0],
        [t * x * y - s * z, t * y * y + c, t * y * z + s * x, 0.0],
        [t * x * z + s * y, t * y * z - s * x, t * z * z + c, 0.0],
        _LAST,
    ])  # fmt: skip


@composite
def rot_yaw_pitch_roll(yaw: Any, pitch: Any, roll: Any) -> Any:
    """The 4 by 4 matrix of rotations by roll (about z), then pitch (about x), then yaw (about y).

    It acts on row vectors.
    """
    ch, sh = cos(yaw), sin(yaw)
    cp, sp = cos(pitch), sin(pitch)
    cb, sb = cos(roll), sin(roll)
    return pack([
        [ch * cb + sh * sp * sb, sb * cp, -sh * cb + ch * sp * sb, 0.0],
        [-ch * sb + sh * sp * cb, cb * cp, sb * sh + ch * sp * cb, 0.0],
        [sh * cp, -sp, ch * cp, 0.0],
        _LAST,
    ])  # fmt: skip


@composite
def rotation3d(ang_x: Any, ang_y: Any, ang_z: Any) -> Any:
    """The 4 by 4 matrix of rotations by `ang_y` about z, then `ang_x` about x, then `ang_z` about
    y.

    These are Taichi's axes. It acts on row vectors.
    """
    return rot_yaw_pitch_roll(ang_z, ang_x, ang_y)


@composite
def translate(dx: Any, dy: Any, dz: Any) -> Any:
    """The 4 by 4 matrix of a translation by (dx, dy, dz). It acts on column vectors."""
    return pack([[1.0, 0.0, 0.0, dx], [0.0, 1.0, 0.0, dy], [0.0, 0.0, 1.0, dz], _LAST])


@composite
def scale(sx: Any, sy: Any, sz: Any) -> Any:
    """The 4 by 4 matrix that scales the axes by sx, sy and sz."""
    return pack([[sx, 0.0, 0.0, 0.0], [0.0, sy, 0.0, 0.0], [0.0, 0.0, sz, 0.0], _LAST])


@composite
def eye(n: int) -> Any:
    """The `n` by `n` identity matrix of default_fp."""
    return identity(float, n)


def __getattr__(name: str) -> Any:
    raise ModuleNameHook.missing(f"math.{name}", lambda: __all__)
