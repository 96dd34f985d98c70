"""`kernel.grad()` of kernels that overwrite some elements of an array and read others of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti

LOST = "needs what `x` held before the kernel overwrote it"
START = np.array([1.0, -2, 3, 0.5, 2, -1, 4, 1.5], np.float32)


def field() -> Any:
    x = ti.field(ti.f32, 8, needs_grad=True)
    x.from_numpy(START)
    return x


def gradient(kernel: Any, x: Any) -> list[float]:
    """Gradient of the sum of all elements after the call, with respect to those before it."""
    kernel()
    x.grad.fill(1)
    kernel.grad()
    found: list[float] = x.grad.to_numpy().tolist()
    return found


def test_even_elements_of_odd_ones() -> None:
    x = field()

    @ti.kernel
    def square():
        for i in range(4):
            x[2 * i] = x[2 * i + 1] ** 2

    expected = np.zeros(8)
    expected[1::2] = 1 + 2 * START[1::2]
    assert gradient(square, x) == expected.tolist()
    assert x.to_numpy()[::2].tolist() == (START[1::2] ** 2).tolist()


def test_elements_inside_the_range_of_those_written() -> None:
    x = field()

    @ti.kernel
    def double():
        for i in range(3):
            x[2 * i + 2] = x[2 * i + 1] ** 2

    expected = [1, -3, 0, 2, 0, -1, 0, 1]  # 1 + 2 * x at 1, 3 and 5
    assert gradient(double, x) == expected
    x.from_numpy(START)
    assert gradient(double, x) == expected  # by the same compiled code


def test_indices_in_another_array() -> None:
    x, at = field(), ti.field(ti.i32, 2)
    at.from_numpy(np.array([6, 1], np.int32))

    @ti.kernel
    def copy():
        for i in at:
            x[at[i]] = x[4 - i] ** 2

    assert gradient(copy, x) == [1, 0, 1, 2, 5, 1, 0, 1]
    at.from_numpy(np.array([4, 1], np.int32))
    x.from_numpy(START)
    with pytest.raises(ti.ad.GradientError, match=LOST):
        gradient(copy, x)


def test_one_component_of_another() -> None:
    x = ti.Vector.field(2, ti.f32, 3, needs_grad=True)
    x.fill(3)

    @ti.kernel
    def square():
        for i in x:
            x[i][0] = x[i][1] ** 2

    assert gradient(square, x) == [[0, 7]] * 3


def by_its_condition(x: Any, n: Any) -> Any:
    @ti.kernel
    def run():
        for i in range(4):
            if x[2 * i] > 1.5:
                x[2 * i] = x[2 * i + 1] ** 2

    return run


def by_its_index(x: Any, n: Any) -> Any:
    @ti.kernel
    def run():
        for i in range(2):
            n[i] = n[i] + 2
            x[n[i]] = x[2 * i + 1] ** 2

    return run


def by_the_result_of_an_atomic(x: Any, n: Any) -> Any:
    @ti.kernel
    def run():
        for i in range(2):
            k = ti.atomic_add(n[0], 1)
            x[4 * k] = x[2 * i + 1] ** 2

    return run


def by_a_random_number(x: Any, n: Any) -> Any:
    @ti.kernel
    def run():
        for i in range(2):
            if ti.random() < 0.5:
                x[4 * i] = x[2 * i + 1] ** 2

    return run


def after_the_read(x: Any, n: Any) -> Any:
    @ti.kernel
    def run():
        for i in range(4):
            x[2 * i] = x[2 * i + 1] ** 2
        for i in range(4):
            x[2 * i + 1] = 0.0

    return run


def by_an_addition(x: Any, n: Any) -> Any:
    @ti.kernel
    def run():
        for i in range(4):
            x[2 * i] = x[2 * i + 1] ** 2
        for i in range(4):
            x[2 * i + 1] += 1.0

    return run


LOSING = (
    by_its_condition, by_its_index, by_the_result_of_an_atomic, by_a_random_number,
    after_the_read, by_an_addition,
)  # fmt: skip


@pytest.mark.parametrize("make", LOSING, ids=lambda f: f.__name__)
def test_elements_that_may_have_been_read_before_are_errors(
    make: Callable[[Any, Any], Any],
) -> None:
    x, n = field(), ti.field(ti.i32, 2)
    with pytest.raises(ti.ad.GradientError):
        gradient(make(x, n), x)
