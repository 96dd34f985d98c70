"""Conjugate gradients: the temperature of a plate, one solver iteration per frame.

Heat flows through a plate whose conductivity varies. Two spots are warmed, the rim is cold. The
matrix is a kernel that multiplies by it, and is never stored. Source: Hestenes and Stiefel,
"Methods of conjugate gradients for solving linear systems", 1952.

    python examples/conjugate_gradient.py
"""

from __future__ import annotations

import numpy as np
import viewer

import vkchi as ti


class Plate:
    """Solves A u = b; r is the residual, p the search direction, q = A p."""

    def __init__(self, n: int = 96) -> None:
        self.n, self.steps = n, 0
        self.u, self.r, self.p, self.q, self.b = (ti.field(ti.f32, (n, n)) for _ in range(5))
        self.conducts = ti.field(ti.f32, (n, n))
        self.left, self.along, self.before = (ti.field(ti.f32, ()) for _ in range(3))
        x, y = np.meshgrid(*[(np.arange(n) + 0.5) / n] * 2, indexing="ij")
        wall = (abs(x - 0.5) < 0.04) & (abs(y - 0.3) > 0.08)
        self.conducts.from_numpy(np.where(wall, 0.02, 1.0).astype(np.float32))
        warm = [np.hypot(x - a, y - b) < 0.06 for a, b in ((0.25, 0.7), (0.7, 0.2))]
        self.b.from_numpy((warm[0] * 1.0 + warm[1] * 0.5).astype(np.float32) * 40 / n**2)
        self.make_kernels()
        self.start()

    def make_kernels(self) -> None:
        u, r, p, q, b, n = self.u, self.r, self.p, self.q, self.b, self.n
        conducts, left, along, before = self.conducts, self.left, self.along, self.before

        @ti.func
        def flow(f, i, j, k, m):
            """Heat flow from a cell to its neighbour, by the smaller conductivity; the rim is at
            0."""
            found = 2 * conducts[i, j] * f[i, j]
            if 0 <= k < n and 0 <= m < n:
                found = ti.min(conducts[i, j], conducts[k, m]) * (f[i, j] - f[k, m])
            return found

        @ti.func
        def multiply(f, i, j):
            return (flow(f, i, j, i + 1, j) + flow(f, i, j, i - 1, j)
                    + flow(f, i, j, i, j + 1) + flow(f, i, j, i, j - 1))  # fmt: skip

        @ti.kernel
        def start():
            for i, j in u:
                u[i, j] = 0.0
                r[i, j] = b[i, j]
                p[i, j] = b[i, j]
            left[None] = 0.0
            for i, j in r:
                left[None] += r[i, j] ** 2

        @ti.kernel
        def go():
            before[None] = left[None]
            along[None] = 0.0
            left[None] = 0.0
            for i, j in p:
                q[i, j] = multiply(p, i, j)
                along[None] += p[i, j] * q[i, j]
            for i, j in u:
                length = before[None] / along[None]
                u[i, j] += length * p[i, j]
                r[i, j] -= length * q[i, j]
                left[None] += r[i, j] ** 2
            for i, j in p:
                p[i, j] = r[i, j] + left[None] / before[None] * p[i, j]

        @ti.kernel
        def check() -> ti.f32:
            worst = 0.0
            for i, j in u:
                ti.atomic_max(worst, ti.abs(b[i, j] - multiply(u, i, j)))
            return worst

        self.start, self.go, self.check = start, go, check

    def step(self) -> None:
        if self.left[None] > 1e-14:
            self.go()
            self.steps += 1

    def draw(self, gui: ti.GUI) -> None:
        size = gui.res[0] // self.n
        u = np.kron(self.u.to_numpy(), np.ones((size, size), np.float32))
        light = (u / max(u.max(), 1e-9)).clip(0, 1)
        image = np.zeros((*gui.res, 3), np.float32)
        bands = 0.9 + 0.1 * (np.floor(light * 16) % 2)
        image[: u.shape[0], : u.shape[1]] = np.stack(
            [light**0.6, light**1.6, 0.3 + 0.3 * light**4], -1) * bands[..., None]  # fmt: skip
        gui.set_image(image)
        gui.text(f"step {self.steps}, residual {self.left[None] ** 0.5:.1e}", (0.03, 0.97), 16)


if __name__ == "__main__":
    viewer.run(Plate, "conjugate gradients", res=384)
