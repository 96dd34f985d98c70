"""`ti.GUI`: a window to draw in, or pixels alone without a screen.

Positions are fractions of the window from the lower left, radii are in pixels, colours are
0xRRGGBB.

    gui = ti.GUI("balls", res=(640, 480), background_color=0x112F41)
    while gui.running:
        gui.circles(x.to_numpy(), radius=3)
        gui.show()                        # or gui.show("frame.png")

Source: Taichi's `ti.GUI`, documentation "GUI system".
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from vkchi.errors import KernelRuntimeError, ToolError
from vkchi.gui import events, notebook, shape_arrays
from vkchi.gui.paint import PixelCanvas
from vkchi.gui.panel import Button, Label, Panel, Slider
from vkchi.gui.pixels import colour_map, draw_text, image_to_pixels, resample_bilinear
from vkchi.gui.pygame_window import PygameWindow
from vkchi.gui.shape_arrays import Floats, Resolution
from vkchi.logs import logger
from vkchi.platform import has_screen
from vkchi.tools.image import colours_of_map, imwrite
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.texture import Texture
    from vkchi.types.hints import Numbers

log = logger()
FPS = 60


class GUI:
    """A window for pictures in two dimensions.

    Args:
        name: the title.
        res: width and height in pixels, or one number for both.
        background_color: 0xRRGGBB.
        show_gui: False draws off-screen, as does a missing screen; in a notebook, `show` puts the
            picture into the cell's output.
        fullscreen: open the window on the whole screen.
        fast_gui: accepted for Taichi's sake, without effect.

    The environment variables TI_GUI_SHOW, TI_GUI_FULLSCREEN and TI_GUI_FAST, 0 or 1, override the
    arguments.

    Raises:
        ToolError: for an invalid size or variable.
        MissingPackageError: to open a window without pygame-ce.
        KernelRuntimeError: if a window cannot be opened.
    """

    ESCAPE, RETURN, TAB, BACKSPACE, SPACE = (
        events.ESCAPE, events.RETURN, events.TAB, events.BACKSPACE, events.SPACE,
    )  # fmt: skip
    UP, DOWN, LEFT, RIGHT = events.UP, events.DOWN, events.LEFT, events.RIGHT
    SHIFT, ALT, CTRL, CAPSLOCK = events.SHIFT, events.ALT, events.CTRL, events.CAPSLOCK
    LMB, MMB, RMB, EXIT = events.LMB, events.MMB, events.RMB, events.EXIT
    WHEEL, MOVE = events.WHEEL, events.MOVE
    MOTION, PRESS, RELEASE = events.EType.MOTION, events.EType.PRESS, events.EType.RELEASE
    Event, EventFilter, WidgetValue = events.Event, events.EventFilter, Label

    def __init__(
        self,
        name: str = "Taichi",
        res: int | tuple[int, int] = 512,
        background_color: int = 0x0,
        show_gui: bool = True,
        fullscreen: bool = False,
        fast_gui: bool = False,
    ) -> None:
        self.name, self.res = str(name), resolution(res)
        self.background_color = background_color
        self.fast_gui = self.get_bool_environ("TI_GUI_FAST", fast_gui)
        self.event: events.Event | None = None
        self.frame = 0
        self._fps: float | None = FPS
        self._due = 0.0
        self._is_running = True
        self._canvas, self._inbox = PixelCanvas(self.res), events.EventQueue()
        self._panel = Panel(self.res)
        self._window: PygameWindow | None = None
        self._display: notebook.Display | None = None
        self.clear()
        if self.get_bool_environ("TI_GUI_SHOW", show_gui):
            self._open(self.get_bool_environ("TI_GUI_FULLSCREEN", fullscreen))

    def _open(self, is_fullscreen: bool) -> None:
        if notebook.is_notebook():
            self._display = notebook.Display()
        elif has_screen() or os.environ.get("SDL_VIDEODRIVER"):
            self._window = PygameWindow(
                self.name, self.res, self._inbox, is_fullscreen=is_fullscreen
            )
        else:
            log.warning("no screen: %r is drawn off-screen; gui.show('a.png') saves", self.name)

    def __enter__(self) -> GUI:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @staticmethod
    def get_bool_environ(key: str, default: bool) -> bool:
        """Value of an environment variable that is 0 or 1; `default` if it is empty or not set.

        Raises ToolError for other values.
        """
        text = os.environ.get(key, "")
        if text not in ("", "0", "1"):
            raise ToolError(f"{key} is {text!r}, and may be 0 or 1")
        return bool(int(text)) if text else bool(default)

    # --- the window ------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """True until the window is closed, or this is set to False. Reading it processes new
        events."""
        self._poll()
        return self._is_running

    @running.setter
    def running(self, value: bool) -> None:
        self._is_running = bool(value)

    @property
    def fps_limit(self) -> float | None:
        """Maximum number of frames per second of `show`, in windows and notebooks; None: no limit.

        Setting 0 means None. Raises ToolError for negative numbers.
        """
        return self._fps

    @fps_limit.setter
    def fps_limit(self, value: float | None) -> None:
        if value is not None and not value >= 0:
            raise ToolError(f"fps_limit is a number of frames per second or None, not {value!r}")
        self._fps = value or None

    def show(self, file: Any = None) -> None:
        """Show the frame, process events, and begin a new frame with the background colour.

        In a window or notebook, it sleeps as `fps_limit` requires.

        Args:
            file: also write the frame to this picture file; in a notebook, only write it. Its
                folder is created.

        Raises:
            KernelRuntimeError: after `close` and if the file cannot be written.
            ToolError: for an unknown suffix.
        """
        self._check_open()
        self._panel.draw(self._canvas)
        pixels = self._canvas.pixels()
        if self._window is not None:
            self._window.show(pixels)
        if file is not None:
            os.makedirs(os.path.dirname(os.fspath(file)) or ".", exist_ok=True)
            imwrite(pixels[:, :, :3], file)
        elif self._display is not None:
            self._display.show(pixels[:, :, :3])
        self._poll()
        if self._window is not None or self._display is not None:
            self._wait()
        self.frame += 1
        self.clear()

    def _wait(self) -> None:
        now = time.perf_counter()
        if self._fps is not None:
            time.sleep(max(self._due - now, 0))
            self._due = max(self._due, now) + 1 / self._fps

    def close(self) -> None:
        """Close the window. It cannot be shown again."""
        window, self._window = self._window, None
        self._is_running, self._is_open = False, False
        if window is not None:
            window.close()

    _is_open = True

    def _check_open(self) -> None:
        if not self._is_open:
            raise KernelRuntimeError(f"the GUI {self.name!r} was closed")

    # --- the picture -----------------------------------------------------------------------------

    def clear(self, color: int | None = None) -> None:
        """Fill the picture with one `color` (0xRRGGBB), by default the background's."""
        chosen = self.background_color if color is None else color
        self._canvas.clear(int(shape_arrays.colours("clear", chosen, 1)[0]))

    def get_image(self) -> Floats:
        """A copy of this frame's pixels: f32[width, height, 4], from the lower left.

        The channels are red, green, blue and alpha, from 0 to 1.
        """
        return self._canvas.pixels().copy()

    @property
    def img(self) -> Floats:
        """A copy of this frame's pixels, as `get_image` returns them."""
        return self.get_image()

    def set_image(self, img: Numbers | Texture) -> None:
        """Replace the picture by a field, ndarray, numpy array, tensor or texture.

        img: shape (width, height) of the window, scalars or vectors of 1 to 4 components, or a
        third axis of that length; floats from 0 to 1, or unsigned integers up to their maximum.
        Raises ToolError for other arguments.
        """
        self._canvas.set(image_to_pixels(img, self.res))

    def cook_image(self, img: Numbers | Texture) -> Floats:
        """Convert `img` to f32[width, height, 4], as `set_image` does. Raises ToolError."""
        return image_to_pixels(img, self.res)

    def contour(
        self, scalar_field: Numbers, normalize: bool = False, cmap: str | None = None
    ) -> None:
        """Replace the picture by a false-colour image of a scalar field, dark blue for 0, yellow
        for 1.

        Args:
            scalar_field: an array of two axes, stretched over the window.
            normalize: True maps its minimum to 0 and its maximum to 1.
            cmap: name of a colour map in the package `cmap`, such as viridis, used instead.

        Raises:
            ToolError: for other fields and unknown colour maps.
            MissingPackageError: for a colour map, without `cmap`.
        """
        values = resample_bilinear(
            shape_arrays.plane("contour", scalar_field).astype(np.float64), self.res
        )
        if normalize:
            least, greatest = values.min(), values.max()
            values = (values - least) / ((greatest - least) or 1.0)
        colours = colour_map(values) if cmap is None else colours_of_map(cmap, values)
        self._canvas.set(colours)

    # --- shapes ----------------------------------------------------------------------------------

    def circle(self, pos: Numbers, color: Numbers = 0xFFFFFF, radius: float = 1) -> None:
        """Draw a disc.

        pos: centre (x, y), in fractions of the window from its lower left corner; color: 0xRRGGBB;
        radius: in pixels. Raises ToolError.
        """
        at = shape_arrays.point("circle", "pos", pos, self.res)
        self._discs("circle", at, radius, shape_arrays.colours("circle", color, 1))

    def circles(
        self,
        pos: Numbers,
        radius: Numbers = 1,
        color: Numbers = 0xFFFFFF,
        palette: Numbers | None = None,
        palette_indices: Numbers | None = None,
    ) -> None:
        """Draw discs, later ones over earlier ones.

        Args:
            pos: centres in fractions of the window, a field of vectors or an array [n, 2].
            radius: in pixels, one for all or an array of n.
            color: 0xRRGGBB, one for all or an array of n.
            palette: colours indexed by `palette_indices`.
            palette_indices: one integer or n.

        Raises:
            ToolError: for arrays of other shapes.
        """
        at = shape_arrays.positions("circles", "pos", pos, self.res)
        if palette is None:
            colour = shape_arrays.colours("circles", color, len(at))
        else:
            colour = shape_arrays.from_palette("circles", palette, palette_indices, len(at))
        self._discs("circles", at, radius, colour)

    def _discs(self, who: str, at: Floats, radius: Numbers, colour: Floats) -> None:
        self._canvas.add(shape_arrays.discs(at, shape_arrays.radii(who, radius, len(at)), colour))

    def line(
        self, begin: Numbers, end: Numbers, radius: float = 1, color: Numbers = 0xFFFFFF
    ) -> None:
        """Draw a line with round ends.

        begin, end: (x, y) in fractions of the window; radius: half its width, in pixels; color:
        0xRRGGBB. Raises ToolError.
        """
        a = shape_arrays.point("line", "begin", begin, self.res)
        b = shape_arrays.point("line", "end", end, self.res)
        self._lines("line", a, b, radius, color)

    def lines(
        self, begin: Numbers, end: Numbers, radius: Numbers = 1, color: Numbers = 0xFFFFFF
    ) -> None:
        """Draw lines.

        begin, end: [n, 2] each, in fractions of the window; radius (half the width, in pixels),
        color: one for all, or an array of n. Raises ToolError.
        """
        a = shape_arrays.positions("lines", "begin", begin, self.res)
        b = shape_arrays.positions("lines", "end", end, self.res)
        self._lines("lines", a, b, radius, color)

    def _lines(self, who: str, begin: Floats, end: Floats, radius: Numbers, color: Numbers) -> None:
        if len(begin) != len(end):
            raise ToolError(f"{who}: {len(begin)} lines begin, and {len(end)} end")
        radius, colour = (
            shape_arrays.radii(who, radius, len(end)),
            shape_arrays.colours(who, color, len(end)),
        )
        self._canvas.add(shape_arrays.segments(begin, end, radius, colour))

    def triangle(self, a: Numbers, b: Numbers, c: Numbers, color: Numbers = 0xFFFFFF) -> None:
        """Draw a filled triangle.

        a, b, c: corners (x, y) in fractions of the window; color: 0xRRGGBB. Raises ToolError.
        """
        corners = zip("abc", (a, b, c))
        self._triangles("triangle", color, *[
            shape_arrays.point("triangle", name, x, self.res) for name, x in corners
        ])  # fmt: skip

    def triangles(self, a: Numbers, b: Numbers, c: Numbers, color: Numbers = 0xFFFFFF) -> None:
        """Draw filled triangles.

        a, b, c: corners, [n, 2] each, in fractions of the window; color: one for all, or an array
        of n. Raises ToolError.
        """
        corners = zip("abc", (a, b, c))
        self._triangles("triangles", color, *[
            shape_arrays.positions("triangles", name, x, self.res) for name, x in corners
        ])  # fmt: skip

    def _triangles(self, who: str, color: Numbers, a: Floats, b: Floats, c: Floats) -> None:
        if not len(a) == len(b) == len(c):
            raise ToolError(f"{who}: {len(a)}, {len(b)} and {len(c)} corners")
        self._canvas.add(shape_arrays.triangles(a, b, c, shape_arrays.colours(who, color, len(a))))

    def rect(
        self, topleft: Numbers, bottomright: Numbers, radius: float = 1, color: Numbers = 0xFFFFFF
    ) -> None:
        """Draw the outline of a rectangle.

        topleft, bottomright: (x, y) in fractions of the window; radius: half the line width, in
        pixels; color: 0xRRGGBB. Raises ToolError.
        """
        (left, top), (right, low) = (
            shape_arrays.point("rect", name, x, self.res)[0]
            for name, x in {"topleft": topleft, "bottomright": bottomright}.items()
        )
        corners = np.array([[left, top], [right, top], [right, low], [left, low]], np.float32)
        self._lines("rect", corners, np.roll(corners, -1, 0), radius, color)

    def text(
        self, content: Any, pos: Numbers, font_size: float = 15, color: Numbers = 0xFFFFFF
    ) -> None:
        """Draw a string.

        content: converted by `str`; pos: upper left corner (x, y) in fractions of the window;
        font_size: in pixels; color: 0xRRGGBB. Raises ToolError, or the errors of `find_font` if
        Pillow cannot draw text.
        """
        x, y = shape_arrays.point("text", "pos", pos, self.res)[0]
        colour = int(shape_arrays.colours("text", color, 1)[0])
        if not font_size > 0:
            raise ToolError(f"text: font_size is a positive number, not {font_size!r}")
        mask, _ = draw_text(str(content), font_size)
        if np.isfinite([x, y]).all():
            self._canvas.stamp(mask, round(float(x)), round(float(y)) - mask.shape[1], colour)

    # --- arrows and fields -----------------------------------------------------------------------

    def arrow(
        self,
        orig: Numbers,
        direction: Numbers,
        radius: float = 1,
        color: Numbers = 0xFFFFFF,
        **kwargs: Any,
    ) -> None:
        """Draw an arrow.

        orig: start; direction: vector from start to end; both (x, y) in fractions of the window;
        radius: half the line width, in pixels; color: 0xRRGGBB; kwargs: `tip_scale` (default 0.2 of
        the length) and `angle` (default 45 degrees) of the tip. Raises ToolError.
        """
        ends = {"orig": orig, "direction": direction}
        a, b = (shape_arrays.point("arrow", name, x, (1, 1)) for name, x in ends.items())
        self._arrows("arrow", a, b, radius, color, **kwargs)

    def arrows(
        self,
        orig: Numbers,
        direction: Numbers,
        radius: Numbers = 1,
        color: Numbers = 0xFFFFFF,
        **kwargs: Any,
    ) -> None:
        """Draw arrows.

        orig, direction: [n, 2] each; radius, color: one for all, or an array of n; units and kwargs
        are those of `arrow`. Raises ToolError.
        """
        ends = {"orig": orig, "direction": direction}
        a, b = (shape_arrays.positions("arrows", name, x, (1, 1)) for name, x in ends.items())
        self._arrows("arrows", a, b, radius, color, **kwargs)

    def _arrows(
        self, who: str, orig: Floats, direction: Floats, radius: Numbers, color: Numbers,
        tip_scale: float = 0.2, angle: float = 45,
    ) -> None:  # fmt: skip
        count = len(orig)
        if count != len(direction):
            raise ToolError(f"{who}: {count} origins, and {len(direction)} directions")
        lines = shape_arrays.arrow_lines(orig, direction, tip_scale, angle)
        begin, end = (shape_arrays.to_pixels(x, self.res) for x in lines)
        radius = np.tile(shape_arrays.radii(who, radius, count), 3)
        colour = np.tile(shape_arrays.colours(who, color, count), 3)
        self._canvas.add(shape_arrays.segments(begin, end, radius, colour))

    def arrow_field(
        self, direction: Numbers, radius: Numbers = 1, color: Numbers = 0xFFFFFF,
        bound: float = 0.5, **kwargs: Any,
    ) -> None:  # fmt: skip
        """Draw the arrows of a vector field on a grid over the window.

        direction: the field, with two axes; bound: distance of the outer arrows from the edge, in
        grid spacings; radius, color, kwargs: as for `arrows`. Raises ToolError.
        """
        values = shape_arrays.plane("arrow_field", direction, 2)
        at = shape_arrays.grid(values.shape[:2], bound).astype(np.float32)
        self._arrows("arrow_field", at, values.reshape(-1, 2), radius, color, **kwargs)

    def point_field(self, radius: Numbers, color: Numbers = 0xFFFFFF, bound: float = 0.5) -> None:
        """Draw discs on a grid over the window.

        radius: a scalar field with two axes, in pixels; color: one for all, or one for each; bound:
        distance of the outer discs from the edge, in grid spacings. Raises ToolError.
        """
        values = shape_arrays.plane("point_field", radius)
        at = shape_arrays.to_pixels(shape_arrays.grid(values.shape[:2], bound), self.res)
        colour = shape_arrays.colours("point_field", color, len(at))
        self._discs("point_field", at, values.reshape(-1), colour)

    def vector_field(
        self, vector_field: Numbers, arrow_spacing: int = 5, color: Numbers = 0xFFFFFF
    ) -> None:
        """Draw arrows of a vector field, scaled so that its longest vector is a tenth of the
        window.

        vector_field: two axes; arrow_spacing: elements per arrow along both axes; color: 0xRRGGBB.
        Raises ToolError.
        """
        at, direction = shape_arrays.vector_arrows("vector_field", vector_field, arrow_spacing)
        self._arrows("vector_field", at, direction, 1, color)

    # --- events ----------------------------------------------------------------------------------

    def _poll(self) -> None:
        """Read new events, and pass them to the widgets; closing the window ends `running`."""
        inbox, known = self._inbox, len(self._inbox.events)
        if self._window is not None:
            self._window.poll()
        for event in list(inbox.events)[known:]:
            self._panel.take(event, inbox)
            if event.key == events.EXIT:
                self._is_running = False

    def has_key_event(self) -> bool:
        """True if an unread event exists."""
        self._poll()
        return bool(self._inbox.events)

    def get_key_event(self) -> events.Event:
        """Return the next event, of keyboard, mouse or window, waiting for one.

        It becomes `event`. Raises KernelRuntimeError if none is unread and there is no window.
        """
        while not self.has_key_event():
            if self._window is None:
                raise KernelRuntimeError("get_key_event: no window, so no event will come")
            time.sleep(1 / FPS)
        self.event = self._inbox.events.popleft()
        return self.event

    def get_events(self, *e_filter: Any) -> Iterator[events.Event]:
        """Yield the unread events that match `e_filter`, and drop the others.

        e_filter: keys, types, or pairs (type, key); none selects all events. Each event that is
        read becomes `event`, dropped ones too.
        """
        chooses = events.EventFilter(*e_filter)
        while self.has_key_event():
            event = self.get_key_event()
            if not e_filter or chooses.match(event):
                yield event

    def get_event(self, *e_filter: Any) -> bool:
        """True if an unread event matches e_filter (as in `get_events`); it becomes `event`.

        Earlier events are dropped. If none matches, all are, and the last becomes `event`.
        """
        return any(True for _ in self.get_events(*e_filter))

    def is_pressed(self, *keys: Any) -> bool:
        """True if one of the `keys` or buttons is down, after processing new events."""
        self._poll()
        return not self._inbox.pressed.isdisjoint(keys)

    def get_cursor_pos(self) -> tuple[float, float]:
        """Last known cursor position, in fractions of the window, after processing new events."""
        self._poll()
        return self._inbox.cursor

    # --- widgets ---------------------------------------------------------------------------------

    def slider(self, text: str, minimum: float, maximum: float, step: float = 1) -> Slider:
        """Add a slider labelled `text`, from minimum to maximum in steps of `step`.

        Its `value` can be read and set; it begins at the minimum. Raises ToolError unless minimum <
        maximum and step > 0.
        """
        made: Slider = self._panel.add(Slider(text, minimum, maximum, step))
        return made

    def label(self, text: str) -> Label:
        """Add a label; its `value` is a number shown after the text."""
        made: Label = self._panel.add(Label(text))
        return made

    def button(self, text: str, event_name: str | None = None) -> str:
        """Add a button labelled `text` and return the key of its events.

        event_name: that key, by default `WidgetButton_` and the text.
        """
        key = event_name or f"WidgetButton_{text}"
        self._panel.add(Button(text, key))
        return key


def resolution(res: Any) -> Resolution:
    """Size of a window given as one integer or two.

    Raises ToolError unless they are positive, with a product of at most MOST_PIXELS.
    """
    sizes = (res, res) if isinstance(res, int | np.integer) else res
    if not isinstance(sizes, Iterable):
        raise ToolError(f"GUI: res is a number of pixels, or two, not {res!r}")
    sizes = tuple(sizes)
    are_whole = all(isinstance(n, int | np.integer) and n > 0 for n in sizes)
    if len(sizes) != 2 or not are_whole:
        raise ToolError(f"GUI: res is a number of pixels, or two, not {res!r}")
    if int(sizes[0]) * int(sizes[1]) > MOST_PIXELS:
        raise ToolError(f"GUI: {sizes[0]} x {sizes[1]} pixels are more than {MOST_PIXELS}")
    return int(sizes[0]), int(sizes[1])


MOST_PIXELS = 1 << 28  # 16,384 x 16,384; the canvas takes 16 bytes for each
