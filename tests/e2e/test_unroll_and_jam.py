"""Jammed iterations, and loads carried into the next iteration, match each iteration alone."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti

SIZES = [(1, 1, 1), (2, 3, 5), (4, 8, 4), (7, 9, 33), (64, 5, 6), (129, 130, 17)]


def integers(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(-50, 50, shape, np.int32)


def array(values: Any) -> Any:
    made = ti.ndarray(ti.i32, values.shape)
    made.from_numpy(values)
    return made


@pytest.mark.parametrize("sizes", SIZES)
def test_products_of_matrices(sizes: tuple[int, int, int]) -> None:
    @ti.kernel
    def multiply(a: ti.types.ndarray(), b: ti.types.ndarray(), c: ti.types.ndarray()):
        for i, j in c:
            s = 0
            for q in range(a.shape[1]):
                s += a[i, q] * b[q, j]
            c[i, j] = s

    n, m, r = sizes
    a, b = integers(n, r), integers(r, m, seed=2)
    c = array(integers(n, m))
    multiply(array(a), array(b), c)
    assert np.array_equal(c.to_numpy(), a @ b)


@pytest.mark.parametrize("shape", [(64, 64), (65, 64), (96, 100)])
def test_products_of_fields_in_blocks(shape: tuple[int, int]) -> None:
    n, m = shape
    x, y, z = (ti.field(ti.i32, s) for s in ((n, 30), (30, m), (n, m)))
    a, b = integers(n, 30), integers(30, m, seed=2)
    x.from_numpy(a)
    y.from_numpy(b)

    @ti.kernel
    def multiply():
        for i, j in z:
            s = 0
            for q in range(30):
                s += x[i, q] * y[q, j]
            z[i, j] += s

    multiply()
    multiply()
    assert np.array_equal(z.to_numpy(), 2 * (a @ b))


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(("count", "width"), [(1, 3), (6, 1), (103, 8), (5000, 33)])
def test_windows_slide(count: int, width: int, backwards: bool) -> None:
    @ti.kernel
    def forth(x: ti.types.ndarray(), w: ti.types.ndarray(), y: ti.types.ndarray()):
        for t in y:
            s = 0
            for u in range(t - width + 1, t + 1):
                s += w[(width - 1) - (t - u)] * x[u + width - 1]
            y[t] = s

    @ti.kernel
    def back(x: ti.types.ndarray(), w: ti.types.ndarray(), y: ti.types.ndarray()):
        for t in y:
            s = 0
            for u in range(width):
                s += w[width - 1 - u] * x[t + width - 1 - u]
            y[t] = s

    x, w, y = integers(count + width - 1), integers(width, seed=3), array(integers(count))
    (back if backwards else forth)(array(x), array(w), y)
    turned = w[::-1]
    expected = np.convolve(x, turned, "valid")
    if backwards:
        expected = np.convolve(x, w[::-1], "valid")
    assert np.array_equal(y.to_numpy(), expected)


def test_each_iteration_keeps_its_own() -> None:
    """Private arrays, loops that end at different times, branches, atomics, serial writes."""
    n, m = 4099, 9

    @ti.kernel
    def mixed(x: ti.types.ndarray(), y: ti.types.ndarray(), hits: ti.types.ndarray()):
        for i in y:
            own = ti.Vector([0, 0, 0])
            s = 0
            for k in range(m):
                own[k % 3] += x[k] * i
                if x[k] > i % 7:
                    s += x[k]
                elif x[k] < -20:
                    continue
                old = ti.atomic_add(hits[k], i % 3)
                s += 0 * old
            k = 0
            while k < i % 5:
                s += x[k]
                k += 1
            for q in range(i % 4):
                if x[q] == 3:
                    break
                s -= 1
            y[i] = s + own[0] - own[1] * own[2]

    x, y, hits = integers(m), array(np.zeros(n, np.int32)), array(np.zeros(m, np.int32))
    mixed(array(x), y, hits)
    expected, counted = one_by_one(x, n)
    assert np.array_equal(y.to_numpy(), expected)
    assert np.array_equal(hits.to_numpy(), counted)


def one_by_one(x: Any, n: int) -> tuple[Any, Any]:
    """Result of `mixed`, iteration by iteration."""
    m = len(x)
    y, hits = np.zeros(n, np.int64), np.zeros(m, np.int64)
    for i in range(n):
        own, s = [0, 0, 0], 0
        for k in range(m):
            own[k % 3] += int(x[k]) * i
            if x[k] > i % 7:
                s += int(x[k])
            elif x[k] < -20:
                continue
            hits[k] += i % 3
        s += int(sum(x[: i % 5]))
        for q in range(i % 4):
            if x[q] == 3:
                break
            s -= 1
        y[i] = s + own[0] - own[1] * own[2]
    return y.astype(np.int32), hits.astype(np.int32)


def test_written_elements_are_reloaded() -> None:
    """Rows are smoothed in place, from left to right: an iteration reads the writes of the one
    before."""
    n, m = 4096, 12
    field = ti.field(ti.i32, (n, m))
    weight = ti.field(ti.i32, m)
    a, w = integers(n, m), integers(m, seed=5)
    field.from_numpy(a)
    weight.from_numpy(w)

    @ti.kernel
    def smooth():
        for i in range(n):
            for k in range(1, m - 1):
                field[i, k] = field[i, k - 1] + field[i, k + 1] * weight[k]

    smooth()
    expected = a.copy()
    for k in range(1, m - 1):
        expected[:, k] = expected[:, k - 1] + expected[:, k + 1] * w[k]
    assert np.array_equal(field.to_numpy(), expected)


@pytest.mark.parametrize("ends", [(0, 0), (5, 2), (-3, 4), (-8, 8), (-2147483648, -2147483640),
                                  (2147483600, 2147483647)])  # fmt: skip
def test_ranges_of_any_start(ends: tuple[int, int]) -> None:
    @ti.kernel
    def count(first: int, last: int, x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in range(first, last):
            s = 0
            for k in range(x.shape[0]):
                s += x[k] * (i - first + 1)
            y[i - first] = s

    first, last = ends
    x, y = integers(6), array(np.zeros(64, np.int32))
    count(first, last, array(x), y)
    runs = max(0, last - first)
    expected = np.zeros(64, np.int32)
    expected[:runs] = x.sum() * np.arange(1, runs + 1)
    assert np.array_equal(y.to_numpy(), expected)


def test_first_loads_of_a_loop_that_does_not_run() -> None:
    @ti.kernel
    def pairs(n: int, x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in y:
            s = 7
            for k in range(n):
                s += x[k] * x[k + 1]
            y[i] = s

    y = array(np.zeros(4100, np.int32))
    pairs(0, array(integers(1)), y)
    assert (y.to_numpy() == 7).all()


def test_passes_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    x = ti.field(ti.i32, 3)

    @ti.kernel
    def put(n: ti.template()):
        for i in x:
            x[i] = i + n

    monkeypatch.setenv("VKCHI_PASSES", "-jam, -commoning,-indices,-licm")
    put(1)
    assert x.to_numpy().tolist() == [1, 2, 3]
    for wrong, message in (("-split", "cannot leave out 'split'"), ("jam", "as in -jam")):
        monkeypatch.setenv("VKCHI_PASSES", wrong)
        with pytest.raises(ti.TaichiRuntimeError, match=message):
            put(len(wrong))


@pytest.mark.parametrize("shape", [(1,), (7,), (4096,), (16384,), (128, 130), (130, 128)])
def test_sums_of_neighbours(shape: tuple[int, ...]) -> None:
    x, y = ti.field(ti.i32, shape), ti.field(ti.i32, shape)
    total, most = ti.field(ti.i32, ()), ti.field(ti.i32, ())
    a, b = integers(*shape), integers(*shape, seed=2)
    x.from_numpy(a)
    y.from_numpy(b)

    @ti.kernel
    def dot():
        for i in ti.grouped(x):
            total[None] += x[i] * y[i]
            ti.atomic_max(most[None], x[i] - y[i])

    @ti.kernel
    def some(n: ti.i32):
        for i in range(n):
            total[None] += i

    dot()
    assert total[None] == (a * b).sum()
    assert most[None] == max(0, int((a - b).max()))
    some(1001)
    assert total[None] == (a * b).sum() + 500500
