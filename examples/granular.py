"""Grains fall into a box: forces of near grains by `ti.spatial.HashGrid`, checked by all pairs.

Grains are discs that repel and brake each other where they overlap. Each step sorts them by cell,
so that a grain reads the few grains near it.

    python examples/granular.py [--grains 4000] [--steps 2000]
"""

from __future__ import annotations

import argparse

import numpy as np

import vkchi as ti

DT, RADIUS, STIFFNESS, DAMPING, GRAVITY = 1e-4, 0.005, 2e4, 10.0, 9.8


class Grains:
    def __init__(self, n: int) -> None:
        self.n = n
        self.x, self.v, self.f, self.all_f = (ti.Vector.field(2, ti.f32, n) for _ in range(4))
        side = int(np.ceil(n**0.5))
        places = np.stack([np.arange(n) % side, np.arange(n) // side], 1)
        jitter = np.random.default_rng(0).random((n, 2)) * 0.08
        self.x.from_numpy(((places + jitter) * 2.2 * RADIUS + 2 * RADIUS).astype(np.float32))
        self.width = (side + 1) * 2.4 * RADIUS
        self.grid = grid = ti.spatial.HashGrid(self.x, 2 * RADIUS)
        x, v, f, all_f, width = self.x, self.v, self.f, self.all_f, self.width

        @ti.func
        def contact(i, j):
            force = ti.Vector([0.0, 0.0])
            away = x[i] - x[j]
            gap = away.norm() - 2 * RADIUS
            if j != i and gap < 0:
                force = -STIFFNESS * gap * away.normalized(1e-9) - DAMPING * (v[i] - v[j])
            return force

        @ti.kernel
        def push():
            for i in x:
                force = ti.Vector([0.0, -GRAVITY])
                for j in grid.near(x[i]):
                    force += contact(i, j)
                f[i] = force

        @ti.kernel
        def push_all():
            for i in x:
                force = ti.Vector([0.0, -GRAVITY])
                for j in range(n):
                    force += contact(i, j)
                all_f[i] = force

        @ti.kernel
        def move():
            for i in x:
                v[i] += DT * f[i]
                x[i] += DT * v[i]
                for k in ti.static(range(2)):  # the walls and the floor
                    if x[i][k] < RADIUS or (k == 0 and x[i][k] > width - RADIUS):
                        x[i][k] = ti.math.clamp(x[i][k], RADIUS, width - RADIUS)
                        v[i][k] *= -0.3

        self.push, self.push_all, self.move = push, push_all, move

    def step(self) -> None:
        self.grid.build()
        self.push()
        self.move()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grains", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    ti.init()
    grains = Grains(options.grains)
    for _ in range(options.steps):
        grains.step()
    grains.grid.build()
    grains.push()
    grains.push_all()
    force, wanted = grains.f.to_numpy(), grains.all_f.to_numpy()
    touching = (np.abs(wanted - [0, -GRAVITY]).sum(1) > 1e-3).sum()
    worst = np.abs(force - wanted).max() / np.abs(wanted).max()
    print(
        f"{touching} of {grains.n} grains touch others; forces differ by {worst:.0e} from all pairs"
    )
