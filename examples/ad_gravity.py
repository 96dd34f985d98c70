"""Gravity from its potential energy: the forces are gradients computed by a tape.

Source: Taichi's documentation, "Differentiable programming", case study. The kernel computes the
energy. The tape computes its derivative, and minus that is the force. The picture shows the total
energy, which stays nearly constant.

    python examples/ad_gravity.py
"""

from __future__ import annotations

import numpy as np
import viewer

import vkchi as ti

DT, SOFTENING = 1e-4, 1e-3


class Gravity:
    """Bodies of mass 1 in a plane."""

    def __init__(self, bodies: int = 8) -> None:
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
        self.path = []
        self.forces()

    def forces(self) -> None:
        """Compute the derivative of the potential energy in x.grad."""
        with ti.ad.Tape(loss=self.potential):
            self.compute_potential()

    def advance(self) -> None:
        """Leapfrog step: half a kick, a drift, half a kick. It nearly conserves energy."""
        self.kick(DT / 2)
        self.drift(DT)
        self.forces()
        self.kick(DT / 2)

    def energy(self) -> float:
        """Sum of kinetic and potential energy."""
        kinetic = 0.5 * float(np.sum(self.v.to_numpy().astype(np.float64) ** 2))
        return kinetic + self.potential[None]

    def step(self) -> None:
        for _ in range(40):
            self.advance()
        self.path = [*self.path[-60:], self.x.to_numpy() * 0.5 + 0.25]

    def draw(self, gui: ti.GUI) -> None:
        for k, (before, now) in enumerate(zip(self.path, self.path[1:])):
            shade = int(40 + 160 * k / len(self.path))
            gui.lines(before, now, radius=1, color=shade * 0x010101)
        gui.circles(self.path[-1], radius=5, color=0xF4D35E)
        gui.text(f"energy {self.energy():.4f}", (0.03, 0.97), 16)


if __name__ == "__main__":
    viewer.run(Gravity, "gravity from its energy", res=400, background=0x0B1016)
