"""Finite elements from an energy: a rubber beam swings; forces are gradients computed by a tape.

Triangles of neo-Hookean rubber are held at the left. The kernel computes the energy of a
deformation. Minus its gradient by the positions is the force. Total energy is nearly conserved.
Source: Sifakis and Barbic, "FEM Simulation of 3D Deformable Solids", SIGGRAPH 2012 courses.

    python examples/fem.py
"""

from __future__ import annotations

import numpy as np
import viewer

import vkchi as ti

MU, LAMBDA, DENSITY, GRAVITY, DT = 1200.0, 2400.0, 10.0, 3.0, 4e-4
LENGTH, HEIGHT, PLACE = 0.6, 0.15, (0.1, 0.6)


def mesh(columns: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of nodes [n, 2], and triangles of three nodes each, counterclockwise."""
    i, j = np.meshgrid(np.arange(columns + 1), np.arange(rows + 1), indexing="ij")
    places = np.stack([i * LENGTH / columns, j * HEIGHT / rows], -1).reshape(-1, 2)
    a = (i * (rows + 1) + j)[:-1, :-1].reshape(-1)
    b, c, d = a + rows + 1, a + rows + 2, a + 1
    triangles = np.concatenate([np.stack([a, b, c], -1), np.stack([a, c, d], -1)])
    return (places + PLACE).astype(np.float32), triangles.astype(np.int32)


class Beam:
    """Positions x, velocities v; `energy` is elastic and gravitational, x.grad its gradient."""

    def __init__(self, columns: int = 24, rows: int = 6) -> None:
        places, triangles = mesh(columns, rows)
        self.triangles = triangles
        self.x = ti.Vector.field(2, ti.f32, len(places), needs_grad=True)
        self.v, self.rest = (ti.Vector.field(2, ti.f32, len(places)) for _ in range(2))
        self.energy = ti.field(ti.f32, (), needs_grad=True)
        self.corners = ti.Vector.field(3, ti.i32, len(triangles))
        self.inverse = ti.Matrix.field(2, 2, ti.f32, len(triangles))
        self.mass = DENSITY * LENGTH * HEIGHT / len(places)
        self.x.from_numpy(places)
        self.rest.from_numpy(places)
        self.corners.from_numpy(triangles)
        a, b, c = (places[triangles[:, k]].astype(np.float64) for k in range(3))
        self.inverse.from_numpy(np.linalg.inv(np.stack([b - a, c - a], -1)).astype(np.float32))
        self.make_kernels(LENGTH * HEIGHT / len(triangles))
        self.measure()

    def make_kernels(self, area: float) -> None:
        x, v, rest, energy, mass = self.x, self.v, self.rest, self.energy, self.mass
        corners, inverse = self.corners, self.inverse

        @ti.kernel
        def store():
            for t in corners:
                a, b, c = x[corners[t][0]], x[corners[t][1]], x[corners[t][2]]
                f = ti.Matrix.cols([b - a, c - a]) @ inverse[t]
                log_j = ti.log(f.determinant())
                stretch = (f.transpose() @ f).trace() - 2
                density = 0.5 * MU * stretch - MU * log_j + 0.5 * LAMBDA * log_j**2
                energy[None] += area * density
            for i in x:
                energy[None] += mass * GRAVITY * x[i].y

        @ti.kernel
        def move():
            for i in x:
                if rest[i].x > PLACE[0] + 1e-4:
                    v[i] -= DT * x.grad[i] / mass
                    x[i] += DT * v[i]

        self.store, self.move = store, move

    def measure(self) -> None:
        """Compute the energy and its gradient at the current positions."""
        with ti.ad.Tape(self.energy):
            self.store()

    def step(self) -> None:
        for _ in range(16):
            self.move()
            self.measure()

    def total_energy(self) -> float:
        return self.energy[None] + 0.5 * self.mass * float((self.v.to_numpy() ** 2).sum())

    def draw(self, gui: ti.GUI) -> None:
        x = self.x.to_numpy()
        a, b, c = (x[self.triangles[:, k]] for k in range(3))
        p, q, r = (self.rest.to_numpy()[self.triangles[:, k]] for k in range(3))
        now, then = ([np.linalg.norm(side, axis=1) for side in sides]
                     for sides in ((b - a, c - b, a - c), (q - p, r - q, p - r)))  # fmt: skip
        strain = np.max([abs(n / m - 1) for n, m in zip(now, then)], 0).clip(0, 0.3) / 0.3
        colour = ti.rgb_to_hex((0.3 + 0.7 * strain, 0.6 - 0.3 * strain, 0.85 - 0.6 * strain))
        gui.triangles(a, b, c, color=colour)
        for s, e in ((a, b), (b, c), (c, a)):
            gui.lines(s, e, radius=0.6, color=0x1B2530)


if __name__ == "__main__":
    viewer.run(Beam, "finite elements", res=400, background=0xF2F4F6)
