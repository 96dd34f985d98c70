"""Events of a window: kinds, keys, filters and the queue.

>>> EventFilter((EType.PRESS, "a")).match(Event(type=EType.PRESS, key="a"))
True
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import Any


class EType(IntEnum):
    """Kind of an event: motion of the cursor or wheel, key or button down, key or button up."""

    MOTION = 0
    PRESS = 1
    RELEASE = 2


SHIFT, ALT, CTRL, ESCAPE, RETURN, TAB = "Shift", "Alt", "Control", "Escape", "Return", "Tab"
BACKSPACE, SPACE, UP, DOWN, LEFT, RIGHT = "BackSpace", " ", "Up", "Down", "Left", "Right"
CAPSLOCK, LMB, MMB, RMB, EXIT = "Caps_Lock", "LMB", "MMB", "RMB", "WMClose"
WHEEL, MOVE = "Wheel", "Motion"
MODIFIERS = (SHIFT, ALT, CTRL)


class Event:
    """One event.

    type: an EType; key: name of the key or button, `MOVE` or `WHEEL`; modifier: list of those of
    Shift, Alt and Control that were down; pos: cursor position, in fractions of the window; delta:
    rotation of the wheel along x and y, 120 per notch; None for other events.
    """

    def __init__(
        self,
        type: EType | None = None,
        key: str | None = None,
        pos: tuple[float, float] | None = None,
        delta: tuple[float, float] | None = None,
        modifier: list[str] | None = None,
    ) -> None:
        self.type, self.key, self.pos = type, key, pos
        self.delta, self.modifier = delta, modifier

    def __repr__(self) -> str:
        return f"Event(type={self.type!r}, key={self.key!r}, pos={self.pos}, delta={self.delta})"


class EventFilter:
    """Selection of events: each argument is a type, a key, or a pair (type, key)."""

    def __init__(self, *e_filter: Any) -> None:
        self.filter = {tuple(x) if isinstance(x, list) else x for x in e_filter}

    def match(self, e: Event) -> bool:
        """True if an argument equals the event's type, its key, or the pair of both."""
        return not self.filter.isdisjoint((e.type, e.key, (e.type, e.key)))


class EventQueue:
    """Queue of unread events, with the set of pressed keys and the cursor position."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.pressed: set[str] = set()
        self.cursor = (0.0, 0.0)

    def put(self, type: EType, key: str, delta: tuple[float, float] | None = None) -> Event:
        """Append and return an event at the cursor; update the set of pressed keys first."""
        if type is EType.PRESS:
            self.pressed.add(key)
        elif type is EType.RELEASE:
            self.pressed.discard(key)
        modifiers = [name for name in MODIFIERS if name in self.pressed]
        event = Event(type, key, self.cursor, delta, modifiers)
        self.events.append(event)
        return event
