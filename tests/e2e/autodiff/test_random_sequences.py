"""Random sequences of kernels that read and overwrite rows of one array, and of Python's writes:
tapes, in limited memory too, forward mode and products with the Hessian against differences."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import vkchi as ti

R, N = 4, 5
STATE = R * N * 8 + 8  # bytes


def move(x: Any, a: int, b: int) -> None:
    if a != b:
        x[b] = np.sin(x[a]) * np.roll(x[a], -1)


def add(x: Any, a: int, b: int) -> None:
    if a != b:
        x[b] += x[a][::-1] ** 2 * 0.1


def scan(x: Any, a: int, b: int) -> None:
    for i in range(1, N):
        x[a, i] = x[a, i - 1] * 0.5 + x[a, i] * x[b, i]


def across(x: Any, a: int, b: int) -> None:
    for i in range(N):
        x[(a + i) % R, i] += np.cos(x[(b - i) % R, i])


def square(x: Any, a: int, b: int) -> None:
    x[a, b:] *= x[a, b:] * 0.9


def place(x: Any, a: int, b: int) -> None:
    x[a, b // 2 + 1] = 0.7 * x[a, (b * 7) % N] ** 2


def put(x: Any, a: int, b: int) -> None:
    x[a, b] = 0.3


class Rows:
    """The same in kernels."""

    def __init__(self) -> None:
        self.x = x = ti.field(ti.f64, (R, N), needs_grad=True, needs_dual=True)
        self.loss = loss = ti.field(ti.f64, (), needs_grad=True, needs_dual=True)

        @ti.kernel
        def move(a: ti.i32, b: ti.i32):
            for i in range(N):
                if a != b:
                    x[b, i] = ti.sin(x[a, i]) * x[a, (i + 1) % N]

        @ti.kernel
        def add(a: ti.i32, b: ti.i32):
            for i in range(N):
                if a != b:
                    x[b, i] += x[a, N - 1 - i] ** 2 * 0.1

        @ti.kernel
        def scan(a: ti.i32, b: ti.i32):
            for _ in range(1):
                for i in range(1, N):
                    x[a, i] = x[a, i - 1] * 0.5 + x[a, i] * x[b, i]

        @ti.kernel
        def across(a: ti.i32, b: ti.i32):
            for i in range(N):
                x[(a + i) % R, i] += ti.cos(x[(b - i) % R, i])

        @ti.kernel
        def square(a: ti.i32, b: ti.i32):
            for i in range(b, N):
                x[a, i] *= x[a, i] * 0.9

        @ti.kernel
        def place(a: ti.i32, b: ti.i32):
            for _ in range(1):
                x[a, b // 2 + 1] = 0.7 * x[a, (b * 7) % N] ** 2

        @ti.kernel
        def begin():
            for i, j in x:
                x[i, j] *= 1.0

        @ti.kernel
        def total():
            for i, j in x:
                loss[None] += x[i, j] ** 2 * (i + j + 1)

        self.kernels = {k.__name__: k for k in (move, add, scan, across, square, place)}
        self.begin, self.total = begin, total

    def run(self, steps: list[Any]) -> None:
        self.begin()
        for step, a, b in steps:
            if step is put:
                self.x[a, b] = 0.3
            else:
                self.kernels[step.__name__](a, b)
        self.total()

    def gradient(self, steps: list[Any], v: Any, memory: Any = None) -> Any:
        self.x.from_numpy(v)
        with ti.ad.Tape(self.loss, memory=memory):
            self.run(steps)
        return self.x.grad.to_numpy()


def value(steps: list[Any], v: Any) -> float:
    x = v.copy()
    for step, a, b in steps:
        step(x, a, b)
    return float((x**2 * (np.add.outer(np.arange(R), np.arange(N)) + 1)).sum())


def slopes(steps: list[Any], v: Any) -> Any:
    found = np.zeros_like(v)
    for at in np.ndindex(v.shape):
        more, less = v.copy(), v.copy()
        more[at] += 1e-6
        less[at] -= 1e-6
        found[at] = (value(steps, more) - value(steps, less)) / 2e-6
    return found


@pytest.fixture(scope="module")
def rows() -> Rows:
    return Rows()


@pytest.mark.parametrize("seed", range(30))
def test_random_steps(seed: int, need: Any, request: Any) -> None:
    need("f64")
    rows = request.getfixturevalue("rows")
    chosen, numbers = random.Random(seed), np.random.default_rng(seed)
    kinds = [move, add, scan, across, square, place]
    steps = [
        (chosen.choice([*kinds, *kinds, put]), chosen.randrange(R), chosen.randrange(R))
        for _ in range(chosen.randrange(3, 14))
    ]
    v, along = numbers.uniform(0.2, 1.0, (R, N)), numbers.normal(size=(R, N))
    expected = slopes(steps, v)
    scale = max(1.0, np.abs(expected).max())
    found = rows.gradient(steps, v)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * scale)
    for memory in (2 * STATE, 3 * STATE, "1MiB"):
        np.testing.assert_allclose(rows.gradient(steps, v, memory), found, 0, 1e-12 * scale)
    rows.x.from_numpy(v)
    rows.loss.fill(0)
    with ti.ad.FwdMode(rows.loss, rows.x, list(along.ravel())):
        rows.run(steps)
    np.testing.assert_allclose(rows.loss.dual[None], (found * along).sum(), 0, 1e-9 * scale)
    rows.x.from_numpy(v)
    product = ti.ad.hvp(lambda: rows.run(steps), rows.loss, rows.x, along)
    ends = [rows.gradient(steps, v + h * along) for h in (1e-5, -1e-5)]
    limit = 1e-4 * max(scale, np.abs(product).max())
    np.testing.assert_allclose(product, (ends[0] - ends[1]) / 2e-5, rtol=0, atol=limit)
