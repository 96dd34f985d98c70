"""Loops whose edges are a dispatch of their own match unsplit loops."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.target import tuning

SHAPES = [(40, 64), (33, 47), (64, 33)]
Make = Callable[[Any, Any], Callable[[], object]]  # of x and y, a kernel that writes y


@pytest.fixture(autouse=True)
def short_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops of few iterations are split too, at the first launch."""
    monkeypatch.setenv("VKCHI_SHAPES", "0")
    monkeypatch.setattr(tuning, "LAUNCHES", 1 << 40)
    monkeypatch.setattr(tuning, "RUN_ALONE", 0.0)


def integers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(-50, 50, shape, np.int32)


def field(values: Any) -> Any:
    made = ti.field(ti.i32, values.shape)
    made.from_numpy(values)
    return made


# --- results of a cell's neighbours: the kernel, and numpy ----------------------------------------


def guards(x: Any, y: Any) -> Callable[[], object]:
    n, m = x.shape

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

    return step


def guarded(a: Any) -> Any:
    b = np.pad(a, 1)
    return 5 * a - b[:-2, 1:-1] - b[2:, 1:-1] - b[1:-1, :-2] - b[1:-1, 2:]


def going_round(x: Any, y: Any) -> Callable[[], object]:
    n, m = x.shape

    @ti.kernel
    def step():
        for i, j in x:
            y[i, j] = x[(i + 2) % n, (j - 1) % m] + 3 * x[(i - 1 + n) % n, (j + 1 + m) % m]

    return step


def rolled(a: Any) -> Any:
    return np.roll(a, (-2, 1), (0, 1)) + 3 * np.roll(a, (1, -1), (0, 1))


def windows_that_are_clamped(x: Any, y: Any) -> Callable[[], object]:
    n, m = x.shape

    @ti.kernel
    def step():
        for i, j in x:
            s = 0
            for k in range(-2, 3):
                s += (k + 3) * x[ti.max(0, ti.min(i + k, n - 1)), ti.min(ti.max(j - k, 0), m - 1)]
            y[i, j] = s

    return step


def clamped(a: Any) -> Any:
    b, (n, m) = np.pad(a, 2, mode="edge"), a.shape
    return sum((k + 3) * b[2 + k : 2 + k + n, 2 - k : 2 - k + m] for k in range(-2, 3))


def vectors_of_indices(x: Any, y: Any) -> Callable[[], object]:
    n, m = x.shape

    @ti.kernel
    def step():
        for at in ti.grouped(x):
            s = 0
            for d in ti.static(ti.grouped(ti.ndrange((-1, 2), (-1, 2)))):
                near = at + d
                if (near >= 0).all() and (near < ti.Vector([n, m])).all():
                    s += x[near]
            y[at] = s

    return step


def added_up(a: Any) -> Any:
    b, (n, m) = np.pad(a, 1), a.shape
    return sum(b[i : i + n, j : j + m] for i in range(3) for j in range(3))


def three_axes(x: Any, y: Any) -> Callable[[], object]:
    p, n, m = x.shape

    @ti.kernel
    def step():
        for i, j, k in ti.ndrange((1, p - 1), (1, n - 1), (1, m - 1)):
            y[i, j, k] = x[i, j, k - 1] + 2 * x[i, j, k + 1] - x[i - 1, j, k] + x[i, j + 1, k]

    return step


def inside(a: Any) -> Any:
    want, c = np.zeros_like(a), slice(1, -1)
    want[c, c, c] = a[c, c, :-2] + 2 * a[c, c, 2:] - a[:-2, c, c] + a[c, 2:, c]
    return want


NEIGHBOURS: list[tuple[Make, Callable[[Any], Any], list[tuple[int, ...]]]] = [
    (guards, guarded, [*SHAPES]),
    (going_round, rolled, [*SHAPES]),
    (windows_that_are_clamped, clamped, [*SHAPES]),
    (vectors_of_indices, added_up, [(40, 40), *SHAPES]),
    (three_axes, inside, [(12, 10, 16), (9, 11, 13)]),
]
CASES = [(make, want, shape) for make, want, shapes in NEIGHBOURS for shape in shapes]


@pytest.mark.parametrize(
    "make, want, shape", CASES, ids=[f"{make.__name__}-{shape}" for make, _, shape in CASES]
)
def test_stencils_with_split_edges(
    make: Make, want: Callable[[Any], Any], shape: tuple[int, ...]
) -> None:
    a = integers(*shape)
    x, y = field(a), ti.field(ti.i32, shape)
    make(x, y)()
    assert np.array_equal(y.to_numpy(), want(a))


# --- one axis ------------------------------------------------------------------------------------


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
