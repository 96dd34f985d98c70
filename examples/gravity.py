"""Gravity by automatic differentiation, as an animation: the forces are gradients of the energy.

Source: Taichi's documentation, "Differentiable programming", case study. `ad_gravity.py` has the
physics, and shows the energy.

    python examples/gravity.py
"""

from __future__ import annotations

import numpy as np
import viewer
from ad_gravity import Gravity

import vkchi as ti

DT, TRACE = 4e-4, 40  # time step; length of traces in frames


class Bodies(Gravity):
    def __init__(self, bodies: int = 8) -> None:
        super().__init__(bodies)
        self.trace: list[np.ndarray] = []
        self.forces()

    def step(self) -> None:
        for _ in range(8):  # leapfrog
            self.kick(DT / 2)
            self.drift(DT)
            self.forces()
            self.kick(DT / 2)
        self.trace = [*self.trace[1 - TRACE :], self.x.to_numpy() * 0.6 + 0.2]

    def draw(self, gui: ti.GUI) -> None:
        for age, (a, b) in enumerate(zip(self.trace, self.trace[1:])):
            shade = 40 + 140 * age // TRACE
            gui.lines(a, b, radius=1, color=ti.rgb_to_hex((shade / 510, shade / 340, shade / 255)))
        gui.circles(self.trace[-1], radius=4, color=0xFFD070)


if __name__ == "__main__":
    viewer.run(Bodies, "gravity", res=512, background=0x101820)
