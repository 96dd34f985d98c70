"""Geometry of diagrams: arrows, points and grids.

Positions are fractions of the window.
"""

from __future__ import annotations

from vkchi.errors import ToolError
from vkchi.gui.shape_arrays import Floats, scalars_per_shape
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

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
