"""What is a plate made of? torch learns its conductivity from temperatures, through a simulation.

A neural network maps a point of the plate to a conductivity. Ten time steps of heat conduction
are one torch operator. Its gradient trains the network.

    python examples/torch_plate.py [--size 32] [--rounds 200]
"""

from __future__ import annotations

import argparse

import torch

import vkchi as ti

STEPS, RATE = 10, 0.2


@ti.func
def at(a: ti.template(), i, j):
    n, m = a.shape[0], a.shape[1]
    return a[ti.math.clamp(i, 0, n - 1), ti.math.clamp(j, 0, m - 1)]


@ti.kernel
def conduct(
    heat: ti.types.ndarray(ndim=2), k: ti.types.ndarray(ndim=2), new: ti.types.ndarray(ndim=2)
):
    for i, j in heat:
        flow = 0.0
        for di, dj in ti.static([(-1, 0), (1, 0), (0, -1), (0, 1)]):
            between = 0.5 * (k[i, j] + at(k, i + di, j + dj))
            flow += between * (at(heat, i + di, j + dj) - heat[i, j])
        new[i, j] = heat[i, j] + RATE * flow


@ti.torch_op(outputs={"after": "heat"})
def simulate(heat, k, after):
    """STEPS time steps: two arrays that take turns."""
    other = ti.ndarray(ti.f32, heat.shape, needs_grad=True)
    after.copy_from(heat)
    for _ in range(STEPS // 2):
        conduct(after, k, other)
        conduct(other, k, after)


class Plate(torch.nn.Module):
    """The conductivity of each point, between 0 and 1, by a small network."""

    def __init__(self, size: int) -> None:
        super().__init__()
        line = torch.linspace(-1, 1, size)
        self.register_buffer("points", torch.cartesian_prod(line, line))
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh(),
            torch.nn.Linear(32, 1), torch.nn.Sigmoid(),
        )  # fmt: skip
        self.size = size

    def conductivity(self) -> torch.Tensor:
        return self.layers(self.points).reshape(self.size, self.size)

    def forward(self, heat: torch.Tensor) -> torch.Tensor:
        return simulate(heat, self.conductivity())


def hidden_plate(size: int) -> torch.Tensor:
    """A disc that conducts well, in a plate that does not."""
    line = torch.linspace(-1, 1, size)
    x, y = torch.meshgrid(line, line, indexing="ij")
    return 0.2 + 0.7 * torch.sigmoid(10 * (0.5 - (x - 0.2).hypot(y + 0.1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    torch.manual_seed(0)
    ti.init()

    truth = hidden_plate(options.size)
    heat = torch.rand(options.size, options.size)
    with torch.no_grad():
        measured = simulate(heat, truth)

    plate = Plate(options.size)
    adam = torch.optim.Adam(plate.parameters(), lr=2e-2)
    for round in range(options.rounds):
        loss = (plate(heat) - measured).square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        if round % 50 == 0:
            print(f"round {round}: loss {loss.item():.1e}")
    error = (plate.conductivity() - truth).abs().mean().item()
    print(f"conductivity after {options.rounds} rounds: {error:.3f} off on average")


if __name__ == "__main__":
    main()
