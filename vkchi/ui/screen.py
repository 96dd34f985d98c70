"""A window on the screen, by rendercanvas and glfw. Imported where one is opened.

Owns: the canvas of rendercanvas, its events. Must not know: what is drawn.

    screen = Screen("title", (640, 480), pos=(100, 100), vsync=False, listen=print)
    picture = Picture(screen.canvas); screen.show(picture.present); screen.poll()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkchi.errors import KernelRuntimeError

EVENTS = (
    "key_down", "key_up", "char", "pointer_move", "pointer_down", "pointer_up", "wheel",
)  # fmt: skip


class Screen:
    """A window of `size` pixels; `listen` is told of each event. Raises KernelRuntimeError where
    none can be opened."""

    def __init__(
        self, title: str, size: tuple[int, int], *, pos: tuple[int, int], vsync: bool,
        listen: Callable[[dict[str, Any]], None],
    ) -> None:  # fmt: skip
        try:
            from rendercanvas.glfw import RenderCanvas, glfw

            self.canvas = RenderCanvas(
                size=size, title=title, update_mode="manual", vsync=vsync
            )  # fmt: skip
        except (ImportError, RuntimeError) as error:
            raise KernelRuntimeError(f"no window can be opened: {error}") from None
        glfw.set_window_pos(self.canvas._window, *pos)  # rendercanvas has no public way
        self.canvas.add_event_handler(listen, *EVENTS)
        self.poll()

    @property
    def size(self) -> tuple[int, int]:
        """How many pixels it has."""
        width, height = self.canvas.get_physical_size()
        return max(int(width), 1), max(int(height), 1)

    @property
    def logical_size(self) -> tuple[float, float]:
        """Its size in what events count in, which may be several pixels each."""
        width, height = self.canvas.get_logical_size()
        return max(float(width), 1.0), max(float(height), 1.0)

    @property
    def is_open(self) -> bool:
        """Whether nobody closed it."""
        return not self.canvas.get_closed()

    def show(self, present: Callable[[], None]) -> None:
        """Let `present` draw into the canvas, and show that."""
        if self.is_open:
            self.canvas.request_draw(present)
            self.canvas.force_draw()

    def poll(self) -> None:
        """Tell of what happened since."""
        if self.is_open:
            self.canvas._process_events()  # what rendercanvas' own loop calls, in place of which
            # the program has one

    def close(self) -> None:
        """Take it from the screen."""
        self.canvas.close()
