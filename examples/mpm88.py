"""A fluid by the moving-least-squares material point method (MLS-MPM), on particles and a grid.

Source: Hu et al., "A Moving Least Squares Material Point Method", SIGGRAPH 2018, equations 16, 18
and 29; a weakly compressible fluid whose volume ratio J follows the velocity's divergence.

    python examples/mpm88.py
"""

from __future__ import annotations

import viewer

import vkchi as ti

GRAVITY, STIFFNESS, WALL = 9.8, 400.0, 3


@ti.func
def weights(fx):
    """Quadratic B-splines at a particle's three nodes along both axes; fx in [0.5, 1.5)."""
    return [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1.0) ** 2, 0.5 * (fx - 0.5) ** 2]


class Fluid:
    def __init__(self, particles: int = 8192, cells: int = 128) -> None:
        n = self.cells = cells
        self.dx, self.dt = 1.0 / n, 2e-4 * 128 / n
        self.volume = (0.5 * self.dx) ** 2
        self.x = ti.Vector.field(2, ti.f32, particles)
        self.v = ti.Vector.field(2, ti.f32, particles)
        self.affine = ti.Matrix.field(2, 2, ti.f32, particles)
        self.ratio = ti.field(ti.f32, particles)
        self.momentum = ti.Vector.field(2, ti.f32, (n, n))
        self.mass = ti.field(ti.f32, (n, n))
        self.make_start()
        self.make_transfers()
        self.start()

    def make_start(self) -> None:
        x, v, affine, ratio = self.x, self.v, self.affine, self.ratio

        @ti.kernel
        def start():
            for p in x:
                x[p] = [ti.random() * 0.4 + 0.15, ti.random() * 0.4 + 0.1]
                v[p], affine[p], ratio[p] = [1.0, -3.0], ti.Matrix.zero(ti.f32, 2, 2), 1.0

        self.start = start

    def make_transfers(self) -> None:
        x, v, affine, ratio = self.x, self.v, self.affine, self.ratio
        momentum, mass, n = self.momentum, self.mass, self.cells
        dx, dt, volume = self.dx, self.dt, self.volume

        @ti.kernel
        def clear():
            for i, j in mass:
                momentum[i, j], mass[i, j] = [0.0, 0.0], 0.0

        @ti.kernel
        def scatter():  # density is 1: a particle's mass is its volume
            for p in x:
                base = ti.cast(x[p] / dx - 0.5, ti.i32)
                fx = x[p] / dx - base
                w = weights(fx)
                stress = -dt * 4 * STIFFNESS * volume * (ratio[p] - 1) / dx**2
                flow = ti.Matrix([[stress, 0.0], [0.0, stress]]) + volume * affine[p]
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
                    u.y -= dt * GRAVITY
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
                ratio[p] *= 1 + dt * c.trace()

        self.kernels = clear, scatter, update_grid, gather

    def substep(self) -> None:
        for kernel in self.kernels:
            kernel()

    def step(self) -> None:
        for _ in range(25):
            self.substep()

    def draw(self, gui: ti.GUI) -> None:
        gui.circles(self.x, radius=1.5, color=0x2CA8D8)


if __name__ == "__main__":
    viewer.run(Fluid, "fluid, MLS-MPM", res=400, background=0x102030)
