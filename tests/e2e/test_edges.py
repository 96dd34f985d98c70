"""Loops whose edges are a dispatch of their own give what whole loops give."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.passes import cost_model

SHAPES = [(40, 64), (33, 47), (64, 33)]


@pytest.fixture(autouse=True)
def short_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops of few iterations are split too."""
    monkeypatch.setattr(cost_model, "SMALLEST_SPLIT", 32)


def integers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(-50, 50, shape, np.int32)


def field(values: Any) -> Any:
    made = ti.field(ti.i32, values.shape)
    made.from_numpy(values)
    return made


@pytest.mark.parametrize("shape", SHAPES)
def test_guards(shape: tuple[int, int]) -> None:
    n, m = shape
    a = integers(n, m)
    x, y = field(a), ti.field(ti.i32, shape)

    @ti.kernel
    def step():
        for i, j in x:
            s = 5 * x[i, j]
            if i > 0:
                s -= x[i - 1, j]
            if i < n - 1:
                s -= x[i + 1, j]
            if 0 < j:
                s -= x[i, j - 1]
            if j != m - 1:
                s -= x[i, j + 1]
            y[i, j] = s

    step()
    b = np.pad(a, 1)
    want = 5 * a - b[:-2, 1:-1] - b[2:, 1:-1] - b[1:-1, :-2] - b[1:-1, 2:]
    assert np.array_equal(y.to_numpy(), want)


@pytest.mark.parametrize("shape", SHAPES)
def test_going_round(shape: tuple[int, int]) -> None:
    n, m = shape
    a = integers(n, m)
    x, y = field(a), ti.field(ti.i32, shape)

    @ti.kernel
    def step():
        for i, j in x:
            y[i, j] = x[(i + 2) % n, (j - 1) % m] + 3 * x[(i - 1 + n) % n, (j + 1 + m) % m]

    step()
    want = np.roll(a, (-2, 1), (0, 1)) + 3 * np.roll(a, (1, -1), (0, 1))
    assert np.array_equal(y.to_numpy(), want)


@pytest.mark.parametrize("shape", SHAPES)
def test_windows_that_are_clamped(shape: tuple[int, int]) -> None:
    n, m = shape
    a = integers(n, m)
    x, y = field(a), ti.field(ti.i32, shape)

    @ti.kernel
    def step():
        for i, j in x:
            s = 0
            for k in range(-2, 3):
                s += (k + 3) * x[ti.max(0, ti.min(i + k, n - 1)), ti.min(ti.max(j - k, 0), m - 1)]
            y[i, j] = s

    step()
    b = np.pad(a, 2, mode="edge")
    parts = [(k + 3) * b[2 + k : 2 + k + n, 2 - k : 2 - k + m] for k in range(-2, 3)]
    assert np.array_equal(y.to_numpy(), sum(parts))


@pytest.mark.parametrize("shape", [(12, 10, 16), (9, 11, 13)])
def test_three_axes_between_odd_numbers(shape: tuple[int, int, int]) -> None:
    p, n, m = shape
    a = integers(*shape)
    x, y = field(a), ti.field(ti.i32, shape)

    @ti.kernel
    def step():
        for i, j, k in ti.ndrange((1, p - 1), (1, n - 1), (1, m - 1)):
            y[i, j, k] = x[i, j, k - 1] + 2 * x[i, j, k + 1] - x[i - 1, j, k] + x[i, j + 1, k]

    step()
    want = np.zeros_like(a)
    c = slice(1, -1)
    want[c, c, c] = a[c, c, :-2] + 2 * a[c, c, 2:] - a[:-2, c, c] + a[c, 2:, c]
    assert np.array_equal(y.to_numpy(), want)


def test_ends_of_one_axis() -> None:
    n = 999
    a = integers(n)
    x, y, total = field(a), ti.field(ti.i32, n), ti.field(ti.i32, ())

    @ti.kernel
    def step():
        for i in range(-3, n + 2):
            if i >= 0 and i < n:
                v = x[i]
                if i == 0 or i == n - 1:
                    v = 1000
                y[i] = v
                total[None] += v
            else:
                total[None] += 10_000

    step()
    want = a.copy()
    want[[0, -1]] = 1000
    assert np.array_equal(y.to_numpy(), want)
    assert total[None] == want.sum() + 50_000


def test_conditions_that_hold_nowhere_or_on_one_side() -> None:
    n = 256
    x = ti.field(ti.i32, n)

    @ti.kernel
    def step():
        for i in x:
            x[i] = i
            if i > 5:
                x[i] += 1000
            if i > 2 * n or i < 0:
                x[i] = -1
            if i * 2 < n:  # no edge: a half
                x[i] += 7

    step()
    i = np.arange(n)
    assert np.array_equal(x.to_numpy(), i + 1000 * (i > 5) + 7 * (2 * i < n))


def test_a_vector_of_indices() -> None:
    n = 40
    a = integers(n, n)
    x, y = field(a), ti.field(ti.i32, (n, n))

    @ti.kernel
    def step():
        for at in ti.grouped(x):
            s = 0
            for d in ti.static(ti.grouped(ti.ndrange((-1, 2), (-1, 2)))):
                near = at + d
                if (near >= 0).all() and (near < n).all():
                    s += x[near]
            y[at] = s

    step()
    b = np.pad(a, 1)
    want = sum(b[i : i + n, j : j + n] for i in range(3) for j in range(3))
    assert np.array_equal(y.to_numpy(), want)
