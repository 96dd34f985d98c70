"""Gravity from its potential energy: the forces are the tape's gradients.

Source: Taichi's documentation, "Differentiable programming", case study. The kernel says what the
energy is; the tape gives its derivative, and minus that is the force. Total energy is conserved if
the forces are right: it is printed, and checked, at the end.

    python examples/ad_gravity.py [--bodies N] [--steps N] [--out FILE.png]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import vkchi as ti

DT, SOFTENING = 1e-4, 1e-3


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bodies", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--out", help="write the paths of the bodies to this image")
    return parser.parse_args()


class Gravity:
    """Bodies of mass 1 in a plane."""

    def __init__(self, bodies: int) -> None:
        n = self.n = bodies
        x = self.x = ti.Vector.field(2, ti.f32, n, needs_grad=True)
        v = self.v = ti.Vector.field(2, ti.f32, n)
        energy = self.potential = ti.field(ti.f32, (), needs_grad=True)
        random = np.random.default_rng(4)
        x.from_numpy(random.random((n, 2), np.float32))

        @ti.kernel
        def compute_potential():
            for i, j in ti.ndrange(n, n):
                if i < j:
                    r = x[i] - x[j]
                    energy[None] += -1 / r.norm(SOFTENING)

        @ti.kernel
        def kick(dt: ti.f32):
            for i in x:
                v[i] += dt * -x.grad[i]

        @ti.kernel
        def drift(dt: ti.f32):
            for i in x:
                x[i] += dt * v[i]

        self.compute_potential, self.kick, self.drift = compute_potential, kick, drift

    def forces(self) -> None:
        """Put the derivative of the potential energy into x.grad."""
        with ti.ad.Tape(loss=self.potential):
            self.compute_potential()

    def step(self) -> None:
        """Half a kick, a drift, half a kick: the leapfrog scheme, which conserves energy."""
        self.kick(DT / 2)
        self.drift(DT)
        self.forces()
        self.kick(DT / 2)

    def energy(self) -> float:
        """Kinetic and potential energy."""
        kinetic = 0.5 * float(np.sum(self.v.to_numpy().astype(np.float64) ** 2))
        return kinetic + self.potential[None]


def main() -> None:
    options = parse()
    ti.init(arch=ti.vulkan)
    gravity = Gravity(options.bodies)
    gravity.forces()
    before, begin, path = gravity.energy(), time.perf_counter(), []
    for step in range(options.steps):
        gravity.step()
        if step % 20 == 0:
            path.append(gravity.x.to_numpy())
    after, seconds = gravity.energy(), time.perf_counter() - begin
    drift = abs(after - before) / abs(before)
    print(f"{options.bodies} bodies, {options.steps} steps in {seconds:.2f} s")
    print(f"energy {before:.4f} -> {after:.4f}, relative change {drift:.1e}")
    if options.out:
        ti.tools.imwrite(draw(np.array(path)), options.out)
    if drift > 5e-3:
        raise SystemExit("energy is not conserved: the forces are wrong")


def draw(path: np.ndarray) -> np.ndarray:
    """The paths as an image of floats, x along the first axis; later is brighter."""
    size = 400
    image = np.zeros((size, size), np.float32)
    for k, points in enumerate(path):
        places = np.clip((points * 0.5 + 0.25) * size, 0, size - 1).astype(int)
        image[places[:, 0], places[:, 1]] = 0.2 + 0.8 * k / len(path)
    return image


if __name__ == "__main__":
    main()
