"""Names of keys and kinds of events in `ti.ui`, in Taichi's spelling."""

from __future__ import annotations

SHIFT, ALT, CTRL, ESCAPE, RETURN, TAB = "Shift", "Alt", "Control", "Escape", "Return", "Tab"
BACKSPACE, SPACE, UP, DOWN, LEFT, RIGHT = "BackSpace", " ", "Up", "Down", "Left", "Right"
CAPSLOCK, LMB, MMB, RMB = "CapsLock", "LMB", "MMB", "RMB"
PRESS, RELEASE = "Press", "Release"
