"""Two galaxies of a thousand stars pass each other: all stars attract each other.

Forces are summed directly. The leapfrog scheme conserves momentum and, nearly, energy.

    python examples/nbody.py
"""

from __future__ import annotations

import numpy as np
import viewer

import vkchi as ti

SOFTENING, DT = 0.02, 1e-3


class Galaxies:
    def __init__(self, stars: int = 2048) -> None:
        n = self.n = stars
        x = self.x = ti.Vector.field(3, ti.f32, n)
        v = self.v = ti.Vector.field(3, ti.f32, n)
        a = self.a = ti.Vector.field(3, ti.f32, n)
        mass = 1.0 / n

        @ti.kernel
        def pull():
            for i in x:
                total = ti.Vector.zero(ti.f32, 3)
                for j in range(n):
                    d = x[j] - x[i]
                    squared = d.norm_sqr() + SOFTENING**2
                    total += d * (mass / (squared * ti.sqrt(squared)))
                a[i] = total

        @ti.kernel
        def kick(dt: ti.f32):
            for i in v:
                v[i] += dt * a[i]

        @ti.kernel
        def drift(dt: ti.f32):
            for i in x:
                x[i] += dt * v[i]

        @ti.kernel
        def measure() -> ti.f32:
            energy = 0.0
            for i in x:
                energy += 0.5 * mass * v[i].norm_sqr()
                for j in range(n):
                    if j != i:
                        d = x[j] - x[i]
                        energy -= 0.5 * mass**2 / ti.sqrt(d.norm_sqr() + SOFTENING**2)
            return energy

        self.pull, self.kick, self.drift, self.energy = pull, kick, drift, measure
        self.start()

    def start(self) -> None:
        random, half = np.random.default_rng(3), self.n // 2
        places, speeds = [], []
        for side, count in ((-1, half), (1, self.n - half)):
            r, angle = 0.05 + 0.3 * np.sqrt(random.random(count)), 2 * np.pi * random.random(count)
            thin = 0.02 * random.normal(size=count)
            speed = side * np.sqrt(0.5 * (r / 0.35) ** 2 * r / (r**2 + SOFTENING**2))
            x, y = r * np.cos(angle), r * np.sin(angle)
            places.append(np.stack([x + 0.45 * side, y + 0.1 * side, thin], 1))
            turn = np.stack([-np.sin(angle) * speed, np.cos(angle) * speed, 0 * r], 1)
            speeds.append(turn - np.array([0.5 * side, 0, 0]))
        self.x.from_numpy(np.concatenate(places).astype(np.float32))
        self.v.from_numpy(np.concatenate(speeds).astype(np.float32))
        self.pull()

    def step(self) -> None:
        for _ in range(5):
            self.kick(DT / 2)
            self.drift(DT)
            self.pull()
            self.kick(DT / 2)

    def draw(self, gui: ti.GUI) -> None:
        at = self.x.to_numpy()[:, :2] * 0.5 + 0.5
        sides = (np.arange(self.n) >= self.n // 2).astype(np.int32)
        gui.circles(at, radius=1.5, palette=[0xFFD28A, 0x8AB8FF], palette_indices=sides)


if __name__ == "__main__":
    viewer.run(Galaxies, "galaxies", res=512, background=0x05070C)
