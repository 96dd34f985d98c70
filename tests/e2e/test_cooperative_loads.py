"""Cooperative loads of a subgroup equal each invocation's own loads, for all loop lengths, row ends
and inactive lanes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.ir.core import Op
from vkchi.opt.loops.serial import broadcast

LENGTHS = [0, 1, 7, 8, 15, 16, 17, 33, 64]


def integers(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(-50, 50, shape, np.int32)


def array(values: Any) -> Any:
    made = ti.ndarray(ti.i32, values.shape)
    made.from_numpy(values)
    return made


@pytest.fixture
def is_loaded_by_turns(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool | None]:
    """True if the last loop examined has cooperative loads; None where the device does not use
    them, or the kernel was compiled before."""
    seen: list[bool] = []
    look = broadcast.CooperativeLoadFinder.turns

    def turns(
        finder: broadcast.CooperativeLoadFinder, loop: Op
    ) -> broadcast.CooperativeLoads | None:
        found = look(finder, loop)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(broadcast.CooperativeLoadFinder, "turns", turns)
    return lambda: any(seen) if seen else None


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("columns", [1, 3, 8, 20, 64])
def test_a_row_for_many(n: int, columns: int) -> None:
    @ti.kernel
    def weigh(w: ti.types.ndarray(), x: ti.types.ndarray(), y: ti.types.ndarray(), n: ti.i32):
        for r, c in y:
            s = 0
            for k in range(n):
                s += w[r, k] * x[c + k]
            y[r, c] = s

    w, x = integers(37, 64), integers(columns + 64, seed=2)
    y = array(integers(37, columns))
    weigh(array(w), array(x), y, n)
    windows = np.stack([x[c : c + n] for c in range(columns)], 1) if n else np.zeros((0, columns))
    assert np.array_equal(y.to_numpy(), w[:, :n] @ windows.astype(np.int32))


@pytest.mark.parametrize("n", LENGTHS)
def test_partially_active_subgroups(n: int) -> None:
    w, out = array(integers(64)), array(np.zeros(1000, np.int32))

    @ti.kernel
    def pick(w: ti.types.ndarray(), out: ti.types.ndarray(), n: ti.i32):
        for i in out:
            if i % 3 != 1:
                s = 0
                for k in range(n):
                    if k % 5 != i % 5:
                        s += w[k] * (k + i)
                out[i] = s
            elif i % 2 == 0:
                continue
            else:
                for k in range(n):
                    out[i] -= w[k]

    pick(w, out, n)
    k, v = np.arange(n), w.to_numpy()[:n]
    wanted = [
        int((v * (k + i) * (k % 5 != i % 5)).sum())
        if i % 3 != 1
        else 0
        if i % 2 == 0
        else -int(v.sum())
        for i in range(1000)
    ]
    assert out.to_numpy().tolist() == wanted


@pytest.mark.parametrize("first", [-40, 0, 3])
def test_own_bounds_and_shared_ones(first: int) -> None:
    w, out = ti.field(ti.i32, 300), ti.field(ti.i32, (9, 130))
    values = integers(300)
    w.from_numpy(values)

    @ti.kernel
    def sums(first: ti.i32):
        for r, c in out:
            s = 0
            for k in range(first, first + 20 + r):
                s += w[k + 60] * (c + 1)
            for k in range(c, c + 20):
                s += w[k]
            out[r, c] = s

    sums(first)
    wanted = [
        [
            int(values[first + 60 : first + 80 + r].sum()) * (c + 1) + int(values[c : c + 20].sum())
            for c in range(130)
        ]
        for r in range(9)
    ]
    assert out.to_numpy().tolist() == wanted


def test_written_elements_are_reloaded() -> None:
    w, out = ti.field(ti.i32, 64), ti.field(ti.i32, 1)

    @ti.kernel
    def run():
        for _ in range(1):
            s = 0
            for k in range(63):
                s += w[k]
                w[k + 1] += w[k]
            out[0] = s

    values = integers(64)
    w.from_numpy(values)
    run()
    running = np.cumsum(values)
    assert out[0] == running[:63].sum()
    assert np.array_equal(w.to_numpy(), running)


def test_pairs_of_vectors_and_atomics() -> None:
    n = 257
    x, f, count = ti.Vector.field(3, ti.f32, n), ti.Vector.field(3, ti.f32, n), ti.field(ti.i32, ())
    values = integers(n, 3).astype(np.float32)
    x.from_numpy(values)

    @ti.kernel
    def pairs():
        for i in x:
            total = ti.Vector([0.0, 0.0, 0.0])
            for j in range(n):
                d = x[j] - x[i]
                if d.dot(d) > 100.0:
                    total += d
                    ti.atomic_add(count[None], 1)
            f[i] = total

    pairs()
    d = values[None] - values[:, None]
    far = (d * d).sum(-1) > 100
    assert np.array_equal(f.to_numpy(), (d * far[..., None]).sum(1))
    assert count[None] == far.sum()


def test_stores_of_earlier_iterations_are_loaded() -> None:
    w, out = ti.field(ti.i32, 65), ti.field(ti.i32, 512)

    @ti.kernel
    def run():
        for i in out:
            s = 0
            for k in range(64):
                w[k + 1] = k  # the same from all
                s += w[k]
            out[i] = s

    w[0] = 7
    run()
    assert out.to_numpy().tolist() == [7 + sum(range(63))] * 512


def test_zeros_that_differ_in_sign_are_not_the_same() -> None:
    x, out = ti.field(ti.i32, 64), ti.field(ti.i32, 64)
    x.from_numpy(np.arange(64, dtype=np.int32))

    @ti.kernel
    def run(a: ti.f32, b: ti.f32):
        for i in out:
            zero = a if i % 2 == 0 else b
            s = 0
            for k in range(16):
                s += x[30 + (ti.bit_cast(zero * (k + 1), ti.u32) >> 31)]
            out[i] = s

    run(0.0, -0.0)
    assert out.to_numpy().tolist() == [16 * 30, 16 * 31] * 32


@pytest.mark.parametrize("n", [7, 16, 33])
def test_a_long_body_with_many_loads(n: int, is_loaded_by_turns) -> None:
    """More ops than a body with few loads may have."""

    @ti.kernel
    def mix(w: ti.types.ndarray(), out: ti.types.ndarray(), n: ti.i32):
        for i in out:
            s = i
            for k in range(n):
                for c in ti.static(range(8)):
                    s = (s ^ w[k, c]) * 31 + (s >> 3) - w[k, c] // 2
            out[i] = s

    w, out = integers(64, 8), array(np.zeros(100, np.int32))
    mix(array(w), out, n)
    s = np.arange(100, dtype=np.int32)
    for row in w[:n]:
        for v in row:
            s = (s ^ v) * np.int32(31) + (s >> 3) - v // 2
    assert np.array_equal(out.to_numpy(), s)
    assert is_loaded_by_turns() in (True, None)
