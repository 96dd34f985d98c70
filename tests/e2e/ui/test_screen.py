"""A window of ti.ui on a real X server without a screen (Xvfb): keys and the mouse arrive, in the
program and in widgets, and the server shows the drawing. Skipped where Xvfb or xdotool is not
installed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, subprocess, time
import numpy as np
import vkchi as ti
from PIL import ImageGrab

def send(*words):
    subprocess.run(["xdotool", *map(str, words)], check=True)

ti.init()
x = ti.Vector.field(2, ti.f32, 1)
x[0] = [0.25, 0.75]
window = ti.ui.Window("test", (200, 100), pos=(60, 40), fps_limit=200)
if window._screen is None:
    raise SystemExit("off-screen")
canvas, gui, ticked = window.get_canvas(), window.get_gui(), False

def frame():
    global ticked
    canvas.set_background_color((32 / 255, 64 / 255, 96 / 255))
    canvas.circles(x, radius=0.1, color=(1, 128 / 255, 0))
    with gui.sub_window("box", 0.5, 0.0, 0.5, 0.6) as w:
        ticked = w.checkbox("tick", ticked)
    seen = window.get_image_buffer_as_numpy()
    window.show()
    return seen

for _ in range(10):
    seen = frame()
list(window.get_events())
send("mousemove", 60 + 50, 40 + 20)
send("key", "a"), send("key", "Escape"), send("key", "Up"), send("click", 1), send("click", 3)
send("keydown", "shift")
until = time.time() + 20
while time.time() < until and not window.is_pressed(ti.ui.SHIFT):
    frame()
for event in window.get_events(ti.ui.PRESS):
    print(event.type, repr(event.key))
print("released", [event.key for event in window.get_events(ti.ui.RELEASE)])
print("cursor %.2f %.2f" % window.get_cursor_pos())
send("keyup", "shift")
send("mousemove", 60 + 118, 40 + 30)
send("mousedown", 1)
for _ in range(10):
    frame()
send("mouseup", 1)
for _ in range(10):
    frame()
print("ticked", ticked)
for _ in range(5):
    seen = frame()
time.sleep(0.2)
shown = ImageGrab.grab(xdisplay=os.environ["DISPLAY"]).crop((60, 40, 260, 140))
rows = np.rint(seen[:, ::-1, :3].swapaxes(0, 1) * 255)
print("pixels", shown.getpixel((50, 25)), shown.getpixel((20, 90)))
print("far from the picture:", int((abs(np.asarray(shown) - rows).max(-1) > 2).sum()))
print("shape", window.get_window_shape(), window.running)
window.destroy()
print("running", window.running)
"""
SAID = """\
Press 'a'
Press 'Escape'
Press 'Up'
Press 'LMB'
Press 'RMB'
Press 'Shift'
released ['a', 'Escape', 'Up', 'LMB', 'RMB']
cursor 0.25 0.80
ticked True
pixels (255, 128, 0) (32, 64, 96)
far from the picture: 0
shape (200, 100) True
running False
"""


def test_a_window_on_an_x_server(display: str) -> None:
    pytest.importorskip("PIL")
    env = {**os.environ, "DISPLAY": display, "TI_GUI_SHOW": "1"}
    env.pop("WAYLAND_DISPLAY", None)
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    if done.stderr.endswith("off-screen\n"):
        pytest.skip("this device shows no windows on X")
    assert done.stdout == SAID, done.stderr


WITHOUT_SURFACE = """
import logging
import vkchi as ti
from vkchi.ui import screen

logging.basicConfig(format="%(message)s", level="WARNING")
screen.list_extensions = lambda vk: frozenset()
screen.has_egl = lambda: False
ti.init()
window = ti.ui.Window("balls", (30, 20))
window.get_canvas().set_background_color((1, 0, 0))
window.show()
print(window.get_image_buffer_as_numpy()[3, 4].tolist())
"""


def test_a_window_that_nothing_can_draw_on_is_off_screen(display: str) -> None:
    """wgpu would abort the process: drivers without surfaces, and no EGL library."""
    env = {**os.environ, "DISPLAY": display, "TI_GUI_SHOW": "1"}
    env.pop("WAYLAND_DISPLAY", None)
    command = [sys.executable, "-c", WITHOUT_SURFACE]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[1.0, 0.0, 0.0, 1.0]\n"
    assert done.stderr.splitlines()[1:] == [
        "windows cannot be shown: the Vulkan drivers lack VK_KHR_xlib_surface, and libEGL.so.1 is "
        "not installed; 'balls' is drawn off-screen"
    ]


def test_a_dead_display_is_off_screen() -> None:
    env = {**os.environ, "DISPLAY": ":987", "TI_GUI_SHOW": "1"}
    env.pop("WAYLAND_DISPLAY", None)
    command = [sys.executable, "-c", WITHOUT_SURFACE]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.stdout == "[1.0, 0.0, 0.0, 1.0]\n", done.stderr
    assert "is drawn off-screen" in done.stderr
