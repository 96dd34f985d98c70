"""Arguments of ti.GUI, and its errors for invalid ones."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import KernelRuntimeError, ToolError

AT = np.array([[0.25, 0.25], [0.75, 0.75]])


@pytest.fixture
def gui() -> ti.GUI:
    return ti.GUI("test", res=16, show_gui=False)


WRONG = {
    "circles(np.zeros((2, 3)))": "circles: pos is an array of positions",
    "circles(np.zeros((2, 2, 2)))": "or an array of shape (n, 2), not (2, 2, 2)",
    "circles(AT, radius=np.ones(3))": "radius is one number or an array of 2",
    "circles(AT, color=np.zeros((2, 3)))": "color is one number or an array of 2",
    "circles(AT, color=0x1000000)": "a color is a number from 0 to 0xFFFFFF",
    "circles(AT, color=-1)": "a color is a number from 0 to 0xFFFFFF",
    "circles(AT, palette=[1, 2])": "palette must be used together with palette_indices",
    "circles(AT, palette=[1, 2], palette_indices=[0, 5])": "go from 0 to 5, and the palette has 2",
    "circles(AT, palette=[1, 2], palette_indices=[0.0, 1.0])": "palette_indices are integers",
    "circles('abc')": "pos is an array of numbers",
    "circle((0.5, 0.5, 0.5))": "circle: pos is a position of two numbers",
    "circle((0.5, 0.5), color=(1, 0, 0))": "color is one number or an array of 1",
    "lines(AT, AT[:1])": "lines: 2 lines begin, and 1 end",
    "triangles(AT, AT, AT[:1])": "triangles: 2, 2 and 1 corners",
    "arrows(AT, AT[:1])": "arrows: 2 origins, and 1 directions",
    "arrow_field(np.zeros((4, 4)))": "a field of vectors of 2 numbers with two axes",
    "contour(np.zeros((4, 4, 2)))": "a field of numbers with two axes",
    "vector_field(np.zeros((4, 4, 2)), arrow_spacing=0)": "arrow_spacing is a positive integer",
    "text('a', (0, 0), font_size=0)": "font_size is a positive number",
    "set_image(np.zeros((16, 15)))": "the window has (16, 16) pixels, the image (16, 15)",
    "set_image(np.zeros((16, 16), np.int32))": "unsigned integers, not of int32",
    "set_image(np.zeros((16, 16), bool))": "unsigned integers, not of bool",
    "set_image(np.zeros((16, 16, 5)))": "of 1 to 4 channels, not (16, 16, 5)",
    "set_image(ti.Texture(ti.Format.r32f, (16,)))": "a texture of two axes is needed",
    "slider('a', 3, 3)": "less than maximum, and step positive: got minimum 3, maximum 3, step 1",
    "slider('a', 0, 1, step=0)": "got minimum 0, maximum 1, step 0",
    "clear(-5)": "a color is a number from 0 to 0xFFFFFF",
}


@pytest.mark.parametrize("call", WRONG)
def test_wrong_calls(gui: ti.GUI, call: str) -> None:
    with pytest.raises(ToolError) as error:
        eval(f"gui.{call}", {"gui": gui, "np": np, "ti": ti, "AT": AT})
    assert WRONG[call] in str(error.value)


@pytest.mark.parametrize("res", [0, (3, -1), (3, 3, 3), (2.5, 2), "ab"])
def test_wrong_sizes(res) -> None:
    with pytest.raises(ToolError, match="res is a number of pixels"):
        ti.GUI("test", res=res, show_gui=False)


def test_window_sizes() -> None:
    for res, size in ((8, (8, 8)), ((8, 4), (8, 4)), ([8, 4], (8, 4)), (np.int32(8), (8, 8))):
        gui = ti.GUI(res=res, show_gui=False)
        assert gui.res == size and gui.get_image().shape == (*size, 4)


def test_running_and_frames(gui: ti.GUI) -> None:
    count = 0
    while gui.running:
        gui.show()
        count += 1
        if gui.frame == 3:
            gui.running = False
    assert count == 3


def test_limits_of_frames(gui: ti.GUI) -> None:
    assert gui.fps_limit == 60
    gui.fps_limit = None
    assert gui.fps_limit is None
    gui.fps_limit = 24
    assert gui.fps_limit == 24
    with pytest.raises(ToolError):
        gui.fps_limit = -1


def test_without_a_window_no_events_come(gui: ti.GUI) -> None:
    assert not gui.get_event() and list(gui.get_events()) == [] and not gui.has_key_event()
    assert not gui.is_pressed("a", gui.LMB) and gui.get_cursor_pos() == (0.0, 0.0)
    with pytest.raises(KernelRuntimeError, match="no window"):
        gui.get_key_event()


def test_closing_a_window() -> None:
    with ti.GUI("test", res=8, show_gui=False) as gui:
        assert gui.running
    assert not gui.running
    gui.close()
    with pytest.raises(KernelRuntimeError, match="was closed"):
        gui.show()


def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":nowhere")
    monkeypatch.setenv("TI_GUI_SHOW", "0")
    assert ti.GUI("test", res=8).running
    monkeypatch.setenv("TI_GUI_SHOW", "maybe")
    with pytest.raises(ToolError, match="TI_GUI_SHOW is 'maybe'"):
        ti.GUI("test", res=8)


def test_without_a_screen_it_draws_all_the_same(monkeypatch, caplog) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("vkchi.gui.gui.has_screen", lambda: False)
    with caplog.at_level("WARNING", logger="vkchi"):  # whatever other tests set
        gui = ti.GUI("test", res=8)
    assert "no screen" in caplog.text
    gui.circle((0.5, 0.5), radius=3)
    assert gui.get_image().max() == 1


def test_event_filters() -> None:
    event = ti.GUI.Event()
    event.type, event.key = ti.GUI.PRESS, "a"

    def matches(*e_filter) -> bool:
        return ti.GUI.EventFilter(*e_filter).match(event)

    for yes in (
        (ti.GUI.PRESS,),
        ("a",),
        ((ti.GUI.PRESS, "a"),),
        ([ti.GUI.PRESS, "a"],),
        ("b", "a"),
    ):
        assert matches(*yes)
    for no in ((), ("b",), (ti.GUI.RELEASE,), ((ti.GUI.PRESS, "b"),), ((ti.GUI.RELEASE, "a"), "b")):
        assert not matches(*no)


def test_colour_arguments() -> None:
    assert ti.hex_to_rgb(0x336699) == pytest.approx((0.2, 0.4, 0.6))
    assert ti.rgb_to_hex((0.2, 0.4, 0.6)) == 0x336699


def test_a_window_that_is_far_too_large() -> None:
    with pytest.raises(ToolError, match="1000000 x 1000000 pixels are more than"):
        ti.GUI("x", (10**6, 10**6), show_gui=False)
