"""A Julia set with a moving parameter: iterations until z -> z^2 + c leaves the circle of radius 8.

python examples/julia.py
"""

from __future__ import annotations

import viewer

import vkchi as ti

LIMIT = 60  # iterations
tm = ti.math


@ti.func
def escape_time(z, c):
    """Iterations until |z| exceeds 8, smoothed, as a fraction of LIMIT."""
    n, steps = 0, 0.0
    while n < LIMIT and z.norm() < 8.0:
        z = tm.cmul(z, z) + c
        n += 1
    steps = ti.f32(n)
    if n < LIMIT:
        steps -= ti.log(ti.log(z.norm()) / ti.log(8.0)) / ti.log(2.0)
    return steps / LIMIT


class Julia:
    def __init__(self, width: int = 640, height: int = 320) -> None:
        self.t = 0.0
        self.pixels = pixels = ti.Vector.field(3, ti.f32, (width, height))

        @ti.kernel
        def paint(t: ti.f32):
            c = ti.Vector([-0.8, 0.2 * ti.cos(t)])
            for i, j in pixels:
                z = ti.Vector([i / height - width / height / 2, j / height - 0.5]) * 2.6
                s = ti.sqrt(escape_time(z, c))
                pixels[i, j] = 0.5 - 0.5 * ti.cos(3.0 * s * ti.Vector([1.0, 1.6, 2.4]))

        self.paint = paint

    def step(self) -> None:
        self.t += 0.03

    def draw(self, gui: ti.GUI) -> None:
        self.paint(self.t)
        gui.set_image(self.pixels)


if __name__ == "__main__":
    viewer.run(Julia, "Julia set", res=(640, 320))
