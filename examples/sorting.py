"""Bitonic sorting of bars, one step of the network per frame.

Each step compares and swaps pairs at one distance in parallel. After log2(n) (log2(n) + 1) / 2
steps the bars are sorted. `ti.algorithms.parallel_sort` sorts arrays of any length. Source:
Batcher, "Sorting networks and their applications", 1968.

    python examples/sorting.py
"""

from __future__ import annotations

import numpy as np
import viewer

import vkchi as ti


class Sorting:
    def __init__(self, bits: int = 8) -> None:
        self.n = n = 1 << bits
        self.values = values = ti.field(ti.f32, n)
        self.image = image = ti.Vector.field(3, ti.f32, (512, 256))
        self.steps = [(1 << k, 1 << j) for k in range(1, bits + 1) for j in reversed(range(k))]
        self.shuffle()

        @ti.kernel
        def exchange(run: ti.i32, distance: ti.i32):
            for i in values:
                other = i ^ distance
                if i < other:
                    a, b = values[i], values[other]
                    is_rising = (i & run) == 0
                    if (a > b) == is_rising:
                        values[i], values[other] = b, a

        @ti.kernel
        def paint():
            for i, j in image:
                value = values[i * n // 512]
                image[i, j] = [0.07, 0.09, 0.12]
                if j < 250 * value:
                    image[i, j] = ti.Vector([0.2 + 0.8 * value, 0.55, 1 - 0.8 * value])

        self.exchange, self.paint = exchange, paint

    def shuffle(self) -> None:
        random = np.random.default_rng(7)
        self.values.from_numpy(random.permutation(self.n).astype(np.float32) / self.n)
        self.done = 0

    def step(self) -> None:
        if self.done < len(self.steps):
            self.exchange(*self.steps[self.done])
            self.done += 1
        elif self.done < len(self.steps) + 12:  # show the result, then restart
            self.done += 1
        else:
            self.shuffle()

    def draw(self, gui: ti.GUI) -> None:
        self.paint()
        gui.set_image(self.image)


if __name__ == "__main__":
    viewer.run(Sorting, "sorting", res=(512, 256))
