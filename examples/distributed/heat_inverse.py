"""The initial temperature of a plate from its temperature later, on any number of processes.

Heat spreads over a plate whose rim is held at 0, from two hot spots. Gradient descent with momentum
through all time steps finds them again. The tape differentiates the exchange of halos: each process
has the loss of its own cells, and their gradients are those of the sum over all processes.

python examples/distributed/heat_inverse.py [--rounds N]
torchrun --nproc-per-node 4 examples/distributed/heat_inverse.py [--rounds N]
"""

from __future__ import annotations

import argparse
from itertools import pairwise

import vkchi as ti

N, STEPS, SPEED, RATE, INERTIA = 96, 24, 0.2, 0.5, 0.9


def main(rounds: int) -> None:
    ti.distributed.init()
    grid = ti.distributed.Grid((N, N), halo=1)
    u = [grid.field(ti.f32, needs_grad=True) for _ in range(STEPS + 1)]  # by time
    measured, error, momentum = (grid.field(ti.f32) for _ in range(3))
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def spots(u: ti.template()):
        for i, j in grid.owned:
            x, y = i / N, j / N
            near = ti.exp(-200 * ((x - 0.3) ** 2 + (y - 0.4) ** 2))
            u[i, j] = near + ti.exp(-100 * ((x - 0.7) ** 2 + (y - 0.6) ** 2))

    @ti.kernel
    def step(before: ti.template(), after: ti.template()):
        for i, j in grid.owned:
            around = before[i - 1, j] + before[i + 1, j] + before[i, j - 1] + before[i, j + 1]
            after[i, j] = before[i, j] + SPEED * (around - 4 * before[i, j])

    @ti.kernel
    def compare(u: ti.template()):
        for i, j in grid.owned:
            error[i, j] = (u[i, j] - measured[i, j]) ** 2
            loss[None] += 0.5 * (u[i, j] - measured[i, j]) ** 2

    @ti.kernel
    def descend(u: ti.template()):
        for i, j in grid.owned:
            momentum[i, j] = INERTIA * momentum[i, j] - RATE * u.grad[i, j]
            u[i, j] += momentum[i, j]

    def spread() -> None:
        for before, after in pairwise(u):
            grid.exchange(before)
            step(before, after)

    spots(u[0])
    spread()
    measured.copy_from(u[STEPS])
    u[0].fill(0)
    first = total = grid.dot(measured, measured)
    for k in range(rounds):
        with ti.ad.Tape(loss):
            spread()
            compare(u[STEPS])
        total = grid.sum(error)  # the same number on all processes
        if ti.distributed.rank() == 0 and (k % 20 == 0 or k == rounds - 1):
            print(f"round {k:3}: loss {total / first:.3e}", flush=True)
        descend(u[0])
    if ti.distributed.rank() == 0:
        print(f"{ti.distributed.size()} processes, loss {total / first:.3e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    main(parser.parse_args().rounds)
