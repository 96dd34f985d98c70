"""A cloth that falls on a ball, in three dimensions, shown by ti.ui.

Springs join each mass to those near it, with semi-implicit Euler steps. Masses inside the ball are
projected to its surface, lose their inward velocity, and are slowed by friction.

    python examples/cloth3d.py
"""

from __future__ import annotations

import numpy as np
import stage

import vkchi as ti

SIZE, GRAVITY, STIFFNESS, DAMPING, DRAG, DT = 1.0, 9.8, 30000.0, 15.0, 1.0, 5e-4
BALL, RADIUS, GAP = (0.0, -0.1, 0.0), 0.3, 0.01
NEAR = [(i, j) for i in range(-2, 3) for j in range(-2, 3) if (i, j) != (0, 0)]


class Cloth:
    def __init__(self, n: int = 64) -> None:
        self.n = n
        self.x, self.v, self.force = (ti.Vector.field(3, ti.f32, (n, n)) for _ in range(3))
        self.indices = ti.field(ti.i32, 6 * (n - 1) ** 2)
        self.colours = ti.Vector.field(3, ti.f32, (n, n))
        self.ball = ti.Vector.field(3, ti.f32, 1)
        self.make_start()
        self.make_steps()
        self.start()

    def make_start(self) -> None:
        x, v, n, indices, colours, ball = (
            self.x, self.v, self.n, self.indices, self.colours, self.ball,
        )  # fmt: skip

        @ti.kernel
        def start():
            ball[0] = ti.Vector(BALL)
            for i, j in x:
                tilt = 0.03 * (i / (n - 1) - 0.3)
                x[i, j] = [(i / (n - 1) - 0.5) * SIZE, 0.4 + tilt, (j / (n - 1) - 0.5) * SIZE]
                v[i, j] = [0.0, 0.0, 0.0]
                is_dark = (i // 4 + j // 4) % 2 == 0
                colours[i, j] = [0.85, 0.3, 0.2] if is_dark else [0.95, 0.85, 0.6]
            for i, j in ti.ndrange(n - 1, n - 1):
                first = 6 * (i * (n - 1) + j)
                a, b, c, d = i * n + j, i * n + j + 1, (i + 1) * n + j + 1, (i + 1) * n + j
                for k, corner in ti.static(enumerate((a, b, c, a, c, d))):
                    indices[first + k] = corner

        self.start = start

    def make_steps(self) -> None:
        x, v, force, n = self.x, self.v, self.force, self.n
        spacing = SIZE / (n - 1)

        @ti.kernel
        def push():
            for i, j in x:
                total = ti.Vector([0.0, -GRAVITY, 0.0])
                for k in ti.static(NEAR):
                    a, b = i + k[0], j + k[1]
                    if 0 <= a < n and 0 <= b < n:
                        d, u = x[a, b] - x[i, j], v[a, b] - v[i, j]
                        rest = spacing * ti.Vector([k[0], k[1]]).norm()
                        length = d.norm(1e-9)
                        way = d / length
                        total += way * (STIFFNESS * (length / rest - 1) * spacing)
                        total += way * (DAMPING * u.dot(way))
                force[i, j] = total

        @ti.kernel
        def move():
            for i, j in x:
                v[i, j] = ti.exp(-DRAG * DT) * (v[i, j] + DT * force[i, j])
                x[i, j] += DT * v[i, j]
                out = x[i, j] - ti.Vector(BALL)
                far = out.norm()
                if far < RADIUS + GAP:
                    way = out / far
                    x[i, j] = ti.Vector(BALL) + (RADIUS + GAP) * way
                    v[i, j] -= way * ti.min(v[i, j].dot(way), 0.0)
                    v[i, j] *= 0.99  # friction

        self.push, self.move = push, move

    def step(self) -> None:
        for _ in range(20):
            self.push()
            self.move()

    def energy(self) -> float:
        """Kinetic and gravitational energy per unit of mass, without that of the springs."""
        v, x = self.v.to_numpy().astype(np.float64), self.x.to_numpy()
        return float((0.5 * (v * v).sum(-1) + GRAVITY * x[..., 1]).mean())

    def draw(self, scene: ti.ui.Scene) -> None:
        scene.mesh(
            self.x, indices=self.indices, per_vertex_color=self.colours, two_sided=True
        )  # fmt: skip
        scene.particles(self.ball, radius=RADIUS, color=(0.4, 0.45, 0.55))


if __name__ == "__main__":
    stage.run(Cloth, "cloth on a ball", eye=(1.1, 0.8, 1.6), at=(0.0, 0.0, 0.0))
