"""A cloth of masses and springs, held at two corners, in wind; drawn in two dimensions.

Springs join each mass to those at most two rows and columns away. Drag slows the masses, and
semi-implicit Euler steps move them.

    python examples/cloth.py
"""

from __future__ import annotations

import numpy as np
import viewer

import vkchi as ti

SIZE, GRAVITY, STIFFNESS, DAMPING, DRAG, DT = 0.6, 9.8, 60000.0, 12.0, 0.6, 4e-4
NEAR = [(i, j) for i in range(-2, 3) for j in range(-2, 3) if (i, j) != (0, 0)]


class Cloth:
    def __init__(self, n: int = 48) -> None:
        self.n, self.t = n, 0.0
        self.x, self.v, self.force = (ti.Vector.field(3, ti.f32, (n, n)) for _ in range(3))
        self.make_kernels()
        self.start()

    def make_kernels(self) -> None:
        x, v, force, n = self.x, self.v, self.force, self.n
        spacing = SIZE / (n - 1)

        @ti.kernel
        def start():
            for i, j in x:
                x[i, j] = [(i * spacing - SIZE / 2), 0.0, -j * spacing]
                v[i, j] = [0.0, 0.0, 0.0]

        @ti.kernel
        def push(wind: ti.f32):
            for i, j in x:
                total = ti.Vector([0.0, -GRAVITY, wind])
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
                if j > 0 or (i > 0 and i < n - 1):
                    v[i, j] = ti.exp(-DRAG * DT) * (v[i, j] + DT * force[i, j])
                    x[i, j] += DT * v[i, j]
                else:
                    v[i, j] = [0.0, 0.0, 0.0]

        self.start, self.push, self.move = start, push, move

    def step(self) -> None:
        for _ in range(30):
            self.t += DT
            self.push(2.5 * np.sin(2.5 * self.t) + 0.5)
            self.move()

    def project(self) -> np.ndarray:
        """Positions in the window, seen from the side: [n, n, 2]."""
        x, y, z = np.moveaxis(self.x.to_numpy(), -1, 0)
        return np.stack([0.5 + x + 0.25 * z, 0.72 + y + 0.25 * z], -1)

    def draw(self, gui: ti.GUI) -> None:
        at = self.project()
        order = np.argsort(self.x.to_numpy()[:-1, :-1, 2].reshape(-1))  # back to front
        a, b, c, d = (p.reshape(-1, 2)[order] for p in
                      (at[:-1, :-1], at[1:, :-1], at[1:, 1:], at[:-1, 1:]))  # fmt: skip
        side = np.cross(np.append(b - a, 0 * a[:, :1], 1), np.append(d - a, 0 * a[:, :1], 1))[:, 2]
        size = SIZE / (self.n - 1)
        light = np.clip(0.6 + 0.4 * side / size**2, 0.45, 1)
        stripes = (order // (self.n - 1) // 4 + order % (self.n - 1) // 4) % 2
        red, green = light * np.where(stripes, 0.9, 0.75), light * np.where(stripes, 0.3, 0.72)
        colour = ti.rgb_to_hex((red, green, 0.4 * light + 0.1))
        gui.triangles(a, b, c, color=colour)
        gui.triangles(a, c, d, color=colour)


if __name__ == "__main__":
    viewer.run(Cloth, "cloth", res=480, background=0xE8ECF0)
