"""Input events of a window: keys, buttons and the cursor, translated from rendercanvas."""

from __future__ import annotations

from collections import deque
from typing import Any

from vkchi.tuples import NamedTuple
from vkchi.ui import constants as c

# Key names of rendercanvas that differ from Taichi's; the rest are equal, or characters.
KEYS = {
    "ArrowUp": c.UP, "ArrowDown": c.DOWN, "ArrowLeft": c.LEFT, "ArrowRight": c.RIGHT,
    "Enter": c.RETURN, "Backspace": c.BACKSPACE,
}  # fmt: skip
BUTTONS = {1: c.LMB, 2: c.RMB, 3: c.MMB}


class InputEvent(NamedTuple):
    """A key or button event: pressed (`ti.ui.PRESS`) or released (`ti.ui.RELEASE`)."""

    type: str
    key: str


class InputState:
    """Queued events, pressed keys, and the cursor position.

    The position is in fractions of the window, from the lower left.
    """

    def __init__(self) -> None:
        self.events: deque[InputEvent] = deque()
        self.pressed: set[str] = set()
        self.cursor = (0.0, 0.0)

    def take(self, event: dict[str, Any], size: tuple[float, float]) -> None:
        """Update the cursor, the pressed keys and the queue by an event of rendercanvas.

        size: logical size of the window, in the units of the event.
        """
        kind = event["event_type"]
        if kind in ("pointer_move", "pointer_down", "pointer_up"):
            self.cursor = (event["x"] / size[0], 1 - event["y"] / size[1])
        if kind in ("key_down", "key_up"):
            self._put(kind == "key_down", name_of(event["key"]))
        elif kind in ("pointer_down", "pointer_up") and event["button"] in BUTTONS:
            self._put(kind == "pointer_down", BUTTONS[event["button"]])

    def _put(self, is_down: bool, key: str) -> None:
        (self.pressed.add if is_down else self.pressed.discard)(key)
        self.events.append(InputEvent(c.PRESS if is_down else c.RELEASE, key))


def name_of(key: str) -> str:
    """A key's name in `ti.ui`: Taichi's name in KEYS, its character in lower case, else `key`."""
    return KEYS.get(key, key.lower() if len(key) == 1 else key)
