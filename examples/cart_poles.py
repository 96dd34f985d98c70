"""Thousands of cart-poles learn to balance: a batched simulator as users of Quadrants write one.

Each cart pushes itself by four gains times its state. Of all carts, the gains that balance longest
make the next generation (the cross-entropy method).

    python examples/cart_poles.py [--carts 4096] [--rounds 8] [--backend ndarray]
"""

from __future__ import annotations

import argparse

import numpy as np

import vkchi.quadrants as qd

DT, GRAVITY, CART, POLE, HALF = 0.02, 9.8, 1.0, 0.1, 0.5  # seconds, m/s^2, kg, kg, m
FARTHEST, STEEPEST, STRONGEST = 2.4, 0.21, 10.0  # m, rad, N


@qd.func
def accelerate(s, force: qd.f32):
    """Accelerations of cart and pole. Source: Barto, Sutton and Anderson, 1983."""
    sin, cos = qd.sin(s[2]), qd.cos(s[2])
    push = (force + POLE * HALF * s[3] ** 2 * sin) / (CART + POLE)
    turn = (GRAVITY * sin - cos * push) / (HALF * (4.0 / 3.0 - POLE * cos**2 / (CART + POLE)))
    return push - POLE * HALF * turn * cos / (CART + POLE), turn


@qd.func
def is_standing(s) -> bool:
    return abs(s[0]) < FARTHEST and abs(s[2]) < STEEPEST


@qd.data_oriented
class CartPoles:
    """`state` and `gains` are tensors of either backend; kernels do not differ."""

    def __init__(self, n: int, backend: qd.Backend) -> None:
        self.n = n
        self.state = qd.Vector.tensor(4, qd.f32, shape=n, backend=backend)
        self.gains = qd.Vector.tensor(4, qd.f32, shape=n, backend=backend)
        self.steps = qd.tensor(qd.i32, shape=n, backend=backend)

    @qd.kernel(fastcache=True)
    def reset(self, tilt: qd.f32):
        qd.loop_config(name="reset")
        for b in range(self.n):
            self.state[b] = [0.0, 0.0, tilt * (qd.random() - 0.5), 0.0]
            self.steps[b] = 0

    @qd.kernel(fastcache=True)
    def run(self, steps: qd.i32):
        qd.loop_config(name="cart-poles", block_dim=64)
        for b in range(self.n):
            s, gains, count = self.state[b], self.gains[b], 0
            for _ in range(steps):
                if is_standing(s):
                    force = qd.math.clamp(gains.dot(s), -STRONGEST, STRONGEST)
                    push, turn = accelerate(s, force)
                    v, w = s[1] + DT * push, s[3] + DT * turn
                    s = qd.Vector([s[0] + DT * v, v, s[2] + DT * w, w])
                    count += 1
            self.state[b], self.steps[b] = s, count

    def score(self, gains: np.ndarray, steps: int) -> np.ndarray:
        self.gains.from_numpy(gains.astype(np.float32))
        self.reset(0.2)
        self.run(steps)
        return self.steps.to_numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--carts", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--backend", choices=("field", "ndarray"), default="ndarray")
    options = parser.parse_args()
    qd.init(arch=qd.vulkan, random_seed=1)

    carts = CartPoles(options.carts, qd.Backend[options.backend.upper()])
    rng = np.random.default_rng(1)
    mean, spread = np.zeros(4), np.full(4, 10.0)
    for round in range(options.rounds):
        gains = mean + spread * rng.standard_normal((options.carts, 4))
        steps = carts.score(gains, options.steps)
        best = gains[np.argsort(-steps, kind="stable")[: options.carts // 10]]
        mean, spread = best.mean(0), best.std(0) + 0.05
        print(f"round {round}: carts stand for {steps.mean():.0f} steps on average")

    steps = carts.score(np.tile(mean, (options.carts, 1)), options.steps)
    share = 100 * np.mean(steps == options.steps)
    print(f"with gains {np.round(mean, 1)}, {share:.0f} % stand for all {options.steps} steps")


if __name__ == "__main__":
    main()
