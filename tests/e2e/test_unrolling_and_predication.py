"""Unrolled loops and predicated branches, as on GPUs: at the ends of the 32-bit range, where a
branch not taken divides by zero or reaches far outside, in all types."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.runtime import current_runtime

pytestmark = pytest.mark.usefixtures("as_gpu")
LAST, LEAST = 2**31 - 1, -(2**31)
RANGES = [
    (LAST - 20, LAST), (LEAST, LEAST + 30), (LAST - 9, LEAST + 10), (LAST, LEAST),
    (5, 5), (7, -7), (-3, 40), (LEAST, LEAST + 1),
]  # fmt: skip


def wrapped(n: int) -> int:
    return (n - LEAST) % 2**32 + LEAST


@pytest.mark.parametrize(("begin", "end"), RANGES)
def test_ranges_at_the_limits_of_i32(begin: int, end: int) -> None:
    @ti.kernel
    def run(x: ti.types.ndarray(), y: ti.types.ndarray(), begin: ti.i32, end: ti.i32):
        for i in y:
            s = 0
            for k in range(begin, end):
                s = s * 3 + x[k - begin] + k
            y[i] = s

    x, y = np.arange(64, dtype=np.int32), np.full(40, -1, np.int32)
    run(x, y, begin, end)
    s = 0
    for k in range(begin, end):
        s = wrapped(s * 3 + k - begin + k)
    assert y.tolist() == [s] * 40


def test_branches_that_are_not_taken_do_no_harm() -> None:
    @ti.kernel
    def run(x: ti.types.ndarray(), m: ti.types.ndarray(), y: ti.types.ndarray(), far: ti.i32):
        for i in y:
            d = i % 5 - 1
            v, w = 7, 3
            if d != 0:
                v = x[i] // d + x[i] % d
            if i < 0:
                w = x[i + far]
            if i == 2147483647:
                w = x[i * 65537]
            if i < -5:
                w = m[i * 65536, i * 65536 - far]
            if 0 <= i - 20 < 30:
                w = x[x[i]]
            y[i] = v + w * 100

    x, m = np.arange(100, dtype=np.int32) * 7 % 50, np.zeros((3, 4), np.int32)
    y = np.zeros(100, np.int32)
    run(x.astype(np.int32), m, y, LAST)
    for i, a in enumerate(x.tolist()):
        d = i % 5 - 1
        v = a // d + a % d if d else 7
        assert y[i] == v + 100 * (x[a] if 0 <= i - 20 < 30 else 3), i


def test_nan_selection_is_unchanged() -> None:
    q = np.array([-1, 0, np.inf, np.nan, 4, -np.inf], np.float32)
    r = np.zeros_like(q)

    @ti.kernel
    def roots(q: ti.types.ndarray(), r: ti.types.ndarray()):
        for i in q:
            s = -2.0
            if q[i] > 0:
                s = ti.sqrt(q[i])
            r[i] = s if q[i] == q[i] else -1.0

    roots(q, r)
    assert r.tolist() == [-2, -2, np.inf, -1, 2, -2]


@pytest.mark.parametrize("name", ["i8", "u16", "i64", "u64", "f16", "f64", "u1", "f32"])
@pytest.mark.parametrize("is_ours", [True, False])
def test_windows_over_all_types(name: str, is_ours: bool) -> None:
    caps = current_runtime().device.caps
    if not (caps.has_type(name) and caps.can_store(name)):
        pytest.skip(f"no {name}")
    t = getattr(ti, name)

    @ti.kernel
    def run(x: ti.types.ndarray(dtype=t, ndim=1), y: ti.types.ndarray(), n: ti.i32):
        for i in y:
            s = 0
            for k in range(n):
                if 0 <= k + i - 100 < 77:
                    s += ti.cast(x[k + i - 100], ti.i32)
            for k in range(n):
                s += ti.cast(x[k], ti.i32) * k
            y[i] = s

    ours = ti.ndarray(t, 77)
    values = (np.arange(77) % 5).astype(ours.to_numpy().dtype)
    ours.from_numpy(values)
    given: Any = ours if is_ours else values
    y = np.zeros(200, np.int32)
    run(given, y, 70)
    x = np.concatenate([np.zeros(100, int), values.astype(int), np.zeros(200, int)])
    own = int((values[:70].astype(int) * np.arange(70)).sum())
    assert y.tolist() == [int(x[i : i + 70].sum()) + own for i in range(200)]
