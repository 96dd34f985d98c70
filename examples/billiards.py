"""Billiards: find position and velocity of the cue ball so that one ball ends in a given place.

Collisions conserve energy. Their time is computed within a time step; otherwise the gradient of the
final positions would be wrong. Friction slows all balls. Source: DiffTaichi (Hu et al., ICLR 2020),
example "billiards".

    python examples/billiards.py [--rounds N]
"""

from __future__ import annotations

import learning
import numpy as np

import vkchi as ti

RADIUS, DT, FRICTION = 0.03, 0.004, 0.35
ROWS, GOAL_BALL, GOAL, MOST = 3, 4, (0.82, 0.35), 0.01


def rack() -> np.ndarray:
    """Positions [n, 2] of the cue ball, and of a loose triangle of balls."""
    places = [(0.15, 0.5)]
    for row in range(ROWS):
        for k in range(row + 1):
            places.append((0.5 + 2.5 * RADIUS * row, 0.5 + 2.9 * RADIUS * (k - 0.45 * row)))
    return np.array(places, np.float32)


class Billiards(learning.Problem):
    """Positions and velocities by time step; `shot` is the cue ball's initial position and
    velocity."""

    def __init__(self, steps: int = 192) -> None:
        self.steps, self.n, self.t = steps, len(rack()), 0
        grad = {"needs_grad": True}
        self.x, self.v = (ti.Vector.field(2, ti.f32, (steps, self.n), **grad) for _ in range(2))
        self.shot = ti.Vector.field(2, ti.f32, 2, **grad)
        self.loss = ti.field(ti.f32, (), **grad)
        self.racked = ti.Vector.field(2, ti.f32, self.n)
        self.racked.from_numpy(rack())
        self.shot.from_numpy(np.array([rack()[0], [1.1, 0.02]], np.float32))
        self.make_kernels()

    def make_kernels(self) -> None:
        x, v, shot, racked, loss = self.x, self.v, self.shot, self.racked, self.loss
        n, steps = self.n, self.steps

        @ti.kernel
        def start():
            for i in racked:
                x[0, i] = shot[0] if i == 0 else racked[i]
                v[0, i] = shot[1] if i == 0 else ti.Vector([0.0, 0.0])

        @ti.kernel
        def advance(t: ti.i32):
            for i in racked:
                push, shift = ti.Vector([0.0, 0.0]), ti.Vector([0.0, 0.0])
                for j in range(n):
                    d, u = x[t - 1, i] - x[t - 1, j], v[t - 1, i] - v[t - 1, j]
                    if i != j and (d + DT * u).norm(1e-12) < 2 * RADIUS:
                        way = d / d.norm(1e-12)
                        nearer = -u.dot(way)
                        if nearer > 0:  # elastic: swap velocity components along the line
                            moment = ti.max((d.norm(1e-12) - 2 * RADIUS) / nearer, 0.0)
                            push += nearer * way
                            shift -= ti.min(moment, DT) * nearer * way
                v[t, i] = (v[t - 1, i] + push) * ti.exp(-FRICTION * DT)
                x[t, i] = x[t - 1, i] + shift + DT * (v[t - 1, i] + push)

        @ti.kernel
        def measure():
            off = x[steps - 1, GOAL_BALL] - ti.Vector(GOAL)
            loss[None] += off.dot(off)

        self.start, self.advance, self.measure = start, advance, measure

    def run(self) -> None:
        self.start()
        for t in range(1, self.steps):
            self.advance(t)
        self.measure()

    def descend(self) -> None:
        slope = self.shot.grad.to_numpy()
        length = (
            self.loss[None] / (slope**2).sum()
        )  # Polyak step: where a linear model of the loss reaches 0
        self.shot.from_numpy(self.shot.to_numpy() - min(length, MOST / abs(slope).max()) * slope)

    def step(self) -> None:
        self.t = (self.t + 3) % self.steps

    def draw(self, gui: ti.GUI) -> None:
        radius = RADIUS * gui.res[0]
        gui.circle(GOAL, 0x1B4D2E, 1.3 * radius)
        colours = np.full(self.n, 0xC8372D)
        colours[[0, GOAL_BALL]] = 0xFFFFFF, 0xF2C230
        gui.circles(self.x.to_numpy()[self.t], radius=radius, color=colours)


if __name__ == "__main__":
    learning.run(Billiards, "billiards", res=480, rounds=40, goal=2e-4, background=0x2B7A48)
