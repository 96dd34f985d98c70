"""Nests of serial loops match numpy: independent iterations that become axes, and dependent ones
that must run in turn."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti

N = 40
SHAPES = [(1, 1), (3, 50), (50, 3), (64, 64)]


def integers(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(-9, 10, shape, np.int32)


def field(values: Any) -> Any:
    made = ti.field(ti.i32, values.shape)
    made.from_numpy(values)
    return made


@pytest.mark.parametrize("order", ["ijk", "ikj", "jik", "jki", "kij", "kji"])
@pytest.mark.parametrize("is_atomic", [True, False])
def test_products_in_each_order(order: str, is_atomic: bool) -> None:
    a, b = integers(N, N), integers(N, N, seed=2)
    x, y, c = field(a), field(b), field(integers(N, N, seed=3))
    if not is_atomic and order[0] == "k":
        pytest.skip("parallel iterations would race")
    at = [order.index(axis) for axis in "ijk"]

    @ti.kernel
    def multiply():
        for p in range(N):
            for q in range(N):
                for r in range(N):
                    i, j, k = (p, q, r)[at[0]], (p, q, r)[at[1]], (p, q, r)[at[2]]
                    if ti.static(is_atomic):
                        c[i, j] += x[i, k] * y[k, j]
                    else:
                        c[i, j] = c[i, j] + x[i, k] * y[k, j]

    multiply()
    assert np.array_equal(c.to_numpy(), integers(N, N, seed=3) + a @ b)


@pytest.mark.parametrize("shape", SHAPES)
def test_arrays_of_any_shape(shape: tuple[int, int]) -> None:
    @ti.kernel
    def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[i, j] = 2 * x[i, j]

    x, y = ti.ndarray(ti.i32, shape), ti.ndarray(ti.i32, shape)
    x.from_numpy(integers(*shape))
    for _ in range(12):  # code for the shape replaces the first one
        double(x, y)
    assert np.array_equal(y.to_numpy(), 2 * integers(*shape))


def test_overlapping_arrays() -> None:
    @ti.kernel
    def shift(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in range(N):
            for j in range(1, N):
                x[i, j] = y[i, j - 1] + 1

    x = ti.ndarray(ti.i32, (N, N))
    for _ in range(12):
        x.from_numpy(integers(N, N))
        shift(x, x)
    assert np.array_equal(x.to_numpy(), integers(N, N)[:, :1] + np.arange(N))


def test_dependent_iterations() -> None:
    x, y, pivots, slots = (field(integers(N, N, seed=seed)) for seed in range(4))
    given = [a.to_numpy() for a in (x, y, pivots)]
    used = field(np.zeros(N, np.int32))

    @ti.kernel
    def run():
        for i in range(N):
            for j in range(1, N):
                x[i, j] = x[i, j - 1] + x[i, j]
        for i in range(N):
            for j in range(N):
                if y[i, j] > 7:
                    break
                y[i, j] = 0
        for i in range(N):
            pivot = pivots[i, 0]
            for j in range(N):
                pivots[i, j] = pivots[i, j] - pivot
        for i in range(N):
            for j in range(N):
                if x[i, j] % 2 == 0:
                    slots[i, ti.atomic_add(used[i], 1)] = j

    run()
    assert np.array_equal(x.to_numpy(), np.cumsum(given[0], 1))
    first = [next((j for j in range(N) if row[j] > 7), N) for row in given[1]]
    for row, end in zip(given[1], first):
        row[:end] = 0
    assert np.array_equal(y.to_numpy(), given[1])
    assert np.array_equal(pivots.to_numpy(), given[2] - given[2][:, :1])
    for row, found in zip(x.to_numpy(), slots.to_numpy()):
        even = np.nonzero(row % 2 == 0)[0]
        assert np.array_equal(found[: len(even)], even)


def test_gradients() -> None:
    x, w, y = (ti.field(ti.f32, (N, N), needs_grad=True) for _ in range(3))
    loss = ti.field(ti.f32, (), needs_grad=True)
    a, b = integers(N, N).astype(np.float32), integers(N, N, seed=2).astype(np.float32)
    x.from_numpy(a)
    w.from_numpy(b)

    @ti.kernel
    def multiply():
        for i in range(N):
            for k in range(N):
                for j in range(N):
                    y[i, j] += x[i, k] * w[k, j]

    @ti.kernel
    def total():
        for i in range(N):
            for j in range(N):
                loss[None] += y[i, j] * (i + j)

    with ti.ad.Tape(loss):
        multiply()
        total()
    weights = np.add.outer(np.arange(N), np.arange(N)).astype(np.float32)
    np.testing.assert_allclose(y.to_numpy(), a @ b, rtol=1e-4)
    np.testing.assert_allclose(x.grad.to_numpy(), weights @ b.T, rtol=1e-4)
    np.testing.assert_allclose(w.grad.to_numpy(), a.T @ weights, rtol=1e-4)
