"""`ti.algorithms.sort` in kernels, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti

Need = Callable[..., None]
TYPES = {np.uint32: ti.u32, np.int32: ti.i32, np.float32: ti.f32, np.uint64: ti.u64,
         np.int64: ti.i64, np.float64: ti.f64}  # fmt: skip


def sort_by_kernel(
    x: np.ndarray, count: int, backend: Any, end_bit: int, *, has_values: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """The keys sorted by a kernel, and the values, whose first contents are 0, 1, 2 ..."""
    t = TYPES[x.dtype.type]
    keys, spare = (ti.tensor(t, x.shape, backend=backend) for _ in range(2))
    values, spare_values = (ti.tensor(ti.i32, x.shape, backend=backend) for _ in range(2))
    n = ti.tensor(ti.i32, (), backend=backend)
    scratch = ti.tensor(ti.u32, ti.algorithms.sort_scratch_slots(count, 2), backend=backend)

    @ti.kernel
    def run(
        keys: ti.Tensor, spare: ti.Tensor, values: ti.Tensor, spare_values: ti.Tensor,
        scratch: ti.Tensor, n: ti.Tensor,
    ) -> None:  # fmt: skip
        for i in values:
            values[i] = i
        ti.algorithms.sort(
            keys, spare, values, spare_values, scratch, n, key_dtype=t, has_values=has_values,
            end_bit=ti.static(end_bit), log256_max_n=2,
        )  # fmt: skip

    keys.from_numpy(x)
    n[None] = count
    run(keys, spare, values, spare_values, scratch, n)
    return keys.to_numpy(), values.to_numpy()


@pytest.mark.parametrize("backend", list(ti.Backend))
@pytest.mark.parametrize("dtype", list(TYPES))
def test_keys_and_values(dtype: Any, backend: Any, need: Need) -> None:
    bits = np.dtype(dtype).itemsize * 8
    need(*(["f64", "i64"] if bits == 64 else []))
    words = np.random.default_rng(1).integers(0, 2**64, 1300, np.uint64).view(np.uint8)
    x = words.view(f"u{bits // 8}").view(dtype)[:1300].copy()
    x[np.isnan(x)] = 1
    x[::7] = x[0]  # equal keys
    keys, values = sort_by_kernel(x, 1200, backend, bits)
    order = np.argsort(x[:1200], kind="stable")
    assert (keys[:1200] == x[order]).all() and (keys[1200:] == x[1200:]).all()
    assert (values == [*order, *range(1200, 1300)]).all()


@pytest.mark.parametrize("count", [0, 1, 3, 511, 512, 513])
def test_low_bits_of_few_keys(count: int) -> None:
    x = np.random.default_rng(2).integers(0, 1 << 20, 600, np.uint32)
    for has_values in (False, True):
        keys, values = sort_by_kernel(x, count, ti.Backend.FIELD, 16, has_values=has_values)
        order = np.argsort(x[:count] & 0xFFFF, kind="stable")
        assert (keys == [*x[order], *x[count:]]).all()
        assert (values[:count] == (order if has_values else range(count))).all()


def test_scratch_in_kernels() -> None:
    @ti.kernel
    def slots(n: ti.i32) -> ti.i32:
        return ti.algorithms.sort_scratch_slots(n, 2)

    for n in (0, 1, 512, 513):
        assert slots(n) == ti.algorithms.sort_scratch_slots(n)


def test_errors() -> None:
    x, n = ti.field(ti.u32, 4), ti.field(ti.i32, ())
    scratch = ti.field(ti.u32, ti.algorithms.sort_scratch_slots(4))

    @ti.kernel
    def odd() -> None:
        ti.algorithms.sort(x, x, x, x, scratch, n, ti.u32, False, 24, 1)

    @ti.kernel
    def half() -> None:
        ti.algorithms.sort(x, x, x, x, scratch, n, ti.f16, False, 16, 1)

    @ti.kernel
    def inside() -> None:
        for _ in range(3):
            ti.algorithms.sort(x, x, x, x, scratch, n, ti.u32, False, 32, 1)

    for kernel, message in (
        (odd, "end_bit is a multiple of 16"),
        (half, "key_dtype is no type of keys"),
        (inside, "top level"),
    ):
        with pytest.raises(ti.TaichiCompilationError, match=message):
            kernel()
