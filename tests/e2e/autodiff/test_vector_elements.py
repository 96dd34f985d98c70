"""Vector and matrix elements that Python changes between two kernels of a tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti

LOST = "`x` was overwritten by Python, which had read it"


def make(shape: tuple[int, ...] = (2,)) -> tuple[Any, Any, Callable[[], None]]:
    """Three vectors or matrices of 3.0, a loss, and a kernel that adds the squares to it."""
    kind = ti.Vector if len(shape) == 1 else ti.Matrix
    x = kind.field(*shape, ti.f32, 3, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    x.fill(3.0)

    @ti.kernel
    def add():
        for i in x:
            loss[None] += (x[i] * x[i]).sum()

    return x, loss, add


def gradient(change: Callable[[Any], None], shape: tuple[int, ...] = (2,)) -> Any:
    """Gradient at 3.0 of the squares before and after the change."""
    x, loss, add = make(shape)
    with ti.ad.Tape(loss):
        add()
        change(x)
        add()
    return x.grad.to_numpy()


def add_one(x: Any) -> None:
    x[0] += 1.0


def subtract_a_list(x: Any) -> None:
    x[0] -= [1.0, 2.0]


def add_twice(x: Any) -> None:
    x[1] = 1 + x[1] + ti.Vector([0.5, 2.5])


def add_through_a_name(x: Any) -> None:
    element = x[2]
    x[2] = element + 4


SUMS = {
    add_one: {0: (1, 1)},
    subtract_a_list: {0: (-1, -2)},
    add_twice: {1: (1.5, 3.5)},
    add_through_a_name: {2: (4, 4)},
}


@pytest.mark.parametrize("change", SUMS, ids=lambda f: f.__name__)
def test_constants_added_to_a_vector_keep_its_derivative(change: Callable[[Any], None]) -> None:
    expected = np.full((3, 2), 12.0)  # 2 * 3, twice
    for i, more in SUMS[change].items():
        expected[i] += 2 * np.array(more)
    assert gradient(change).tolist() == expected.tolist()


def test_constants_added_to_a_matrix_keep_its_derivative() -> None:
    found = gradient(add_one, (2, 2))
    assert found[0].tolist() == [[14, 14], [14, 14]] and (found[1:] == 12).all()


def scale(x: Any) -> None:
    x[0] *= 2.0


def reflect(x: Any) -> None:
    x[0] = 1.0 - x[0]


def add_another(x: Any) -> None:
    x[0] += x[1]


def add_a_number_of_another(x: Any) -> None:
    x[0] = x[0] + [1.0, x[1][0]]


def change_the_sum(x: Any) -> None:
    total = x[0] + 1.0
    total[1] = 7.0
    x[0] = total


def change_the_components(x: Any) -> None:
    total = x[0] + 1.0
    total.entries[0] *= 2.0
    x[0] = total


CHANGES = (
    scale, reflect, add_another, add_a_number_of_another, change_the_sum,
    change_the_components,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_other_changes_of_a_vector_that_was_used_are_errors(change: Callable[[Any], None]) -> None:
    with pytest.raises(ti.ad.GradientError, match=LOST):
        gradient(change)


def test_a_sum_with_an_element_that_a_kernel_has_replaced_is_an_error() -> None:
    x, loss, add = make()

    @ti.kernel
    def double():
        for i in x:
            x[i] = 2.0 * x[i]

    with pytest.raises(ti.ad.GradientError), ti.ad.Tape(loss):  # noqa: PT012
        add()
        total = x[0] + 1.0
        double()
        x[0] = total
        add()


def test_a_sum_with_a_multiple_of_the_element_raises():
    """y = x, then y[1] = 4 y[1] in Python: the derivative of the summand is unknown."""
    x = ti.Vector.field(2, ti.f32, 4, needs_grad=True)
    y = ti.Vector.field(2, ti.f32, 4, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    x.fill(1)

    @ti.kernel
    def copy():
        for i in x:
            y[i] = x[i]

    @ti.kernel
    def measure():
        for i in y:
            loss[None] += y[i].norm_sqr()

    with pytest.raises(ti.ad.GradientError), ti.ad.Tape(loss):  # noqa: PT012
        copy()
        y[1] = y[1] + y[1] * 3
        measure()
