"""Histogram equalization of a dim, moving picture, by reductions.

Mean, variance and extremes are loops that accumulate into one element; the compiler turns them into
reductions. The histogram adds to one of many bins, and the cumulative distribution is a serial
loop. The original is on the left, the result on the right, with both histograms below.

    python examples/reductions.py
"""

from __future__ import annotations

import numpy as np
import viewer

import vkchi as ti

BINS = 128


class Picture:
    def __init__(self, n: int = 256) -> None:
        self.n, self.t = n, 0.0
        self.dim, self.clear = (ti.field(ti.f32, (n, n)) for _ in range(2))
        self.counts, self.evened = (ti.field(ti.i32, BINS) for _ in range(2))
        self.below = ti.field(ti.f32, BINS)
        self.mean, self.variance, self.least, self.most = (ti.field(ti.f32, ()) for _ in range(4))
        self.make_kernels()

    def make_kernels(self) -> None:
        dim, clear, counts, below = self.dim, self.clear, self.counts, self.below
        mean, variance, n = self.mean, self.variance, self.n
        least, most = self.least, self.most

        @ti.kernel
        def take(t: ti.f32):
            for i, j in dim:
                at = ti.Vector([i, j]) * 6.0 / n - 3
                f = ti.sin(3 * at.x + t) + ti.sin(2 * at.y - t) + ti.sin(at.norm() * 4 - 2 * t)
                dim[i, j] = 0.42 + 0.04 * f

        @ti.kernel
        def survey():
            mean[None], variance[None] = 0.0, 0.0
            least[None], most[None] = 1.0, 0.0
            for i, j in dim:
                mean[None] += dim[i, j] / (n * n)
                ti.atomic_min(least[None], dim[i, j])
                ti.atomic_max(most[None], dim[i, j])
            for i, j in dim:
                variance[None] += (dim[i, j] - mean[None]) ** 2 / (n * n)

        @ti.kernel
        def count(picture: ti.template(), bins: ti.template()):
            for k in bins:
                bins[k] = 0
            for i, j in picture:
                bins[ti.min(ti.cast(picture[i, j] * BINS, ti.i32), BINS - 1)] += 1

        @ti.kernel
        def even_out():
            ti.loop_config(serialize=True)
            for k in range(BINS):  # cumulative distribution
                part = (counts[k] + 0.0) / (n * n)
                below[k] = part if k == 0 else below[k - 1] + part
            for i, j in dim:  # interpolate within the bin
                at = dim[i, j] * BINS
                k = ti.min(ti.cast(at, ti.i32), BINS - 1)
                low = 0.0 if k == 0 else below[k - 1]
                clear[i, j] = low + (at - k) * (below[k] - low)

        self.take, self.survey, self.count, self.even_out = take, survey, count, even_out

    def step(self) -> None:
        self.t += 0.05
        self.take(self.t)
        self.survey()
        self.count(self.dim, self.counts)
        self.even_out()
        self.count(self.clear, self.evened)

    def draw(self, gui: ti.GUI) -> None:
        gui.set_image(np.concatenate([self.dim.to_numpy(), self.clear.to_numpy()]))
        for side, counts in enumerate((self.counts, self.evened)):
            height = counts.to_numpy() / (self.n**2 / BINS) * 0.05
            x = 0.5 * side + 0.5 * (np.arange(BINS) + 0.5) / BINS
            low = np.stack([x, 0 * x], -1)
            gui.lines(low, low + height.clip(0, 0.4)[:, None] * (0, 1), radius=1, color=0xE4572E)
        text = f"mean {self.mean[None]:.3f}, from {self.least[None]:.3f} to {self.most[None]:.3f}"
        gui.text(f"{text}, deviation {self.variance[None] ** 0.5:.4f}", (0.02, 0.98), 16)


if __name__ == "__main__":
    viewer.run(Picture, "reductions", res=(512, 256))
