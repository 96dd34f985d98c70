"""An elastic body is thrown at a target: gradients through a material point simulation.

Particles carry the body, a grid carries its momentum for one step (MLS-MPM). Every step overwrites
the particles and the grid; the tape saves what the gradients need of them. The velocity of the
throw is found by gradient descent, until the body's middle meets the target. At the end, a table:
memory of the tape against steps, with all saved and with checkpoints, where calls are done again
instead.
Source: Hu et al., "A Moving Least Squares Material Point Method", 2018; DiffTaichi, ICLR 2020.

    python examples/diffmpm.py [--steps N] [--rounds N]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import vkchi as ti

SIDE, GRID = 16, 32  # particles along the body's edge, cells along the domain's
DX, DT, GRAVITY, E = 1 / GRID, 2e-3, 3.0, 10.0
VOLUME = (0.25 / SIDE) ** 2
TARGET = (0.75, 0.4)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=10)
    return parser.parse_args()


class Body:
    """The particles (x, v, affine velocity c, deformation f), the grid, the throw and its loss."""

    def __init__(self) -> None:
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

    def make_particle_kernels(self) -> None:
        x, v, c, f, throw = self.x, self.v, self.c, self.f, self.throw
        momentum, mass, velocity, loss = self.momentum, self.mass, self.velocity, self.loss

        @ti.func
        def weights(fx):
            """The quadratic B-spline's weights of three nodes."""
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

    def run(self, steps: int) -> None:
        """The flight, and how far from the target its middle ends."""
        self.start()
        for _ in range(steps):
            self.clear()
            self.scatter()
            self.move_grid()
            self.gather()
        self.measure()


def aim(body: Body, steps: int, rounds: int) -> tuple[float, float]:
    """Descend; the first and the last loss."""
    throw, losses = np.array([0.5, 0.5]), []
    for k in range(rounds):
        body.throw[None] = throw
        with ti.ad.Tape(body.loss):
            body.run(steps)
        losses.append(body.loss[None])
        slope = body.throw.grad.to_numpy()
        throw = throw - 3.0 * slope
        print(f"round {k:2d}: throw ({throw[0]:.2f}, {throw[1]:.2f}), loss {losses[-1]:.5f}")
    return losses[0], losses[-1]


def show_memory(body: Body, most: int) -> None:
    """The table, and that checkpoints change no gradient."""
    print(f"{'steps':>6} {'all saved':>22} {'with 1 MiB at most':>42}")
    body.throw[None] = [0.5, 0.5]
    for steps in (most // 4, most // 2, most):
        found, cells = [], []
        for memory in (None, "1MiB"):
            begin = time.perf_counter()
            with ti.ad.Tape(body.loss, memory=memory) as tape:
                body.run(steps)
            found.append(body.throw.grad.to_numpy())
            seconds, report = time.perf_counter() - begin, tape.report
            size = f"{report.saved_bytes / 2**20:6.2f} MiB {seconds:6.2f} s"
            cells.append(size if memory is None else f"{size}, {report.repeated} calls again")
        print(f"{steps:6d} {cells[0]:>22} {cells[1]:>42}")
        if not np.allclose(found[0], found[1], rtol=1e-3):
            raise SystemExit(f"checkpoints changed the gradient: {found}")


def main() -> None:
    options = parse()
    ti.init(arch=ti.vulkan)
    body, begin = Body(), time.perf_counter()
    first, last = aim(body, options.steps, options.rounds)
    print(f"{options.rounds} rounds in {time.perf_counter() - begin:.1f} s")
    show_memory(body, options.steps)
    if last > 0.01 * first:
        raise SystemExit("the body does not reach the target")


if __name__ == "__main__":
    main()
