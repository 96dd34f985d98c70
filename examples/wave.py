"""A wave on a membrane, inverted by gradients: find the initial shape from measurements.

The membrane follows the wave equation, and pictures of it are taken every few steps. Gradient
descent through all time steps, from a flat membrane, finds the initial shape. The loss is the sum
of squared differences from the pictures, relative to a flat membrane. It falls below a millionth.
Source: DiffTaichi (Hu et al., ICLR 2020), example "wave".

    python examples/wave.py [--rounds N]
"""

from __future__ import annotations

import learning
import numpy as np

import vkchi as ti

DT, DX, SPEED, DAMPING, RATE, INERTIA = 3e-4, 1 / 128, 10.0, 0.08, 0.06, 0.8
EVERY = 8  # steps between pictures


class Membrane(learning.Problem):
    """Heights p[t, i, j]; `start` is optimized, `target` has the pictures."""

    def __init__(self, size: int = 64, steps: int = 64) -> None:
        n, self.n, self.steps, self.t = size, size, steps, 0
        p = self.p = ti.field(ti.f32, (steps, n, n), needs_grad=True)
        start = self.start = ti.field(ti.f32, (n, n), needs_grad=True)
        target = self.target = ti.field(ti.f32, (steps, n, n))
        loss = self.loss = ti.field(ti.f32, (), needs_grad=True)
        momentum = ti.field(ti.f32, (n, n))
        scale = SPEED * SPEED * DT * DT / DX / DX

        @ti.func
        def bend(t, i, j):
            """The discrete Laplacian; the rim is held at 0."""
            around = p[t, i - 1, j] + p[t, i + 1, j] + p[t, i, j - 1] + p[t, i, j + 1]
            return around - 4 * p[t, i, j]

        @ti.kernel
        def begin():
            for i, j in start:
                p[0, i, j] = start[i, j]
                p[1, i, j] = start[i, j]

        @ti.kernel
        def advance(t: ti.i32):
            for i, j in ti.ndrange((1, n - 1), (1, n - 1)):
                speed = p[t - 1, i, j] - p[t - 2, i, j]
                p[t, i, j] = p[t - 1, i, j] + (1 - DAMPING * DT) * speed + scale * bend(t - 1, i, j)

        @ti.kernel
        def compare():
            for k, i, j in ti.ndrange((1, (steps - 1) // EVERY + 1), n, n):
                t = k * EVERY
                loss[None] += (p[t, i, j] - target[t, i, j]) ** 2

        @ti.kernel
        def roll(rate: ti.f32, inertia: ti.f32):
            for i, j in start:
                momentum[i, j] = inertia * momentum[i, j] + start.grad[i, j]
                start[i, j] -= rate * momentum[i, j]

        self.begin, self.advance, self.compare, self.roll = begin, advance, compare, roll
        self.photograph(bump(n))

    def photograph(self, truth: np.ndarray) -> None:
        """Set the pictures to those of a membrane with the initial shape `truth`; then reset to
        flat."""
        self.truth = truth
        self.start.from_numpy(truth)
        self.swing()
        self.target.from_numpy(self.p.to_numpy())
        self.start.fill(0)

    def swing(self) -> None:
        """Run all time steps."""
        self.begin()
        for t in range(2, self.steps):
            self.advance(t)

    def run(self) -> None:
        self.swing()
        self.compare()

    def learn(self) -> float:
        """One descent step; returns the loss relative to that of a flat membrane."""
        pictures = self.target.to_numpy()[EVERY::EVERY].astype(np.float64)
        return super().learn() / (pictures**2).sum()

    def descend(self) -> None:
        self.roll(RATE, INERTIA)

    def error(self) -> float:
        """Relative error of the reconstructed shape."""
        return float(
            np.linalg.norm(self.start.to_numpy() - self.truth) / np.linalg.norm(self.truth)
        )

    def step(self) -> None:
        if self.t == 0:
            self.heights = self.p.to_numpy()
        self.t = (self.t + 1) % self.steps

    def draw(self, gui: ti.GUI) -> None:
        height = 0.5 + 0.7 * self.heights[self.t]
        size = gui.res[0] // self.n
        light = np.kron(height, np.ones((size, size), np.float32)).clip(0, 1)
        gui.set_image(np.stack([light, 0.3 + 0.4 * light, 1 - light], -1))


def bump(size: int) -> np.ndarray:
    """A smooth off-centre hill."""
    i, j = np.meshgrid(*[np.arange(size) / size] * 2, indexing="ij")
    hill = np.exp(-((i - 0.45) ** 2 + (j - 0.55) ** 2) / 0.01)
    hill[[0, -1], :] = hill[:, [0, -1]] = 0
    return hill.astype(np.float32)


if __name__ == "__main__":
    learning.run(Membrane, "wave", res=256, rounds=80, goal=1e-6)
