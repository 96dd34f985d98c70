"""`match` and the `else` of loops in kernels: the same values as in Python."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import KernelSyntaxError


class Shape(enum.IntEnum):
    DISC = 3
    BOX = 5


def run(function: Any, *values: int) -> list[int]:
    """Call a function of one integer, compiled as a `ti.func`, for each value."""
    inner = ti.func(function)
    given, found = ti.ndarray(ti.i32, len(values)), ti.ndarray(ti.i32, len(values))
    given.from_numpy(np.array(values, np.int32))

    @ti.kernel
    def each(given: ti.types.ndarray(ti.i32, 1), found: ti.types.ndarray(ti.i32, 1)):
        for i in given:
            found[i] = inner(given[i])

    each(given, found)
    return found.to_numpy().tolist()


def first_divisor(n: int) -> int:
    found = 0
    for k in range(2, n):
        if n % k == 0:
            found = k
            break
    else:
        found = -n
    return found


def steps_to_one(n: int) -> int:
    steps = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
        if steps > 15:
            break
    else:
        steps += 100
    return steps


def else_leaves_outer_loop(n: int) -> int:
    found = -1
    for i in range(6):
        for k in range(3):
            if i * k == n:
                break
        else:
            continue
        found = 10 * i
        break
    return found


def nested_else(n: int) -> int:
    r = 0
    for i in range(4):
        for k in range(4):
            if k == n:
                break
            r += 1
        else:
            r += 10
        if i + n == 5:
            break
    else:
        r += 1000
    return r


def else_without_break(n: int) -> int:
    r = 0
    for i in range(n):
        if i == 3:
            continue
        r += i
    else:
        r += 100
    return r


def return_in_loop(n: int) -> int:
    for i in range(5):
        if i == n:
            return i
    else:
        n += 100
    return n


def numbers(n: int) -> int:
    r = 0
    match n:
        case 0:
            r = 1
        case 1 | 2:
            r = 2
        case -7:
            r = 3
        case x if x > 100:
            r = x - 100
        case _:
            r = 9
    return r


def returns(n: int) -> int:
    match n % 3:
        case 0:
            return 10
        case 1 if n > 4:
            return 20
        case k:
            return k


def pairs(n: int) -> int:
    r = 0
    match (n % 2, n % 3):
        case (0, 0):
            r = 6
        case (0, k):
            r = 10 * k
        case (1, 0 | 1):
            r = 7
    return r


def named(n: int) -> int:
    r = 0
    match n:
        case Shape.DISC:
            r = 1
        case Shape.BOX as which:
            r = which * 2
    return r


def in_loop(n: int) -> int:
    r = 0
    for i in range(10):
        match i:
            case 2:
                continue
            case 7:
                break
        r += i * n
    return r


def no_case_matches(n: int) -> int:
    r = 4
    match n:
        case 1000:
            r = 5
    return r


def guards_bind_names(n: int) -> int:
    x = 0
    match n:
        case x if x > 100:
            x = 7
    return x


def guards_after_tests(n: int) -> int:
    r = 0
    match (n % 2, n):
        case (0, y) if y > 5:
            r = y
        case (0, y):
            r = -y
        case (x, 7) if x > 0:
            r = 70
        case _:
            r = 1000
    return r


def bools_are_not_integers(n: int) -> int:
    r = 0
    match n:
        case True:
            r = 1
        case 1:
            r = 2
    match n > 3:
        case True:
            r += 10
        case False:
            r += 20
    return r


FUNCTIONS = (
    first_divisor, steps_to_one, else_leaves_outer_loop, nested_else, else_without_break,
    return_in_loop, numbers, returns, pairs, named, in_loop, no_case_matches,
    guards_bind_names, guards_after_tests, bools_are_not_integers,
)  # fmt: skip
VALUES = (0, 1, 2, 3, 4, 5, 6, 7, 9, 25, 27, 103, -7, -1)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_are_those_of_python(function: Any) -> None:
    values = [n for n in VALUES if n > 0] if function is steps_to_one else VALUES
    assert run(function, *values) == [function(n) for n in values]


def test_matching_on_constants_needs_no_run_time_test() -> None:
    @ti.kernel
    def apply(mode: ti.template(), x: ti.types.ndarray(ti.f32, 1)):
        for i in x:
            match mode:
                case "double":
                    x[i] *= 2
                case "clear" | "zero":
                    x[i] = 0
                case None:
                    x[i] = -1
                case _:
                    ti.static_assert(False, "unknown mode")

    x = ti.ndarray(ti.f32, 3)
    for mode, want in (("double", 6.0), ("zero", 0.0), (None, -1.0)):
        x.fill(3)
        apply(mode, x)
        assert x.to_numpy().tolist() == [want] * 3


def test_matching_a_vector() -> None:
    @ti.kernel
    def quadrant(x: ti.f32, y: ti.f32) -> ti.i32:
        v = ti.Vector([x, y])
        r = 0
        match v > 0:
            case (True, True):
                r = 1
            case (False, True):
                r = 2
            case (a, b):
                r = 3 if not a and not b else 4
        return r

    assert [quadrant(*p) for p in ((1, 1), (-1, 1), (-1, -1), (1, -1))] == [1, 2, 3, 4]


def test_gradient_of_a_match() -> None:
    x = ti.field(ti.f32, 3, needs_grad=True)
    total = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def add():
        for i in x:
            match i:
                case 0:
                    total[None] += x[i] ** 2
                case 1:
                    total[None] += 5 * x[i]

    x.fill(3)
    with ti.ad.Tape(total):
        add()
    assert x.grad.to_numpy().tolist() == [6, 5, 0]


def test_top_level_loop_with_else() -> None:
    @ti.kernel
    def fill(x: ti.types.ndarray(ti.i32, 1)) -> ti.i32:
        r = 0
        for i in x:
            x[i] = i
        else:
            r = 5
        return r

    x = ti.ndarray(ti.i32, 4)
    assert fill(x) == 5
    assert x.to_numpy().tolist() == [0, 1, 2, 3]


def test_strings_match_no_sequence() -> None:
    @ti.kernel
    def k(s: ti.template()) -> ti.i32:
        r = 0
        match s:
            case (_, _):
                r = 1
            case "ab":
                r = 3
        return r

    assert k("ab") == 3


def test_patterns_that_change_the_subject_are_errors() -> None:
    @ti.kernel
    def k(a: ti.i32, b: ti.i32) -> ti.i32:
        r = 0
        match a, b:
            case (b, a):
                r = a * 10 + b
        return r

    with pytest.raises(KernelSyntaxError, match="names that the subject reads"):
        k(1, 2)


def test_mapping_patterns_are_errors() -> None:
    @ti.kernel
    def k(n: ti.i32):
        match n:
            case {"a": 1}:
                pass

    with pytest.raises(KernelSyntaxError, match=r"kernels have no patterns of mappings"):
        k(1)
