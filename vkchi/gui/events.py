"""Events of a window: what they are, how programs choose among them.

Owns: the names of keys and kinds, `Event`, `EventFilter`, `Inbox`. Must not know: pygame.

    >>> EventFilter((EType.PRESS, "a")).match(Event(type=EType.PRESS, key="a"))
    True
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import Any


class EType(IntEnum):
    """What kind of event: something moved, or a key or button went down or up."""

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

    type: an EType; key: which key or button, `MOVE` or `WHEEL`; modifier: which of Shift, Alt and
    Control were down; pos: where the cursor was, parts of the window; delta: how far a wheel
    turned, 120 a notch.
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
    """Chooses events: each argument is a type, a key, or a pair of type and key."""

    def __init__(self, *e_filter: Any) -> None:
        self.filter = {tuple(x) if isinstance(x, list) else x for x in e_filter}

    def match(self, e: Event) -> bool:
        """Whether one of the arguments names this event."""
        return not self.filter.isdisjoint((e.type, e.key, (e.type, e.key)))


class Inbox:
    """Events that arrived and were not asked for yet, and what is down now."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.pressed: set[str] = set()
        self.cursor = (0.0, 0.0)

    def put(self, type: EType, key: str, delta: tuple[float, float] | None = None) -> Event:
        """Something happened."""
        if type is EType.PRESS:
            self.pressed.add(key)
        elif type is EType.RELEASE:
            self.pressed.discard(key)
        modifiers = [name for name in MODIFIERS if name in self.pressed]
        event = Event(type, key, self.cursor, delta, modifiers)
        self.events.append(event)
        return event
