"""Smoke by stable fluids: advection of dye and velocity, then a pressure projection.

Source: Stam, "Stable Fluids", SIGGRAPH 1999; the pressure by red-black successive over-relaxation.

    python examples/stable_fluid.py      # the mouse blows, too
"""

from __future__ import annotations

import numpy as np
import viewer

import vkchi as ti

DT, SWEEPS, RELAXATION, FADE = 0.02, 24, 1.8, 0.995


class Smoke:
    def __init__(self, n: int = 256) -> None:
        self.n, self.t = n, 0.0
        self.cursor = np.full(2, np.nan)
        self.v, self.v_next = (ti.Vector.field(2, ti.f32, (n, n)) for _ in range(2))
        self.dye, self.dye_next = (ti.Vector.field(3, ti.f32, (n, n)) for _ in range(2))
        self.pressure, self.divergence = (ti.field(ti.f32, (n, n)) for _ in range(2))
        self.make_motion()
        self.make_pressure()

    def make_motion(self) -> None:
        n = self.n

        @ti.func
        def sample(f, at):
            """Bilinear interpolation of a cell-centred field; `at` is in cells."""
            at = ti.math.clamp(at, 0.5, n - 0.5) - 0.5
            base = ti.min(ti.cast(at, ti.i32), n - 2)
            part = at - base
            low = ti.math.mix(f[base], f[base + [1, 0]], part.x)
            high = ti.math.mix(f[base + [0, 1]], f[base + [1, 1]], part.x)
            return ti.math.mix(low, high, part.y)

        @ti.kernel
        def advect(v: ti.template(), f: ti.template(), result: ti.template()):
            for i, j in f:  # midpoint backtrace
                at = ti.Vector([i, j]) + 0.5
                middle = at - 0.5 * DT * n * v[i, j]
                result[i, j] = FADE * sample(f, at - DT * n * sample(v, middle))

        @ti.kernel
        def blow(v: ti.template(), dye: ti.template(), x: ti.f32, y: ti.f32, ux: ti.f32,
                 uy: ti.f32, colour: ti.math.vec3):  # fmt: skip
            for i, j in v:
                d = ti.Vector([(i + 0.5) / n - x, (j + 0.5) / n - y])
                part = ti.exp(-d.norm_sqr() / 0.001)
                v[i, j] += part * ti.Vector([ux, uy])
                dye[i, j] += part * colour

        self.advect, self.blow = advect, blow

    def make_pressure(self) -> None:
        n, pressure, divergence = self.n, self.pressure, self.divergence

        @ti.func
        def inner(i, j, side):
            """`side` if cell (i, j) is in the grid; 0 beyond the walls."""
            return side if 0 <= i < n and 0 <= j < n else 0.0

        @ti.kernel
        def measure(v: ti.template()):
            for i, j in divergence:
                right = inner(i + 1, j, v[ti.min(i + 1, n - 1), j].x)
                left = inner(i - 1, j, v[ti.max(i - 1, 0), j].x)
                above = inner(i, j + 1, v[i, ti.min(j + 1, n - 1)].y)
                below = inner(i, j - 1, v[i, ti.max(j - 1, 0)].y)
                divergence[i, j] = 0.5 * (right - left + above - below)

        @ti.kernel
        def relax(colour: ti.i32):
            for i, j in pressure:
                if (i + j) % 2 == colour:
                    around = (
                        pressure[ti.min(i + 1, n - 1), j] + pressure[ti.max(i - 1, 0), j]
                        + pressure[i, ti.min(j + 1, n - 1)] + pressure[i, ti.max(j - 1, 0)]
                    )  # fmt: skip
                    wanted = (around - divergence[i, j]) / 4
                    pressure[i, j] += RELAXATION * (wanted - pressure[i, j])

        @ti.kernel
        def correct(v: ti.template()):
            for i, j in v:
                right, left = pressure[ti.min(i + 1, n - 1), j], pressure[ti.max(i - 1, 0), j]
                above, below = pressure[i, ti.min(j + 1, n - 1)], pressure[i, ti.max(j - 1, 0)]
                v[i, j] -= 0.5 * ti.Vector([right - left, above - below])

        self.measure, self.relax, self.correct = measure, relax, correct

    def project(self) -> None:
        """Reduce the divergence of the velocity to nearly zero."""
        self.measure(self.v)
        for k in range(2 * SWEEPS):
            self.relax(k % 2)
        self.correct(self.v)

    def step(self) -> None:
        self.t += DT
        for k, way in enumerate((1, -1)):
            angle = 0.6 * np.sin(0.9 * self.t + k)
            push = 1.2 * np.array([way * np.cos(angle), np.sin(angle)])
            colour = 0.5 + 0.5 * np.cos(self.t + 2 * k + np.array([0.0, 2.1, 4.2]))
            self.blow(self.v, self.dye, 0.5 - 0.4 * way, 0.5, *push, ti.Vector(0.25 * colour))
        self.advect(self.v, self.v, self.v_next)
        self.advect(self.v, self.dye, self.dye_next)
        self.v, self.v_next, self.dye, self.dye_next = (
            self.v_next, self.v, self.dye_next, self.dye,
        )  # fmt: skip
        self.project()

    def draw(self, gui: ti.GUI) -> None:
        if gui.is_pressed(gui.LMB):
            at = np.array(gui.get_cursor_pos())
            moved = np.nan_to_num(at - self.cursor) * 20
            self.blow(self.v, self.dye, *at, *moved, ti.Vector([0.2, 0.2, 0.2]))
            self.cursor = at
        else:
            self.cursor = np.full(2, np.nan)
        gui.set_image(self.dye)


if __name__ == "__main__":
    viewer.run(Smoke, "stable fluid", res=256)
