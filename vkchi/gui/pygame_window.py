"""Windows on the screen, by pygame-ce.

window = PygameWindow("title", (640, 480), EventQueue(), is_fullscreen=False) window.show(pixels);
window.poll()
"""

from __future__ import annotations

import contextlib
from typing import Any
from weakref import ref

from vkchi.errors import KernelRuntimeError, MissingPackageError
from vkchi.gui import events as e
from vkchi.gui.shape_arrays import Floats, Resolution
from vkchi.interrupts.weak import WeakTable
from vkchi.tools.image import to_bytes

WHEEL_NOTCH = 120  # units per notch, as in X11, Windows and Taichi
BUTTONS = {1: e.LMB, 2: e.MMB, 3: e.RMB}
# Names of keys that are no characters, by their names in pygame; other keys have pygame's name.
KEYS = {
    "K_ESCAPE": e.ESCAPE, "K_RETURN": e.RETURN, "K_KP_ENTER": e.RETURN, "K_TAB": e.TAB,
    "K_BACKSPACE": e.BACKSPACE, "K_UP": e.UP, "K_DOWN": e.DOWN, "K_LEFT": e.LEFT,
    "K_RIGHT": e.RIGHT, "K_CAPSLOCK": e.CAPSLOCK, "K_LSHIFT": e.SHIFT, "K_RSHIFT": e.SHIFT,
    "K_LALT": e.ALT, "K_RALT": e.ALT, "K_LCTRL": e.CTRL, "K_RCTRL": e.CTRL, "K_DELETE": "Delete",
    "K_INSERT": "Insert", "K_HOME": "Home", "K_END": "End", "K_PAGEUP": "Prior",
    "K_PAGEDOWN": "Next", **{f"K_F{n}": f"F{n}" for n in range(1, 13)},
}  # fmt: skip

# One event queue serves all windows of the process; inboxes by window number.
_INBOXES: WeakTable[int, e.EventQueue] = WeakTable()


def import_pygame() -> Any:
    """Import and return pygame-ce. Raises MissingPackageError if it is missing or before 2.5.2."""
    try:
        with contextlib.redirect_stdout(None):  # it greets
            import pygame
    except ImportError:
        raise MissingPackageError(
            "windows need pygame-ce, which is not installed: pip install pygame-ce (or draw "
            "off-screen: ti.GUI(..., show_gui=False))"
        ) from None
    if not hasattr(pygame, "Window"):
        raise MissingPackageError(
            "windows need pygame-ce 2.5.2 or later, and another pygame is installed: "
            "pip uninstall pygame; pip install --upgrade pygame-ce"
        )
    return pygame


class PygameWindow:
    """A window of `res` pixels, or the whole screen; `poll` puts its events into `inbox`.

    Raises KernelRuntimeError if it cannot be opened, MissingPackageError without pygame-ce.
    """

    def __init__(
        self, title: str, res: Resolution, inbox: e.EventQueue, *, is_fullscreen: bool
    ) -> None:
        self.pygame, self.res, self.inbox = import_pygame(), res, inbox
        try:
            self.pygame.display.init()
            self.window = self.pygame.Window(title, res, fullscreen_desktop=is_fullscreen)
            self.surface = self.window.get_surface()
        except self.pygame.error as error:
            raise KernelRuntimeError(f"no window can be opened: {error}") from None
        self.frame = self.pygame.Surface(res, depth=32)
        self.keys = {getattr(self.pygame, name): key for name, key in KEYS.items()}
        _INBOXES.put(self.window.id, ref(inbox))

    def show(self, pixels: Floats) -> None:
        """Show pixels, f32[w, h, 4] from the lower left, scaled to the size of the window."""
        self.pygame.surfarray.blit_array(self.frame, to_bytes(pixels)[:, ::-1, :3])
        surface = self.window.get_surface()
        if surface.get_size() == self.res:
            surface.blit(self.frame, (0, 0))
        else:
            self.pygame.transform.scale(self.frame, surface.get_size(), surface)
        self.window.flip()

    def set_title(self, title: str) -> None:
        self.window.title = title

    def close(self) -> None:
        _INBOXES.drop(self.window.id)
        self.window.destroy()

    def poll(self) -> None:
        """Put the pending events of all windows into the inboxes of their windows."""
        for happened in self.pygame.event.get():
            window = getattr(happened, "window", None)
            inbox = self.inbox if window is None else _INBOXES.get(window.id)
            if inbox is not None:
                self._put(inbox, happened, self.window if window is None else window)

    def _put(self, inbox: e.EventQueue, happened: Any, window: Any) -> None:
        pygame, kind = self.pygame, happened.type
        if kind in (pygame.MOUSEMOTION, pygame.MOUSEBUTTONDOWN, pygame.MOUSEBUTTONUP):
            inbox.cursor = pixel_centre(happened.pos, window.size)
        if kind == pygame.MOUSEMOTION:
            inbox.put(e.EType.MOTION, e.MOVE)
        elif kind in (pygame.MOUSEBUTTONDOWN, pygame.MOUSEBUTTONUP):
            if happened.button in BUTTONS:
                is_down = kind == pygame.MOUSEBUTTONDOWN
                way = e.EType.PRESS if is_down else e.EType.RELEASE
                inbox.put(way, BUTTONS[happened.button])
        elif kind == pygame.MOUSEWHEEL:
            turned = (happened.x * WHEEL_NOTCH, happened.y * WHEEL_NOTCH)
            inbox.put(e.EType.MOTION, e.WHEEL, turned)
        elif kind in (pygame.KEYDOWN, pygame.KEYUP):
            way = e.EType.PRESS if kind == pygame.KEYDOWN else e.EType.RELEASE
            inbox.put(way, self._name_of(happened.key))
        elif kind in (pygame.WINDOWCLOSE, pygame.QUIT):
            inbox.put(e.EType.PRESS, e.EXIT)
        elif kind == pygame.WINDOWFOCUSLOST:  # releases elsewhere are not reported
            inbox.pressed.clear()

    def _name_of(self, key: int) -> str:
        """Name of a key: that in KEYS, else its ASCII character, lower case, else pygame's name."""
        if key in self.keys:
            return self.keys[key]
        is_character = 32 <= key < 127
        return chr(key).lower() if is_character else str(self.pygame.key.name(key))


def pixel_centre(pos: tuple[int, int], size: tuple[int, int]) -> tuple[float, float]:
    """Centre of the pixel `pos`, which counts from the upper left.

    The result is in fractions of the window from the lower left.
    """
    return ((pos[0] + 0.5) / size[0], (size[1] - pos[1] - 0.5) / size[1])
