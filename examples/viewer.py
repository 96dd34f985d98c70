"""Viewer for examples: a window or, without a screen, off-screen frames.

A simulation is an object with `step()` and `draw(gui)`. Its optional `press(event)` receives keys
and buttons. Escape quits.

    viewer.run(Life, "game of life", res=512)

    python examples/game_of_life.py [--headless] [--frames N] [--save DIR] [--demo] [--device NAME]
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time

import numpy as np

import vkchi as ti

HEADLESS_FRAMES, DEMO_FRAMES, DEMO_SECONDS = 60, 72, 15


def fill_box(gui: ti.GUI, low, high, colour: int) -> None:
    """A filled rectangle (`gui.rect` draws the outline)."""
    (x, y), (z, w) = low, high
    gui.triangles(np.array([(x, y)] * 2), np.array([(z, y), (z, w)]),
                  np.array([(z, w), (x, w)]), color=colour)  # fmt: skip


def positive(text: str) -> int:
    """Parse an option as an integer of 1 or more. Raises ArgumentTypeError."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return int(text)


def parse(title: str, rounds: int | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--headless", action="store_true", help="draw off-screen")
    parser.add_argument("--frames", type=positive, help="end after so many")
    parser.add_argument("--save", type=pathlib.Path, help="write frames and a GIF into this folder")
    demo_help = "15 seconds in a window, or a short GIF in out/ without a screen"
    parser.add_argument("--demo", action="store_true", help=demo_help)
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds, help="of descent, at most")
    parser.add_argument("--device", help="part of a Vulkan device's name")
    options = parser.parse_args()
    options.is_windowed = ti.tools.image.has_screen() and not options.headless
    if options.demo and not options.is_windowed and options.save is None:
        options.save = pathlib.Path("out") / pathlib.Path(sys.argv[0]).stem
        options.frames = options.frames or DEMO_FRAMES
    if not options.is_windowed and options.frames is None:
        options.frames = HEADLESS_FRAMES
    return options


def run(make, title: str, res, background: int = 0x0, rounds: int | None = None) -> None:
    """Make a simulation, and step and draw it until the window is closed.

    Options on the command line set the number of frames and the folder of a film. `rounds`: default
    number of training steps before anything is shown; `make` then gets the options.
    """
    options = parse(title, rounds)
    ti.init(arch=ti.vulkan, **({"device": options.device} if options.device else {}))
    simulation = make() if rounds is None else make(options)
    gui = ti.GUI(title, res, background, show_gui=options.is_windowed)
    film = options.save and ti.tools.VideoManager(
        options.save, video_filename=options.save.name, automatic_build=False)  # fmt: skip
    begin = time.perf_counter()
    while gui.running and gui.frame != options.frames:
        for event in gui.get_events(gui.PRESS):
            if event.key == gui.ESCAPE:
                gui.running = False
            elif hasattr(simulation, "press"):
                simulation.press(event)
        simulation.step()
        simulation.draw(gui)
        if film:
            film.write_frame(gui.get_image()[:, :, :3])
        gui.show()
        if options.demo and options.is_windowed and time.perf_counter() - begin > DEMO_SECONDS:
            break
    seconds = time.perf_counter() - begin
    if gui.frame:
        print(f"{title}: {gui.frame} frames, {seconds / gui.frame * 1e3:.1f} ms each")
    if film and gui.frame:
        film.make_video(mp4=False)
        print(f"wrote {film.get_output_filename('.gif')}")
