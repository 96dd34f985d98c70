"""`ti.ui.Window` off-screen: its pictures as files, its events, its widgets, its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import KernelRuntimeError, MissingPackageError, ToolError
from vkchi.ui import packages
from vkchi.ui.window import InputState

W, H = 200, 150


@pytest.fixture
def window():
    made = ti.ui.Window("test", (W, H), show_window=False, fps_limit=60)
    yield made
    made.destroy()


def test_pictures_as_files(window, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    canvas = window.get_canvas()
    canvas.circles(np.array([[0.25, 0.75]], np.float32), 0.1, color=(1, 0, 0))
    for save, name in ((window.save_image, "a.png"), (window.write_image, "b.png")):
        save(tmp_path / name)
        found = ti.tools.imread(tmp_path / name)
        assert found.shape == (W, H, 3)
        assert found[50, 112].tolist() == [255, 0, 0] and found[50, 37].max() == 0


def test_two_windows_at_once() -> None:
    windows = [ti.ui.Window(str(k), (40, 30 + k), show_window=False) for k in range(2)]
    for k, window in enumerate(windows):
        window.get_canvas().set_background_color((k, 1 - k, 0))
    for k, window in enumerate(windows):
        image = window.get_image_buffer_as_numpy()
        assert image.shape == (40, 30 + k, 4) and image[0, 0].tolist() == [k, 1 - k, 0, 1]
        assert window.get_window_shape() == (40, 30 + k)


def test_the_end_of_a_window(window) -> None:
    assert window.running
    window.show()
    window.running = False
    assert not window.running
    window.show()
    window.destroy()
    assert not window.running
    with pytest.raises(KernelRuntimeError, match="'test' was destroyed"):
        window.show()


def test_a_destroyed_window_with_a_frame_that_was_read(window) -> None:
    window.get_image_buffer_as_numpy()
    window.destroy()
    with pytest.raises(KernelRuntimeError, match="'test' was destroyed"):
        window.show()


def test_wrong_windows() -> None:
    for arguments in ({"res": (0, 3)}, {"res": (3, 3), "fps_limit": 0}):
        with pytest.raises(ToolError, match="not positive"):
            ti.ui.Window("test", show_window=False, **arguments)


def test_without_a_renderer(monkeypatch) -> None:
    packages.require_ggui.cache_clear()
    monkeypatch.setattr(packages, "is_installed", lambda package: package != "pygfx")
    with pytest.raises(MissingPackageError, match="ti.ui needs pygfx, .*pip install pygfx"):
        ti.ui.Window("test", (3, 3))
    packages.require_ggui.cache_clear()


def test_without_a_screen(monkeypatch, caplog) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    window = ti.ui.Window("balls", (30, 20))
    assert "'balls' is drawn off-screen" in caplog.text
    window.show()
    assert window.get_image_buffer_as_numpy().shape == (30, 20, 4)


def test_renderer_is_loaded_lazily() -> None:
    program = "import sys, vkchi; vkchi.ui.Camera(), vkchi.ui.Scene(); print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert not {"pygfx", "wgpu", "imgui_bundle", "glfw", "rendercanvas"} & set(loaded)


# --- events --------------------------------------------------------------------------------------

EVENTS = [
    {"event_type": "key_down", "key": "A"}, {"event_type": "key_up", "key": "a"},
    {"event_type": "key_down", "key": "ArrowUp"}, {"event_type": "key_down", "key": " "},
    {"event_type": "pointer_move", "x": 50.0, "y": 30.0},
    {"event_type": "pointer_down", "x": 50.0, "y": 30.0, "button": 2},
    {"event_type": "pointer_up", "x": 50.0, "y": 30.0, "button": 2},
    {"event_type": "key_up", "key": "ArrowUp"},
]  # fmt: skip


def test_window_events(window) -> None:
    for event in EVENTS:
        window._inbox.take(event, (W, H))
    assert window.is_pressed("b", ti.ui.SPACE) and not window.is_pressed(ti.ui.UP, "a")
    assert window.get_cursor_pos() == (0.25, 0.8)
    assert [e.key for e in window.get_events(ti.ui.RELEASE)] == ["a", ti.ui.RMB, ti.ui.UP]
    assert window.get_event(ti.ui.PRESS) and window.event.key == "a"
    assert window.get_event() and window.event == (ti.ui.PRESS, ti.ui.UP)
    assert [e.key for e in window.get_events()] == [ti.ui.SPACE, ti.ui.RMB]
    assert not window.get_event() and window.get_events() == []
    with pytest.raises(ToolError, match="a tag is"):
        window.get_events("Click")


def test_names_of_keys() -> None:
    inbox = InputState()
    names = ["Shift", "Alt", "Control", "Escape", "Enter", "Tab", "Backspace", "ArrowDown",
             "ArrowLeft", "ArrowRight", "CapsLock", "5", "F1"]  # fmt: skip
    for name in names:
        inbox.take({"event_type": "key_down", "key": name}, (1, 1))
    ui = ti.ui
    wanted = [ui.SHIFT, ui.ALT, ui.CTRL, ui.ESCAPE, ui.RETURN, ui.TAB, ui.BACKSPACE, ui.DOWN,
              ui.LEFT, ui.RIGHT, ui.CAPSLOCK, "5", "F1"]  # fmt: skip
    assert [event.key for event in inbox.events] == wanted


# --- widgets -------------------------------------------------------------------------------------


def declare(window, values: dict) -> np.ndarray:
    """A frame with widgets; `values` are those of the widgets then."""
    gui = window.get_gui()
    with gui.sub_window("numbers", 0.0, 0.0, 1.0, 1.0) as w:
        w.text("a text")
        w.text("a red one", color=(1, 0, 0))
        values["tick"] = w.checkbox("tick", values.get("tick", False))
        values["clicked"] = w.button("click")
        values["whole"] = w.slider_int("whole", values.get("whole", 3), 0, 10)
        values["part"] = w.slider_float("part", values.get("part", 0.5), 0, 1)
        values["colour"] = w.color_edit_3("colour", values.get("colour", (0.2, 0.4, 0.6)))
    image = window.get_image_buffer_as_numpy()
    window.show()
    return image[:, ::-1]


def test_widgets_are_drawn(window) -> None:
    values: dict = {}
    image = declare(window, values)
    assert values == {
        "tick": False, "clicked": False, "whole": 3, "part": 0.5,
        "colour": pytest.approx((0.2, 0.4, 0.6)),
    }  # fmt: skip
    assert (image[5:100, 25:40, :3].min(-1) > 0.9).any()  # white letters
    red = (image[..., 0] > 0.9) & (image[..., 1:3].max(-1) < 0.3)
    assert red[5:100, 35:60].any()
    bytes_, counts = np.unique(
        np.rint(image[..., :3].reshape(-1, 3) * 255).astype(int), axis=0, return_counts=True
    )
    panel, frame = bytes_[np.argsort(-counts)[:2]]
    assert abs(panel - 0.06 * 0.94 * 255).max() <= 1  # the colours of Taichi's panels
    assert abs(frame - (panel * 0.46 + np.array([0.16, 0.29, 0.48]) * 0.54 * 255)).max() <= 2
    window.get_canvas().set_background_color((0, 0, 1))
    window.show()
    assert window.get_image_buffer_as_numpy()[:, :, 0].max() == 0  # widgets last a frame


def test_widgets_are_used(window) -> None:
    """Effects of a mouse on widgets. ImGui takes one change a frame."""
    values: dict = {}
    declare(window, values)
    gui = window.get_gui()

    def mouse(kind: str, x: float, y: float) -> None:
        gui.take({"event_type": kind, "x": x, "y": y, "button": 1})
        declare(window, values)

    def click(x: float, y: float) -> None:
        mouse("pointer_move", x, y)
        mouse("pointer_down", x, y)
        mouse("pointer_up", x, y)

    click(18, 66)
    assert values["tick"]
    click(18, 88)
    assert values["clicked"]
    declare(window, values)
    assert not values["clicked"]
    mouse("pointer_move", 20, 112)
    mouse("pointer_down", 20, 112)
    mouse("pointer_move", 190, 112)
    mouse("pointer_up", 190, 112)
    assert values["whole"] == 10 and values["part"] == 0.5


def test_a_sub_window_without_an_end(window) -> None:
    gui = window.GUI
    with pytest.raises(ToolError, match="no sub-window"):
        gui.end()
    gui.begin("open", 0.1, 0.1, 0.5, 0.5)
    gui.text("text")
    with pytest.raises(ToolError, match="1 sub-windows of the GUI were begun"):
        window.show()
    gui.end()
    window.show()


def test_frames_per_second() -> None:
    """Off-screen, nobody waits; the environment's word is heard."""
    assert os.environ.get("TI_GUI_SHOW") is None
    window = ti.ui.Window("test", (20, 20), show_window=False, fps_limit=0.1)
    for _ in range(3):
        window.show()
