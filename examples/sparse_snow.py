"""Snowballs that collide in flight, on a sparse grid of 4096 cells along each axis.

The grid has memory for blocks near the snow alone. Each frame frees the blocks that the snow has
left. The method is that of mpm3d.py.

    python examples/sparse_snow.py
"""

from __future__ import annotations

import numpy as np
import viewer
from mpm3d import SNOW, Materials, weights

import vkchi as ti

BLOCK, RADIUS, VIEW = 32, 9, 80  # cells: of a block, of a snowball, of the picture
SPEED, DRIFT = 3.5, (14.0, 6.0, 9.0)


class Snow(Materials):
    """Two snowballs; positions are between 0 and 1."""

    def __init__(self, particles: int = 8000, cells: int = 4096) -> None:
        super().__init__(particles, cells)
        self.shades = np.linspace(0x7F, 0xFF, 256).astype(np.uint32) * 0x010101

    def make_grid(self) -> None:
        self.momentum, self.mass = ti.Vector.field(3, ti.f32), ti.field(ti.f32)
        self.block = ti.root.pointer(ti.ijk, self.cells // BLOCK)
        self.block.dense(ti.ijk, BLOCK).place(self.momentum, self.mass)

    def make_start(self) -> None:
        x, v, affine, shape = self.x, self.v, self.affine, self.shape
        squeeze, material, dx, half = self.squeeze, self.material, self.dx, self.x.shape[0] // 2

        @ti.kernel
        def start():
            for p in x:
                side = -1.0 if p < half else 1.0
                centre = ti.Vector([0.2 + side * 16 * dx, 0.3 + side * 3 * dx, 0.4])
                away = ti.Vector([ti.random() - 0.5 for _ in range(3)])
                while away.norm() > 0.5:
                    away = ti.Vector([ti.random() - 0.5 for _ in range(3)])
                x[p] = centre + 2 * RADIUS * dx * away
                v[p] = ti.Vector(DRIFT) - ti.Vector([side * SPEED, 0.0, 0.0])
                affine[p] = ti.Matrix.zero(ti.f32, 3, 3)
                shape[p], squeeze[p], material[p] = ti.Matrix.identity(ti.f32, 3), 1.0, SNOW

        self.start = start

    def make_transfers(self) -> None:
        x, v, affine = self.x, self.v, self.affine
        momentum, mass = self.momentum, self.mass
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
                w = ti.Matrix.rows(weights(fx))
                flow = -dt * volume * 4 / dx**2 * stress(p) + volume * affine[p]
                for i, j, k in ti.ndrange(3, 3, 3):
                    offset = ti.Vector([i, j, k])
                    weight = w[i, 0] * w[j, 1] * w[k, 2]
                    node = base + offset
                    momentum[node] += weight * (volume * v[p] + flow @ ((offset - fx) * dx))
                    mass[node] += weight * volume

        @ti.kernel
        def update_grid():
            for node in ti.grouped(mass):
                if mass[node] > 0:
                    momentum[node] /= mass[node]

        @ti.kernel
        def gather():
            for p in x:
                base = ti.cast(x[p] / dx - 0.5, ti.i32)
                fx = x[p] / dx - base
                w = ti.Matrix.rows(weights(fx))
                u, c = ti.Vector.zero(ti.f32, 3), ti.Matrix.zero(ti.f32, 3, 3)
                for i, j, k in ti.ndrange(3, 3, 3):
                    offset = ti.Vector([i, j, k])
                    part = w[i, 0] * w[j, 1] * w[k, 2] * momentum[base + offset]
                    u += part
                    c += 4 * part.outer_product(offset - fx) / dx
                v[p], affine[p] = u, c
                x[p] += dt * u

        self.kernels = clear, scatter, update_grid, gather

    def step(self) -> None:
        self.block.deactivate_all()
        super().step()

    def draw(self, gui: ti.GUI) -> None:
        x = self.x.to_numpy() / self.dx
        near = x - x.mean(0)
        depth = np.clip((near[:, 2] / RADIUS + 1) * 128, 0, 255).astype(int)
        order = np.argsort(depth)
        places = near[order, :2] / VIEW + 0.5
        gui.circles(places, radius=2.2, color=self.shades[depth[order]])
        gui.text(self.describe(x.mean(0)), (0.02, 0.98), color=0xC0D8F0)

    def describe(self, centre: np.ndarray) -> str:
        active = ti.sparse.usage(self.mass) * self.block.shape[0] ** 3
        where = ", ".join(f"{k:.0f}" for k in centre)
        return (
            f"cell ({where}): {active:.0f} blocks of {self.block.shape[0] ** 3:,}, "
            f"{ti.sparse.memory(self.mass) / 2**20:.1f} MiB"
        )


if __name__ == "__main__":
    made: list[Snow] = []
    viewer.run(lambda: made.append(Snow()) or made[0], "snowballs", res=400, background=0x102030)
    print(made[0].describe(made[0].x.to_numpy().mean(0) / made[0].dx))
    print(f"all blocks would take {made[0].cells ** 3 * 16 / 2**30:,.0f} GiB")
