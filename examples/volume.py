"""Inverse volume rendering: reconstruct a cloud from four photographs.

A grid of densities emits and absorbs light; rays accumulate it from front to back. Descent through
the renderer finds the densities from the pictures. The film shows the reconstruction from all
sides. Source: Max, "Optical Models for Direct Volume Rendering", 1995; DiffTaichi (ICLR 2020),
"volume rendering".

    python examples/volume.py [--rounds N]
"""

from __future__ import annotations

import learning
import numpy as np

import vkchi as ti

VIEWS = 4


def cloud(n: int) -> np.ndarray:
    """The photographed cloud: a ring around a ball, f32[n, n, n]."""
    x, y, z = np.meshgrid(*[np.linspace(-1, 1, n)] * 3, indexing="ij")
    ring = (np.sqrt(x**2 + z**2) - 0.62) ** 2 + (y + 0.25 * x) ** 2 < 0.16**2
    ball = x**2 + y**2 + z**2 < 0.3**2
    return (1.5 * ring + 4.0 * ball).astype(np.float32)


class Volume(learning.Problem):
    """`density` is optimized; `photographs` show the cloud, [VIEWS, n, n]."""

    def __init__(self, n: int = 24) -> None:
        self.n, self.angle = n, 0.0
        self.density = ti.field(ti.f32, (n, n, n), needs_grad=True)
        self.image = ti.field(ti.f32, (VIEWS, n, n), needs_grad=True)
        self.photographs = ti.field(ti.f32, (VIEWS, n, n))
        self.loss = ti.field(ti.f32, (), needs_grad=True)
        self.descent = learning.Adam(self.density, rate=0.15)
        self.make_kernels()
        self.density.from_numpy(cloud(n))
        self.render(0.0)
        self.photographs.from_numpy(self.image.to_numpy())
        self.density.fill(0.2)

    def make_kernels(self) -> None:
        density, image, photographs, loss, n = (
            self.density, self.image, self.photographs, self.loss, self.n)  # fmt: skip

        @ti.func
        def sample(at):
            """Trilinear interpolation of the density; `at` is in nodes. 0 outside."""
            found = 0.0
            base = ti.floor(at, ti.i32)
            part = at - base
            for corner in ti.static(ti.grouped(ti.ndrange(2, 2, 2))):
                k = base + corner
                if 0 <= k.min() and k.max() < n:
                    weight = 1 - ti.abs(corner - part)
                    found += density[k] * weight.x * weight.y * weight.z
            return found

        @ti.kernel
        def render(angle: ti.f32):
            for view, i, j in image:
                turn = angle + view * ti.math.pi / VIEWS
                way = ti.Vector([ti.cos(turn), 0.0, ti.sin(turn)])
                side = ti.Vector([-way.z, 0.0, way.x])
                middle, half = 0.5 * (n - 1), 0.5 * (n - 1)
                at = ti.Vector([middle, ti.f32(j), middle]) + (i - middle) * side - half * way
                light, clear = 0.0, 1.0
                for _ in range(n):
                    stopped = 1 - ti.exp(-sample(at) * 2 / n)
                    light += clear * stopped
                    clear *= 1 - stopped
                    at += way
                image[view, i, j] = light

        @ti.kernel
        def compare():
            for k in ti.grouped(image):
                loss[None] += (image[k] - photographs[k]) ** 2 / (VIEWS * n * n)

        @ti.kernel
        def clip():
            for k in ti.grouped(density):
                density[k] = ti.max(density[k], 0.0)

        self.render, self.compare, self.clip = render, compare, clip

    def run(self) -> None:
        self.render(0.0)
        self.compare()

    def descend(self) -> None:
        super().descend()
        self.clip()

    def step(self) -> None:
        self.angle += 0.05
        self.render(self.angle)

    def draw(self, gui: ti.GUI) -> None:
        light = self.image.to_numpy()[0]
        size = gui.res[0] // self.n + 1
        light = np.kron(light, np.ones((size, size), np.float32))[: gui.res[0], : gui.res[1]]
        gui.set_image(np.stack([light, 0.85 * light**1.3, 0.6 * light**2], -1))


if __name__ == "__main__":
    learning.run(Volume, "volume rendering", res=240, rounds=80, goal=2e-4)
