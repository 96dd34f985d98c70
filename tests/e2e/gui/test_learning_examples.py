"""The examples that learn: each reaches its loss, its physics is right, and its film is drawn."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.gui.conftest import FOLDER, Load
from vkchi.runtime import current_runtime

# Epochs, and the loss after them: the checks of the programs themselves.
CALL = re.compile(r"learning\.run\((\w+), [^\n]*?rounds=(\d+), goal=(-?[\d.e-]+)")
PROBLEMS = {
    path.stem: (found[1], int(found[2]), float(found[3]))
    for path in sorted(FOLDER.glob("*.py"))
    if path.stem != "learning" and (found := CALL.search(path.read_text()))
}


def test_all_difftaichi_examples_exist() -> None:
    """The ten simulators of the DiffTaichi paper, mpm twice, in our own words."""
    assert set(PROBLEMS) == {
        "mass_spring", "diffmpm", "soft_robot", "soft_robot_3d", "wave", "smoke", "liquid",
        "rigid_bodies", "billiards", "electric", "volume", "water_renderer",
    }  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_loss_is_reached(name: str, load: Load) -> None:
    make, rounds, goal = PROBLEMS[name]
    if "SwiftShader" in current_runtime().device.info.name:
        pytest.skip("a second processor's rounding leads descents elsewhere, and takes a minute")
    problem = getattr(load(name), make)()
    losses = load("learning").descend(problem, rounds, goal)
    assert losses[-1] <= goal < losses[0]
    gui = ti.GUI("test", (384, 192) if name == "water_renderer" else 192, show_gui=False)
    for _ in range(2):
        problem.step()
        problem.draw(gui)
    image = gui.get_image()[..., :3]
    assert np.isfinite(image).all() and len(np.unique(image.reshape(-1, 3), axis=0)) > 3
    if name == "wave":
        assert problem.error() < 0.01
    if name == "volume":
        cloud = load(name).cloud(problem.n)
        assert np.corrcoef(cloud.reshape(-1), problem.density.to_numpy().reshape(-1))[0, 1] > 0.8


def test_the_slopes_of_a_billiard_shot(load: Load) -> None:
    """Through all collisions, against differences; balls lose neither momentum nor energy."""
    module = load("billiards")
    table = module.Billiards(110)
    with ti.ad.Tape(table.loss):
        table.run()
    found, before = table.shot.grad.to_numpy(), table.shot.to_numpy()
    for k in ((0, 1), (1, 0), (1, 1)):
        losses = []
        for h in (1e-3, -1e-3):
            shot = before.copy()
            shot[k] += h
            table.shot.from_numpy(shot)
            table.loss[None] = 0
            table.run()
            losses.append(table.loss[None])
        assert (losses[0] - losses[1]) / 2e-3 == pytest.approx(found[k], rel=0.02, abs=2e-4)
    fade = np.exp(-module.FRICTION * module.DT) ** np.arange(110)
    v = table.v.to_numpy().astype(np.float64) / fade[:, None, None]
    np.testing.assert_allclose(v.sum(1), np.broadcast_to(v[0].sum(0), (110, 2)), atol=1e-4)
    np.testing.assert_allclose((v**2).sum((1, 2)), (v[0] ** 2).sum(), rtol=1e-4)


def test_a_network_with_a_step_that_overwrites_its_input(
    load: Load, need: Callable[..., None]
) -> None:
    """The gradient of its weights, in f64: nine digits of the differences at the same state."""
    need("f64")
    assert load("electric").check() < 1e-9


def test_light_through_an_even_cloud(load: Load) -> None:
    volume = load("volume").Volume(16)
    volume.density.fill(1.5)
    volume.render(0.0)
    image = volume.image.to_numpy()
    assert image[0, 8, 8] == pytest.approx(1 - np.exp(-1.5 * 2), rel=0.02)
    volume.density.fill(0)
    volume.render(0.3)
    assert not volume.image.to_numpy().any()


def test_still_water_shows_the_ground(load: Load) -> None:
    pool = load("water_renderer").Pool(24, 8)
    pool.run()
    inner = slice(1, -1)
    np.testing.assert_allclose(
        pool.picture.to_numpy()[inner, inner], pool.ground.to_numpy()[inner, inner], atol=1e-3
    )


def test_smoke_is_kept_and_its_flow_is_free_of_divergence(load: Load) -> None:
    smoke = load("smoke").Smoke(32, steps=6, sweeps=60)
    random = np.random.default_rng(0)
    kicks = random.normal(size=(2, 2))
    at = np.arange(32) / 32 * 2 * np.pi
    wave = np.sin(at)[:, None] + np.cos(2 * at)
    smoke.wind.from_numpy((wave[..., None] * kicks[0] * 0.3).astype(np.float32))
    smoke.start()

    def divergence(v: np.ndarray) -> np.ndarray:
        return sum(0.5 * (np.roll(v[..., d], -1, d) - np.roll(v[..., d], 1, d)) for d in (0, 1))

    before = abs(divergence(smoke.v.to_numpy())).max()
    smoke.advance()
    assert abs(divergence(smoke.v.to_numpy())).max() < 0.5 * before
    for _ in range(5):
        smoke.advance()
    first, last = smoke.first.to_numpy(), smoke.smoke.to_numpy()
    assert last.sum() == pytest.approx(first.sum(), rel=0.05)
    assert -1e-5 < last.min() and last.max() < 1 + 1e-5


@pytest.mark.parametrize("dim", [2, 3])
def test_a_robot_in_the_air_falls(dim: int, load: Load) -> None:
    module = load("soft_robot")
    robot = module.Robot(dim, cells=16, steps=8, spacing=0.05)
    lift = robot.places.to_numpy() + np.eye(dim, dtype=np.float32)[:2].sum(0) * 0.3
    robot.places.from_numpy(lift)
    robot.start()
    for t in range(8):
        robot.advance(t)
    fallen = robot.x.to_numpy() - lift
    steps = np.arange(1, 9).sum() * robot.dt**2
    assert fallen[:, 1].mean() == pytest.approx(-module.GRAVITY * steps, rel=1e-2)
    assert abs(fallen[:, 0].mean()) < 1e-4  # muscles push nobody as a whole
    mass = robot.mass.to_numpy().sum()
    assert mass == pytest.approx(robot.volume * len(lift), rel=1e-4)


def test_a_liquid_stays_as_large_as_it_is(load: Load) -> None:
    liquid = load("liquid").Liquid(48, side=16)
    liquid.push.fill(0)
    liquid.start()
    for t in range(48):
        liquid.advance(t)
    assert abs(liquid.j.to_numpy() - 1).mean() < 0.1  # its own weight presses
    assert liquid.mass.to_numpy().sum() == pytest.approx(liquid.volume * 128, rel=1e-4)
    assert liquid.x.to_numpy()[:, 0].mean() == pytest.approx(0.5, abs=1e-3)


def test_boxes_in_the_air_keep_their_momenta(load: Load) -> None:
    """Springs change neither the momentum nor the angular momentum of all bodies together."""
    module = load("rigid_bodies")
    robot = module.Robot(40)
    robot.first.from_numpy(robot.first.to_numpy() + np.array([0, 0.5], np.float32))
    robot.weights.from_numpy(10 * robot.weights.to_numpy())
    robot.start()
    for t in range(40):
        robot.advance(t)
    size = robot.size.to_numpy().astype(np.float64)
    mass = 250 * size[:, 0] * size[:, 1]
    inertia = mass * (size**2).sum(1) / 3
    x, v, w = (f.to_numpy().astype(np.float64) for f in (robot.x, robot.v, robot.w))
    middle = (mass[:, None] * x).sum(0) / mass.sum()
    speed = (mass[:, None] * v).sum(0) / mass.sum()
    fade = np.exp(-module.DRAG * module.DT)
    fallen = -module.GRAVITY * module.DT * sum(fade**k for k in range(1, 41))
    np.testing.assert_allclose(speed, [0, fallen], atol=1e-3)
    r, u = x - middle, v - speed
    spin = (mass * (r[:, 0] * u[:, 1] - r[:, 1] * u[:, 0]) + inertia * w).sum()
    assert abs(w).max() > 0.05 and abs(spin) < 2e-3 * abs(inertia * w).max() + 1e-5


def test_zero_epochs_show_an_untrained_network(
    load: Load,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    own_runtime: None,
) -> None:
    monkeypatch.setattr("sys.argv", ["x", "--headless", "--frames", "2", "--rounds", "0"])
    make = load("billiards").Billiards
    load("learning").run(lambda: make(12), "billiards", res=64, rounds=5, goal=1e-9)
    said = capsys.readouterr().out
    assert said.startswith("billiards: 2 frames") and "loss" not in said
