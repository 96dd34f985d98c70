"""A liquid in a tank: find pushes of the tank after which the liquid is in a wanted place.

A nearly incompressible liquid of particles (MPM) is in a tank that can be pushed to the left and to
the right. Descent through all time steps finds the pushes, one per span of time. Source: Tampubolon
et al., "Multi-species simulation of porous sand and water mixtures", SIGGRAPH 2017 (the liquid);
DiffTaichi (Hu et al., ICLR 2020), example "liquid".

    python examples/liquid.py [--rounds N]
"""

from __future__ import annotations

import itertools

import learning
import numpy as np
import viewer

import vkchi as ti

CELLS, GRAVITY, STIFFNESS, SPANS, MOST = 24, 6.0, 30.0, 6, 25.0
DX, DT = 1 / CELLS, 2.5e-3
LOW, WALL = 3, 3  # thickness of ground and walls, in cells
WANTED = (0.68, 0.24)  # target of the liquid's centre
NODES = list(itertools.product(range(3), repeat=2))


class Liquid(learning.Simulation):
    """The particles: x, v, affine velocity c, ratio j of the present to the initial volume.
    `push` [SPANS] is the acceleration of the tank, in units of MOST, before tanh."""

    def __init__(self, steps: int = 96, side: int = 24) -> None:
        self.steps, n = steps, side * side // 2
        grad = {"needs_grad": True}
        self.x, self.v = (ti.Vector.field(2, ti.f32, n, **grad) for _ in range(2))
        self.c = ti.Matrix.field(2, 2, ti.f32, n, **grad)
        self.j = ti.field(ti.f32, n, **grad)
        self.momentum, self.velocity = (
            ti.Vector.field(2, ti.f32, (CELLS, CELLS), **grad) for _ in range(2))  # fmt: skip
        self.mass = ti.field(ti.f32, (CELLS, CELLS), **grad)
        self.push = ti.field(ti.f32, SPANS, **grad)
        self.loss = ti.field(ti.f32, (), **grad)
        self.places = ti.Vector.field(2, ti.f32, n)
        wide = 1 - 2 * WALL * DX
        spacing = wide / side
        at = np.stack(np.meshgrid(np.arange(side), np.arange(side // 2), indexing="ij"), -1)
        at = (at.reshape(-1, 2) + 0.5) * spacing * (1, 0.7) + (WALL * DX, LOW * DX)
        self.volume = 0.7 * spacing**2
        self.places.from_numpy(at.astype(np.float32))
        self.push.from_numpy(np.full(SPANS, 0.05, np.float32))
        self.descent = learning.Adam(self.push, rate=0.15)
        self.make_particles()
        self.make_grid()

    def make_particles(self) -> None:
        x, v, c, j, volume = self.x, self.v, self.c, self.j, self.volume
        momentum, mass, velocity, places = self.momentum, self.mass, self.velocity, self.places
        loss, n = self.loss, self.x.shape[0]

        @ti.func
        def spline(fx):
            """Quadratic B-spline weights of three nodes, each a vector over the axes."""
            return [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]

        @ti.kernel
        def start():
            for p in x:
                x[p], v[p], j[p] = places[p], [0.0, 0.0], 1.0
                c[p] = ti.Matrix.zero(ti.f32, 2, 2)

        @ti.kernel
        def scatter():
            for p in x:
                base = ti.cast(x[p] / DX - 0.5, ti.i32)
                fx = x[p] / DX - base
                w = spline(fx)
                j[p] *= 1 + DT * c[p].trace()
                pressure = STIFFNESS * (1 - j[p])
                affine = 4 * DT / DX**2 * volume * pressure * ti.Matrix.identity(ti.f32, 2)
                affine += volume * c[p]
                for k in ti.static(NODES):
                    weight = w[k[0]][0] * w[k[1]][1]
                    offset = ti.Vector(k)
                    moved = volume * v[p] + affine @ ((offset - fx) * DX)
                    momentum[base + offset] += weight * moved
                    mass[base + offset] += weight * volume

        @ti.kernel
        def gather():
            for p in x:
                base = ti.cast(x[p] / DX - 0.5, ti.i32)
                fx = x[p] / DX - base
                w = spline(fx)
                v[p], c[p] = [0.0, 0.0], ti.Matrix.zero(ti.f32, 2, 2)
                for k in ti.static(NODES):
                    g = w[k[0]][0] * w[k[1]][1] * velocity[base + ti.Vector(k)]
                    v[p] += g
                    c[p] += 4 / DX * g.outer_product(ti.Vector(k) - fx)
                x[p] += DT * v[p]

        @ti.kernel
        def measure():
            middle = ti.Vector([0.0, 0.0])
            for p in x:
                middle += x[p] / n
            off = middle - ti.Vector(WANTED)
            loss[None] += off.dot(off)

        self.start, self.scatter, self.gather, self.measure = start, scatter, gather, measure

    def make_grid(self) -> None:
        momentum, mass, velocity, push = self.momentum, self.mass, self.velocity, self.push

        @ti.kernel
        def clear():
            for k in ti.grouped(mass):
                momentum[k], mass[k] = [0.0, 0.0], 0.0

        @ti.kernel
        def move_grid(span: ti.i32):
            for i, k in mass:
                u = momentum[i, k] / (mass[i, k] + 1e-10)
                u += DT * ti.Vector([MOST * ti.tanh(push[span]), -GRAVITY])
                if (i < WALL and u.x < 0) or (i > CELLS - WALL and u.x > 0):
                    u.x = 0.0
                if (k < LOW and u.y < 0) or (k > CELLS - WALL and u.y > 0):
                    u.y = 0.0
                velocity[i, k] = u

        self.clear, self.move_grid = clear, move_grid

    def advance(self, t: int) -> None:
        """A time step."""
        self.clear()
        self.scatter()
        self.move_grid(min(t * SPANS // self.steps, SPANS - 1))
        self.gather()

    def draw(self, gui: ti.GUI) -> None:
        wall = WALL * DX
        for x in (0, 1 - wall):
            viewer.fill_box(gui, (x, 0), (x + wall, 1), 0x3A4653)
        gui.circles(self.x.to_numpy(), radius=5, color=0x4FA3E0)
        gui.circle(WANTED, 0xF4D35E, 6)
        gui.circle(self.x.to_numpy().mean(0), 0xFFFFFF, 4)


if __name__ == "__main__":
    learning.run(Liquid, "liquid", res=400, rounds=40, goal=1e-3, background=0x111A22)
