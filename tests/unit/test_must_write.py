"""Loops that are proved to overwrite all of an array, for every shape; the interpreter checks the
proofs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.unit.kernels import define, lower, run
from vkchi.autodiff.reaching import ReachingWrites

SHAPES = {1: [(0,), (1,), (2,), (3,), (7,)], 2: [(0, 2), (1, 1), (1, 4), (4, 1), (2, 3), (3, 2)]}

# Loops of a kernel of y, of shape (n, m): they write all of y.
WHOLE = {
    1: [
        ["for i in y:", "y[i]"],
        ["for i in range(n):", "y[n - 1 - i]"],
        ["for i in range(1, n + 1):", "y[i - 1]"],
        ["for i in range(-n, 0):", "y[i + n]"],
        ["for i in range(ti.max(5, n)):", "y[i]"],
        ["for i in range(2 * n - 1):", "y[i]"],
        ["for i in range(n + 3):", "y[i]"],
        ["for i, k in ti.ndrange(n, 2):", "y[i]"],
        ["for k, i in ti.ndrange(2, n):", "y[i]"],
        ["for k, i in ti.ndrange(n, n):", "y[i]"],
        ["for i in ti.ndrange((3, n + 3)):", "y[i - 3]"],
        ["for _ in range(1):", "for i in range(n):", "y[i]"],
        ["for _ in range(1):", "for i in range(-n, 0):", "y[i + n]"],
        ["for i in y:", "for k in range(2):", "y[i]"],
        ["for i, k in ti.ndrange(n, 2):", "y[2 * i + k]"],
        ["for k, i in ti.ndrange(2, n):", "y[k * n + i]"],
        ["for i, k in ti.ndrange(n, 3):", "y[i + n - 1 - n * k]"],
        ["for i, j, k in ti.ndrange(n, 2, 2):", "y[4 * i + 2 * j + (1 - k)]"],
        ["for _ in range(1):", "for i in range(n):", "for k in range(3):", "y[3 * i + k]"],
    ],
    2: [
        ["for i, j in y:", "y[i, j]"],
        ["for I in ti.grouped(y):", "y[I]"],
        ["for j, i in ti.ndrange(m, n):", "y[i, j]"],
        ["for j, i in ti.ndrange(m, n):", "y[n - 1 - i, m - j - 1]"],
        ["for i, k, j in ti.ndrange(n, 2, m):", "y[i, j]"],
        ["for i, j in ti.ndrange((1, n + 1), (-2, m - 2)):", "y[i - 1, j + 2]"],
        ["for t in range(n * m):", "y[t // m, t % m]"],
        ["for t in range(n * m):", "y[t % n, t // n]"],
        ["for i in range(n):", "for j in range(m):", "y[i, j]"],
    ],
}
# The same: some is left, at least of an array of some shape.
PARTS = {
    1: [
        ["for i in range(n - ti.max(n - 2000, 0)):", "y[i]"],
        ["for i in range(ti.min(n, 2000)):", "y[i]"],
        ["for i in range(n - n // 2000):", "y[i]"],
        ["for i in range(2000):", "y[i]"],
        ["for i in range(n - 1):", "y[i]"],
        ["for i in range(n - 1):", "y[i + 1]"],
        ["for i in range(1, n):", "y[i]"],
        ["for i in range(2 * n):", "y[i // 2 * 2]"],
        ["for i in y:", "y[0]"],
        ["for k in range(n - 1):", "for i in y:", "y[i]"],
        ["for i in range(n):", "y[2 * i]"],
        ["for i, k in ti.ndrange(n, 2):", "y[3 * i + k]"],
        ["for i, k in ti.ndrange(n, 2):", "y[2 * i + k + 1]"],
        ["for k, i in ti.ndrange(2, n):", "y[(k + 1) * n + i]"],
        ["for k, i in ti.ndrange(2, n):", "y[k * n * 2 + i]"],
        ["for i, k in ti.ndrange(n, n):", "y[i * i + k]"],
        ["for i, k in ti.ndrange(n, 0):", "y[2 * i + k]"],
        ["for i in range(n * n * n):", "y[i // n // n // n]"],
        # if the bound is no i32, there are no iterations
        ["for _ in range(1):", "for i in range(2 * n):", "y[i]"],
        ["for _ in range(1):", "for i in range(1, n + 1):", "y[i - 1]"],
    ],
    2: [
        ["for i in range(n):", "y[i, i]"],
        ["for i, j in ti.ndrange(n, n):", "y[i, j]"],
        ["for t in range(n * m):", "y[t // n, t % n]"],
        ["for t in range(n * m):", "y[t // m, t // m]"],
        ["for t in range(n * m):", "y[(t + 1) // m, (t + 1) % m]"],
        ["for t in range(n * m - 1):", "y[t // m, t % m]"],
        ["for i in range(n):", "for j in range(i, m):", "y[i, j]"],
        ["for i, j in y:", "if i != j:", "y[i, j]"],
    ],
}


def make(axes: int, lines: list[str]) -> Any:
    """The kernel that stores 1 where the last line says, in the loops before."""
    extents = ["n = y.shape[0]", *(["m = y.shape[1]"] if axes == 2 else [])]
    loops = ["    " * k + line for k, line in enumerate([*lines[:-1], f"{lines[-1]} = 1.0"])]
    body = "\n    ".join(extents + loops)
    return define(f"def fill(y: ti.types.ndarray()):\n    {body}\n")


def is_proved(axes: int, lines: list[str]) -> bool:
    """True if the loops are known to overwrite all."""
    y = np.zeros(SHAPES[axes][0], np.float32)
    return "y" in ReachingWrites(lower(make(axes, lines), y).func).ends


def is_filled(axes: int, lines: list[str], shape: tuple[int, ...]) -> bool:
    """True if they do so, for an array of this shape."""
    y = np.zeros(shape, np.float32)
    run(make(axes, lines), y)
    return bool((y == 1).all())


def cases(table: dict[int, list[list[str]]]) -> list[Any]:
    """Tests, named by their lines."""
    return [pytest.param(k, x, id=" ".join(x)) for k, lists in table.items() for x in lists]


@pytest.mark.parametrize(("axes", "lines"), cases(WHOLE))
def test_loops_proved_to_write_all(axes: int, lines: list[str]) -> None:
    assert is_proved(axes, lines)
    assert all(is_filled(axes, lines, shape) for shape in SHAPES[axes])


@pytest.mark.parametrize(("axes", "lines"), cases(PARTS))
def test_loops_not_proved_to_write_all(axes: int, lines: list[str]) -> None:
    assert not is_proved(axes, lines)


BOUNDS = ["n", "m", "n * m", "n + 1", "n - 1", "2 * n", "ti.max(n, m)", "3", "n * m - 1", "n - m"]
INDICES = ["t", "k", "t // m", "t % m", "t % n", "t // n", "n - 1 - t", "t - 1", "k // 2",
           "2 * t + k", "k * n + t", "t + m * k", "t * 2"]  # fmt: skip


def test_must_write_proofs_hold() -> None:
    """Random bounds and indices: of those that are proved, none leaves an element."""
    rng, proved = random.Random(4), 0
    for _ in range(300):
        begin = rng.choice(["0", "0", "0", "1", "-1", "1 - n"])
        ends = (rng.choice(BOUNDS[:3] if rng.random() < 0.7 else BOUNDS) for _ in "tk")
        loops = [f"for t in range({begin}, {next(ends)}):", f"for k in range({next(ends)}):"]
        lines = [
            *loops,
            f"y[{', '.join(rng.sample(INDICES[:9] if rng.random() < 0.7 else INDICES, 2))}]",
        ]
        if is_proved(2, lines):
            proved += 1
            assert all(is_filled(2, lines, shape) for shape in SHAPES[2]), lines
    assert proved > 3
