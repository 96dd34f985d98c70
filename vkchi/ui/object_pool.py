"""Object pool of the renderer: reuse objects of the previous frame for shapes of equal layout.

Each object is used once per frame, because a program may draw the same field twice with a step
between.

    pool = ObjectPool(); drawn = pool.put(shape); ...; pool.recycle()    # the frame is done
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.ui.draw_calls import DrawCall
from vkchi.ui.packages import require_ggui

if TYPE_CHECKING:
    from vkchi.ui.materials import ShapeObject


class ObjectPool:
    """Renderer objects by the key of their shapes."""

    def __init__(self) -> None:
        self._free: dict[object, list[ShapeObject]] = {}
        self._used: list[tuple[object, ShapeObject]] = []

    def put(self, shape: DrawCall) -> ShapeObject | None:
        """Copy the shape's arrays into a free object of its key, or a new one, and return the
        object.

        The object stays in use until `recycle`. None for zero items or instances.
        """
        require_ggui()
        from vkchi.ui.materials import ShapeObject

        if shape.items < 1 or shape.instances < 1:
            return None
        waiting = self._free.get(shape.key)
        drawn = waiting.pop() if waiting else ShapeObject(shape)
        self._used.append((shape.key, drawn))
        drawn.put(shape)
        return drawn

    def recycle(self) -> None:
        """End the frame: its objects become free, and unused ones are dropped."""
        used, self._used, self._free = self._used, [], {}
        for key, drawn in reversed(used):
            self._free.setdefault(key, []).append(drawn)
