"""Rotations, translation and scaling as matrices, in both scopes. Angles are in radians.

The 4 by 4 matrices act on homogeneous coordinates. As in Taichi, `rotation2d` and `translate` act
on column vectors, the rotations in space on row vectors.

    >>> rotation2d(0.0)
    [[ 1. -0.]
     [ 0.  1.]]
"""

from __future__ import annotations

from typing import Any

from vkchi.lang.elementwise import cos, sin
from vkchi.lang.function import composite
from vkchi.lang.linear_algebra.linear import check_vectors, normalized
from vkchi.lang.matrix import identity, pack

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
    check_vectors("rot_by_axis", axis, pack([0.0, 0.0, 0.0]))
    c, s = cos(ang), sin(ang)
    n = normalized(axis)
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
