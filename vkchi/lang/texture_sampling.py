"""Texture formats and filtering: conversion of channels, and interpolation of texels.

The formulas are Python functions of kernel values (`function.Traced`) or numbers.

Conventions, as in Taichi's Vulkan backend:
- Coordinates are 0 to 1 along each axis; the centre of texel k of n is at (k + 0.5) / n.
- `sample_linear` interpolates linearly between centres.
- Textures repeat outside 0 to 1.
- A colour is a vector of four f32. Channels that a format lacks are 0, alpha is 1.

    >>> decode_texel(texel_of(Format.rg8), [255, 51])
    [1.0, 0.2, 0.0, 1.0]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from vkchi.lang.elementwise import cast, floor, max, min, pow, round, select
from vkchi.types import SCALARS, Scalar, f32, i32
from vkchi.types.formats import Texel

MISSING = {"r": 0.0, "g": 0.0, "b": 0.0, "a": 1.0}


# --- channel formats -----------------------------------------------------------------------------


def largest_integer(t: Scalar) -> float:
    """The largest value of an integer type, as a float."""
    return float(2 ** (t.bits - (t.kind == "i")) - 1)


def from_srgb(c: Any) -> Any:
    """Decode an sRGB channel to linear intensity. Source: Khronos Data Format, 13.3."""
    return select(c <= 0.04045, c / 12.92, pow((c + 0.055) / 1.055, 2.4))


def to_srgb(c: Any) -> Any:
    """Encode a linear intensity from 0 to 1 as sRGB."""
    return select(c <= 0.0031308, c * 12.92, pow(max(c, 0.0031308), 1 / 2.4) * 1.055 - 0.055)


def decode_texel(texel: Texel, raw: Sequence[Any]) -> list[Any]:
    """Return the four components r, g, b, a of a texel from its raw channels."""
    found: dict[str, Any] = dict(MISSING)
    for name, stored in zip(texel.order, raw, strict=True):
        c = cast(stored, f32)
        if texel.kind in ("unorm", "srgb"):
            c = c * (1.0 / largest_integer(SCALARS[texel.scalar]))  # quotients may be inexact
        found[name] = from_srgb(c) if texel.kind == "srgb" and name != "a" else c
    return [found[name] for name in "rgba"]


def encode_texel(texel: Texel, colour: Sequence[Any], stored: Scalar) -> list[Any]:
    """Return the raw channels, of type `stored`, of a colour's four components.

    Channels of normalized formats are clamped to 0 to 1 and rounded to the nearest step. Those of
    integer formats are clamped to the type's range and truncated. Those of float formats are only
    converted. Source: Vulkan, "Conversion from Floating-Point to Normalized Fixed-Point".
    """
    parts = dict(zip("rgba", colour, strict=True))
    return [cast(_encoded(texel, name, parts[name]), stored) for name in texel.order]


def _encoded(texel: Texel, name: str, c: Any) -> Any:
    if texel.kind == "float":
        return c
    t = SCALARS[texel.scalar]
    most = largest_integer(t)
    if texel.kind == "int":
        low = 0.0 if t.kind == "u" else -most - 1.0
        return min(max(c, low), largest_f32(most))
    c = min(max(c, 0.0), 1.0)  # this order maps NaN to 0
    return round((to_srgb(c) if texel.kind == "srgb" and name != "a" else c) * most)


def largest_f32(bound: float) -> float:
    """Return the largest f32 not above a positive integer, which is given as a float."""
    excess = int(bound).bit_length() - 24
    return float(int(bound) >> excess << excess) if excess > 0 else bound


# --- texels and coordinates ----------------------------------------------------------------------


def sample_linear(
    read: Callable[[list[Any]], Any],
    extents: Sequence[Any],
    coordinates: Sequence[Any],
) -> Any:
    """Multilinear sample at normalized coordinates, with repeat addressing.

    `read` returns the colour of the texel at in-range indices; `extents` are the texels per axis.
    """
    ends = []
    for u, n in zip(coordinates, extents, strict=True):
        place = (u - floor(u)) * cast(n, f32) - 0.5
        low = floor(place)
        first = cast(low, i32)
        second = first + 1
        ends.append([
            (select(first < 0, n - 1, first), 1.0 - (place - low)),
            (select(second < n, second, 0), place - low),
        ])  # fmt: skip
    total: Any = None
    for corner in product(*ends):
        colour = read([index for index, _ in corner])
        for _, weight in corner:
            colour = colour * weight
        total = colour if total is None else total + colour
    return total


def sample_nearest(
    read: Callable[[list[Any]], Any],
    extents: Sequence[Any],
    coordinates: Sequence[Any],
) -> Any:
    """Nearest-texel sample at normalized coordinates, with repeat addressing."""
    index = []
    for u, n in zip(coordinates, extents, strict=True):
        k = cast((u - floor(u)) * cast(n, f32), i32)
        index.append(select(k < n, k, n - 1))  # u - floor(u) may round to 1
    return read(index)


def is_inside(index: Sequence[Any], extents: Sequence[Any]) -> Any:
    """True if each index is at least 0 and below the extent of its axis."""
    found: Any = None
    for k, n in zip(index, extents, strict=True):
        for test in (k >= 0, k < n):
            found = test if found is None else found & test
    return found
