"""Pictures in a notebook's output.

display = Display(); display.show(pixels)
"""

from __future__ import annotations

import io
import sys
from typing import Any

from vkchi.errors import MissingPackageError
from vkchi.tools.image import to_image


def is_notebook() -> bool:
    """True if IPython runs in a kernel, as in a notebook, rather than in a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def encode_png(pixels: Any) -> bytes | None:
    """A PNG file of pixels, as `to_image` takes them; None if Pillow is not installed."""
    try:
        return write_png(pixels)
    except MissingPackageError:
        return None


def write_png(pixels: Any) -> bytes:
    """A PNG file of pixels, as `to_image` takes them. Raises MissingPackageError without Pillow."""
    png = io.BytesIO()
    to_image(pixels).save(png, "PNG")
    return png.getvalue()


class Display:
    """An area of a cell's output that shows successive pictures."""

    def __init__(self) -> None:
        self.handle: Any = None
        self.cell = -1

    def show(self, pixels: Any) -> None:
        """Show pixels in the running cell, replacing the previous picture there. Raises
        MissingPackageError without Pillow."""
        from IPython import display, get_ipython

        picture = display.Image(data=write_png(pixels), format="png")
        cell = get_ipython().execution_count
        if self.handle is not None and cell == self.cell:
            self.handle.update(picture)
        else:
            self.cell, self.handle = cell, display.display(picture, display_id=True)
