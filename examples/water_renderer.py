"""Water that shows a wanted picture: find the initial waves that refract the tiles into it.

A pool's surface follows the wave equation, and its slope refracts the view of the tiles on the
ground. Descent through waves and renderer finds an initial surface whose final view is the wanted
picture. Source: DiffTaichi (Hu et al., ICLR 2020), example "water renderer".

    python examples/water_renderer.py [--rounds N]
"""

from __future__ import annotations

import learning
import numpy as np

import vkchi as ti

STIFFNESS, FADE, DEPTH = 0.2, 0.995, 30.0


class Pool(learning.Problem):
    """Heights [steps, n, n]; `start` is optimized, `wanted` is the picture."""

    def __init__(self, n: int = 48, steps: int = 24) -> None:
        self.n, self.steps, self.t = n, steps, 0
        self.height = ti.field(ti.f32, (steps, n, n), needs_grad=True)
        self.start = ti.field(ti.f32, (n, n), needs_grad=True)
        self.picture = ti.Vector.field(3, ti.f32, (n, n), needs_grad=True)
        self.wanted, self.ground = (ti.Vector.field(3, ti.f32, (n, n)) for _ in range(2))
        self.loss = ti.field(ti.f32, (), needs_grad=True)
        self.descent = learning.Adam(self.start, rate=0.02)
        x, y = np.meshgrid(*[np.arange(n) / n] * 2, indexing="ij")
        tiles = 0.5 + 0.5 * np.sin(6 * np.pi * x) * np.sin(6 * np.pi * y)
        self.ground.from_numpy(np.stack([0.9 * tiles, 0.4 + 0.4 * x, 0.9 - 0.5 * tiles], -1))
        self.make_kernels()
        hills = [
            np.exp(-((x - a) ** 2 + (y - b) ** 2) / 0.006) for a, b in ((0.4, 0.6), (0.65, 0.35))
        ]
        self.start.from_numpy((1.4 * hills[0] - 1.2 * hills[1]).astype(np.float32))
        self.run()
        self.wanted.from_numpy(self.picture.to_numpy())
        self.start.fill(0)

    def make_kernels(self) -> None:
        height, start, picture, ground = self.height, self.start, self.picture, self.ground
        wanted, loss, n = self.wanted, self.loss, self.n

        @ti.kernel
        def begin():
            for i, j in start:
                height[0, i, j] = start[i, j]
                height[1, i, j] = start[i, j]

        @ti.kernel
        def advance(t: ti.i32):
            for i, j in ti.ndrange((1, n - 1), (1, n - 1)):
                now = height[t - 1, i, j]
                around = height[t - 1, i - 1, j] + height[t - 1, i + 1, j]
                around += height[t - 1, i, j - 1] + height[t - 1, i, j + 1]
                speed = now - height[t - 2, i, j]
                height[t, i, j] = now + FADE * speed + STIFFNESS * (around - 4 * now)

        @ti.kernel
        def look(t: ti.i32):
            for i, j in ti.ndrange((1, n - 1), (1, n - 1)):
                slope = 0.5 * ti.Vector(
                    [
                        height[t, i + 1, j] - height[t, i - 1, j],
                        height[t, i, j + 1] - height[t, i, j - 1],
                    ]
                )
                at = ti.math.clamp(ti.Vector([i, j]) - DEPTH * slope, 0.0, n - 1.001)
                base = ti.floor(at, ti.i32)
                part = at - base
                low = ti.math.mix(ground[base], ground[base + [1, 0]], part.x)
                high = ti.math.mix(ground[base + [0, 1]], ground[base + [1, 1]], part.x)
                picture[i, j] = ti.math.mix(low, high, part.y) + (slope.x + slope.y) * 0.5

        @ti.kernel
        def compare():
            for i, j in picture:
                loss[None] += (picture[i, j] - wanted[i, j]).norm_sqr() / (3 * n * n)

        self.begin, self.advance, self.look, self.compare = begin, advance, look, compare

    def run(self) -> None:
        self.begin()
        for t in range(2, self.steps):
            self.advance(t)
        self.look(self.steps - 1)
        self.compare()

    def step(self) -> None:
        self.look(self.t)
        self.t = (self.t + 1) % self.steps

    def draw(self, gui: ti.GUI) -> None:
        size = gui.res[1] // self.n
        for k, picture in enumerate((self.wanted, self.picture)):
            pixels = np.kron(picture.to_numpy(), np.ones((size, size, 1), np.float32))
            self.canvas = self.canvas if k else np.zeros((*gui.res, 3), np.float32)
            self.canvas[k * gui.res[1] : k * gui.res[1] + pixels.shape[0], : pixels.shape[1]] = (
                pixels
            )
        gui.set_image(self.canvas.clip(0, 1))


if __name__ == "__main__":
    learning.run(Pool, "water renderer", res=(480, 240), rounds=120, goal=4e-4)
