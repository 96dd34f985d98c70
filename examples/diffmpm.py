"""An elastic body is thrown at a target: gradients through a material point simulation.

Particles carry the body, and a grid carries its momentum for one step (MLS-MPM). Every step
overwrites the particles and the grid; the tape saves the values that the gradients need. Gradient
descent finds the throw's velocity so that the body's centre hits the target.

`--memory` prints a table instead: memory of the tape by number of steps, with all values saved and
with checkpoints, which recompute calls. Source: Hu et al., "A Moving Least Squares Material Point
Method", 2018; DiffTaichi, ICLR 2020.

    python examples/diffmpm.py [--rounds N]
    python examples/diffmpm.py --memory
"""

from __future__ import annotations

import sys
import time

import learning
import numpy as np

import vkchi as ti

SIDE, GRID = 16, 32  # particles along the body's edge, cells along the domain's edge
DX, DT, GRAVITY, E = 1 / GRID, 2e-3, 3.0, 10.0
VOLUME, RATE = (0.25 / SIDE) ** 2, 3.0
TARGET = (0.75, 0.4)


class Body(learning.Simulation):
    """The particles (x, v, affine velocity c, deformation f), the grid, the throw and its loss."""

    def __init__(self, steps: int = 120) -> None:
        self.steps = steps
        n, grad = SIDE * SIDE, {"needs_grad": True}
        self.x, self.v = (ti.Vector.field(2, ti.f32, n, **grad) for _ in range(2))
        self.c, self.f = (ti.Matrix.field(2, 2, ti.f32, n, **grad) for _ in range(2))
        self.momentum = ti.Vector.field(2, ti.f32, (GRID, GRID), **grad)
        self.mass = ti.field(ti.f32, (GRID, GRID), **grad)
        self.velocity = ti.Vector.field(2, ti.f32, (GRID, GRID), **grad)
        self.throw = ti.Vector.field(2, ti.f32, (), **grad)
        self.loss = ti.field(ti.f32, (), **grad)
        self.make_particle_kernels()
        self.make_grid_kernels()
        self.throw[None] = [0.5, 0.5]

    def make_particle_kernels(self) -> None:
        x, v, c, f, throw = self.x, self.v, self.c, self.f, self.throw
        momentum, mass, velocity, loss = self.momentum, self.mass, self.velocity, self.loss

        @ti.func
        def weights(fx):
            """Quadratic B-spline weights of three nodes."""
            return [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]

        @ti.kernel
        def start():
            for p in x:
                x[p] = ti.Vector([0.1, 0.3]) + 0.25 * ti.Vector([p % SIDE, p // SIDE]) / SIDE
                v[p] = throw[None]
                c[p] = ti.Matrix.zero(ti.f32, 2, 2)
                f[p] = ti.Matrix.identity(ti.f32, 2)

        @ti.kernel
        def scatter():
            for p in x:
                base = ti.cast(x[p] / DX - 0.5, ti.i32)
                fx = x[p] / DX - base
                w = weights(fx)
                f[p] = (ti.Matrix.identity(ti.f32, 2) + DT * c[p]) @ f[p]
                strain = 0.5 * (f[p] + f[p].transpose()) - ti.Matrix.identity(ti.f32, 2)
                stress = 2 * E * strain + E * strain.trace() * ti.Matrix.identity(ti.f32, 2)
                affine = -4 * DT / DX / DX * VOLUME * stress @ f[p].transpose() + VOLUME * c[p]
                for i, j in ti.static(ti.ndrange(3, 3)):
                    offset = ti.Vector([i, j])
                    weight = w[i][0] * w[j][1]
                    d = (offset - fx) * DX
                    momentum[base + offset] += weight * (VOLUME * v[p] + affine @ d)
                    mass[base + offset] += weight * VOLUME

        @ti.kernel
        def gather():
            for p in x:
                base = ti.cast(x[p] / DX - 0.5, ti.i32)
                fx = x[p] / DX - base
                w = weights(fx)
                speed = ti.Vector.zero(ti.f32, 2)
                affine = ti.Matrix.zero(ti.f32, 2, 2)
                for i, j in ti.static(ti.ndrange(3, 3)):
                    g = velocity[base + ti.Vector([i, j])]
                    weight = w[i][0] * w[j][1]
                    speed += weight * g
                    affine += 4 / DX * weight * g.outer_product(ti.Vector([i, j]) - fx)
                v[p], c[p] = speed, affine
                x[p] += DT * speed

        @ti.kernel
        def measure():
            middle = ti.Vector.zero(ti.f32, 2)
            for p in x:
                middle += x[p] / (SIDE * SIDE)
            off = middle - ti.Vector(TARGET)
            loss[None] += off.dot(off)

        self.start, self.scatter, self.gather, self.measure = start, scatter, gather, measure

    def make_grid_kernels(self) -> None:
        momentum, mass, velocity = self.momentum, self.mass, self.velocity

        @ti.kernel
        def clear():
            for i in ti.grouped(mass):
                momentum[i], mass[i] = [0.0, 0.0], 0.0

        @ti.kernel
        def move_grid():
            for i, j in mass:
                u = momentum[i, j] / (mass[i, j] + 1e-10)
                u.y -= DT * GRAVITY
                if i < 3 and u.x < 0 or i > GRID - 3 and u.x > 0:
                    u.x = 0
                if j < 3 and u.y < 0 or j > GRID - 3 and u.y > 0:
                    u.y = 0
                velocity[i, j] = u

        self.clear, self.move_grid = clear, move_grid

    def advance(self, t: int) -> None:
        """A time step."""
        self.clear()
        self.scatter()
        self.move_grid()
        self.gather()

    def descend(self) -> None:
        self.throw[None] = self.throw.to_numpy() - RATE * self.throw.grad.to_numpy()

    def draw(self, gui: ti.GUI) -> None:
        gui.circle(TARGET, 0x9FE0A8, 9)
        gui.circles(self.x.to_numpy(), radius=4, color=0xE4572E)


def show_memory(body: Body, most: int) -> None:
    """Print the table, and check that checkpoints change no gradient."""
    print(f"{'steps':>6} {'all saved':>22} {'with 1 MiB at most':>42}")
    body.throw[None] = [0.5, 0.5]
    for body.steps in (most // 4, most // 2, most):
        found, cells = [], []
        for memory in (None, "1MiB"):
            begin = time.perf_counter()
            with ti.ad.Tape(body.loss, memory=memory) as tape:
                body.run()
            found.append(body.throw.grad.to_numpy())
            seconds, report = time.perf_counter() - begin, tape.report
            size = f"{report.saved_bytes / 2**20:6.2f} MiB {seconds:6.2f} s"
            cells.append(size if memory is None else f"{size}, {report.repeated} calls again")
        print(f"{body.steps:6d} {cells[0]:>22} {cells[1]:>42}")
        if not np.allclose(found[0], found[1], rtol=1e-3):
            raise SystemExit(f"checkpoints changed the gradient: {found}")


if __name__ == "__main__":
    if "--memory" in sys.argv:
        ti.init(arch=ti.vulkan)
        show_memory(Body(), 160)
    else:
        learning.run(Body, "a thrown body", res=400, rounds=20, goal=1e-4, background=0x18202A)
