"""Loops whose sums leave them, whatever that is worth: branches that depend on sums, overwritten
memory, loops without rounds, vectors, and wide numbers are passed on; held against numpy, exactly
for small whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.opt.loops.scatter import expand

N, M = 37, 41


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Values that scalar expansion stores, with profitability ignored."""
    found: list[Any] = []
    slots_for = expand.slots_for

    def noting(cut: Any, first: int) -> Any:
        found.append(cut)
        return slots_for(cut, first)

    monkeypatch.setattr(expand, "is_worth_expanding", lambda *_: True)
    monkeypatch.setattr(expand, "costs_in", lambda *_: {})
    monkeypatch.setattr(expand, "costs_behind", lambda cut, _: dict.fromkeys(cut.sums, 0.0))
    monkeypatch.setattr(expand, "slots_for", noting)
    return found


def numbers(*shape: int, seed: int = 1) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def field(values: np.ndarray[Any, Any], dtype: Any = ti.f32) -> Any:
    found = ti.field(dtype, values.shape)
    found.from_numpy(values.astype(found.to_numpy().dtype))
    return found


def test_branches_on_sums(handed: list[Any]) -> None:
    given, ways = numbers(N, M), numbers(N, M, seed=2)
    v, w, x, y = field(given), field(ways), field(np.zeros(M)), field(np.zeros(N))

    @ti.kernel
    def branch():
        for i in range(N):
            s = 0.0
            for j in range(M):
                if v[i, j] > 0:
                    s += v[i, j]
                else:
                    s -= 1.0
            y[i] = s
            for j in range(M):
                if (s > 0 and w[i, j] > 0) or y[i] > 5:
                    x[j] += s * w[i, j]
                elif w[i, j] < -1:
                    x[j] += y[i]

    branch()
    assert handed
    s = np.where(given > 0, given, -1).sum(1)[:, None]
    first = ((s > 0) & (ways > 0)) | (s > 5)
    want = np.where(first, s * ways, np.where(ways < -1, s, 0)).sum(0)
    np.testing.assert_array_equal(x.to_numpy(), want)
    np.testing.assert_array_equal(y.to_numpy(), s[:, 0])


def test_overwritten_memory_and_loops_without_iterations(handed: list[Any]) -> None:
    given, others = numbers(N, M), numbers(N, M, seed=2)
    v, y, x = field(given), field(others), field(np.zeros(M))

    @ti.kernel
    def overwrite(n: ti.i32):
        for i in range(N):
            s = 1.0
            for j in range(n):
                s += v[i, j]
            for _ in range(7, 3):
                x[0] += s
            for j in range(-2, M - 2):
                a = v[i, j + 2]
                v[i, j + 2] = y[i, j + 2]
                x[j + 2] += a * 3 + v[i, j + 2] * 5 + s
                y[i, j + 2] = 0
                x[(j + 3) % M] += y[i, j + 2] + a

    overwrite(0)
    assert handed
    want = (given * 3 + others * 5 + 1).sum(0) + np.roll(given.sum(0), 1)
    np.testing.assert_array_equal(x.to_numpy(), want)
    np.testing.assert_array_equal(v.to_numpy(), others)
    np.testing.assert_array_equal(y.to_numpy(), 0)


def test_expanded_vectors(handed: list[Any]) -> None:
    rng = np.random.default_rng(1)
    given = rng.integers(-2, 3, (N, M, 3, 3)).astype(np.float32)
    a, x = ti.Matrix.field(3, 3, ti.f32, (N, M)), ti.Vector.field(3, ti.f32, M)
    a.from_numpy(given)

    @ti.kernel
    def turn():
        for i in range(N):
            s = ti.Vector([1.0, 2.0, 0.0])
            for j in range(M):
                s += a[i, j] @ ti.Vector([1.0, 0.0, 1.0])
            for j in range(M):
                x[j] += a[i, j] @ s
                x[j][1] += s.dot(s)

    turn()
    assert handed
    s = np.float32([1, 2, 0]) + given[..., [0, 2]].sum((1, 3))
    want = np.einsum("ijab,ib->ja", given, s)
    want[:, 1] += (s * s).sum()
    np.testing.assert_array_equal(x.to_numpy(), want)


@pytest.mark.parametrize("dtype", ["f16", "f64", "i64"])
def test_expanded_types(dtype: str, need: Any, handed: list[Any]) -> None:
    """Types of the stored and the reduced values."""
    need(dtype)
    wide = getattr(ti, dtype)
    total = wide if dtype[0] == "f" else ti.f32
    given = np.sign(numbers(N, M))
    v, x = field(given, total), field(np.zeros(M), total)

    @ti.kernel
    def convert():
        for i in range(N):
            s = ti.cast(0, wide)
            for j in range(M):
                s += ti.cast(v[i, j], wide)
            is_odd = s % 2 != 0
            for j in range(M):
                if is_odd:
                    x[j] += ti.cast(s, total) * v[i, j]

    convert()
    assert handed
    s = given.sum(1)
    want = ((s % 2 != 0) * s) @ given
    np.testing.assert_array_equal(x.to_numpy(), want)


def test_two_loops_and_sums_that_are_asked_for(handed: list[Any]) -> None:
    """A count that somebody asks for stays; two loops of one kernel have arrays of their own."""
    given = numbers(N, M)
    v, x, count = field(given), field(np.zeros(M)), field(np.zeros(M), ti.i32)

    @ti.kernel
    def twice():
        for i in range(N):
            s = 0.0
            for j in range(M):
                s += v[i, j]
            for j in range(M):
                if ti.atomic_add(count[j], 1) < N:
                    x[j] += s * v[i, j]
        for i in range(N):
            s = 0.0
            for j in range(M):
                s += v[i, j]
            for j in range(M):
                x[M - 1 - j] -= s
                x[j] += 2 * s * v[i, j]

    twice()
    assert handed
    s = given.sum(1)
    np.testing.assert_array_equal(x.to_numpy(), 3 * (s @ given) - s.sum())
    np.testing.assert_array_equal(count.to_numpy(), N)
