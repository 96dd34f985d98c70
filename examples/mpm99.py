"""Water, jelly and snow in one grid: MLS-MPM with three materials.

Source: Hu et al., "A Moving Least Squares Material Point Method", SIGGRAPH 2018; fixed corotated
elasticity; snow's plasticity of Stomakhin et al., "A material point method for snow simulation",
SIGGRAPH 2013.

    python examples/mpm99.py
"""

from __future__ import annotations

import viewer
from mpm88 import GRAVITY, WALL, weights

import vkchi as ti

WATER, JELLY, SNOW = 0, 1, 2
YOUNG, POISSON, HARDENING = 5e3, 0.2, 10.0
MU, LAMBDA = YOUNG / (2 * (1 + POISSON)), YOUNG * POISSON / ((1 + POISSON) * (1 - 2 * POISSON))
PALETTE = (0x2C8FD8, 0xED6B4F, 0xF2F4F8)


class Materials:
    def __init__(self, particles: int = 6000, cells: int = 96) -> None:
        n = self.cells = cells
        self.dx, self.dt = 1.0 / n, 1e-4 * 128 / n
        self.volume = (0.5 * self.dx) ** 2
        self.x = ti.Vector.field(2, ti.f32, particles)
        self.v = ti.Vector.field(2, ti.f32, particles)
        self.affine = ti.Matrix.field(2, 2, ti.f32, particles)
        self.shape = ti.Matrix.field(2, 2, ti.f32, particles)  # deformation gradient
        self.squeeze = ti.field(ti.f32, particles)  # plastic part of its determinant
        self.material = ti.field(ti.i32, particles)
        self.momentum = ti.Vector.field(2, ti.f32, (n, n))
        self.mass = ti.field(ti.f32, (n, n))
        self.make_start()
        self.make_transfers()
        self.start()
        self.kinds = self.material.to_numpy()

    def make_start(self) -> None:
        x, v, affine, shape = self.x, self.v, self.affine, self.shape
        squeeze, material, third = self.squeeze, self.material, self.x.shape[0] // 3

        @ti.kernel
        def start():
            for p in x:
                k = ti.min(p // third, 2)
                x[p] = [ti.random() * 0.2 + 0.3 + 0.1 * k, ti.random() * 0.2 + 0.07 + 0.31 * k]
                v[p], affine[p] = [0.0, 0.0], ti.Matrix.zero(ti.f32, 2, 2)
                shape[p], squeeze[p], material[p] = ti.Matrix.identity(ti.f32, 2), 1.0, k

        self.start = start

    def make_transfers(self) -> None:
        x, v, affine, shape = self.x, self.v, self.affine, self.shape
        squeeze, material = self.squeeze, self.material
        momentum, mass, n = self.momentum, self.mass, self.cells
        dx, dt, volume = self.dx, self.dt, self.volume

        @ti.func
        def stress(p):
            """Update a particle's deformation and return its Kirchhoff stress."""
            f = (ti.Matrix.identity(ti.f32, 2) + dt * affine[p]) @ shape[p]
            hardness, kind = ti.exp(HARDENING * (1 - squeeze[p])), material[p]
            if kind == JELLY:
                hardness = 0.3
            mu, la = MU * hardness, LAMBDA * hardness
            if kind == WATER:
                mu = 0.0
            u, s, w = ti.svd(f)
            if kind == SNOW:  # plastic flow beyond these stretches
                for d in ti.static(range(2)):
                    kept = ti.math.clamp(s[d, d], 1 - 2.5e-2, 1 + 4.5e-3)
                    squeeze[p] *= s[d, d] / kept
                    s[d, d] = kept
            ratio = s.determinant()
            if kind == WATER:
                f = ti.Matrix.identity(ti.f32, 2) * ti.sqrt(ratio)
            elif kind == SNOW:
                f = u @ s @ w.transpose()
            shape[p] = f
            turned = u @ w.transpose()
            pressure = ti.Matrix.identity(ti.f32, 2) * la * ratio * (ratio - 1)
            return 2 * mu * (f - turned) @ f.transpose() + pressure

        @ti.kernel
        def clear():
            for i, j in mass:
                momentum[i, j], mass[i, j] = [0.0, 0.0], 0.0

        @ti.kernel
        def scatter():
            for p in x:
                base = ti.cast(x[p] / dx - 0.5, ti.i32)
                fx = x[p] / dx - base
                w = weights(fx)
                flow = -dt * volume * 4 / dx**2 * stress(p) + volume * affine[p]
                for i, j in ti.static(ti.ndrange(3, 3)):
                    offset = ti.Vector([i, j])
                    weight = w[i].x * w[j].y
                    node = base + offset
                    momentum[node] += weight * (volume * v[p] + flow @ ((offset - fx) * dx))
                    mass[node] += weight * volume

        @ti.kernel
        def update_grid():
            for i, j in mass:
                if mass[i, j] > 0:
                    u = momentum[i, j] / mass[i, j]
                    u.y -= dt * GRAVITY * 3
                    if (i < WALL and u.x < 0) or (i > n - WALL and u.x > 0):
                        u.x = 0
                    if (j < WALL and u.y < 0) or (j > n - WALL and u.y > 0):
                        u.y = 0
                    momentum[i, j] = u

        @ti.kernel
        def gather():
            for p in x:
                base = ti.cast(x[p] / dx - 0.5, ti.i32)
                fx = x[p] / dx - base
                w = weights(fx)
                u, c = ti.Vector.zero(ti.f32, 2), ti.Matrix.zero(ti.f32, 2, 2)
                for i, j in ti.static(ti.ndrange(3, 3)):
                    offset = ti.Vector([i, j])
                    part = w[i].x * w[j].y * momentum[base + offset]
                    u += part
                    c += 4 * part.outer_product(offset - fx) / dx
                v[p], affine[p] = u, c
                x[p] += dt * u

        self.kernels = clear, scatter, update_grid, gather

    def substep(self) -> None:
        for kernel in self.kernels:
            kernel()

    def step(self) -> None:
        for _ in range(25):
            self.substep()

    def draw(self, gui: ti.GUI) -> None:
        gui.circles(self.x, radius=1.5, palette=PALETTE, palette_indices=self.kinds)


if __name__ == "__main__":
    viewer.run(Materials, "water, jelly, snow", res=400, background=0x102030)
