"""Two users of Vulkan in one process, kernels and pygfx: neither disturbs the other."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import vkchi as ti
from tests.devices import errors_of
from vkchi.runtime import current_runtime


@pytest.fixture
def window():
    made = ti.ui.Window("test", (100, 100), show_window=False)
    yield made
    made.destroy()


def rows_seen(window, at) -> list[int]:
    """Rows in which a disc at each place of the window's middle is seen."""
    window.get_canvas().circles(at, radius=0.02, color=(1, 1, 1))
    image = window.get_image_buffer_as_numpy()[:, :, 0]
    window.show()
    return np.flatnonzero(image[50]).tolist()


def test_frames_between_launches(window) -> None:
    at, total = ti.Vector.field(2, ti.f32, 1000), ti.field(ti.i64 if has_i64() else ti.i32, ())

    @ti.kernel
    def step(t: ti.f32):
        for k in at:
            at[k] = [0.5, t]
            total[None] += k

    for k in range(20):
        step(0.05 * k + 0.02)
        middle = 5 * k + 2
        assert rows_seen(window, at) == list(range(middle - 2, middle + 2))
    assert total[None] == 20 * 1000 * 999 // 2


def has_i64() -> bool:
    caps = current_runtime().device.caps
    return bool(caps.has_type("i64") and caps.can_store("i64"))


def test_a_window_outlives_a_runtime(window, own_runtime: None) -> None:
    for k in (10, 30, 50):
        ti.init()
        at = ti.Vector.field(2, ti.f32, 1)
        at[0] = [0.5, k / 100]
        assert rows_seen(window, at) == list(range(k - 2, k + 2))
    window.get_canvas().circles(at, radius=0.02, color=(1, 1, 1))
    ti.reset()
    assert np.flatnonzero(window.get_image_buffer_as_numpy()[50, :, 0]).tolist() == [48, 49, 50, 51]


def test_inside_a_tape(window) -> None:
    """Drawing records nothing, and changes no gradient."""
    x, loss = ti.Vector.field(2, ti.f32, 4, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    x.fill(0.5)

    @ti.kernel
    def add():
        for k in x:
            loss[None] += x[k].dot(x[k])

    with ti.ad.Tape(loss):
        assert rows_seen(window, x) == [48, 49, 50, 51]
        add()
        rows_seen(window, x)
    np.testing.assert_allclose(x.grad.to_numpy(), 1.0)


def test_both_are_on_one_device(window) -> None:
    assert (
        window._picture.renderer.device.adapter.info["device"] == current_runtime().device.info.name
    )


@pytest.mark.parametrize("first", ["kernels", "windows"])
def test_processes_end_as_they_should(first: str) -> None:
    program = """
import vkchi as ti
def start():
    ti.init(log_level=ti.ERROR)
def look():
    global window
    window = ti.ui.Window("a", (30, 20), show_window=False)
    window.show()
FIRST
x = ti.Vector.field(2, ti.f32, 3)
@ti.kernel
def fill():
    for k in x:
        x[k] = [0.5, 0.5]
fill()
window.get_canvas().circles(x, 0.5, color=(1, 1, 1))
print(window.get_image_buffer_as_numpy()[15, 10])
with window.get_gui().sub_window("a", 0, 0, 1, 1) as gui:
    gui.text("end")
window.show()
"""
    calls = "start()\nlook()" if first == "kernels" else "look()\nstart()"
    done = subprocess.run(
        [sys.executable, "-c", program.replace("FIRST", calls)], capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("[1. 1. 1. 1.]\n", 0), done.stderr
    assert errors_of(done.stderr) == ""


def test_a_program_that_draws_by_pygfx_itself() -> None:
    program = """
import pygfx as gfx
target = gfx.Texture(dim=2, size=(8, 8, 1), format="rgba8unorm")
gfx.renderers.WgpuRenderer(target)
import vkchi as ti
ti.init(log_level=ti.ERROR)
window = ti.ui.Window("a", (30, 20), show_window=False)
window.get_canvas().set_background_color((1, 0, 1))
print(window.get_image_buffer_as_numpy()[15, 10])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[1. 0. 1. 1.]\n", done.stderr
