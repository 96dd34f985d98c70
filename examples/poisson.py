"""Poisson's equation by Jacobi steps that the device repeats until convergence.

The steps are recorded once. `run_until` tests convergence on the device, so the host does not wait
after each step.

    python examples/poisson.py
"""

from __future__ import annotations

import time

import numpy as np

import vkchi as ti

N = 48


def solve(n: int = N, most: float = 1e-6) -> tuple[int, float, float]:
    """Solve u_xx + u_yy = -2 pi^2 sin(pi x) sin(pi y) on a square with u = 0 on the boundary.

    Return the number of steps, the maximum error against sin(pi x) sin(pi y), and the time in
    seconds.
    """
    u, v, f = (ti.field(ti.f32, (n + 1, n + 1)) for _ in range(3))
    change, is_done = ti.field(ti.f32, ()), ti.field(ti.i32, ())
    h = 1 / n

    @ti.kernel
    def step(old: ti.template(), new: ti.template()):
        change[None] = 0.0
        for i, j in ti.ndrange((1, n), (1, n)):
            around = old[i - 1, j] + old[i + 1, j] + old[i, j - 1] + old[i, j + 1]
            new[i, j] = 0.25 * (around + h * h * f[i, j])
            ti.atomic_max(change[None], abs(new[i, j] - old[i, j]))

    @ti.kernel
    def look():
        is_done[None] = change[None] < most

    x = np.linspace(0, 1, n + 1)
    exact = np.outer(np.sin(np.pi * x), np.sin(np.pi * x))
    f.from_numpy(2 * np.pi**2 * exact)
    with ti.record() as twice:
        step(u, v)
        step(v, u)
        look()
    began = time.perf_counter()
    rounds = twice.run_until(is_done, max=100_000)
    seconds = time.perf_counter() - began
    return 2 * rounds, float(np.abs(u.to_numpy() - exact).max()), seconds


def main() -> None:
    ti.init()
    steps, error, seconds = solve()
    print(f"{steps} steps in {seconds:.2f} s; off by {error:.1e} from the solution")
    assert error < 2e-3, error


if __name__ == "__main__":
    main()
