"""Windows of ti.GUI on SDL's dummy screen: pictures arrive, and so do events that are posted."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import MissingPackageError

pygame = pytest.importorskip("pygame")
PRESS, RELEASE, MOTION = ti.GUI.PRESS, ti.GUI.RELEASE, ti.GUI.MOTION


@pytest.fixture
def gui(monkeypatch: pytest.MonkeyPatch) -> Iterator[ti.GUI]:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.delenv("TI_GUI_SHOW", raising=False)
    with ti.GUI("test", res=(200, 100)) as gui:
        gui.fps_limit = None
        list(gui.get_events())
        yield gui


def post(gui: ti.GUI, kind: int, **facts) -> None:
    pygame.event.post(pygame.event.Event(kind, window=gui._window.window, **facts))


def press(gui: ti.GUI, key: int, kind: int = pygame.KEYDOWN) -> None:
    post(gui, kind, key=key, mod=0, unicode="")


def move(gui: ti.GUI, pos: tuple[int, int]) -> None:
    post(gui, pygame.MOUSEMOTION, pos=pos, rel=(0, 0), buttons=(0, 0, 0))


def click(gui: ti.GUI, pos: tuple[int, int], kind: int = pygame.MOUSEBUTTONDOWN, n: int = 1):
    post(gui, kind, pos=pos, button=n)


def test_the_window_shows_the_drawing(gui: ti.GUI) -> None:
    gui.clear(0x204060)
    gui.circle((0.25, 0.75), radius=10, color=0xFF8000)
    gui.show()
    surface = gui._window.window.get_surface()
    assert surface.get_size() == (200, 100)
    assert tuple(surface.get_at((50, 25)))[:3] == (255, 128, 0)  # pygame counts from the top
    assert tuple(surface.get_at((150, 75)))[:3] == (0x20, 0x40, 0x60)


def test_key_events(gui: ti.GUI) -> None:
    names = {
        pygame.K_a: "a", pygame.K_5: "5", pygame.K_SPACE: ti.GUI.SPACE, pygame.K_UP: ti.GUI.UP,
        pygame.K_ESCAPE: ti.GUI.ESCAPE, pygame.K_RETURN: ti.GUI.RETURN, pygame.K_TAB: ti.GUI.TAB,
        pygame.K_BACKSPACE: ti.GUI.BACKSPACE, pygame.K_LSHIFT: ti.GUI.SHIFT,
        pygame.K_RCTRL: ti.GUI.CTRL, pygame.K_LALT: ti.GUI.ALT, pygame.K_CAPSLOCK: ti.GUI.CAPSLOCK,
        pygame.K_LEFT: ti.GUI.LEFT, pygame.K_RIGHT: ti.GUI.RIGHT, pygame.K_DOWN: ti.GUI.DOWN,
        pygame.K_F5: "F5", pygame.K_MINUS: "-",
    }  # fmt: skip
    for key in names:
        press(gui, key)
        press(gui, key, pygame.KEYUP)
    got = [(event.type, event.key) for event in gui.get_events()]
    assert got == [(way, name) for name in names.values() for way in (PRESS, RELEASE)]


def test_is_pressed_lists_held_keys(gui: ti.GUI) -> None:
    press(gui, pygame.K_w)
    assert gui.is_pressed("a", "w") and not gui.is_pressed("a", ti.GUI.LMB)
    press(gui, pygame.K_w, pygame.KEYUP)
    assert not gui.is_pressed("w")


def test_modifier_keys(gui: ti.GUI) -> None:
    press(gui, pygame.K_LCTRL)
    press(gui, pygame.K_c)
    first, second = gui.get_events()
    assert first.modifier == [ti.GUI.CTRL] and second.modifier == [ti.GUI.CTRL]


def test_the_mouse(gui: ti.GUI) -> None:
    move(gui, (50, 20))
    for n in (1, 2, 3):
        click(gui, (50, 20), n=n)
    click(gui, (60, 20), pygame.MOUSEBUTTONUP)
    post(gui, pygame.MOUSEWHEEL, x=0, y=-2, flipped=False)
    got = list(gui.get_events())
    assert [(e.type, e.key) for e in got] == [
        (MOTION, ti.GUI.MOVE), (PRESS, ti.GUI.LMB), (PRESS, ti.GUI.MMB), (PRESS, ti.GUI.RMB),
        (RELEASE, ti.GUI.LMB), (MOTION, ti.GUI.WHEEL),
    ]  # fmt: skip
    assert got[1].pos == pytest.approx((50.5 / 200, 79.5 / 100))
    assert got[-1].delta == (0, -240) and gui.get_cursor_pos() == pytest.approx((0.3025, 0.795))
    assert gui.is_pressed(ti.GUI.RMB) and not gui.is_pressed(ti.GUI.LMB)


def test_asking_for_events(gui: ti.GUI) -> None:
    for key in (pygame.K_a, pygame.K_b, pygame.K_ESCAPE, pygame.K_c):
        press(gui, key)
    assert gui.get_event((PRESS, ti.GUI.ESCAPE), RELEASE) and gui.event.key == ti.GUI.ESCAPE
    assert gui.get_key_event().key == "c"  # those before were dropped
    assert not gui.get_event()


def test_closing_the_window(gui: ti.GUI) -> None:
    assert gui.running
    post(gui, pygame.WINDOWCLOSE)
    assert not gui.running
    assert gui.get_event(ti.GUI.EXIT)


def test_two_windows_have_their_own_events(gui: ti.GUI) -> None:
    with ti.GUI("other", res=50) as other:
        press(other, pygame.K_x)
        press(gui, pygame.K_y)
        assert [e.key for e in gui.get_events(PRESS)] == ["y"]
        assert [e.key for e in other.get_events(PRESS)] == ["x"]
        other.show()


def test_widget_values(gui: ti.GUI) -> None:
    radius = gui.slider("radius", 1, 50, step=0.5)
    count, okay = gui.label("count"), gui.button("OK")
    assert radius.value == 1 and count.value == 0 and okay == "WidgetButton_OK"
    left, right, low, high = gui._panel.box(0)
    y = 100 - (low + high) // 2
    click(gui, ((left + right) // 2, y))
    move(gui, (right + 30, y))
    gui.show()
    assert radius.value == 50  # dragged beyond its end
    move(gui, ((left + right) // 2, y))
    click(gui, ((left + right) // 2, y), pygame.MOUSEBUTTONUP)
    move(gui, (left, y))  # let go
    gui.show()
    assert radius.value == pytest.approx(25.5, abs=0.5)
    radius.value, count.value = 7.5, 3
    list(gui.get_events())
    left, right, low, high = gui._panel.box(2)
    click(gui, (left + 5, 100 - low - 5))
    assert gui.get_event((PRESS, okay))
    gui.show()
    surface = gui._window.window.get_surface()
    assert len({tuple(surface.get_at((x, 12))) for x in range(0, 170, 2)}) > 2


def test_an_event_of_ones_own_name(gui: ti.GUI) -> None:
    assert gui.button("quit", event_name="leave") == "leave"


def test_frames_keep_their_distance(gui: ti.GUI) -> None:
    gui.fps_limit = 50
    gui.show()
    begin = time.perf_counter()
    for _ in range(4):
        gui.show()
    assert time.perf_counter() - begin > 0.06


def test_the_whole_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with ti.GUI("test", res=(20, 10), fullscreen=True) as gui:
        gui.clear(0xFF8000)
        gui.show()
        surface = gui._window.window.get_surface()
        assert surface.get_width() > 20
        assert tuple(surface.get_at((surface.get_width() - 1, 0)))[:3] == (255, 128, 0)


def test_pygame_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(MissingPackageError, match="pip install pygame-ce"):
        ti.GUI("test", res=8)


def test_pictures_in_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    shown: list[tuple[str, bytes]] = []

    class Handle:
        def update(self, picture) -> None:
            shown.append(("update", picture.data))

    class Image:
        def __init__(self, data: bytes, format: str) -> None:
            self.data = data

    class Shell:
        kernel, execution_count = object(), 1

    def display(picture, display_id: bool) -> Handle:
        shown.append(("new", picture.data))
        return Handle()

    class Module:
        pass

    ipython, shell = Module(), Shell()
    ipython.get_ipython, ipython.display = lambda: shell, Module()
    ipython.display.display, ipython.display.Image = display, Image
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    gui = ti.GUI("test", res=8)
    gui.fps_limit = None
    gui.set_image(np.ones((8, 8)))
    gui.show()
    gui.show()
    shell.execution_count = 2
    gui.show()
    assert [way for way, _ in shown] == ["new", "update", "new"]
    assert shown[0][1].startswith(b"\x89PNG") and shown[0][1] != shown[1][1]
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingPackageError, match="images need Pillow"):
        gui.show()


def test_pictures_are_written_into_new_folders(tmp_path: Path) -> None:
    gui = ti.GUI("test", res=8, show_gui=False)
    gui.show(tmp_path / "a" / "b" / "frame.png")
    assert ti.tools.imread(tmp_path / "a" / "b" / "frame.png").shape == (8, 8, 3)
