"""Framework of the differentiable examples: gradient descent until a loss is reached, then a film.

A `Problem` computes its loss (`run()`) and has a `descent` that takes a step down the gradient. A
`Simulation` is a problem in time steps. Both are shown like other examples (`step()`, `draw(gui)`:
viewer.py).

    learning.run(Billiards, "billiards", res=512, rounds=60, goal=1e-3)

    python examples/billiards.py [--rounds N] [--headless] [--frames N] [--save DIR] ...
"""

from __future__ import annotations

import time

import numpy as np
import viewer

import vkchi as ti
from vkchi.progress import track


class Adam:
    """Gradient descent on some fields. Source: Kingma and Ba, "Adam", 2014."""

    def __init__(self, *fields, rate: float, decay=(0.9, 0.99)) -> None:
        self.fields, self.rate, self.decay, self.rounds = fields, rate, decay, 0
        self.moments = [[0.0, 0.0] for _ in fields]

    def step(self) -> None:
        self.rounds += 1
        a, b = self.decay
        for field, moments in zip(self.fields, self.moments, strict=True):
            slope = field.grad.to_numpy()
            moments[0] = a * moments[0] + (1 - a) * slope
            moments[1] = b * moments[1] + (1 - b) * slope**2
            way = moments[0] / (1 - a**self.rounds)
            size = np.sqrt(moments[1] / (1 - b**self.rounds)) + 1e-12
            field.from_numpy((field.to_numpy() - self.rate * way / size).astype(slope.dtype))


class Problem:
    """An optimization problem.

    `run()` computes the field `loss` from the parameters, `descent.step()` updates them.
    """

    def learn(self) -> float:
        """Take one descent step; return the loss before it."""
        with ti.ad.Tape(self.loss):
            self.run()
        self.descend()
        return self.loss[None]

    def descend(self) -> None:
        """Take a step down the gradient."""
        self.descent.step()


class Simulation(Problem):
    """A problem in time steps: `start()`, `steps` times `advance(t)`, then `measure()`.

    The result is shown with `at_once` steps per frame, over `shown` times as many steps as in
    training.
    """

    t, at_once, shown = 0, 3, 1

    def run(self) -> None:
        self.start()
        for t in range(self.steps):
            self.advance(t)
        self.measure()

    def step(self) -> None:
        for _ in range(self.at_once):
            if self.t == 0:
                self.start()
            self.advance(self.t)
            self.t = (self.t + 1) % (self.shown * self.steps)


def descend(problem, rounds: int, goal: float, title: str = "descending") -> list[float]:
    """Take up to `rounds` descent steps, until the loss is at most `goal`; return the losses."""
    losses = []
    for _ in track(range(rounds), title):
        losses.append(problem.learn())
        if losses[-1] <= goal:
            break
    return losses


def run(make, title: str, res, rounds: int, goal: float, background: int = 0x0) -> None:
    """Make a problem, descend, print the loss, and show the result.

    Exits with an error if at least `rounds` steps were allowed and did not reach the goal.
    """

    def make_and_learn(options):
        problem, begin = make(), time.perf_counter()
        losses = descend(problem, options.rounds, goal, title)
        seconds = time.perf_counter() - begin
        if not losses:  # --rounds 0: show the untrained problem
            problem.run()
            return problem
        print(f"{title}: loss {losses[0]:.3g} -> {losses[-1]:.3g} in {len(losses)} rounds, "
              f"{seconds:.1f} s; wanted: {goal:g}")  # fmt: skip
        if losses[-1] > goal and options.rounds >= rounds:
            raise SystemExit(f"{title}: the loss stays above {goal:g}")
        return problem

    viewer.run(make_and_learn, title, res, background, rounds=rounds)
