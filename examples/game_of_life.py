"""Conway's game of life, on a torus: three neighbours give life, two or three keep it.

Source: M. Gardner, "Mathematical Games", Scientific American, October 1970.

    python examples/game_of_life.py      # the mouse makes cells live
"""

from __future__ import annotations

import numpy as np
import viewer

import vkchi as ti


class Life:
    def __init__(self, n: int = 256, pixels: int = 512) -> None:
        self.alive, self.next = (ti.field(ti.i32, (n, n)) for _ in range(2))
        self.image = image = ti.field(ti.f32, (pixels, pixels))
        random = np.random.default_rng(1)
        self.alive.from_numpy((random.random((n, n)) < 0.2).astype(np.int32))

        @ti.kernel
        def live(now: ti.template(), then: ti.template()):
            for i, j in now:
                around = 0
                for a, b in ti.static(ti.ndrange((-1, 2), (-1, 2))):
                    if ti.static(a != 0 or b != 0):
                        around += now[(i + a) % n, (j + b) % n]
                then[i, j] = ti.i32(around == 3 or (around == 2 and now[i, j] == 1))

        @ti.kernel
        def paint(now: ti.template()):
            for i, j in image:
                image[i, j] = 0.9 * image[i, j]  # dead cells fade
                if now[i * n // pixels, j * n // pixels] == 1:
                    image[i, j] = 1.0

        self.n, self.live, self.paint = n, live, paint

    def step(self) -> None:
        self.live(self.alive, self.next)
        self.alive, self.next = self.next, self.alive

    def draw(self, gui: ti.GUI) -> None:
        if gui.is_pressed(gui.LMB):
            i, j = (int(part * self.n) % self.n for part in gui.get_cursor_pos())
            self.alive[i, j] = self.alive[i - 1, j] = self.alive[i, j - 1] = 1
        self.paint(self.alive)
        gui.set_image(self.image)


if __name__ == "__main__":
    viewer.run(Life, "game of life", res=512)
