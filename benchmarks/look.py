"""Pictures of `ti.ui` beside Taichi's: the mean squared error of each scene, of 255^2 = 65,025.

    python benchmarks/look.py [--against PYTHON [--bless]] [--out FOLDER]

`--against` names a Python with Taichi, which draws the scenes too; `--bless` stores its pictures in
tests/golden/look. Without it, the stored ones of Taichi 1.7.4 are compared. `--out` writes each
scene as a picture: Taichi's, vkchi's, and four times the difference.

The goal is a mean of at most 5 over SCENES. Those of DIFFERENT differ from Taichi on purpose
(`docs/language/differences.md`, `ti.ui`).
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

STORED = Path(__file__).parents[1] / "tests" / "golden" / "look"
FRAMES = 5  # widgets reach their final look after a few frames


class Stage:
    """A window of either library, and conversion of arrays to its fields."""

    def __init__(self, ti, size=(300, 300)):
        self.ti = ti
        self.window = ti.ui.Window("look", size, show_window=False)
        self.canvas, self.scene = self.window.get_canvas(), self.window.get_scene()
        self.gui, self.fields = self.window.get_gui(), {}

    def vectors(self, rows):
        rows = np.asarray(rows, np.float32)
        return self._field(self.ti.Vector.field, rows, rows.shape[-1])

    def matrices(self, values):
        return self._field(self.ti.Matrix.field, np.asarray(values, np.float32), 4, 4)

    def indices(self, rows):
        return self._field(self.ti.field, np.asarray(rows, np.int32).reshape(-1))

    def _field(self, factory, values, *size):
        """A field with these values, the same one in each frame."""
        key = values.tobytes()
        if key not in self.fields:
            scalar = self.ti.f32 if values.dtype == np.float32 else self.ti.i32
            made = factory(*size, scalar, values.shape[: values.ndim - len(size)])
            made.from_numpy(values)
            self.fields[key] = made
        return self.fields[key]

    def light(self, ambient=0.2):
        camera = self.ti.ui.Camera()
        camera.position(0.5, 0.8, 3)
        camera.lookat(0, 0, 0)
        camera.up(0, 1, 0)
        camera.fov(45)
        self.scene.set_camera(camera)
        self.scene.ambient_light((ambient, ambient, ambient))
        if ambient < 1:
            self.scene.point_light(pos=(1, 2, 2), color=(0.9, 0.8, 0.7))


# --- scenes --------------------------------------------------------------------------------------


def points(count, width, low=0.0):
    return np.random.default_rng(count).uniform(low, 1, (count, width))


def waves(m=24):
    """Vertices and indices of a wavy surface."""
    u, v = np.meshgrid(*[np.linspace(-1, 1, m)] * 2, indexing="ij")
    at = np.stack([u, 0.3 * np.sin(4 * u) * np.cos(3 * v), v], -1).reshape(-1, 3)
    k = (np.arange(m - 1)[:, None] * m + np.arange(m - 1)).ravel()
    return at, np.concatenate([[k, k + 1, k + m], [k + 1, k + m + 1, k + m]], 1).T


def circles(stage):
    stage.canvas.circles(stage.vectors(points(60, 2)), radius=0.02, color=(0.9, 0.4, 0.1))


def lines(stage):
    stage.canvas.lines(stage.vectors(points(60, 2)), width=0.01, color=(0.3, 0.9, 0.2))


def triangles(stage):
    stage.canvas.triangles(stage.vectors(points(30, 2)), color=(0.6, 0.2, 0.7))


def image(stage):
    stage.canvas.set_image(stage.vectors(points(9 * 7, 3).reshape(9, 7, 3)))


def mesh(stage):
    stage.light()
    at, corners = waves()
    stage.scene.mesh(stage.vectors(at), stage.indices(corners), color=(0.3, 0.6, 0.9))


def lit_from_behind(stage):
    """A two-sided sheet between the eye and a blue light."""
    stage.light()
    stage.scene.point_light(pos=(0, 0, -3), color=(0.2, 0.3, 1.0))
    sheet = stage.vectors([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]])
    corners = stage.indices([0, 1, 2, 0, 2, 3])
    stage.scene.mesh(sheet, corners, color=(0.7, 0.7, 0.7), two_sided=True)


def particles(stage):
    stage.light()
    at = stage.vectors(points(80, 3, -1))
    stage.scene.particles(at, radius=0.05, color=(0.8, 0.7, 0.2))


def lines_in_space(stage):
    stage.light()
    stage.scene.lines(stage.vectors(points(80, 3, -1)), width=3, color=(0.8, 0.7, 0.2))


def instances(stage, ambient=0.2):
    """Forty small copies of a surface, a few pixels each."""
    stage.light(ambient)
    at, corners = waves()
    each = np.tile(np.diag([0.15, 0.15, 0.15, 1]), (40, 1, 1))
    each[:, :3, 3] = points(40, 3) * 6 - [3, 3, 9]
    stage.scene.mesh_instance(
        stage.vectors(at), stage.indices(corners), color=(0.9, 0.5, 0.2), two_sided=True,
        transforms=stage.matrices(each),
    )  # fmt: skip


def panel(stage):
    with stage.gui.sub_window("Panel", 0.05, 0.1, 0.7, 0.6) as gui:
        gui.text("hello")
        gui.checkbox("check", True)
        gui.slider_float("slide", 0.4, 0, 1)
        gui.slider_int("count", 3, 0, 10)
        gui.color_edit_3("colour", (0.2, 0.6, 0.9))
        gui.button("press")


def wide_panel(stage):
    with stage.gui.sub_window("Colours", 0.02, 0.2, 0.96, 0.5) as gui:
        gui.color_edit_3("wide", (0.2, 0.6, 0.9))


def two_panels(stage):
    """Overlapping panels; the lower one scrolls."""
    with stage.gui.sub_window("Below", 0.05, 0.05, 0.6, 0.4) as gui:
        gui.checkbox("unchecked", False)
        gui.slider_float("low", 0.0, 0, 1)
        gui.slider_int("high", 10, 0, 10)
        gui.color_edit_3("bright", (1.0, 0.9, 0.1))
        gui.color_edit_3("dark", (0.0, 0.1, 0.0))
    with stage.gui.sub_window("On top", 0.3, 0.3, 0.6, 0.5) as gui:
        gui.text("red", color=(1.0, 0.2, 0.2))
        gui.slider_int("many", 500, 0, 100000)
        gui.button("a long button")


SCENES = {
    draw.__name__: draw
    for draw in (
        circles, lines, triangles, image, mesh, lit_from_behind, particles, lines_in_space,
        instances, panel,
    )
}  # fmt: skip
MORE = {
    "wide_panel": wide_panel, "two_panels": two_panels,
    "instances_in_ambient_light": lambda stage: instances(stage, 1.0),
    "particles_in_a_wide_window": particles,
}  # fmt: skip
DIFFERENT = ("instances", "particles_in_a_wide_window")
ALL = {**SCENES, **MORE}
SIZES = {"particles_in_a_wide_window": (400, 200), "wide_panel": (500, 120)}


# --- comparison ----------------------------------------------------------------------------------


def start(library):
    ti = importlib.import_module(library)
    ti.init(arch=ti.vulkan)
    return ti


def draw(ti, name):
    """A scene's picture, u8[w, h, 3] from the lower left."""
    stage = Stage(ti, SIZES.get(name, (300, 300)))
    for _ in range(FRAMES):
        stage.canvas.set_background_color((0.1, 0.2, 0.3))
        ALL[name](stage)
        stage.canvas.scene(stage.scene)
        picture = np.asarray(stage.window.get_image_buffer_as_numpy())[:, :, :3]
    stage.window.destroy()
    return np.rint(picture * 255).astype(np.uint8)


def draw_elsewhere(python, name):
    """The picture of another Python's Taichi, which draws some scenes wrongly after others."""
    with tempfile.TemporaryDirectory() as folder:  # Dear ImGui leaves a file there
        command = [python, str(Path(__file__).resolve()), "--draw", name]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return np.load(Path(folder) / f"{name}.npy")


def read(name):
    """The stored picture of Taichi."""
    from vkchi.tools import imread

    return imread(STORED / f"{name}.png")[:, :, :3]


def error_of(theirs, ours):
    """Mean squared error of two pictures."""
    return float(np.square(theirs.astype(float) - ours).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="PYTHON")
    parser.add_argument("--bless", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--draw", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.draw:
        np.save(f"{options.draw}.npy", draw(start("taichi"), options.draw))
        return
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from vkchi.tools import imwrite

    python = options.against
    theirs = {name: draw_elsewhere(python, name) if python else read(name) for name in ALL}
    if python and options.bless:
        STORED.mkdir(exist_ok=True)
        for name, picture in theirs.items():
            imwrite(picture, STORED / f"{name}.png")
    ti = start("vkchi")
    ours = {name: draw(ti, name) for name in ALL}
    errors = {name: error_of(theirs[name], ours[name]) for name in ALL}
    for name, error in errors.items():
        print(f"{name:26} {error:8.2f}{'   on purpose' if name in DIFFERENT else ''}")
    print(f"{'mean of the ten scenes':26} {np.mean([errors[name] for name in SCENES]):8.2f}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        for name in ours:
            far = abs(theirs[name].astype(int) - ours[name]) * 4
            row = (theirs[name], ours[name], np.minimum(far, 255).astype(np.uint8))
            imwrite(np.concatenate(row), options.out / f"{name}.png")


if __name__ == "__main__":
    main()
