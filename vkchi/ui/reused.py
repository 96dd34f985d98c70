"""Objects of the renderer for shapes: those of the frame before, where they fit.

Owns: which are taken, which are let go. An object is used once in a frame: the program may draw the
same field twice with a step between.

    pool = Pool(); drawn = pool.put(shape); ...; pool.recycle()    # the frame is done
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.ui.packages import require
from vkchi.ui.shapes import Shape

if TYPE_CHECKING:
    from vkchi.ui.materials import Drawn


class Pool:
    """Objects by what shapes of them have in common."""

    def __init__(self) -> None:
        self._free: dict[object, list[Drawn]] = {}
        self._used: list[tuple[object, Drawn]] = []

    def put(self, shape: Shape) -> Drawn | None:
        """An object with the shape's numbers, copied now; None for a shape with nothing in it."""
        require()
        from vkchi.ui.materials import Drawn

        if shape.items < 1 or shape.instances < 1:
            return None
        waiting = self._free.get(shape.key)
        drawn = waiting.pop() if waiting else Drawn(shape)
        self._used.append((shape.key, drawn))
        drawn.put(shape)
        return drawn

    def recycle(self) -> None:
        """The frame is done: what it used may be used again, what it did not use goes."""
        used, self._used, self._free = self._used, [], {}
        for key, drawn in reversed(used):
            self._free.setdefault(key, []).append(drawn)
