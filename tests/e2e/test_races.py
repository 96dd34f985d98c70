"""Debug mode reports conflicting iterations of one loop, with both lines."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import KernelRaceWarning

N = 16


@pytest.fixture(autouse=True)
def debug() -> Iterator[None]:
    ti.init(debug=True, log_level=ti.ERROR)
    yield
    ti.reset()


def told(run: Callable[[], Any]) -> list[str]:
    """Race reports of two runs of something."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        run()
        run()
    assert all(w.category is KernelRaceWarning for w in found)
    return [str(w.message) for w in found]


def line_of(run: Any, text: str) -> str:
    """`file:line` of a line of a kernel."""
    code = run.__wrapped__.__code__
    with open(code.co_filename) as source:
        lines = source.read().splitlines()
    number = next(k for k in range(code.co_firstlineno, len(lines) + 1) if text in lines[k - 1])
    return f"{code.co_filename}:{number}"


def test_different_values_in_one_element() -> None:
    x, bins = ti.field(ti.f32, 4), ti.field(ti.i32, N)
    bins.from_numpy(np.arange(N, dtype=np.int32) % 4)

    @ti.kernel
    def run():
        for i in bins:
            x[bins[i]] = i

    (text,) = told(run)
    assert text.startswith("run(): one iteration stores here to an element of `x`")


def test_two_lines() -> None:
    x = ti.field(ti.i32, N)

    @ti.kernel
    def run():
        for i in range(N - 1):
            x[i] = i
            x[i + 1] = -i

    (text,) = told(run)
    assert line_of(run, "x[i + 1] = -i") in text


def test_read_write_race() -> None:
    x = ti.ndarray(ti.f32, N)
    x.from_numpy(np.arange(N, dtype=np.float32))

    @ti.kernel
    def run(x: ti.types.ndarray()):
        for i in range(N - 1):
            d = x[i + 1]
            x[i] += 0.5 * d

    (text,) = told(lambda: run(x))
    assert "reads here an element of `x`" in text
    assert line_of(run, "x[i] += 0.5 * d") in text


@pytest.mark.parametrize("make", [lambda: ti.ndarray(ti.i32, N), lambda: np.zeros(N, np.int32)])
def test_aliased_arguments_race(make: Callable[[], Any]) -> None:
    @ti.kernel
    def run(x: ti.types.ndarray(), y: ti.types.ndarray(), z: ti.types.ndarray()):
        for i in range(N - 1):
            x[i + 1] = y[i] + z[i] + 1

    a, b, c = make(), make(), make()
    assert told(lambda: run(a, b, c)) == []
    (text,) = told(lambda: run(a, a, c))
    assert "reads here an element of `x`" in text and line_of(run, "x[i + 1] =") in text
    (text,) = told(lambda: run(b, a, b))
    assert "reads here an element of `x`" in text


def test_a_variable_of_the_kernel_is_assigned_in_order() -> None:
    x = ti.field(ti.f32, N)
    x.from_numpy(np.linspace(0, 1, N).astype(np.float32))

    @ti.kernel
    def run() -> ti.i32:
        found = -1
        for i in x:
            if x[i] > 0.5:
                found = i
        return found

    assert told(run) == []
    assert run() == N - 1


def test_stores_among_sums_and_sums_among_products() -> None:
    x = ti.field(ti.f32, 3)

    @ti.kernel
    def stores():
        for i in range(N):
            if i == 3:
                x[0] = 7
            else:
                x[0] += 1

    @ti.kernel
    def products():
        for i in range(N):
            if i % 2 == 0:
                ti.atomic_mul(x[i % 3], 2)
            else:
                x[i % 3] += 1

    x.fill(1)
    assert len(told(stores)) == 1
    assert len(told(products)) == 1


@pytest.mark.parametrize("dtype", ["i8", "u16", "u32", "i64", "u64", "f16", "f32", "f64", "u1"])
def test_numbers_of_every_type(need: Callable[..., None], dtype: str) -> None:
    need(dtype)
    t = getattr(ti, dtype)
    x, v = ti.field(t, (3, 5), offset=(-1, 2)), ti.Vector.field(2, t, 3)
    source = ti.field(t, N)

    @ti.kernel
    def scalars():
        for i in source:
            x[-1 + i % 3, 2 + i % 5] = source[i]

    @ti.kernel
    def vectors():
        for i in source:
            v[i % 3] = [source[i], source[0]]

    assert told(lambda: (scalars(), vectors())) == []
    if dtype != "u1":
        source.fill(1)
        assert told(lambda: (scalars(), vectors())) == []
    source[N - 1] = 1 if dtype == "u1" else 3
    if dtype in ("i64", "u64"):
        source[N - 1] = 1 + (1 << 40)
    texts = told(lambda: (scalars(), vectors()))
    assert ["`x`" in text or "`v`" in text for text in texts] == [True] * len(texts) == [True] * 2


def test_counters_of_computed_components() -> None:
    count, x = ti.Vector.field(2, ti.i32, ()), ti.field(ti.i32, N)

    @ti.kernel
    def run():
        for i in x:
            x[ti.atomic_add(count[None][i % 2], 1)] = i

    def both() -> None:
        count.fill(0)
        run()

    assert len(told(both)) == 1


def test_value_loaded_before_the_loop() -> None:
    x, y, keeps = ti.field(ti.f32, 4), ti.field(ti.f32, N), ti.field(ti.i32, N)
    keeps.fill(1)

    @ti.kernel
    def run():
        v = x[0]
        x[0] = v + 5
        for i in range(N):
            if i == 3:
                y[i] = x[0]
            else:
                x[0] = ti.select(keeps[i] > 0, v, 7.0)

    (text,) = told(run)
    assert line_of(run, "ti.select(keeps[i] > 0, v, 7.0)") in text


def test_selects_in_serial_loops_that_keep_found_values() -> None:
    x, keeps = ti.field(ti.f32, (2, N)), ti.field(ti.i32, N)
    keeps.fill(1)

    @ti.kernel
    def run():
        for i in range(N):
            for k in range(2):
                old = x[k, 0]
                if k < 2:
                    x[k, 0] = ti.select(keeps[i] > 0, old, 7.0)

    assert told(run) == []
    keeps[2] = 0
    assert told(run)


def test_disjoint_accesses_are_no_race() -> None:
    x, flag, total = ti.field(ti.f32, N), ti.field(ti.i32, ()), ti.field(ti.f32, 2)
    kept, count = ti.field(ti.i32, N), ti.field(ti.i32, ())
    v = ti.Vector.field(2, ti.f32, N)

    @ti.kernel
    def run(half: ti.i32):
        for i in x:
            x[i] = i
            x[i] += 1
            if x[i] > 3:
                flag[None] = 1  # all store the same
                kept[ti.atomic_add(count[None], 1)] = i
            total[i % 2] += x[i]
        for i in range(half):
            x[2 * i + 1] = x[2 * i]
        for i in range(half):
            x[i] = x[i + half]
        for i, k in ti.ndrange(N, 2):
            v[i][k] = v[i][k] + 1
        for i in range(N):
            x[i // 4] = (i // 4) * 0.5  # all store the same

    def both() -> None:
        count[None] = 0
        run(N // 2)

    assert told(both) == []


def test_everything_else_is_as_without(capfd: pytest.CaptureFixture[str]) -> None:
    x = np.zeros(4, np.float32)

    @ti.kernel
    def run(x: ti.types.ndarray(), n: ti.i32) -> ti.f32:
        s = 0.0
        for i in range(n):
            assert i < 16, "too many"
            x[i % 4] = i
            s += i
        print("sum", s)
        return s

    with pytest.warns(KernelRaceWarning, match="`x`"):
        assert run(x, N) == sum(range(N))
    assert set(x % 4) == {0, 1, 2, 3}
    assert "sum 120" in capfd.readouterr().out
    with pytest.raises(AssertionError, match="too many"):
        run(x, 17)


def test_outside_debug_mode_stores_at_loaded_indices_are_not_checked() -> None:
    ti.init(debug=False, log_level=ti.ERROR)
    x, near = ti.field(ti.f32, 4), ti.field(ti.i32, N)

    @ti.kernel
    def run():
        for i in near:
            x[near[i]] = i

    assert told(run) == []
