"""Results of conditions and logic: numbers by Python's rules, or by those of IEEE 754."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

import vkchi as ti


def test_and_or_of_integers_give_the_operand_that_decides() -> None:
    @ti.kernel
    def run(a: ti.i32, b: ti.i32, c: ti.i32) -> ti.types.vector(4, ti.i32):
        return ti.Vector([a and b, a or b, a and b or c, a and b and c])

    for a, b, c in product((0, 2), (0, 3), (0, -4)):
        assert run(a, b, c).to_list() == [a and b, a or b, a and b or c, a and b and c]


def test_and_or_of_numbers_and_conditions(need: Callable[..., None]) -> None:
    need("i64")

    @ti.kernel
    def run(a: ti.i32, b: ti.i64) -> ti.types.vector(4, ti.i64):
        return ti.Vector([a > 0 and b, a or b > 0, a or 5, a and 7])

    for a, b in product((0, 2), (0, 3)):
        assert run(a, b).to_list() == [a > 0 and b, a or b > 0, a or 5, a and 7]


def test_and_or_of_vectors_go_by_component() -> None:
    @ti.kernel
    def run(a: ti.types.vector(2, ti.i32), b: ti.types.vector(2, ti.i32)) -> ti.types.vector(
        4, ti.i32
    ):
        both, either = a and b, a > 1 or b == 7
        return ti.Vector([both[0], both[1], either[0], either[1]])

    assert run(ti.Vector([2, 0]), ti.Vector([5, 7])).to_list() == [1, 0, 1, 1]
    assert run(ti.Vector([0, 1]), ti.Vector([0, 3])).to_list() == [0, 1, 0, 0]


def test_and_guards_a_read_of_any_value() -> None:
    x = ti.field(ti.i32, shape=4)
    x.from_numpy(np.array([1, 0, 3, 0], np.int32))

    @ti.kernel
    def run(i: ti.i32) -> ti.i32:
        r = 0
        if 0 <= i < 4 and x[i]:
            r = x[i]
        if i >= 4 or x[i]:
            r += 100
        return r

    assert [run(i) for i in range(6)] == [101, 0, 103, 0, 100, 100]


@pytest.mark.parametrize("x, expected", [(1.0, math.inf), (-2.0, -math.inf), (0.0, math.nan)])
def test_division_by_a_constant_zero(x: float, expected: float) -> None:
    @ti.kernel
    def run(a: ti.f32) -> ti.types.vector(3, ti.f32):
        b = a / 0.0
        return ti.Vector([b, ti.math.isinf(b), ti.math.isnan(b)])

    result = run(x).to_list()
    assert result[1:] == [math.isinf(expected), math.isnan(expected)]
    assert math.isnan(expected) or result[0] == expected
