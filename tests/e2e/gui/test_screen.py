"""A window of ti.GUI on a real X server without a screen (Xvfb): keys and the mouse arrive, and the
server shows the drawing. Skipped where Xvfb or xdotool is not installed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("pygame")
PROGRAM = """
import os, signal, subprocess, time
import vkchi as ti
from PIL import ImageGrab

def send(*words):
    subprocess.run(["xdotool", *map(str, words)], check=True)

with ti.GUI("test", res=(200, 100), background_color=0x204060) as gui:
    for _ in range(20):
        gui.circle((0.25, 0.75), radius=10, color=0xFF8000)
        gui.show()
    x, y = gui._window.window.position
    send("mousemove", x + 50, y + 20)
    time.sleep(0.2)
    list(gui.get_events())
    send("key", "a"), send("key", "Escape"), send("click", 1), send("click", 4)
    send("keydown", "shift")
    events, until = [], time.time() + 10
    while time.time() < until and not gui.is_pressed(gui.SHIFT):
        time.sleep(0.05)
    for event in gui.get_events(gui.PRESS, gui.WHEEL):
        print(event.type.name, event.key, event.delta)
    print("cursor %.4f %.4f" % gui.get_cursor_pos())
    seen = ImageGrab.grab(xdisplay=os.environ["DISPLAY"])
    print("pixels", seen.getpixel((x + 50, y + 25)), seen.getpixel((x + 150, y + 75)))
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    except KeyboardInterrupt:
        print("interrupted")
"""
SAID = """\
PRESS a None
PRESS Escape None
PRESS LMB None
MOTION Wheel (0, 120)
PRESS Shift None
cursor 0.2525 0.7950
pixels (255, 128, 0) (32, 64, 96)
interrupted
"""


def test_a_window_on_an_x_server(display: str) -> None:
    pytest.importorskip("PIL")
    env = {**os.environ, "DISPLAY": display, "SDL_VIDEODRIVER": "x11", "TI_GUI_SHOW": "1"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.stdout == SAID, done.stderr
