"""Serial loops that step through memory in words read the same elements, from any start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti

N = 203


def integers(*shape: int, dtype: Any = np.int32, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 50, shape, dtype=dtype)


def field(values: Any) -> Any:
    kinds = {"int32": ti.i32, "uint8": ti.u8, "int16": ti.i16, "float32": ti.f32}
    made = ti.field(kinds[str(values.dtype)], values.shape)
    made.from_numpy(values)
    return made


@pytest.mark.parametrize("first", [0, 1, 2, 3, 5, N - 8, N - 3, N])
def test_running_sums(first: int) -> None:
    values = integers(N)
    c, p, q = field(values), ti.field(ti.i32, N), ti.field(ti.i32, N)

    @ti.kernel
    def run():
        ti.loop_config(serialize=True)
        for i in range(ti.static(first), N):
            p[i] = (p[i - 1] if i > 0 else 0) + c[i]
        s = 0
        ti.loop_config(serialize=True)
        for i in range(ti.static(first), N):
            s += c[i]
            q[i] = s

    run()
    expected = np.concatenate([np.zeros(first, np.int32), np.cumsum(values[first:])])
    assert np.array_equal(p.to_numpy(), expected)
    assert np.array_equal(q.to_numpy(), expected)


@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_stores_of_earlier_iterations_are_loaded(first: int) -> None:
    c, x = integers(N), integers(N, seed=2)
    given, place = field(c), field(x)

    @ti.kernel
    def run():
        for _ in range(1):
            for i in range(ti.static(first), N - 1):
                place[i] = place[i - 1] + 2 * place[i + 1] - given[i]

    run()
    for i in range(first, N - 1):
        x[i] = x[i - 1] + 2 * x[i + 1] - c[i]
    assert np.array_equal(place.to_numpy(), x)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int16])
@pytest.mark.parametrize("length", [1, 3, 4, 7, 8, 9, 64, 100])
def test_vectorized_rows(dtype: Any, length: int, need: Any) -> None:
    need({"int32": "i32", "uint8": "u8", "int16": "i16"}[np.dtype(dtype).name])
    values = integers(70, 100, dtype=dtype)
    x, sums, copy = field(values), ti.field(ti.i32, 70), ti.field(ti.i32, (70, 100))

    @ti.kernel
    def fixed():
        for i in sums:
            s = 0
            for k in range(ti.static(length)):
                s += ti.cast(x[i, k], ti.i32)
                copy[i, k] = s
            sums[i] = s

    @ti.kernel
    def given(n: ti.i32):
        for i in sums:
            s = 0
            for k in range(min(n, 100)):
                s += ti.cast(x[i, k], ti.i32)
            sums[i] += s

    fixed()
    given(length)
    expected = values[:, :length].astype(np.int32)
    assert np.array_equal(sums.to_numpy(), 2 * expected.sum(1))
    assert np.array_equal(copy.to_numpy()[:, :length], expected.cumsum(1))
    assert not copy.to_numpy()[:, length:].any()


def test_vectors_and_the_same_array() -> None:
    values = integers(40, 48, 3)
    x = ti.Vector.field(3, ti.i32, (40, 48))
    x.from_numpy(values)

    @ti.kernel
    def run():
        for i in range(40):
            for k in range(2, 48):
                x[i, k] += x[i, k - 2]

    run()
    for k in range(2, 48):
        values[:, k] += values[:, k - 2]
    assert np.array_equal(x.to_numpy(), values)


def test_aliased_arguments() -> None:
    x = ti.ndarray(ti.i32, 65)

    @ti.kernel
    def run(x: ti.types.ndarray(dtype=ti.i32, ndim=1), y: ti.types.ndarray(dtype=ti.i32, ndim=1)):
        for _ in range(1):
            for i in range(64):
                y[i + 1] = x[i] + 1

    run(x, x)
    assert np.array_equal(x.to_numpy(), np.arange(65))
