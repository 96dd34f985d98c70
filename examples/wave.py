"""A wave on a membrane, run backwards by gradients: which initial shape gives what was measured?

The membrane is moved by the wave equation; pictures of it, one every few steps, are measured.
Starting from a flat membrane, gradient descent through all time steps looks for the shape that it
began with. The loss is the sum of squared differences from the pictures: it falls to less than a
millionth, and the shape is recovered to within 1 %.
Source: DiffTaichi (Hu et al., ICLR 2020), example "wave".

    python examples/wave.py [--size N] [--steps N] [--rounds N]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import vkchi as ti

DT, DX, SPEED, DAMPING, RATE, INERTIA = 3e-4, 1 / 128, 10.0, 0.08, 0.06, 0.8
EVERY = 8  # steps from one picture to the next


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=60)
    return parser.parse_args()


class Membrane:
    """Heights p[t, i, j]; `start` is what is looked for, `target` holds the pictures."""

    def __init__(self, size: int, steps: int) -> None:
        n, self.steps = size, steps
        p = self.p = ti.field(ti.f32, (steps, n, n), needs_grad=True)
        start = self.start = ti.field(ti.f32, (n, n), needs_grad=True)
        target = self.target = ti.field(ti.f32, (steps, n, n))
        loss = self.loss = ti.field(ti.f32, (), needs_grad=True)
        momentum = ti.field(ti.f32, (n, n))
        scale = SPEED * SPEED * DT * DT / DX / DX

        @ti.func
        def bend(t, i, j):
            """The discrete Laplacian; the rim is held at 0."""
            around = p[t, i - 1, j] + p[t, i + 1, j] + p[t, i, j - 1] + p[t, i, j + 1]
            return around - 4 * p[t, i, j]

        @ti.kernel
        def begin():
            for i, j in start:
                p[0, i, j] = start[i, j]
                p[1, i, j] = start[i, j]

        @ti.kernel
        def advance(t: ti.i32):
            for i, j in ti.ndrange((1, n - 1), (1, n - 1)):
                speed = p[t - 1, i, j] - p[t - 2, i, j]
                p[t, i, j] = p[t - 1, i, j] + (1 - DAMPING * DT) * speed + scale * bend(t - 1, i, j)

        @ti.kernel
        def compare():
            for k, i, j in ti.ndrange((1, (steps - 1) // EVERY + 1), n, n):
                t = k * EVERY
                loss[None] += (p[t, i, j] - target[t, i, j]) ** 2

        @ti.kernel
        def descend(rate: ti.f32, inertia: ti.f32):
            for i, j in start:
                momentum[i, j] = inertia * momentum[i, j] + start.grad[i, j]
                start[i, j] -= rate * momentum[i, j]

        self.begin, self.advance, self.compare, self.descend = begin, advance, compare, descend

    def run(self) -> None:
        """All time steps."""
        self.begin()
        for t in range(2, self.steps):
            self.advance(t)


def bump(size: int) -> np.ndarray:
    """A smooth hill off the middle."""
    i, j = np.meshgrid(*[np.arange(size) / size] * 2, indexing="ij")
    hill = np.exp(-((i - 0.45) ** 2 + (j - 0.55) ** 2) / 0.01)
    hill[[0, -1], :] = hill[:, [0, -1]] = 0
    return hill.astype(np.float32)


def main() -> None:
    options = parse()
    ti.init(arch=ti.vulkan)
    membrane, truth = Membrane(options.size, options.steps), bump(options.size)
    membrane.start.from_numpy(truth)
    membrane.run()
    membrane.target.from_numpy(membrane.p.to_numpy())
    membrane.start.fill(0)
    first, begin = None, time.perf_counter()
    for step in range(options.rounds):
        with ti.ad.Tape(membrane.loss):
            membrane.run()
            membrane.compare()
        first = membrane.loss[None] if first is None else first
        membrane.descend(RATE, INERTIA)
        if step % 10 == 0 or step == options.rounds - 1:
            print(f"round {step:3d}: loss {membrane.loss[None]:.3e}")
    found, seconds = membrane.start.to_numpy(), time.perf_counter() - begin
    error = np.linalg.norm(found - truth) / np.linalg.norm(truth)
    print(f"{options.rounds} rounds of {options.steps} steps in {seconds:.1f} s")
    missed = np.sqrt(membrane.loss[None] / first)
    print(f"the pictures are met with a relative error of {100 * missed:.2f} %")
    print(f"the first shape is recovered with a relative error of {100 * error:.1f} %")
    if membrane.loss[None] > 1e-6 * first or error > 0.01:
        raise SystemExit("the shape was not recovered")


if __name__ == "__main__":
    main()
