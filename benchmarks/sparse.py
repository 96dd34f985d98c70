"""Sparse fields beside Taichi's CPU backend: CPU time of all threads, minimum of several rounds.

    .venv/bin/python benchmarks/sparse.py [--taichi PYTHON] [--rounds N] [NAME...]

PYTHON has Taichi. Each round runs both libraries in processes of their own, one after the other.
The last column is vkchi's time divided by Taichi's.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

SIDE, LEAF, LOOPS = 64, 8, 50  # blocks along an axis, elements of a block along it, loops per time
INNER = SIDE - 2
LISTS, ITEMS = 100_000, 16
ACTIVATED = 1_000_000
Work = Callable[[], Any]


def init(name: str) -> Any:
    if name == "vkchi":
        import vkchi as ti

        ti.init()
    else:
        import taichi as ti

        ti.init(arch=ti.cpu, log_level=ti.ERROR)
    return ti


def grid(ti: Any, blocks: int) -> tuple[Any, Any, Any]:
    """Two fields in 8 by 8 leaves of a pointer block, of which `blocks` cells are active, none of
    them at the border."""
    x, y = ti.field(ti.f32), ti.field(ti.f32)
    block = ti.root.pointer(ti.ij, SIDE)
    block.dense(ti.ij, LEAF).place(x, y)

    @ti.kernel
    def activate(n: ti.i32):
        for k in range(n):
            at = k * 1021 % (INNER * INNER)
            x[(at // INNER + 1) * LEAF, (at % INNER + 1) * LEAF] = 1.0

    activate(blocks)
    return x, y, activate


def looping(blocks: int) -> Callable[[Any], Work]:
    def make(ti: Any) -> Work:
        x, y, _ = grid(ti, blocks)

        @ti.kernel
        def step():
            for i, j in x:
                y[i, j] = 2.0 * x[i, j] + 1.0

        return lambda: [step() for _ in range(LOOPS)]

    return make


def stencil(blocks: int) -> Callable[[Any], Work]:
    def make(ti: Any) -> Work:
        x, y, _ = grid(ti, blocks)

        @ti.kernel
        def step():
            for i, j in x:
                y[i, j] = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1] - 4 * x[i, j]

        return lambda: [step() for _ in range(LOOPS)]

    return make


def masked(ti: Any) -> Work:
    """A loop over 9 of 4,096 blocks of 8 by 8 single active cells."""
    x, y = ti.field(ti.f32), ti.field(ti.f32)
    ti.root.pointer(ti.ij, SIDE).bitmasked(ti.ij, LEAF).place(x, y)

    @ti.kernel
    def activate():
        for k, i, j in ti.ndrange(9, LEAF, LEAF):
            at = k * 1021 % (INNER * INNER)
            x[at // INNER * LEAF + i, at % INNER * LEAF + j] = 1.0

    @ti.kernel
    def step():
        for i, j in x:
            y[i, j] = 2.0 * x[i, j] + 1.0

    activate()
    return lambda: [step() for _ in range(LOOPS)]


def activating_own(blocks: int) -> Callable[[Any], Work]:
    """A loop that may activate cells of its own block."""

    def make(ti: Any) -> Work:
        x, y, _ = grid(ti, blocks)

        @ti.kernel
        def step():
            for i, j in x:
                y[i ^ 1, j] += x[i, j]

        return lambda: [step() for _ in range(LOOPS)]

    return make


def items(ti: Any) -> Work:
    """A loop over the items of 100 of 10^5 lists."""
    x = ti.field(ti.i32)
    ti.root.dense(ti.i, LISTS).dynamic(ti.j, ITEMS, chunk_size=ITEMS).place(x)

    @ti.kernel
    def append():
        for k in range(100 * ITEMS):
            x[k % 100 * 799].append(k)

    @ti.kernel
    def step():
        for i, j in x:
            x[i, j] += 1

    append()
    return lambda: [step() for _ in range(LOOPS)]


def drawing(ti: Any) -> Work:
    """Random numbers in a loop over 9 of 4,096 blocks."""
    x, y, _ = grid(ti, 9)

    @ti.kernel
    def step():
        for i, j in x:
            y[i, j] = ti.random()

    return lambda: [step() for _ in range(LOOPS)]


def changing(ti: Any) -> Work:
    """Activation before each loop."""
    x, y, activate = grid(ti, 9)

    @ti.kernel
    def step():
        for i, j in x:
            y[i, j] = 2.0 * x[i, j] + 1.0

    def run() -> None:
        for _ in range(LOOPS):
            activate(9)
            step()

    return run


def summing(ti: Any) -> Work:
    """Sum over 9 active blocks."""
    x, _, _ = grid(ti, 9)
    total = ti.field(ti.f32, shape=())

    @ti.kernel
    def step():
        for i, j in x:
            total[None] += x[i, j]

    return lambda: [step() for _ in range(LOOPS)]


def dense(ti: Any) -> Work:
    """The loop over a dense field of 400 blocks: nothing sparse."""
    x, y = ti.field(ti.f32, (160, 160)), ti.field(ti.f32, (160, 160))

    @ti.kernel
    def step():
        for i, j in x:
            y[i, j] = 2.0 * x[i, j] + 1.0

    return lambda: [step() for _ in range(LOOPS)]


def activating(ti: Any) -> Work:
    """10^6 activations on 10^4 blocks, and their deactivation."""
    x = ti.field(ti.f32)
    block = ti.root.pointer(ti.ij, 128)
    block.dense(ti.ij, LEAF).place(x)

    @ti.kernel
    def activate():
        for k in range(ACTIVATED):
            at = k % 10_000 * 7919 % 10_000
            x[at // 100 * LEAF + k % LEAF, at % 100 * LEAF] = 1.0

    def run() -> None:
        activate()
        block.deactivate_all()

    return run


def activating_again(ti: Any) -> Work:
    """10^6 activations on 10^4 blocks that are active."""
    x = ti.field(ti.f32)
    block = ti.root.pointer(ti.ij, 128)
    block.dense(ti.ij, LEAF).place(x)

    @ti.kernel
    def activate():
        for k in range(ACTIVATED):
            at = k % 10_000 * 7919 % 10_000
            ti.activate(block, [at // 100, at % 100])

    return activate


def deactivating(ti: Any) -> Work:
    """Activation and deactivation of 10^4 blocks of 8 by 8 in a kernel."""
    x = ti.field(ti.f32)
    block = ti.root.pointer(ti.ij, 128)
    block.dense(ti.ij, LEAF).place(x)

    @ti.kernel
    def activate():
        for i, j in ti.ndrange(100, 100):
            ti.activate(block, [i, j])

    @ti.kernel
    def deactivate():
        for i, j in ti.ndrange(100, 100):
            ti.deactivate(block, [i, j])

    def run() -> None:
        activate()
        deactivate()

    return run


def reading(is_sparse: bool) -> Callable[[Any], Work]:
    """10^6 reads at computed elements: of a block without active cells, or of a dense one."""

    def make(ti: Any) -> Work:
        x, total = ti.field(ti.f32), ti.field(ti.f32, shape=())
        block = (ti.root.pointer if is_sparse else ti.root.dense)(ti.ij, 128)
        block.dense(ti.ij, LEAF).place(x)

        @ti.kernel
        def read():
            for k in range(ACTIVATED):
                at = k * 7919 % (1 << 20)
                total[None] += x[at >> 10, at & 1023]

        return read

    return make


def appending(ti: Any) -> Work:
    """16 items for each of 10^5 lists, and their deactivation."""
    x = ti.field(ti.i32)
    lists = ti.root.dense(ti.i, LISTS)
    items = lists.dynamic(ti.j, ITEMS, chunk_size=ITEMS)
    items.place(x)

    @ti.kernel
    def append():
        for k in range(LISTS * ITEMS):
            x[k % LISTS * 7919 % LISTS].append(k)

    @ti.kernel
    def clear():
        for i in range(LISTS):
            x[i].deactivate()

    def run() -> None:
        append()
        clear()

    return run


WORKS: dict[str, Callable[[Any], Work]] = {
    "loop, 9 of 4096 blocks": looping(9),
    "loop, 400 of 4096 blocks": looping(400),
    "loop, 3844 of 4096 blocks": looping(INNER * INNER),
    "stencil, 9 of 4096 blocks": stencil(9),
    "stencil, 400 of 4096 blocks": stencil(400),
    "activation and loop, 9 blocks": changing,
    "sum, 9 of 4096 blocks": summing,
    "bitmasked leaves, 9 of 4096 blocks": masked,
    "activation of own block, 9 blocks": activating_own(9),
    "activation of own block, 400 blocks": activating_own(400),
    "items of 100 of 10^5 lists": items,
    "random numbers, 9 of 4096 blocks": drawing,
    "loop, dense field of 400 blocks": dense,
    "10^6 activations, deactivate_all": activating,
    "10^6 activations of active cells": activating_again,
    "10^4 cells of 8 by 8, on and off": deactivating,
    "10^6 reads of inactive elements": reading(True),
    "10^6 reads of a dense field": reading(False),
    "16 appends to 10^5 lists": appending,
}


def measure(name: str, chosen: list[str], repeats: int = 5) -> dict[str, float]:
    """CPU time of each work in milliseconds, after one run for compilation."""
    ti, found = init(name), {}
    for key in chosen:
        run = WORKS[key](ti)
        run()
        ti.sync()
        times = []
        for _ in range(repeats):
            begin = time.process_time()
            run()
            ti.sync()
            times.append(time.process_time() - begin)
        found[key] = 1e3 * min(times)
    return found


def run_in(python: str, name: str, chosen: list[str]) -> dict[str, float]:
    command = [python, __file__, "--inner", name, *chosen]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of the names of works")
    parser.add_argument("--taichi", metavar="PYTHON", default="", help="a Python with Taichi")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--inner", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inner:
        print(json.dumps(measure(given.inner, given.names)))
        return
    chosen = [k for k in WORKS if not given.names or any(part in k for part in given.names)]
    own: list[dict[str, float]] = []
    other: list[dict[str, float]] = []
    for _ in range(given.rounds):
        own.append(run_in(sys.executable, "vkchi", chosen))
        if given.taichi:
            other.append(run_in(given.taichi, "taichi", chosen))
    print(f"{'':36}{'vkchi (ms)':>12}{'Taichi (ms)':>12}{'ratio':>8}")
    for key in chosen:
        ours = np.min([one[key] for one in own])
        theirs = np.min([one[key] for one in other]) if other else np.nan
        print(f"{key:36}{ours:12.2f}{theirs:12.2f}{ours / theirs:8.2f}")


if __name__ == "__main__":
    main()
