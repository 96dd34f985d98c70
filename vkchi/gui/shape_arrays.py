"""Shapes as arrays, made from user arguments: positions, radii, colours.

Positions are given as fractions of the window, from (0, 0) in the lower left to (1, 1), and stored
in pixels.

    >>> positions("circles", "pos", np.zeros((5, 2)), (640, 480)).shape
    (5, 2)
"""

from __future__ import annotations

import functools
from typing import Any

from vkchi.errors import ToolError
from vkchi.interop import host_views
from vkchi.interrupts.local import local
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

Floats = np.ndarray[Any, Any]
Resolution = tuple[int, int]
IS_TRIANGLE = -1.0  # as a radius
FARTHEST = 1e9  # pixels; shapes beyond are not drawn
SHIFTS = (16, 8, 0)  # of red, green and blue in 0xRRGGBB


class ShapeBatch(NamedTuple):
    """Shapes to be painted in order.

    points: f32[n, 2 * corners] in pixels: centres of discs, ends of segments, or corners of
    triangles. If `corners` is more than a shape needs, it repeats its last corner. radius: f32[n]
    in pixels, IS_TRIANGLE for triangles; colours: u32[n], 0xRRGGBB.
    """

    points: Floats
    radius: Floats
    colours: Floats

    @property
    def corners(self) -> int:
        """Corners per shape: 1, 2 or 3."""
        return int(self.points.shape[1]) // 2

    def boxes(self, res: Resolution) -> np.ndarray[Any, Any]:
        """Bounding boxes i32[4, n] of the pixels: first and last columns, first and last rows.

        They are clipped to a window of `res` pixels. The first exceeds the last if the box is
        outside of it.
        """
        far, box = np.maximum(self.radius, 0), np.empty((4, len(self.radius)), np.int32)
        for axis, size in enumerate(res):
            places = self.points[:, axis::2].T
            low = functools.reduce(np.minimum, places) - far
            high = functools.reduce(np.maximum, places) + far
            first, last = box[2 * axis : 2 * axis + 2]
            first[:] = np.clip(low, 0, size)  # casts cut, which is floor from 0 on
            last[:] = np.clip(high, -1, size - 1)
            last -= high < 0
        return box


# --- conversion of arguments ---------------------------------------------------------------------


def scalars_per_shape(who: str, name: str, x: Any) -> Floats:
    """Numpy array of a number, field, ndarray, numpy array, tensor, vector or list.

    Raises ToolError unless its elements are bools, integers or floats.
    """
    try:
        values = np.asarray(
            getattr(x, "entries", x) if is_plain(x) else host_views.to_number_array(x)
        )
    except local(TypeError, ValueError) as e:
        raise ToolError(f"{who}: {name} is an array of numbers: {e}") from None
    if values.dtype.kind not in "fiub":
        raise ToolError(f"{who}: {name} is an array of numbers, not of {values.dtype}")
    return values


def is_plain(x: Any) -> bool:
    """True if x is a number, a list or tuple, or has `entries` as a `ti.Vector` has."""
    return isinstance(x, int | float | list | tuple | np.generic) or hasattr(x, "entries")


def point(who: str, name: str, x: Any, res: Resolution) -> Floats:
    """One position f32[1, 2], in pixels. Raises ToolError."""
    values = scalars_per_shape(who, name, x)
    if values.size != 2:
        raise ToolError(f"{who}: {name} is a position of two numbers, not {x!r}")
    return to_pixels(values.reshape(1, 2), res)


def positions(who: str, name: str, x: Any, res: Resolution) -> Floats:
    """Positions f32[n, 2], in pixels. Raises ToolError."""
    values = scalars_per_shape(who, name, x)
    if values.ndim == 3 and values.shape[2] == 1:  # of a ti.Matrix.field(2, 1, ...)
        values = values[:, :, 0]
    if values.ndim != 2 or values.shape[1] != 2:
        raise ToolError(
            f"{who}: {name} is an array of positions: a vector field of 2 components with one "
            f"axis, or an array of shape (n, 2), not {values.shape}"
        )
    return to_pixels(values, res)


def to_pixels(values: Floats, res: Resolution) -> Floats:
    """Convert fractions of the window to pixels, in f32."""
    return convert_to_f32(values * np.array(res, np.float64))


def convert_to_f32(values: Floats) -> Floats:
    """Convert to f32; values beyond its range become infinite (see `drop_invalid_shapes`)."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def radii(who: str, x: Any, count: int) -> Floats:
    """Radii f32[count] in pixels, from one number or an array. Raises ToolError."""
    return convert_to_f32(one_each(who, "radius", scalars_per_shape(who, "radius", x), count))


def one_each(who: str, name: str, values: Floats, count: int) -> Floats:
    """One value for each of `count` shapes, from one number or an array. Raises ToolError."""
    if values.ndim == 0:
        return np.broadcast_to(values, count)
    if values.shape not in ((count,), (count, 1)):
        raise ToolError(
            f"{who}: {name} is one number or an array of {count}, one for each shape, not of "
            f"shape {values.shape}"
        )
    return values.reshape(count)


def colours(who: str, x: Any, count: int) -> Floats:
    """Colours u32[count] from one colour 0xRRGGBB or an array. Raises ToolError."""
    values = one_each(who, "color", scalars_per_shape(who, "color", x), count)
    if count and not (values.min() >= 0 and values.max() <= 0xFFFFFF):
        raise ToolError(f"{who}: a color is a number from 0 to 0xFFFFFF, not {x!r}")
    return values.astype(np.uint32)


def from_hex(values: np.ndarray[Any, Any]) -> Floats:
    """Opaque colours f32[..., 4] from 0xRRGGBB."""
    channels = np.ones((*values.shape, 4), np.float32)
    for k, shift in enumerate(SHIFTS):
        channels[..., k] = (values >> np.uint32(shift) & np.uint32(255)) / np.float32(255)
    return channels


def from_palette(who: str, palette: Any, indices: Any, count: int) -> Floats:
    """Colours u32[count] of a palette at `indices`, one integer or an array. Raises ToolError."""
    if indices is None:
        raise ToolError(f"{who}: palette must be used together with palette_indices")
    chosen = one_each(
        who, "palette_indices", scalars_per_shape(who, "palette_indices", indices), count
    )
    table = scalars_per_shape(who, "palette", palette).reshape(-1)
    if chosen.dtype.kind not in "iu":
        raise ToolError(f"{who}: palette_indices are integers, not {chosen.dtype}")
    if count and not (chosen.min() >= 0 and chosen.max() < len(table)):
        raise ToolError(
            f"{who}: palette_indices go from {chosen.min()} to {chosen.max()}, and the palette "
            f"has {len(table)} colours"
        )
    return colours(who, table[chosen], count)


# --- shapes --------------------------------------------------------------------------------------


def drop_invalid_shapes(points: Floats, radius: Floats, colour: Floats) -> ShapeBatch:
    """A batch of the shapes without invalid ones.

    Invalid are coordinates that are NaN or at least FARTHEST in magnitude, and radii that are not
    positive or at least FARTHEST. IS_TRIANGLE is a valid radius.
    """
    is_shown = (radius > 0) & (radius < FARTHEST) | (radius == IS_TRIANGLE)
    for column in points.T:  # .all(1) takes ten times as long
        is_shown &= np.abs(column) < FARTHEST
    if is_shown.all():
        return ShapeBatch(points, radius, colour)
    return ShapeBatch(points[is_shown], radius[is_shown], colour[is_shown])


def discs(middles: Floats, radius: Floats, colour: Floats) -> ShapeBatch:
    """Discs, shifted by half a pixel as in Taichi, without invalid ones.

    A centre on a pixel's lower left corner becomes that pixel's centre.
    """
    return drop_invalid_shapes(middles + np.float32(0.5), np.maximum(radius, 0), colour)


def segments(begin: Floats, end: Floats, radius: Floats, colour: Floats) -> ShapeBatch:
    """Lines with round ends."""
    return drop_invalid_shapes(np.concatenate([begin, end], 1), np.maximum(radius, 0), colour)


def triangles(a: Floats, b: Floats, c: Floats, colour: Floats) -> ShapeBatch:
    """Triangles, without those of area zero and invalid ones."""
    with np.errstate(over="ignore", invalid="ignore"):  # of those that are nowhere
        (ux, uy), (vx, vy) = (b - a).T, (c - a).T
        has_area = ux * vy != uy * vx
    radius = np.where(has_area, np.float32(IS_TRIANGLE), np.float32(0))
    return drop_invalid_shapes(np.concatenate([a, b, c], 1), radius, colour)


def join_batches(parts: list[ShapeBatch]) -> ShapeBatch:
    """Concatenate batches, at least one; repeat last corners up to the largest corner count."""
    if len(parts) == 1:
        return parts[0]
    most = max(part.corners for part in parts)
    points = [
        np.concatenate([part.points, *[part.points[:, -2:]] * (most - part.corners)], 1)
        for part in parts
    ]
    return ShapeBatch(
        np.concatenate(points),
        np.concatenate([part.radius for part in parts]),
        np.concatenate([part.colours for part in parts]),
    )


# --- diagrams ------------------------------------------------------------------------------------
#
# Geometry of diagrams: arrows, points and grids.
#
# Positions are fractions of the window.

LONGEST = 0.1  # longest arrow of a vector field, in fractions of the window


class Arrows(NamedTuple):
    """Lines float[3 n, 2] of n arrows, from begin to end: n shafts, then the two halves of the n
    tips."""

    begin: Floats
    end: Floats


def arrow_lines(orig: Floats, direction: Floats, tip_scale: float, angle: float) -> Arrows:
    """Lines of arrows from `orig` along `direction`, both of shape [n, 2].

    tip_scale: length of a tip's halves, in lengths of the arrow; angle: between each half and the
    shaft, in degrees.
    """
    turn, ends = np.deg2rad(180 - angle), orig + direction
    x, y = direction.T * tip_scale
    sides = [
        ends + np.stack([np.cos(a) * x - np.sin(a) * y, np.sin(a) * x + np.cos(a) * y], 1)
        for a in (-turn, turn)
    ]
    return Arrows(np.concatenate([orig, ends, ends]), np.concatenate([ends, *sides]))


def grid(shape: tuple[int, ...], bound: float) -> Floats:
    """Positions of a grid, shape [width * height, 2].

    bound: distance of the outer points from the window's edge, in grid spacings.
    """
    x, y = ((np.arange(n) + bound) / max(n + 2 * bound - 1, 1) for n in shape)
    return np.stack(np.meshgrid(x, y, indexing="ij"), -1).reshape(-1, 2)


def vector_arrows(who: str, field: object, spacing: int) -> tuple[Floats, Floats]:
    """Origins and directions [n, 2] of every `spacing`-th vector along both axes.

    Directions are scaled so that the longest vector of the whole field has length LONGEST. Raises
    ToolError for other fields, and unless `spacing` is a positive integer.
    """
    values = plane(who, field, 2).astype(np.float64)
    if not (isinstance(spacing, int | np.integer) and spacing > 0):
        raise ToolError(f"{who}: arrow_spacing is a positive integer, not {spacing!r}")
    longest = np.linalg.norm(values, axis=2).max()
    chosen = values[::spacing, ::spacing]
    at = np.moveaxis(np.indices(chosen.shape[:2]), 0, 2) * spacing / values.shape[:2]
    scale = LONGEST / longest if longest > 0 else 0.0
    return at.reshape(-1, 2), (chosen * scale).reshape(-1, 2)


def plane(who: str, field: object, channels: int = 0) -> Floats:
    """Values of a field with two axes: scalars, or vectors of `channels` components unless that is
    0.

    Raises ToolError for other fields and for empty ones.
    """
    values = scalars_per_shape(who, "the field", field)
    if values.ndim == 4 and values.shape[3] == 1:
        values = values[:, :, :, 0]
    if values.ndim != 2 + bool(channels) or (channels and values.shape[2] != channels):
        what = f"vectors of {channels} numbers" if channels else "numbers"
        raise ToolError(f"{who}: a field of {what} with two axes is needed, not {values.shape}")
    if values.size == 0:
        raise ToolError(f"{who}: the field is empty")
    return values
