"""Texture formats, and the annotations `ti.types.texture` and `ti.types.rw_texture`.

See also: `lang/texture_sampling.py` converts values.

    >>> texel_of(Format.rgba8)
    Texel(scalar='u8', channels=4, kind='unorm', order='rgba')
"""

from __future__ import annotations

import enum
from typing import Any

from vkchi.errors import ArgumentError, KernelTypeError, Unsupported
from vkchi.tuples import NamedTuple


class Format(enum.Enum):
    """Texture format (`ti.Format.rgba8`): channels, bits per channel, and a suffix for their kind.

    Suffixes are u and i for integers, f for floats, srgb for the sRGB curve. Without one, color
    channels are fractions from 0 to 1. Names and values are Taichi's.
    """

    unknown = 0
    r8, rg8, rgba8, rgba8srgb, bgra8, bgra8srgb = range(1, 7)
    r8u, rg8u, rgba8u, r8i, rg8i, rgba8i = range(7, 13)
    r16, rg16, rgb16, rgba16 = range(13, 17)
    r16u, rg16u, rgb16u, rgba16u = range(17, 21)
    r16i, rg16i, rgb16i, rgba16i = range(21, 25)
    r16f, rg16f, rgb16f, rgba16f = range(25, 29)
    r32u, rg32u, rgb32u, rgba32u = range(29, 33)
    r32i, rg32i, rgb32i, rgba32i = range(33, 37)
    r32f, rg32f, rgb32f, rgba32f = range(37, 41)
    depth16, depth24stencil8, depth32f = range(41, 44)


class Texel(NamedTuple):
    """Memory layout of a texel: `channels` values of type `scalar`, in `order`.

    kind: number format of a channel.

    - `unorm`: an unsigned integer, divided by its maximum;
    - `srgb`: like unorm, for a color on the sRGB curve; alpha is linear;
    - `int`: the integer itself;
    - `float`.
    """

    scalar: str
    channels: int
    kind: str
    order: str


_SPECIAL = {
    "rgba8srgb": Texel("u8", 4, "srgb", "rgba"),
    "bgra8": Texel("u8", 4, "unorm", "bgra"),
    "bgra8srgb": Texel("u8", 4, "srgb", "bgra"),
    "depth16": Texel("u16", 1, "unorm", "r"),
    "depth32f": Texel("f32", 1, "float", "r"),
}
_KINDS = {"": ("u", "unorm"), "u": ("u", "int"), "i": ("i", "int"), "f": ("f", "float")}


def texel_of(fmt: Format) -> Texel:
    """The texel layout of a format.

    Raises Unsupported for `unknown` and `depth24stencil8`.
    """
    if fmt.name in _SPECIAL:
        return _SPECIAL[fmt.name]
    if fmt.name in ("unknown", "depth24stencil8"):
        raise Unsupported(
            f"textures of ti.Format.{fmt.name} are not supported: use ti.Format.depth32f or r32f"
        )
    order = fmt.name.rstrip("0123456789uif")
    bits, suffix = fmt.name[len(order) :].rstrip("uif"), fmt.name.lstrip("rgba0123456789")
    letter, kind = _KINDS[suffix]
    return Texel(letter + bits, len(order), kind, order)


def check_dimensions(who: str, count: Any) -> int:
    """Return a texture's number of axes. Raises ArgumentError unless it is 1, 2 or 3."""
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 3:
        raise ArgumentError(f"{who}: num_dimensions is 1, 2 or 3, not {count!r}")
    return count


class texture:
    """Annotation: a texture of any format that the kernel samples and fetches.

    num_dimensions: 1, 2 or 3, otherwise raises ArgumentError. Source: Taichi's `ti.types.texture`.
    """

    def __init__(self, num_dimensions: int) -> None:
        self.num_dimensions = check_dimensions("ti.types.texture", num_dimensions)


class rw_texture:
    """Annotation: a texture of format `fmt` that the kernel loads from and stores to.

    num_dimensions: 1, 2 or 3, otherwise raises ArgumentError. lod: must be 0, because textures have
    one level; otherwise raises Unsupported. Raises KernelTypeError if fmt is no `Format`,
    Unsupported for the formats `unknown` and `depth24stencil8`. Source: Taichi's
    `ti.types.rw_texture`.
    """

    def __init__(self, num_dimensions: int, lod: int = 0, fmt: Any = None) -> None:
        self.num_dimensions = check_dimensions("ti.types.rw_texture", num_dimensions)
        if not isinstance(fmt, Format):
            raise KernelTypeError(
                f"ti.types.rw_texture: fmt is a format such as ti.Format.r32f, not {fmt!r}",
                help="write ti.types.rw_texture(num_dimensions=2, fmt=ti.Format.r32f)",
            )
        if lod != 0:
            raise Unsupported(f"ti.types.rw_texture: textures have level 0 only, not lod={lod!r}")
        texel_of(fmt)
        self.fmt, self.lod = fmt, lod
