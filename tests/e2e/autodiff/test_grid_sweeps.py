"""Sweeps over large grids that are right in any order of iterations: none is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import field, is_near, slope

N, CORNER, W = 550, 4, 1.2


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """Nobody is reported that something is not known."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ti.ad.GradientWarning)
        yield


def relaxations(x: Any, b: Any) -> dict[str, Any]:
    """Ways of writing a sweep over the cells of one colour, of red and black."""

    @ti.func
    def relaxed(i, j):
        around = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]
        return (1 - W) * x[i, j] + 0.25 * W * (around + b[i, j])

    @ti.kernel
    def by_condition(c: ti.i32):
        for i, j in x:
            if (i + j) % 2 == c and 0 < i < N - 1 and 0 < j < N - 1:
                x[i, j] += relaxed(i, j) - x[i, j]

    @ti.kernel
    def by_continue(c: ti.i32):
        for i, j in x:
            if i == 0 or j == 0 or i == N - 1 or j == N - 1:
                continue
            if (i + j) & 1 != c:
                continue
            x[i, j] = relaxed(i, j)

    @ti.kernel
    def by_halves(c: ti.i32):
        for i, half in ti.ndrange((1, N - 1), N // 2):
            j = 2 * half + (i + c) % 2
            if 0 < j < N - 1:
                x[i, j] = relaxed(i, j)

    @ti.kernel
    def by_rows(c: ti.i32):
        for i in range(1, N - 1):
            for half in range(N // 2):
                j = 2 * half + (i + c) % 2
                if 0 < j < N - 1:
                    x[i, j] = relaxed(i, j)

    return {k: v for k, v in locals().items() if k.startswith("by")}


def relaxed_in_numpy(b: Any) -> Any:
    """The loss after two sweeps over a corner that is large enough."""
    x = np.zeros((12, 12))
    for _ in range(2):
        for c in range(2):
            for i in range(1, 11):
                for j in range(1, 11):
                    if (i + j) % 2 == c:
                        around = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]
                        x[i, j] = (1 - W) * x[i, j] + 0.25 * W * (around + b[i, j])
    return (x[:CORNER, :CORNER] ** 2).sum()


@pytest.mark.parametrize("how", ["by_condition", "by_continue", "by_halves", "by_rows"])
def test_red_and_black(how: str) -> None:
    x, b, loss = field(N, N), field(N, N), field()
    sweep = relaxations(x, b)[how]

    @ti.kernel
    def total():
        for i, j in ti.ndrange(CORNER, CORNER):
            loss[None] += x[i, j] ** 2

    b.fill(1)
    with ti.ad.Tape(loss):
        for k in range(4):
            sweep(k % 2)
        total()
    is_near(b.grad.to_numpy()[:12, :12], slope(relaxed_in_numpy, np.ones((12, 12))))


def jacobi(b: Any, loss: Any, m: int) -> dict[str, tuple[Callable[[int], Any], Any]]:
    """Ways of writing a step from one array to another, and of adding up the fourth result."""
    x, y, z = field(m), field(m), field(2, m)
    v = ti.Vector.field(2, ti.f32, m, needs_grad=True)

    @ti.kernel
    def swapped(x: ti.template(), y: ti.template()):
        for i in range(1, m - 1):
            y[i] = 0.5 * (x[i - 1] + x[i + 1] + b[i])

    @ti.kernel
    def by_row(t: ti.i32):
        for i in range(1, m - 1):
            z[1 - t % 2, i] = 0.5 * (z[t % 2, i - 1] + z[t % 2, i + 1] + b[i])

    @ti.kernel
    def copied(t: ti.i32):
        for i in range(1, m - 1):
            y[i] = 0.5 * (x[i - 1] + x[i + 1] + b[i])
        for i in range(1, m - 1):
            x[i] = y[i]

    @ti.kernel
    def by_component(t: ti.i32):
        for i in range(1, m - 1):
            v[i][1 - t % 2] = 0.5 * (v[i - 1][t % 2] + v[i + 1][t % 2] + b[i])

    @ti.kernel
    def total(a: ti.template()):
        for i in range(CORNER):
            loss[None] += a[i] ** 2

    @ti.kernel
    def total_of_row():
        for i in range(CORNER):
            loss[None] += z[0, i] ** 2

    return {
        "swapped": (lambda t: swapped(*((y, x) if t % 2 else (x, y))), lambda: total(x)),
        "by_row": (by_row, total_of_row),
        "copied": (copied, lambda: total(x)),
        "by_component": (by_component, lambda: total(v.get_scalar_field(0))),
    }


def jacobi_in_numpy(b: Any) -> Any:
    """The loss, in a corner that is large enough."""
    x = np.zeros(20)
    for _ in range(4):
        x = np.concatenate([[0], 0.5 * (x[:-2] + x[2:] + b[1:-1]), [0]])
    return (x[:CORNER] ** 2).sum()


@pytest.mark.parametrize("how", ["swapped", "by_row", "copied", "by_component"])
def test_jacobi(how: str) -> None:
    m = 300_000
    b, loss = field(m), field()
    step, total = jacobi(b, loss, m)[how]
    b.fill(1)
    with ti.ad.Tape(loss):
        for t in range(4):
            step(t)
        total()
    is_near(b.grad.to_numpy()[:20], slope(jacobi_in_numpy, np.ones(20)))
