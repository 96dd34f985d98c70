"""Pixels of a window, and the shapes that are not painted yet.

Shapes are batched; they are painted when the pixels are needed.

    canvas = PixelCanvas((640, 480)); canvas.add(shapes); canvas.pixels()
"""

from __future__ import annotations

from vkchi.gui.paint import paint
from vkchi.gui.shape_arrays import Floats, Resolution, ShapeBatch, from_hex, join_batches
from vkchi.types.lazy_numpy import np


class PixelCanvas:
    """Pixels f32[w, h, 4] from the lower left; channels from 0 to 1."""

    def __init__(self, res: Resolution) -> None:
        self.res = res
        self._pixels: Floats = np.zeros((*res, 4), np.float32)
        self._waiting: list[ShapeBatch] = []

    def add(self, shapes: ShapeBatch) -> None:
        """Append shapes, to be painted over the present pixels when these are needed."""
        self._waiting.append(shapes)

    def clear(self, colour: int) -> None:
        """Make all pixels one colour, 0xRRGGBB; drop shapes that are not painted yet."""
        self._waiting.clear()
        self._pixels[:] = from_hex(np.array(colour, np.uint32))

    def set(self, pixels: Floats) -> None:
        """Replace the pixels by an array f32[w, h, 4], not copied; drop shapes not painted yet."""
        self._waiting.clear()
        self._pixels = pixels

    def stamp(self, mask: Floats, left: int, low: int, colour: int) -> None:
        """Blend one colour over the pixels through a mask f32[w, h], with opacities from 0 to 1.

        The mask's lower left corner is at pixel (left, low). Parts outside the window are cut off.
        """
        pixels = self.pixels()
        x0, y0 = max(left, 0), max(low, 0)
        part = mask[x0 - left : self.res[0] - left, y0 - low : self.res[1] - low]
        box = pixels[x0 : left + mask.shape[0], y0 : low + mask.shape[1]]
        if part.size and box.size:
            box += part[:, :, None] * (from_hex(np.array(colour, np.uint32)) - box)

    def pixels(self) -> Floats:
        """Return the pixels with all shapes painted; not a copy."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            paint(self._pixels, join_batches(waiting))
        return self._pixels
