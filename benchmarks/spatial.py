"""Sorting and geometry queries on the device, beside numpy and scipy.

Wall times in ms: the minimum of several calls, in turns. Ratios above 1: vkchi is faster.

    python benchmarks/spatial.py [ROW ...] > benchmarks/results/DATE-spatial.txt
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

import vkchi as ti


def best_ms(*functions: Callable[[], object], rounds: int = 9) -> list[float]:
    """Minimum times of the functions, called in turns after one call each."""
    found = [[] for _ in functions]
    for k in range(rounds + 1):
        for times, function in zip(found, functions):
            begin = time.perf_counter()
            function()
            ti.sync()
            if k:
                times.append((time.perf_counter() - begin) * 1e3)
    return [min(times) for times in found]


def sort(n: int) -> None:
    values = np.random.default_rng(0).integers(0, 1 << 32, n, dtype=np.uint32)
    keys, order = ti.ndarray(ti.u32, n), ti.ndarray(ti.i32, n)
    keys.from_numpy(values)
    ours, numpys = best_ms(
        lambda: ti.algorithms.argsort(keys, order),
        lambda: np.argsort(values, kind="stable"),
    )
    assert (order.to_numpy() == np.argsort(values, kind="stable")).all()
    print(f"argsort of {n} u32: {ours:.2f}, numpy {numpys:.2f}, ratio {numpys / ours:.2f}")


ROWS = {"sort": lambda: [sort(n) for n in (1 << 14, 1 << 17, 1 << 20)]}

if __name__ == "__main__":
    ti.init(arch=ti.cpu)
    for name in sys.argv[1:] or ROWS:
        ROWS[name]()
