"""`ti.ui.Window`: a window with a canvas, a scene and widgets, or an off-screen image.

A frame is drawn by `show`, or when its pixels are read.

    window = ti.ui.Window("balls", (640, 480))
    canvas = window.get_canvas()
    while window.running:
        canvas.circles(x, radius=0.01)
        window.show()

Source: Taichi's documentation of GGUI.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from vkchi.errors import KernelRuntimeError, ToolError
from vkchi.fields.storage import Storage
from vkchi.gui import notebook
from vkchi.interrupts.local import local
from vkchi.logs import logger
from vkchi.platform import has_screen
from vkchi.tools.image import imwrite
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np
from vkchi.ui.canvas import Canvas
from vkchi.ui.imgui_widgets import Gui
from vkchi.ui.packages import require_ggui
from vkchi.ui.scene import Scene

if TYPE_CHECKING:
    from vkchi.ui.picture import FrameRenderer
    from vkchi.ui.screen import Screen

Floats = np.ndarray[Any, Any]
log = logger()

# --- input events: names of keys and events in Taichi's spelling ---------------------------------

SHIFT, ALT, CTRL, ESCAPE, RETURN, TAB = "Shift", "Alt", "Control", "Escape", "Return", "Tab"
BACKSPACE, SPACE, UP, DOWN, LEFT, RIGHT = "BackSpace", " ", "Up", "Down", "Left", "Right"
CAPSLOCK, LMB, MMB, RMB = "CapsLock", "LMB", "MMB", "RMB"
PRESS, RELEASE = "Press", "Release"
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


# --- windows -------------------------------------------------------------------------------------


class Window:
    """A window of `res` pixels, titled `name`.

    show_window: False renders off-screen, as happens without a display, with the environment
    variable TI_GUI_SHOW=0, and if the device cannot present. In a notebook, `show` puts the image
    into the cell's output. vsync: synchronize with the display. fps_limit: maximum number of frames
    per second; pos: upper left corner on the screen, in pixels. Raises ToolError unless `res` and
    `fps_limit` are positive, MissingPackageError if the renderer is not installed.
    """

    def __init__(
        self,
        name: str,
        res: tuple[int, int],
        vsync: bool = False,
        show_window: bool = True,
        fps_limit: float = 1000,
        pos: tuple[int, int] = (100, 100),
    ) -> None:
        require_ggui()
        from vkchi.ui.picture import FrameRenderer, make_texture

        self.name, size = str(name), (int(res[0]), int(res[1]))
        if min(size) < 1 or fps_limit <= 0:
            raise ToolError(f"Window: res {res!r} and fps_limit {fps_limit!r} are not positive")
        self.fps_limit, self._due = fps_limit, 0.0
        self._inbox, self._event = InputState(), InputEvent("", "")
        self._is_running, self._is_open, self._is_drawn = True, True, False
        self._screen: Screen | None = None
        self._display: notebook.Display | None = None
        self._gui: Gui | None = None
        found = self._open(size, pos, vsync) if show_window else None
        self._picture: FrameRenderer = found or FrameRenderer(make_texture(size))
        self._canvas, self._scene = Canvas(self._size(size)), Scene()

    def _open(
        self, size: tuple[int, int], pos: tuple[int, int], vsync: bool
    ) -> FrameRenderer | None:
        """The image of an on-screen window; None in a notebook, and if no window can be shown."""
        from vkchi.ui.picture import FrameRenderer

        if notebook.is_notebook():
            self._display = notebook.Display()
            return None
        if not has_screen() or os.environ.get("TI_GUI_SHOW") == "0":
            log.warning("no screen: %r is drawn off-screen; window.save_image saves", self.name)
            return None
        from vkchi.ui.screen import Screen

        screen = None
        try:
            screen = Screen(self.name, size, pos=pos, vsync=vsync, listen=self._take)
            found = FrameRenderer(screen.canvas)
        except local(RuntimeError) as error:  # the device cannot present
            if screen is not None:
                screen.close()
            log.warning("windows cannot be shown: %s; %r is drawn off-screen", error, self.name)
            return None
        self._screen = screen
        return found

    def _size(self, size: tuple[int, int]) -> tuple[int, int]:
        return size if self._screen is None else self._screen.size

    # --- frames ----------------------------------------------------------------------------------

    def get_canvas(self) -> Canvas:
        """The window's canvas."""
        return self._canvas

    def get_scene(self) -> Scene:
        """The window's 3D scene, to draw on the canvas."""
        return self._scene

    def get_gui(self) -> Gui:
        """The widgets over the image, created on first use."""
        if self._gui is None:
            self._gui = Gui(self._picture.renderer.device, self._canvas.size, self._touch)
        return self._gui

    @property
    def GUI(self) -> Gui:
        """Alternative name of `get_gui()`."""
        return self.get_gui()

    def _touch(self) -> None:
        self._canvas.is_touched = True

    def _draw(self) -> None:
        """Draw the declarations since the previous frame."""
        self._check_open()
        canvas, picture = self._canvas, self._picture
        canvas.size = self._size(canvas.size)
        picture.compose(canvas.take(), canvas.background)
        canvas.recycle()
        if self._gui is not None:
            self._gui.draw(picture.renderer.device, picture.view(), canvas.size)
        canvas.is_touched, self._is_drawn = False, True

    def _draw_if_touched(self) -> None:
        if self._canvas.is_touched:
            self._draw()

    def show(self) -> None:
        """Show the frame, process events, and begin a new frame.

        On screen and in notebooks, it sleeps as `fps_limit` requires. Raises KernelRuntimeError
        after `destroy`.
        """
        self._check_open()
        if self._canvas.is_touched or not self._is_drawn:
            self._draw()
        self._is_drawn = False
        if self._screen is not None:
            self._screen.show(self._picture.present)
        if self._display is not None:
            self._display.show(self._picture.pixels()[:, :, :3])
        self._poll()
        if self._screen is not None or self._display is not None:
            now = time.perf_counter()
            time.sleep(max(self._due - now, 0))
            self._due = max(self._due, now) + 1 / self.fps_limit

    @property
    def running(self) -> bool:
        """False once the window is closed, destroyed, or set to False by the program.

        Reading it processes new events.
        """
        self._poll()
        return self._is_running and self._is_open

    @running.setter
    def running(self, value: bool) -> None:
        self._is_running = bool(value)

    def destroy(self) -> None:
        """Close the window for good."""
        self._is_open, self._is_running = False, False
        screen, self._screen = self._screen, None
        if screen is not None:
            screen.close()

    def _check_open(self) -> None:
        if not self._is_open:
            raise KernelRuntimeError(f"the window {self.name!r} was destroyed")

    def get_window_shape(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self._size(self._canvas.size)

    # --- pixels ----------------------------------------------------------------------------------

    def get_image_buffer_as_numpy(self) -> Floats:
        """The frame as f32[width, height, 4], from the lower left.

        The channels are red, green, blue and alpha, from 0 to 1.
        """
        self._draw_if_touched()
        return self._picture.pixels() / np.float32(255)

    def get_depth_buffer_as_numpy(self) -> Floats:
        """Depths of the frame's scenes, f32[width, height]: 1 nearest, 0 farthest and for the
        background.

        They are z values of a camera's projection matrix.
        """
        self._draw_if_touched()
        return np.ascontiguousarray(self._picture.depths())

    def get_depth_buffer(self, depth: Storage) -> None:
        """Write the depths to a field or ndarray `depth` of f32, of the window's shape.

        Raises ToolError for another argument.
        """
        if not isinstance(depth, Storage):
            raise ToolError(f"get_depth_buffer takes a field or an ndarray, not {depth!r}")
        values = self.get_depth_buffer_as_numpy()
        if depth.shape != values.shape or depth.dtype.name != "f32":
            raise ToolError(
                f"get_depth_buffer: the shape {values.shape} of f32 is needed, not {depth.shape} "
                f"of {depth.dtype}"
            )
        depth.from_numpy(values)

    def save_image(self, filename: str | os.PathLike[str]) -> None:
        """Write the frame to an image file in the format of the suffix of `filename`.

        Its folder is created. Raises ToolError for unknown suffixes, KernelRuntimeError if the file
        cannot be written.
        """
        self._draw_if_touched()
        os.makedirs(os.path.dirname(os.fspath(filename)) or ".", exist_ok=True)
        imwrite(self._picture.pixels()[:, :, :3], filename)

    def write_image(self, filename: str | os.PathLike[str]) -> None:
        """Alternative name of `save_image`."""
        self.save_image(filename)

    # --- events ----------------------------------------------------------------------------------

    def _take(self, event: dict[str, Any]) -> None:
        if self._screen is None:
            return
        size = self._screen.logical_size
        self._inbox.take(event, size)
        if self._gui is not None:
            self._gui.take(event, self._screen.size[0] / size[0])

    def _poll(self) -> None:
        if self._screen is not None:
            self._screen.poll()
            if not self._screen.is_open:
                self._is_running = False

    @property
    def event(self) -> InputEvent:
        """The last event that `get_event` took from the queue, with `key` and `type`."""
        return self._event

    @event.setter
    def event(self, value: InputEvent) -> None:
        self._event = value

    def get_events(self, tag: str | None = None) -> list[InputEvent]:
        """Remove and return the queued events of one kind, `ti.ui.PRESS` or `ti.ui.RELEASE`.

        A `tag` of None selects both kinds. Others stay queued. Raises ToolError for other tags.
        """
        if tag not in (None, PRESS, RELEASE):
            raise ToolError(f"get_events: a tag is ti.ui.PRESS or ti.ui.RELEASE, not {tag!r}")
        self._poll()
        waiting = self._inbox.events
        found = [event for event in waiting if tag in (None, event.type)]
        kept = [event for event in waiting if tag not in (None, event.type)]
        waiting.clear()
        waiting.extend(kept)
        return found

    def get_event(self, tag: str | None = None) -> bool:
        """Pop the first queued event of kind `tag` into `event`; False if there is none.

        Raises ToolError for other tags.
        """
        found = self.get_events(tag)
        if not found:
            return False
        self._event = found[0]
        self._inbox.events.extendleft(reversed(found[1:]))
        return True

    def is_pressed(self, *keys: str) -> bool:
        """True if any of the `keys` or buttons is down, after processing new events."""
        self._poll()
        return not self._inbox.pressed.isdisjoint(keys)

    def get_cursor_pos(self) -> tuple[float, float]:
        """The cursor position as fractions of the window, from the lower left, after processing new
        events."""
        self._poll()
        return self._inbox.cursor
