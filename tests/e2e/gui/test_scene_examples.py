"""The examples of three dimensions: a few steps of small ones, and their invariants."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import MissingPackageError
from vkchi.ui.packages import require_ggui

Load = Callable[[str], ModuleType]


def need_what_draws() -> None:
    try:
        require_ggui()
    except MissingPackageError as error:
        pytest.skip(str(error))


def draw(simulation, eye, at) -> np.ndarray:
    """Image of a simulation in even light: f32[w, h, 3]; nothing is black."""
    need_what_draws()
    window = ti.ui.Window("test", (120, 90), show_window=False)
    camera, scene = ti.ui.Camera(), window.get_scene()
    camera.position(*eye)
    camera.lookat(*at)
    scene.set_camera(camera)
    scene.ambient_light((1, 1, 1))
    simulation.draw(scene)
    window.get_canvas().scene(scene)
    return window.get_image_buffer_as_numpy()[..., :3]


@pytest.fixture
def bodies(load: Load):
    return load("mpm3d").Materials(600, cells=24)


def test_mpm3d_falls_freely_and_keeps_its_mass(bodies) -> None:
    before, steps = bodies.x.to_numpy(), 10
    for _ in range(steps):
        bodies.substep()
    t = steps * bodies.dt
    fallen = (bodies.x.to_numpy() - before)[bodies.material.to_numpy() == 2]
    np.testing.assert_allclose(fallen.mean(0), [0, -t - 4.9 * t * t, 0], atol=2e-4)
    assert bodies.mass.to_numpy().sum() == pytest.approx(600 * bodies.volume, rel=1e-4)


def test_mpm3d_materials(bodies) -> None:
    for _ in range(6):
        bodies.step()
    x, kinds = bodies.x.to_numpy(), bodies.material.to_numpy()
    assert np.isfinite(x).all() and x.min() > 0 and x.max() < 1
    shape = bodies.shape.to_numpy().astype(np.float64)
    water = shape[kinds == 0]
    np.testing.assert_allclose(water[:, 0, 1], 0, atol=1e-5)  # it has no shape
    np.testing.assert_allclose(water[:, 0, 0], water[:, 2, 2], rtol=1e-5)
    assert (np.linalg.det(shape[kinds == 2]) > 0.5).all()


def test_mpm3d_is_seen(bodies) -> None:
    image = draw(bodies, (0.5, 0.4, 2.2), (0.5, 0.4, 0.5))
    for k, colour in enumerate(sys.modules["mpm3d"].COLOURS):
        seen = np.argwhere(abs(image - colour).max(-1) < 0.01)
        middle = bodies.x.to_numpy()[bodies.material.to_numpy() == k].mean(0)
        scale = 45 / np.tan(np.pi / 8) / (2.2 - middle[2])
        wanted = np.array([60, 45]) + scale * (middle[:2] - [0.5, 0.4])
        assert len(seen) > 100 and abs(seen.mean(0) - wanted).max() < 3


def test_cloth3d_falls_on_the_ball(load: Load) -> None:
    module = load("cloth3d")
    cloth = module.Cloth(16)
    energy, t = cloth.energy(), 20 * module.DT
    cloth.step()
    np.testing.assert_allclose(cloth.v.to_numpy()[..., 1], -9.8 * t, rtol=0.02)
    energies = [energy]
    for _ in range(30):
        cloth.step()
        energies.append(cloth.energy())
    assert max(np.diff(energies)) < 2e-3  # nothing drives it
    x = cloth.x.to_numpy()
    far = np.linalg.norm(x - module.BALL, axis=-1)
    assert far.min() > module.RADIUS + 0.9 * module.GAP
    assert (far < module.RADIUS + 2 * module.GAP).sum() > 5  # it lies on it
    spacing = np.linalg.norm(np.diff(x, axis=0), axis=-1) * 15
    assert 0.7 < spacing.min() and spacing.max() < 1.4
    assert x[..., 1].max() < module.BALL[1] + module.RADIUS + 0.06 < 0.3


def test_cloth3d_is_seen(load: Load) -> None:
    module = load("cloth3d")
    cloth = module.Cloth(16)
    image = draw(cloth, (0, 3, 0.01), (0, 0, 0))  # from above
    assert 0.15 < (image.max(-1) > 0).mean() < 0.4
    assert {tuple(np.rint(c * 100)) for c in image[50:70, 35:55].reshape(-1, 3)} >= {
        (95, 85, 60), (85, 30, 20),
    }  # fmt: skip
