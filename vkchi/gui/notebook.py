"""Pictures in a notebook's output. Must not know: windows.

display = Display(); display.show(rows)
"""

from __future__ import annotations

import io
import sys
from typing import Any

from vkchi.tools.image import to_image


def is_notebook() -> bool:
    """Whether the program runs in a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class Display:
    """A place in a cell's output that shows one picture after the other."""

    def __init__(self) -> None:
        self.handle: Any = None
        self.cell = -1

    def show(self, pixels: Any) -> None:
        """Show pixels in the cell that runs, in place of those before them there."""
        from IPython import display, get_ipython

        png = io.BytesIO()
        to_image(pixels).save(png, "PNG")
        picture = display.Image(data=png.getvalue(), format="png")
        cell = get_ipython().execution_count
        if self.handle is not None and cell == self.cell:
            self.handle.update(picture)
        else:
            self.cell, self.handle = cell, display.display(picture, display_id=True)
