"""`parallel_sort` by numpy, and by kernels in a tape."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti

VALUES = np.random.default_rng(3).permutation(1000).astype(np.float32)
VALUES[[7, 70]] = np.nan


@ti.kernel
def set_loss(loss: ti.template()):  # type: ignore[valid-type]
    loss[None] = 1.0


@pytest.mark.parametrize("n", [1, 2, 999, 1000])
@pytest.mark.parametrize("is_taped", [False, True])
def test_kernels_sort_as_numpy_does(n: int, is_taped: bool) -> None:
    keys, order = ti.field(ti.f32, n), ti.field(ti.i32, 1200)
    keys.from_numpy(VALUES[:n])
    order.from_numpy(np.arange(1200, dtype=np.int32))
    if is_taped:
        loss = ti.field(ti.f32, (), needs_grad=True)
        with ti.ad.Tape(loss):
            ti.algorithms.parallel_sort(keys, order)
            set_loss(loss)
    else:
        ti.algorithms.parallel_sort(keys, order)
    found, numbers = keys.to_numpy(), order.to_numpy()
    np.testing.assert_array_equal(found, np.sort(VALUES[:n]))
    np.testing.assert_array_equal(VALUES[numbers[:n]], found)
    np.testing.assert_array_equal(numbers[n:], np.arange(n, 1200))


def test_keys_that_are_a_component_of_the_values() -> None:
    pairs = ti.Vector.field(2, ti.f32, 1000)
    values = np.stack([VALUES, np.arange(1000, dtype=np.float32)], axis=1)
    pairs.from_numpy(values)
    ti.algorithms.parallel_sort(pairs.get_scalar_field(0), pairs)
    order = np.argsort(VALUES, kind="stable")
    np.testing.assert_array_equal(pairs.to_numpy(), values[order])
