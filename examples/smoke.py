"""Smoke that is blown into a shape: find the initial velocity that turns a square into a heart.

An incompressible flow carries the smoke: semi-Lagrangian advection, then Jacobi sweeps for the
pressure. Descent through all steps finds the initial velocity. Source: Stam, "Stable Fluids",
SIGGRAPH 1999; DiffTaichi (Hu et al., ICLR 2020), example "smoke".

    python examples/smoke.py [--rounds N]
"""

from __future__ import annotations

import learning
import numpy as np

import vkchi as ti


def heart(n: int) -> np.ndarray:
    """The target smoke."""
    x, y = np.meshgrid(*[np.linspace(-1.7, 1.7, n)] * 2, indexing="ij")
    return smooth((x**2 + y**2 - 0.8) ** 3 < x**2 * y**3)


def smooth(shape: np.ndarray) -> np.ndarray:
    found = shape.astype(np.float32)
    for axis in (0, 1):
        found = (np.roll(found, 1, axis) + 2 * found + np.roll(found, -1, axis)) / 4
    return found


class Smoke(learning.Problem):
    """The flow v and the smoke, double-buffered, on a torus; `wind` is optimized."""

    def __init__(self, n: int = 32, steps: int = 16, sweeps: int = 6) -> None:
        self.n, self.steps, self.sweeps, self.t = n, steps, sweeps, 0
        grad = {"needs_grad": True}
        self.v, self.moved, self.wind = (
            ti.Vector.field(2, ti.f32, (n, n), **grad) for _ in range(3)
        )
        self.smoke, self.next, self.divergence = (
            ti.field(ti.f32, (n, n), **grad) for _ in range(3)
        )
        self.pressure = [ti.field(ti.f32, (n, n), **grad) for _ in range(2)]
        self.first, self.wanted = (ti.field(ti.f32, (n, n)) for _ in range(2))
        self.loss = ti.field(ti.f32, (), **grad)
        self.descent = learning.Adam(self.wind, rate=0.1)
        at = abs(np.linspace(-1, 1, n))
        self.first.from_numpy(smooth(np.maximum(at[:, None], at) < 0.45))
        self.wanted.from_numpy(heart(n))
        self.make_motion()
        self.make_pressure()

    def make_motion(self) -> None:
        v, moved, wind, smoke, n = self.v, self.moved, self.wind, self.smoke, self.n
        after, first, wanted, loss = self.next, self.first, self.wanted, self.loss

        @ti.func
        def sample(f, at):
            """Bilinear interpolation of a field; `at` is in nodes."""
            base = ti.floor(at, ti.i32)
            part = at - base
            i, j, k, m = base.x % n, base.y % n, (base.x + 1) % n, (base.y + 1) % n
            low = ti.math.mix(f[i, j], f[k, j], part.x)
            return ti.math.mix(low, ti.math.mix(f[i, m], f[k, m], part.x), part.y)

        @ti.kernel
        def start():
            for i, j in wind:
                v[i, j], smoke[i, j] = wind[i, j], first[i, j]

        @ti.kernel
        def carry():
            for i, j in v:
                moved[i, j] = sample(v, ti.Vector([i, j]) - v[i, j])

        @ti.kernel
        def carry_smoke():
            for i, j in v:
                after[i, j] = sample(smoke, ti.Vector([i, j]) - v[i, j])

        @ti.kernel
        def keep():
            for i, j in smoke:
                smoke[i, j] = after[i, j]

        @ti.kernel
        def compare():
            for i, j in smoke:
                loss[None] += (smoke[i, j] - wanted[i, j]) ** 2 / (n * n)

        self.start, self.carry, self.carry_smoke, self.keep, self.compare = (
            start, carry, carry_smoke, keep, compare)  # fmt: skip

    def make_pressure(self) -> None:
        v, moved, divergence, n = self.v, self.moved, self.divergence, self.n

        @ti.kernel
        def measure(p: ti.template()):
            for i, j in divergence:
                across = moved[(i + 1) % n, j].x - moved[(i - 1) % n, j].x
                up = moved[i, (j + 1) % n].y - moved[i, (j - 1) % n].y
                divergence[i, j] = 0.5 * (across + up)
                p[i, j] = 0.0

        @ti.kernel
        def relax(p: ti.template(), better: ti.template()):
            for i, j in p:
                around = (
                    p[(i + 1) % n, j] + p[(i - 1) % n, j] + p[i, (j + 1) % n] + p[i, (j - 1) % n]
                )
                better[i, j] = (around - divergence[i, j]) / 4

        @ti.kernel
        def correct(p: ti.template()):
            for i, j in v:
                across = p[(i + 1) % n, j] - p[(i - 1) % n, j]
                up = p[i, (j + 1) % n] - p[i, (j - 1) % n]
                v[i, j] = moved[i, j] - 0.5 * ti.Vector([across, up])

        self.measure, self.relax, self.correct = measure, relax, correct

    def advance(self) -> None:
        """A time step."""
        p, better = self.pressure
        self.carry()
        self.measure(p)
        for _ in range(self.sweeps // 2):
            self.relax(p, better)
            self.relax(better, p)
        self.correct(p)
        self.carry_smoke()
        self.keep()

    def run(self) -> None:
        self.start()
        for _ in range(self.steps):
            self.advance()
        self.compare()

    def step(self) -> None:
        if self.t % (2 * self.steps) == 0:
            self.start()
        elif self.t % (2 * self.steps) <= self.steps:
            self.advance()  # then pause
        self.t += 1

    def draw(self, gui: ti.GUI) -> None:
        size = gui.res[0] // self.n
        light = np.kron(self.smoke.to_numpy(), np.ones((size, size), np.float32))
        gui.set_image(np.stack([light, light**1.2 * 0.85, light * 0.9], -1).clip(0, 1))


if __name__ == "__main__":
    learning.run(Smoke, "smoke", res=256, rounds=60, goal=0.003)
