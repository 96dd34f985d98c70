"""The examples that draw: a few steps of small ones, and their invariants."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.gui.conftest import Load


def draw(simulation, res) -> np.ndarray:
    """The image that an example draws, without alpha."""
    gui = ti.GUI("test", res, show_gui=False)
    simulation.draw(gui)
    return gui.get_image()[..., :3]


def test_julia(load: Load) -> None:
    julia = load("julia").Julia(64, 32)
    image = draw(julia, (64, 32))
    at = np.stack(np.meshgrid(np.arange(64), np.arange(32), indexing="ij"), -1)
    z = ((at[..., 0] / 32 - 1) + 1j * (at[..., 1] / 32 - 0.5)) * 2.6
    z = z.astype(np.complex64)
    for _ in range(8):  # far after few iterations means far
        z = np.where(abs(z) < 8, z * z + np.complex64(-0.8 + 0.2j), z)
    steps = np.where(abs(z) >= 8, 1, 0)
    bright = image[..., 0]  # rises with the number of iterations up to a point
    assert bright[steps == 1].mean() < 0.3 < bright[steps == 0].mean()
    assert 0.05 < steps.mean() < 0.98


def test_gravity(load: Load) -> None:
    bodies = load("gravity").Bodies(5)
    before = bodies.energy()
    momentum = bodies.v.to_numpy().sum(0)
    for _ in range(3):
        bodies.step()
    assert bodies.energy() == pytest.approx(before, rel=5e-3)
    np.testing.assert_allclose(bodies.v.to_numpy().sum(0), momentum, atol=1e-3)
    assert (draw(bodies, 128) > 0.5).any()


def test_mpm88_falls_freely_and_keeps_its_mass(load: Load) -> None:
    module = load("mpm88")
    fluid = module.Fluid(1000, cells=32)
    fluid.x.from_numpy(fluid.x.to_numpy() + np.array([0.2, 0.3], np.float32))  # off the walls
    x, v = fluid.x.to_numpy().mean(0), fluid.v.to_numpy().mean(0)
    steps = 12
    for _ in range(steps):
        fluid.substep()
    t = steps * fluid.dt
    np.testing.assert_allclose(fluid.v.to_numpy().mean(0), v - [0, module.GRAVITY * t], atol=2e-3)
    np.testing.assert_allclose(
        fluid.x.to_numpy().mean(0), x + v * t - [0, 0.5 * module.GRAVITY * t**2], atol=2e-3
    )
    mass = fluid.mass.to_numpy()
    assert mass.sum() == pytest.approx(1000 * fluid.volume, rel=1e-4)
    for _ in range(4):
        fluid.step()
    assert 0 < fluid.x.to_numpy().min() and fluid.x.to_numpy().max() < 1
    assert np.isfinite(fluid.ratio.to_numpy()).all()
    assert draw(fluid, 64)[..., 2].max() > 0.5


def test_snow_keeps_its_momentum_in_a_sparse_grid(load: Load) -> None:
    snow = load("sparse_snow").Snow(1000)
    before, momentum = snow.x.to_numpy(), snow.v.to_numpy().mean(0)
    for _ in range(2):
        snow.step()
    np.testing.assert_allclose(snow.v.to_numpy().mean(0), momentum, rtol=1e-4)
    moved = snow.x.to_numpy().mean(0) - before.mean(0)
    np.testing.assert_allclose(moved, momentum * snow.dt * 30, rtol=1e-3)
    _, mass = snow.mass.to_coo()
    assert mass.sum() == pytest.approx(1000 * snow.volume, rel=1e-4)
    assert snow.mass.shape == (4096,) * 3 and ti.sparse.memory(snow.mass) < 48 << 20
    assert draw(snow, 64)[..., 2].max() > 0.5


def test_mpm99(load: Load) -> None:
    module = load("mpm99")
    bodies = module.Materials(600, cells=32)
    before = bodies.x.to_numpy()
    bodies.step()
    assert bodies.mass.to_numpy().sum() == pytest.approx(600 * bodies.volume, rel=1e-4)
    fallen = bodies.x.to_numpy() - before
    t = 25 * bodies.dt
    free = bodies.kinds == module.SNOW
    np.testing.assert_allclose(fallen[free, 1].mean(), -1.5 * module.GRAVITY * t * t, rtol=0.1)
    shape = np.linalg.det(bodies.shape.to_numpy().astype(np.float64))
    assert (abs(shape - 1) < 0.1).all()
    water = bodies.shape.to_numpy()[bodies.kinds == module.WATER]
    np.testing.assert_allclose(water[:, 0, 0], water[:, 1, 1], atol=1e-6)  # it has no shape
    assert len(np.unique(draw(bodies, 64).reshape(-1, 3), axis=0)) > 4


def test_cloth(load: Load) -> None:
    cloth = load("cloth").Cloth(12)
    corners = cloth.x.to_numpy()[[0, -1], 0]
    for _ in range(6):
        cloth.step()
    x = cloth.x.to_numpy()
    np.testing.assert_array_equal(x[[0, -1], 0], corners)
    lengths = np.linalg.norm(np.diff(x, axis=0), axis=-1) * 11 / 0.6
    assert 0.6 < lengths.min() and lengths.max() < 1.6
    np.testing.assert_allclose(x[..., 0] + x[::-1, :, 0], 0, atol=2e-3)  # left as right
    assert x[1:-1, :, 1].mean() < -1e-3
    assert len(np.unique(draw(cloth, 96).reshape(-1, 3), axis=0)) > 4


def test_stable_fluid_loses_its_divergence(load: Load) -> None:
    smoke = load("stable_fluid").Smoke(32)
    for _ in range(3):
        smoke.step()
    at = (np.arange(32, dtype=np.float32) + 0.5) / 32 * np.pi
    x, y = np.meshgrid(at, at, indexing="ij")
    slope = np.stack([np.sin(x) * np.cos(y), np.cos(x) * np.sin(y)], -1)  # of a potential
    swirl = np.stack([np.sin(x) * np.cos(y), -np.cos(x) * np.sin(y)], -1)  # of a stream
    for flow, wanted in ((slope, 0 * slope), (swirl, swirl), (slope + swirl, swirl)):
        smoke.v.from_numpy(flow)
        smoke.pressure.fill(0)
        for _ in range(3):
            smoke.project()
        assert abs(smoke.v.to_numpy() - wanted).max() < 0.15  # nearly: cells, not faces
    dye = smoke.dye.to_numpy()
    assert dye.min() >= -1e-6 and dye.max() > 0.05
    assert draw(smoke, 32).max() > 0.05


def test_nbody_keeps_momentum_and_energy(load: Load) -> None:
    galaxies = load("nbody").Galaxies(256)
    momentum, energy = galaxies.v.to_numpy().sum(0), galaxies.energy()
    for _ in range(4):
        galaxies.step()
    np.testing.assert_allclose(galaxies.v.to_numpy().sum(0), momentum, atol=2e-2)
    assert galaxies.energy() == pytest.approx(energy, rel=1e-3)
    assert (draw(galaxies, 96) > 0.5).sum() > 50


def test_game_of_life(load: Load) -> None:
    life = load("game_of_life").Life(20, 40)
    cells = np.zeros((20, 20), np.int32)
    for i, j in ((1, 0), (2, 1), (0, 2), (1, 2), (2, 2)):  # a glider, across the torus' seam
        cells[(i + 17) % 20, (j + 17) % 20] = 1
    life.alive.from_numpy(cells)
    for _ in range(8):
        life.step()
    assert np.array_equal(life.alive.to_numpy(), np.roll(cells, (2, 2), (0, 1)))
    image = draw(life, 40)
    assert (image[::2, ::2, 0] == 1).sum() == 5 and image.sum() == pytest.approx(4 * 5 * 3)


def test_path_tracer(load: Load) -> None:
    box = load("path_tracer").CornellBox(32)
    means = []
    for _ in range(6):
        box.step()
        means.append(box.light.to_numpy() / box.samples)
    mean = means[-1]
    assert np.isfinite(mean).all() and (mean >= 0).all()
    left, right = mean[2:5, 10:22].mean((0, 1)), mean[27:30, 10:22].mean((0, 1))
    assert left[0] > 2 * left[1] and right[1] > 2 * right[0]  # red, green
    assert mean[16, 27].tolist() == pytest.approx([12] * 3, rel=0.6)  # the lamp
    assert 0.02 < mean[8:24, 14:20].mean() < 1.0  # the far wall
    assert draw(box, 32).max() <= 1


def test_a_white_room_path_traced(load: Load) -> None:
    """The light that a point gets from the lamp directly, against the integral over the lamp."""
    module = load("path_tracer")
    found = ti.field(ti.f32, ())

    @ti.kernel
    def measure(count: ti.i32):
        for _ in range(count):
            at = ti.Vector([0.0, 0.6, 0.0])
            found[None] += module.light_from_lamp(at, ti.Vector([0.0, 1.0, 0.0])) / count

    measure(4096)
    x = (np.arange(200) + 0.5) / 200 * 0.5 - 0.25
    squared = x[:, None] ** 2 + x**2 + 0.16
    wanted = 12 * (0.16 / squared**2).mean() * 0.25 / np.pi
    assert found[None] == pytest.approx(wanted, rel=0.02)


def test_sdf_renderer(load: Load) -> None:
    module = load("sdf_renderer")
    hits = ti.field(ti.f32, 64)

    @ti.kernel
    def look():
        for k in hits:  # down from above, along a line through the torus' rim
            origin = ti.Vector([-1.6 + 3.2 * k / 63, 4.0, 0.0])
            hits[k] = 4.0 - module.march(origin, ti.Vector([0.0, -1.0, 0.0]), 0.0)

    look()
    height = hits.to_numpy()
    x = -1.6 + 3.2 * np.arange(64) / 63
    assert height[np.argmin(abs(x + 1.08))] == pytest.approx(0.22, abs=0.04)  # its rim
    assert height[0] == pytest.approx(-0.85, abs=0.01)  # the floor
    assert height[np.argmin(abs(x))] == pytest.approx(0.6, abs=0.12)  # the ball
    sculpture = module.Sculpture(48, 36)
    sculpture.step()
    image = draw(sculpture, (48, 36))
    assert image[24, 35, 2] > image[24, 35, 0]  # sky
    assert image[24, 18, 0] > image[24, 18, 2]  # clay


def test_running_an_example(
    load: Load, tmp_path: Path, monkeypatch, capsys, own_runtime: None
) -> None:
    pytest.importorskip("PIL")
    monkeypatch.setattr(sys, "argv", ["life.py", "--headless", "--frames", "3",
                                      "--save", str(tmp_path / "life")])  # fmt: skip
    load("viewer").run(lambda: load("game_of_life").Life(16, 32), "life", res=32)
    said = capsys.readouterr().out
    assert "life: 3 frames" in said and f"wrote {tmp_path / 'life' / 'life.gif'}" in said
    assert len(list((tmp_path / "life" / "frames").glob("*.png"))) == 3


def test_a_demo_without_a_screen(
    load: Load, tmp_path: Path, monkeypatch, capsys, own_runtime: None
) -> None:
    pytest.importorskip("PIL")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vkchi.tools.image.has_screen", lambda: False)
    monkeypatch.setattr(sys, "argv", ["examples/life.py", "--demo", "--frames", "2"])
    load("viewer").run(lambda: load("game_of_life").Life(16, 32), "life", res=32)
    assert "wrote out/life/life.gif" in capsys.readouterr().out
    assert (tmp_path / "out" / "life" / "life.gif").exists()


def test_forces_from_an_energy(load: Load) -> None:
    gravity = load("ad_gravity").Gravity(5)
    before = gravity.energy()
    for _ in range(5):
        gravity.step()
    assert gravity.energy() == pytest.approx(before, rel=5e-3)
    x = gravity.x.to_numpy().astype(np.float64)
    d = x[:, None] - x
    cubed = (np.sqrt((d**2).sum(-1) + 1e-3)) ** 3
    wanted = (d / cubed[..., None]).sum(1)
    np.testing.assert_allclose(gravity.x.grad.to_numpy(), wanted, rtol=1e-3, atol=1e-3)
    assert (draw(gravity, 96) > 0.5).any()


def test_finite_elements_keep_their_energy(load: Load) -> None:
    beam = load("fem").Beam(8, 3)
    np.testing.assert_allclose(beam.x.grad.to_numpy()[:, 0], 0, atol=1e-3)  # at rest
    weight = beam.x.grad.to_numpy()[:, 1]
    assert weight.mean() == pytest.approx(beam.mass * 3.0, rel=1e-2)
    before, place = beam.total_energy(), beam.x.to_numpy()
    energies = []
    for _ in range(12):
        beam.step()
        energies.append(beam.total_energy())
    moved = beam.x.to_numpy() - place
    assert moved[-1, 1] < -0.005 and not moved[0].any()
    assert max(abs(e - before) for e in energies) < 0.01 * abs(before)
    assert len(np.unique(draw(beam, 96).reshape(-1, 3), axis=0)) > 4


def test_conjugate_gradients(load: Load) -> None:
    plate = load("conjugate_gradient").Plate(24)
    lefts = []
    while plate.left[None] > 1e-14 and plate.steps < 300:
        plate.step()
        lefts.append(plate.left[None])
    assert plate.steps < 300 and plate.check() < 1e-6
    u, k = plate.u.to_numpy().astype(np.float64), plate.conducts.to_numpy().astype(np.float64)
    rim = 2 * sum((k * u)[edge].sum() for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]))
    assert rim == pytest.approx(plate.b.to_numpy().sum(), rel=1e-4)  # inflow equals outflow
    assert u.min() > 0 and draw(plate, 96).max() > 0.5


def test_sorting(load: Load) -> None:
    sorting = load("sorting").Sorting(6)
    before = sorting.values.to_numpy()
    for _ in range(6 * 7 // 2):
        sorting.step()
    assert (np.diff(before) < 0).any()
    np.testing.assert_array_equal(sorting.values.to_numpy(), np.sort(before))
    image = draw(sorting, (512, 256))
    assert (image[-8, :240] > 0.5).any(1).all() and not (image[8, 20:] > 0.5).any()


def test_reductions(load: Load) -> None:
    picture = load("reductions").Picture(64)
    picture.step()
    dim = picture.dim.to_numpy().astype(np.float64)
    assert picture.mean[None] == pytest.approx(dim.mean(), rel=1e-5)
    assert picture.variance[None] == pytest.approx(dim.var(), rel=1e-4)
    assert (picture.least[None], picture.most[None]) == (dim.min(), dim.max())
    counts = np.bincount((dim * 128).astype(int).reshape(-1), minlength=128)
    assert abs(picture.counts.to_numpy() - counts).sum() <= 4  # at the bins' ends
    assert picture.counts.to_numpy().sum() == 64 * 64
    clear = picture.clear.to_numpy()
    assert dim.std() < 0.06 and clear.std() == pytest.approx(12**-0.5, rel=0.05)  # even
    assert draw(picture, (128, 64)).max() > 0.9
