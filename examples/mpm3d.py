"""Water, jelly and snow in three dimensions: MLS-MPM, shown by ti.ui.

Source: Hu et al., "A Moving Least Squares Material Point Method", SIGGRAPH 2018; fixed corotated
elasticity; snow's plasticity of Stomakhin et al., "A material point method for snow simulation",
SIGGRAPH 2013.

    python examples/mpm3d.py
"""

from __future__ import annotations

import numpy as np
import stage

import vkchi as ti

WATER, JELLY, SNOW = 0, 1, 2
GRAVITY, WALL, YOUNG, POISSON, HARDENING = 9.8, 3, 2e3, 0.2, 10.0
MU, LAMBDA = YOUNG / (2 * (1 + POISSON)), YOUNG * POISSON / ((1 + POISSON) * (1 - 2 * POISSON))
COLOURS = np.array([[0.17, 0.56, 0.85], [0.93, 0.42, 0.31], [0.95, 0.96, 0.97]], np.float32)


@ti.func
def weights(fx):
    """Quadratic B-splines at a particle's three nodes along each axis; fx in [0.5, 1.5)."""
    return [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1.0) ** 2, 0.5 * (fx - 0.5) ** 2]


class Materials:
    """Three cubes that fall into a box; positions are between 0 and 1, y is up."""

    def __init__(self, particles: int = 24000, cells: int = 48) -> None:
        n = self.cells = cells
        self.dx, self.dt = 1.0 / n, 4e-4 * 48 / n
        self.volume = (0.5 * self.dx) ** 3
        self.x, self.v = (ti.Vector.field(3, ti.f32, particles) for _ in range(2))
        self.affine = ti.Matrix.field(3, 3, ti.f32, particles)
        self.shape = ti.Matrix.field(3, 3, ti.f32, particles)  # deformation gradient
        self.squeeze = ti.field(ti.f32, particles)  # plastic part of its determinant
        self.material = ti.field(ti.i32, particles)
        self.colours = ti.Vector.field(3, ti.f32, particles)
        self.make_grid()
        self.make_start()
        self.make_transfers()
        self.start()
        self.colours.from_numpy(COLOURS[self.material.to_numpy()])

    def make_grid(self) -> None:
        shape = (self.cells,) * 3
        self.momentum = ti.Vector.field(3, ti.f32, shape)
        self.mass = ti.field(ti.f32, shape)

    def make_start(self) -> None:
        x, v, affine, shape = self.x, self.v, self.affine, self.shape
        squeeze, material, third = self.squeeze, self.material, -(-self.x.shape[0] // 3)

        @ti.kernel
        def start():
            for p in x:
                k = p // third
                corner = ti.Vector([0.2 + 0.18 * k, 0.1 + 0.28 * k, 0.3 + 0.1 * (k % 2)])
                x[p] = corner + 0.24 * ti.Vector([ti.random() for _ in range(3)])
                v[p], affine[p] = [0.0, -1.0, 0.0], ti.Matrix.zero(ti.f32, 3, 3)
                shape[p], squeeze[p], material[p] = ti.Matrix.identity(ti.f32, 3), 1.0, k

        self.start = start

    def make_stress(self):
        """Make a func that updates a particle's deformation and returns its Kirchhoff stress."""
        affine, shape, squeeze, material = self.affine, self.shape, self.squeeze, self.material
        dt = self.dt

        @ti.func
        def stress(p):
            f = (ti.Matrix.identity(ti.f32, 3) + dt * affine[p]) @ shape[p]
            hardness, kind = ti.exp(HARDENING * (1 - squeeze[p])), material[p]
            if kind == JELLY:
                hardness = 0.5
            mu, la = MU * hardness, LAMBDA * hardness
            u, s, w = ti.svd(f)
            if kind == SNOW:  # plastic flow beyond these stretches
                for d in ti.static(range(3)):
                    kept = ti.math.clamp(s[d, d], 1 - 2.5e-2, 1 + 4.5e-3)
                    squeeze[p] *= s[d, d] / kept
                    s[d, d] = kept
                f = u @ s @ w.transpose()
            ratio = s.determinant()
            turned = u @ w.transpose()
            if kind == WATER:  # no shear resistance
                mu = 0.0
                f = ti.Matrix.identity(ti.f32, 3) * ratio ** (1 / 3)
            shape[p] = f
            pressure = ti.Matrix.identity(ti.f32, 3) * la * ratio * (ratio - 1)
            return 2 * mu * (f - turned) @ f.transpose() + pressure

        return stress

    def make_transfers(self) -> None:
        x, v, affine = self.x, self.v, self.affine
        momentum, mass, n = self.momentum, self.mass, self.cells
        dx, dt, volume = self.dx, self.dt, self.volume
        stress = self.make_stress()

        @ti.kernel
        def clear():
            for node in ti.grouped(mass):
                momentum[node], mass[node] = [0.0, 0.0, 0.0], 0.0

        @ti.kernel
        def scatter():
            for p in x:
                base = ti.cast(x[p] / dx - 0.5, ti.i32)
                fx = x[p] / dx - base
                w = weights(fx)
                flow = -dt * volume * 4 / dx**2 * stress(p) + volume * affine[p]
                for i, j, k in ti.static(ti.ndrange(3, 3, 3)):
                    offset = ti.Vector([i, j, k])
                    weight = w[i].x * w[j].y * w[k].z
                    node = base + offset
                    momentum[node] += weight * (volume * v[p] + flow @ ((offset - fx) * dx))
                    mass[node] += weight * volume

        @ti.kernel
        def update_grid():
            for node in ti.grouped(mass):
                if mass[node] > 0:
                    u = momentum[node] / mass[node]
                    u.y -= dt * GRAVITY
                    for d in ti.static(range(3)):
                        if (node[d] < WALL and u[d] < 0) or (node[d] > n - WALL and u[d] > 0):
                            u[d] = 0
                    momentum[node] = u

        @ti.kernel
        def gather():
            for p in x:
                base = ti.cast(x[p] / dx - 0.5, ti.i32)
                fx = x[p] / dx - base
                w = weights(fx)
                u, c = ti.Vector.zero(ti.f32, 3), ti.Matrix.zero(ti.f32, 3, 3)
                for i, j, k in ti.static(ti.ndrange(3, 3, 3)):
                    offset = ti.Vector([i, j, k])
                    part = w[i].x * w[j].y * w[k].z * momentum[base + offset]
                    u += part
                    c += 4 * part.outer_product(offset - fx) / dx
                v[p], affine[p] = u, c
                x[p] += dt * u

        self.kernels = clear, scatter, update_grid, gather

    def substep(self) -> None:
        for kernel in self.kernels:
            kernel()

    def step(self) -> None:
        for _ in range(15):
            self.substep()

    def draw(self, scene: ti.ui.Scene) -> None:
        scene.particles(self.x, radius=0.35 * self.dx, per_vertex_color=self.colours)


if __name__ == "__main__":
    stage.run(Materials, "water, jelly, snow", eye=(1.5, 1.0, 2.0), at=(0.5, 0.3, 0.5))
