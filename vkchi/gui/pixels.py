"""Pictures as pixels of a window: conversions for `set_image`, colour maps, text.

>>> image_to_pixels(np.zeros((4, 3), np.uint8), (4, 3)).shape
(4, 3, 4)
"""

from __future__ import annotations

import functools
from typing import Any

from vkchi.errors import ToolError, Unsupported
from vkchi.gui.shape_arrays import Floats, Resolution, from_hex, scalars_per_shape
from vkchi.interrupts.local import local
from vkchi.texture import Texture
from vkchi.tools.image import import_pillow
from vkchi.types.lazy_numpy import np

# The colour map "plasma" of matplotlib (CC0), at even distances.
PLASMA = np.array([
    0x0D0887, 0x220690, 0x310597, 0x3F049C, 0x4C02A1, 0x5901A5, 0x6600A7, 0x7201A8, 0x7E03A8,
    0x8A09A5, 0x9511A1, 0xA01A9C, 0xAA2395, 0xB32C8E, 0xBC3587, 0xC43E7F, 0xCC4778, 0xD35171,
    0xDA5A6A, 0xE06363, 0xE66C5C, 0xEB7655, 0xF0804E, 0xF58B47, 0xF89540, 0xFBA139, 0xFDAC33,
    0xFEB82C, 0xFDC527, 0xFCD225, 0xF8DF25, 0xF4ED27, 0xF0F921,
], np.uint32)  # fmt: skip


def image_to_pixels(img: Any, res: Resolution) -> Floats:
    """Convert a field, ndarray, array, tensor or texture of the window's shape to f32[w, h, 4].

    Elements are scalars, or there are 1 to 4 channels: floats unchanged, unsigned integers divided
    by their maximum. One channel is grey, two are red and green; missing alpha is 1.

    Raises ToolError. Source: Taichi's `GUI.set_image`, except for alpha.
    """
    if isinstance(img, Texture):
        img = img.texels("set_image")
    values = scalars_per_shape("set_image", "the image", img)
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim == 4 and values.shape[3] == 1:  # of a ti.Matrix.field(3, 1, ...)
        values = values[:, :, :, 0]
    if values.ndim != 3 or values.shape[2] not in (1, 2, 3, 4):
        raise ToolError(
            "set_image: an image has the shape (width, height), or a third axis or vectors of 1 to "
            f"4 channels, not {values.shape}"
        )
    if values.shape[:2] != res:
        raise ToolError(f"set_image: the window has {res} pixels, the image {values.shape[:2]}")
    if values.dtype.kind not in "fu":
        raise ToolError(
            f"set_image: an image is made of floats or unsigned integers, not of {values.dtype}: "
            "convert it, for example to ti.u8"
        )
    channels = values.shape[2]
    pixels = np.zeros((*res, 4), np.float32)
    pixels[:, :, : 3 if channels == 1 else channels] = values
    if values.dtype.kind == "u":
        pixels *= np.float32(1 / np.iinfo(values.dtype).max)
    if channels < 4:
        pixels[:, :, 3] = 1
    return pixels


# --- numbers as colours --------------------------------------------------------------------------


def colour_map(numbers_: Floats) -> Floats:
    """Colours f32[..., 4] of numbers from 0 to 1; numbers outside are clamped, nan is 0."""
    table, places = from_hex(PLASMA), np.linspace(0, 1, len(PLASMA))
    clipped = np.clip(np.nan_to_num(numbers_), 0, 1)
    return np.stack([np.interp(clipped, places, table[:, c]) for c in range(4)], -1).astype("f4")


def resample_bilinear(values: Floats, res: Resolution) -> Floats:
    """Resample a two-dimensional array bilinearly; corners stay corners."""
    for axis, size in enumerate(res):
        count = values.shape[axis]
        at = np.linspace(0, count - 1, size)
        low = np.minimum(at.astype(np.int64), max(count - 2, 0))
        part = (at - low).reshape(-1, 1) if axis == 0 else (at - low)
        high = np.minimum(low + 1, count - 1)
        values = values.take(low, axis) * (1 - part) + values.take(high, axis) * part
    return values


# --- text ----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=32)
def find_font(size: float) -> Any:
    """Pillow's own font, in a size in pixels; up to 32 sizes are cached.

    Raises MissingPackageError without Pillow, Unsupported if it is older than 10.1 or lacks
    FreeType.
    """
    import_pillow()
    from PIL import ImageFont

    try:
        return ImageFont.load_default(size)
    except local(TypeError, ImportError, OSError):  # before 10.1, or built without FreeType
        raise Unsupported("text needs Pillow 10.1 or later with FreeType") from None


def draw_text(content: str, size: float) -> tuple[Floats, int]:
    """(pixel coverage f32[w, h] of a string of one or more lines, height of a line in pixels)."""
    font = find_font(float(size))
    height = sum(font.getmetrics())
    lines = content.split("\n")
    width = max(1, *(int(np.ceil(font.getlength(line))) + 2 for line in lines))
    pillow = import_pillow()
    from PIL import ImageDraw

    image = pillow.new("L", (width, height * len(lines)))
    draw = ImageDraw.Draw(image)
    for k, line in enumerate(lines):
        draw.text((0, k * height), line, fill=255, font=font, anchor="la")
    rows = np.asarray(image, np.float32) / 255
    return rows.T[:, ::-1], height
