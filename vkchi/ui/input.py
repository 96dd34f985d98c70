"""Input events of a window: keys, buttons and the cursor, translated from rendercanvas."""

from __future__ import annotations

from collections import deque
from typing import Any

from vkchi.tuples import NamedTuple

# --- names of keys and events, in Taichi's spelling ----------------------------------------------

SHIFT, ALT, CTRL, ESCAPE, RETURN, TAB = "Shift", "Alt", "Control", "Escape", "Return", "Tab"
BACKSPACE, SPACE, UP, DOWN, LEFT, RIGHT = "BackSpace", " ", "Up", "Down", "Left", "Right"
CAPSLOCK, LMB, MMB, RMB = "CapsLock", "LMB", "MMB", "RMB"
PRESS, RELEASE = "Press", "Release"


# --- events --------------------------------------------------------------------------------------

# Key names of rendercanvas that differ from Taichi's; the rest are equal, or characters.
KEYS = {
    "ArrowUp": UP, "ArrowDown": DOWN, "ArrowLeft": LEFT, "ArrowRight": RIGHT,
    "Enter": RETURN, "Backspace": BACKSPACE,
}  # fmt: skip
BUTTONS = {1: LMB, 2: RMB, 3: MMB}


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
        self.events.append(InputEvent(PRESS if is_down else RELEASE, key))


def name_of(key: str) -> str:
    """A key's name in `ti.ui`: Taichi's name in KEYS, its character in lower case, else `key`."""
    return KEYS.get(key, key.lower() if len(key) == 1 else key)
