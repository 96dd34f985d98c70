"""`window.get_gui()`: widgets over the image, by Dear ImGui.

gui = window.get_gui()
with gui.sub_window("sun", 0.05, 0.05, 0.3, 0.2) as w:
    brightness = w.slider_float("brightness", brightness, 0, 1)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vkchi.errors import ToolError
from vkchi.ui.draw_calls import Colour, colour_of

BUTTONS = {1: 0, 2: 1, 3: 2}  # left, right, middle


# Taichi's windows have the look of Dear ImGui 1.84. `set_style` sets colours and sizes that have
# changed since; `begin` and `color_edit_3` correct what is not in the style.
DARK = {
    "window_bg": (0.06, 0.06, 0.06, 0.94),
    "popup_bg": (0.08, 0.08, 0.08, 0.94),
    "frame_bg": (0.16, 0.29, 0.48, 0.54),
    "frame_bg_hovered": (0.26, 0.59, 0.98, 0.4),
    "frame_bg_active": (0.26, 0.59, 0.98, 0.67),
    "checkbox_selected_bg": (0.16, 0.29, 0.48, 0.54),
}
STYLE = {
    "grab_min_size": 10.0,  # of sliders
    "scrollbar_padding": 3.0,
    "color_marker_size": 0.0,  # where the letters R, G, B cannot be chosen
    "hover_flags_for_tooltip_mouse": 0,  # no delay
}
TITLE_SPACING = (2.0, 4.0)  # twice the first is the space between arrow and title


def set_style(imgui: Any) -> None:
    """Give the current context the look of Taichi's windows."""
    style = imgui.get_style()
    for name, colour in DARK.items():
        if hasattr(imgui.Col_, name):
            style.set_color_(getattr(imgui.Col_, name), imgui.ImVec4(*colour))
    for name, value in STYLE.items():
        if hasattr(style, name):
            setattr(style, name, value)
    io = imgui.get_io()
    if hasattr(io, "config_color_edit_flags"):
        io.config_color_edit_flags |= imgui.ColorEditFlags_.no_color_markers  # the letters R, G, B


class Gui:
    """Immediate-mode widgets: methods are called in each frame and return the widget's current
    value.

    `touch` is called once in each frame that has widgets.
    """

    def __init__(self, device: Any, size: tuple[int, int], touch: Callable[[], None]) -> None:
        from imgui_bundle import imgui
        from wgpu.utils.imgui import ImguiWgpuBackend

        self._imgui, self._context = imgui, imgui.create_context()
        imgui.set_current_context(self._context)
        set_style(imgui)
        self._backend = ImguiWgpuBackend(device, "rgba8unorm")
        self._size, self._touch = size, touch
        self._is_begun, self._open = False, 0

    # --- frames ----------------------------------------------------------------------------------

    def _begin_frame(self) -> None:
        self._imgui.set_current_context(self._context)
        if not self._is_begun:
            self._backend.io.display_size = tuple(map(float, self._size))
            self._backend.io.display_framebuffer_scale = (1.0, 1.0)
            self._imgui.new_frame()
            self._is_begun = True
            self._touch()

    def draw(self, device: Any, view: Any, size: tuple[int, int]) -> None:
        """Draw the declared widgets over the image `view`, of `size` pixels.

        Raises ToolError if a sub-window is not ended.
        """
        self._size = size
        if not self._is_begun:
            return
        if self._open:
            raise ToolError(f"{self._open} sub-windows of the GUI were begun, and not ended")
        self._imgui.set_current_context(self._context)
        self._imgui.render()
        self._is_begun = False
        encoder = device.create_command_encoder()
        onto = {"view": view, "resolve_target": None, "load_op": "load", "store_op": "store"}
        render_pass = encoder.begin_render_pass(color_attachments=[onto])
        self._backend.render(self._imgui.get_draw_data(), render_pass)
        render_pass.end()
        device.queue.submit([encoder.finish()])

    def take(self, event: dict[str, Any], scale: float = 1.0) -> None:
        """Process an event of rendercanvas, whose positions are in units of `scale` pixels."""
        io, kind = self._backend.io, event["event_type"]
        if kind == "char":
            io.add_input_characters_utf8(event["data"])
        elif kind in ("key_down", "key_up"):
            key = imgui_keys().get(event["key"].lower())
            if key is not None:
                io.add_key_event(key, kind == "key_down")
        elif kind == "wheel":
            io.add_mouse_wheel_event(event["dx"] / 100, -event["dy"] / 100)
        else:
            io.add_mouse_pos_event(event["x"] * scale, event["y"] * scale)
            if kind != "pointer_move" and event["button"] in BUTTONS:
                io.add_mouse_button_event(BUTTONS[event["button"]], kind == "pointer_down")

    # --- widgets ---------------------------------------------------------------------------------

    def begin(self, name: str, x: float, y: float, width: float, height: float) -> None:
        """Begin a sub-window titled `name`. x, y: its upper left corner; width, height: its size.

        They are fractions of the window, from the upper left. The user may move it.
        """
        self._begin_frame()
        w, h = self._size
        self._imgui.set_next_window_pos((x * w, y * h), self._imgui.Cond_.once)
        self._imgui.set_next_window_size((width * w, height * h), self._imgui.Cond_.once)
        self._imgui.push_style_var(self._imgui.StyleVar_.item_inner_spacing, TITLE_SPACING)
        try:
            self._imgui.begin(name)
        finally:
            self._imgui.pop_style_var()
        self._open += 1

    def end(self) -> None:
        """End the sub-window. Raises ToolError if there is none."""
        if not self._open:
            raise ToolError("end: no sub-window of the GUI was begun")
        self._begin_frame()
        self._imgui.end()
        self._open -= 1

    @contextmanager
    def sub_window(
        self, name: str, x: float, y: float, width: float, height: float
    ) -> Iterator[Gui]:
        """Context manager that begins a sub-window, yields this Gui, and ends the sub-window.

        name, x, y, width, height: as in `begin`.
        """
        self.begin(name, x, y, width, height)
        try:
            yield self
        finally:
            self.end()

    def text(self, text: str, color: Any = None) -> None:
        """A line of text, in a colour if given."""
        self._begin_frame()
        if color is None:
            self._imgui.text(str(text))
        else:
            self._imgui.text_colored((*colour_of("text", color), 1.0), str(text))

    def checkbox(self, text: str, old_value: bool) -> bool:
        """A check box; returns True if it is checked."""
        self._begin_frame()
        return bool(self._imgui.checkbox(text, bool(old_value))[1])

    def slider_int(self, text: str, old_value: int, minimum: int, maximum: int) -> int:
        """A slider for integers; returns its value."""
        self._begin_frame()
        return int(self._imgui.slider_int(text, int(old_value), int(minimum), int(maximum))[1])

    def slider_float(self, text: str, old_value: float, minimum: float, maximum: float) -> float:
        """A slider for floats; returns its value."""
        self._begin_frame()
        place = (text, float(old_value), float(minimum), float(maximum))
        return float(self._imgui.slider_float(*place)[1])

    def color_edit_3(self, text: str, old_value: Any) -> Colour:
        """A colour picker labelled `text`; returns red, green, blue from 0 to 1.

        Raises ToolError unless `old_value` has 3 or 4 numbers.
        """
        self._begin_frame()
        chosen = self._imgui.color_edit3(text, list(colour_of("color_edit_3", old_value)))[1]
        self._draw_colour_border()
        return (float(chosen[0]), float(chosen[1]), float(chosen[2]))

    def _draw_colour_border(self) -> None:
        """Draw the border of the last widget's colour square as over the background of the window,
        not over the colour."""
        imgui = self._imgui
        size, corner = imgui.get_frame_height(), imgui.get_item_rect_min()
        left = corner.x + imgui.calc_item_width() - size
        over, under = DARK["frame_bg"], DARK["window_bg"]
        mixed = [a * over[3] + b * (1 - over[3]) for a, b in zip(over[:3], under)]
        imgui.get_window_draw_list().add_rect(
            (left, corner.y), (left + size, corner.y + size), imgui.get_color_u32((*mixed, 1.0))
        )

    def button(self, text: str) -> bool:
        """A button; returns True if it was just clicked."""
        self._begin_frame()
        return bool(self._imgui.button(text))


@functools.cache
def imgui_keys() -> dict[str, Any]:
    """ImGui's keys by rendercanvas' names in lower case."""
    from imgui_bundle import imgui
    from wgpu.utils.imgui.imgui_renderer import ImguiRenderer

    named = {name.lower(): key for name, key in ImguiRenderer.KEY_MAP.items()}
    letters = {chr(97 + k): imgui.Key(imgui.Key.a.value + k) for k in range(26)}
    digits = {str(k): imgui.Key(imgui.Key._0.value + k) for k in range(10)}
    return {**named, **letters, **digits}
