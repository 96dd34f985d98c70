"""A soft robot learns to walk: muscles in an elastic body (MPM), contracted by a rhythm.

Particles carry the body, a grid its momentum for one step. Each leg has two muscles. Their
contraction depends on a sum of phases of a clock, and descent through all time steps finds the
weights. The printed loss is minus the distance walked, in lengths of the body. Source: Hu et al.,
"A Moving Least Squares Material Point Method", SIGGRAPH 2018; DiffTaichi (ICLR 2020), example
"diffmpm", with a different robot.

    python examples/soft_robot.py [--rounds N]
    python examples/soft_robot_3d.py
"""

from __future__ import annotations

import itertools
import math

import learning
import numpy as np
import viewer

import vkchi as ti

GRAVITY, E, STRENGTH, PHASES, OMEGA, GROUND = 6.0, 20.0, 16.0, 4, 20.0, 3
LENGTH, START = 0.4, 0.15


def body(dim: int, spacing: float) -> tuple[np.ndarray, np.ndarray]:
    """Positions of particles [n, dim], and their muscles [n], -1 for none.

    The body is a block on legs, each with a muscle at its front and one at its back.
    """
    size = (LENGTH, 0.2, 0.2)[:dim]
    axes = [np.arange(spacing / 2, side, spacing) for side in size]
    places = np.array(list(itertools.product(*axes)))
    x, y = places[:, 0] / LENGTH, places[:, 1]
    is_leg = y < 0.1
    leg = (x > 0.5).astype(int)
    is_free = is_leg & (abs(x - 0.5) < 0.25)
    if dim == 3:  # four legs
        is_free |= is_leg & (abs(places[:, 2] - 0.1) < 0.035)
        leg = leg + 2 * (places[:, 2] > 0.1)
    is_front = np.where(x > 0.5, x > 0.875, x > 0.125)
    muscle = np.where(is_leg, 2 * leg + is_front, -1)
    return places[~is_free], muscle[~is_free].astype(np.int32)


class Robot(learning.Simulation):
    """The particles (x, v, affine velocity c, deformation f), and the grid, in `dim` dimensions.

    `weights` [muscles, phases] are learned. The second axis points up.
    """

    at_once = shown = 4

    def __init__(
        self, dim: int = 2, cells: int = 24, steps: int = 120, spacing: float = 0.02
    ) -> None:
        places, muscles = body(dim, spacing)
        self.dim, self.cells, self.steps, n = dim, cells, steps, len(places)
        self.dt, self.volume = 0.06 / cells, spacing**dim
        grad, grid = {"needs_grad": True}, (cells,) * dim
        self.x, self.v = (ti.Vector.field(dim, ti.f32, n, **grad) for _ in range(2))
        self.c, self.f = (ti.Matrix.field(dim, dim, ti.f32, n, **grad) for _ in range(2))
        self.momentum, self.velocity = (
            ti.Vector.field(dim, ti.f32, grid, **grad) for _ in range(2)
        )
        self.mass = ti.field(ti.f32, grid, **grad)
        self.weights = ti.field(ti.f32, (int(muscles.max()) + 1, PHASES), **grad)
        self.loss = ti.field(ti.f32, (), **grad)
        self.places, self.muscles = ti.Vector.field(dim, ti.f32, n), ti.field(ti.i32, n)
        shift = np.full(dim, 0.5 - 0.1)
        shift[:2] = START, (GROUND + 0.5) / cells
        self.places.from_numpy((places + shift).astype(np.float32))
        self.muscles.from_numpy(muscles)
        self.weights.from_numpy(np.random.default_rng(1).normal(size=self.weights.shape) * 0.1)
        self.descent = learning.Adam(self.weights, rate=0.3)
        self.make_particles()
        self.make_grid()

    def make_particles(self) -> None:
        x, v, c, f, dim, dt, volume = self.x, self.v, self.c, self.f, self.dim, self.dt, self.volume
        momentum, mass, velocity, dx = self.momentum, self.mass, self.velocity, 1 / self.cells
        weights, places, muscles, loss = self.weights, self.places, self.muscles, self.loss
        nodes, count = list(itertools.product(range(3), repeat=dim)), x.shape[0]

        @ti.func
        def spline(fx):
            """Quadratic B-spline weights of three nodes, each a vector over the axes."""
            return [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]

        @ti.kernel
        def start():
            for p in x:
                x[p], v[p] = places[p], ti.Vector.zero(ti.f32, dim)
                c[p], f[p] = ti.Matrix.zero(ti.f32, dim, dim), ti.Matrix.identity(ti.f32, dim)

        @ti.kernel
        def scatter(t: ti.i32):
            one = ti.Matrix.identity(ti.f32, dim)
            for p in x:
                base = ti.cast(x[p] / dx - 0.5, ti.i32)
                fx = x[p] / dx - base
                w = spline(fx)
                f[p] = (one + dt * c[p]) @ f[p]
                strain = 0.5 * (f[p] + f[p].transpose()) - one
                stress = 2 * E * strain + E * strain.trace() * one
                if muscles[p] >= 0:
                    rhythm = 0.0
                    for k in ti.static(range(PHASES)):
                        angle = OMEGA * t * dt + 2 * math.pi * k / PHASES
                        rhythm += weights[muscles[p], k] * ti.sin(angle)
                    stress[1, 1] += STRENGTH * ti.tanh(rhythm)  # muscle tension along the leg
                affine = -4 * dt / dx**2 * volume * stress @ f[p].transpose() + volume * c[p]
                for k in ti.static(nodes):
                    weight = w[k[0]][0] * w[k[1]][1]
                    if ti.static(dim == 3):
                        weight *= w[k[2]][2]
                    offset = ti.Vector(k)
                    pushed = volume * v[p] + affine @ ((offset - fx) * dx)
                    momentum[base + offset] += weight * pushed
                    mass[base + offset] += weight * volume

        @ti.kernel
        def gather():
            for p in x:
                base = ti.cast(x[p] / dx - 0.5, ti.i32)
                fx = x[p] / dx - base
                w = spline(fx)
                v[p], c[p] = ti.Vector.zero(ti.f32, dim), ti.Matrix.zero(ti.f32, dim, dim)
                for k in ti.static(nodes):
                    weight = w[k[0]][0] * w[k[1]][1]
                    if ti.static(dim == 3):
                        weight *= w[k[2]][2]
                    g = weight * velocity[base + ti.Vector(k)]
                    v[p] += g
                    c[p] += 4 / dx * g.outer_product(ti.Vector(k) - fx)
                x[p] += dt * v[p]

        @ti.kernel
        def measure():
            for p in x:
                loss[None] -= (x[p].x - places[p].x) / (count * LENGTH)

        self.start, self.scatter, self.gather, self.measure = start, scatter, gather, measure

    def make_grid(self) -> None:
        momentum, mass, velocity = self.momentum, self.mass, self.velocity
        dim, dt, last = self.dim, self.dt, self.cells - 3

        @ti.kernel
        def clear():
            for k in ti.grouped(mass):
                momentum[k], mass[k] = ti.Vector.zero(ti.f32, dim), 0.0

        @ti.kernel
        def move_grid():
            for k in ti.grouped(mass):
                u = momentum[k] / (mass[k] + 1e-10)
                u.y -= dt * GRAVITY
                if k.y < GROUND and u.y < 0:
                    u = ti.Vector.zero(ti.f32, dim)  # no slip
                for d in ti.static(range(dim)):
                    if (k[d] < 3 and u[d] < 0) or (k[d] > last and u[d] > 0):
                        u[d] = 0.0
                velocity[k] = u

        self.clear, self.move_grid = clear, move_grid

    def advance(self, t: int) -> None:
        """A time step."""
        self.clear()
        self.scatter(t)
        self.move_grid()
        self.gather()

    def draw(self, gui: ti.GUI) -> None:
        at, muscles = self.x.to_numpy(), self.muscles.to_numpy()
        if self.dim == 3:  # seen from the side and slightly above, back to front
            order = np.argsort(-at[:, 2])
            at, muscles = at[order], muscles[order]
            at = at[:, :2] + at[:, 2:] * np.array([0.3, 0.3]) - 0.1
        palette = [0x9AA5B1, 0xE4572E, 0x4C9BE8]
        kinds = np.where(muscles < 0, 0, 1 + muscles % 2)
        viewer.fill_box(gui, (0, 0), (1, GROUND / self.cells), 0x5B6770)
        gui.circles(at, radius=4, palette=palette, palette_indices=kinds.astype(np.int32))


if __name__ == "__main__":
    learning.run(Robot, "soft robot", res=400, rounds=20, goal=-0.15, background=0x18202A)
