"""Arrays without gradient whose derivative is gone before it is read: overwritten part by part, by
the same iteration, or never put there, for the branch was not taken. And where a part is left, a
branch taken, or may be, which is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import check, make, refuse
from vkchi.analysis.memory.boxes import Box, Covered, first_filling_segment

N, ROWS = 4, 3
LOST = "the gradient flows through `y`, which has none"


def resets(y: Any) -> Iterator[tuple[str, bool, Callable[[], Any]]]:
    """Ways to put 1 into y[ROWS, N]: whether all of it is overwritten."""

    @ti.kernel
    def static_rows(first: ti.template(), last: ti.template()):
        for i in range(N):
            for r in ti.static(range(first, last)):
                y[r, i] = 1.0

    @ti.kernel
    def static_elements(count: ti.template()):
        for r, i in ti.static(ti.ndrange(ROWS, N)):
            if ti.static(r * N + i < count):
                y[r, i] = 1.0

    @ti.kernel
    def down():
        for i in range(N):
            for r in range(ROWS - 1, -1, -1):
                y[r, i] = 1.0

    @ti.kernel
    def both_down(last: ti.i32):
        for i in range(N - 1, -1, -1):
            for r in range(ROWS - 1, last - 1, -1):
                y[r, i] = 1.0

    @ti.kernel
    def odd_steps():
        for i in range(N):
            for r in range(ROWS):
                y[2 - r if r < 2 else 1, i] = 1.0

    @ti.kernel
    def halves(n: ti.i32):
        for r in range(ROWS):
            for i in range(n):
                y[r, i] = 1.0
            for i in range(2, N):
                y[r, i] = 1.0

    yield "static rows", True, lambda: static_rows(0, ROWS)
    yield "static rows but one", False, lambda: static_rows(0, ROWS - 1)
    yield "static rows but the first", False, lambda: static_rows(1, ROWS)
    yield "static elements", True, lambda: static_elements(ROWS * N)
    yield "static elements but one", False, lambda: static_elements(ROWS * N - 1)
    yield "down", True, down
    yield "both down", True, lambda: both_down(0)
    yield "both down but one", False, lambda: both_down(1)
    yield "a row twice", False, odd_steps
    yield "halves", True, lambda: halves(2)
    yield "halves that overlap", True, lambda: halves(3)
    yield "halves but a column", False, lambda: halves(1)


NAMES = [
    "static rows", "static rows but one", "static rows but the first", "static elements",
    "static elements but one", "down", "both down", "both down but one", "a row twice", "halves",
    "halves that overlap", "halves but a column",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_part_by_part(name: str) -> None:
    x, loss = make()
    y = ti.field(ti.f32, (ROWS, N))

    @ti.kernel
    def put():
        for r, i in y:
            y[r, i] = x[i] * 2

    @ti.kernel
    def use():
        for r, i in y:
            loss[None] += y[r, i] * x[i]

    is_all, reset = next((a, f) for n, a, f in resets(y) if n == name)
    if is_all:
        check(x, loss, put, reset, use, gradient=[ROWS] * N)
    else:
        refuse(LOST, loss, put, reset, use)


@pytest.mark.parametrize("count", [ROWS, ROWS - 1])
def test_part_by_part_in_one_kernel(count: int) -> None:
    x, loss = make()
    y = ti.field(ti.f32, (ROWS, N))

    @ti.kernel
    def run():
        for r, i in y:
            y[r, i] = x[i] * 2
        for i in x:
            for r in ti.static(range(count)):
                y[r, i] = 1.0
        for r, i in y:
            loss[None] += y[r, i] * x[i]

    if count == ROWS:
        check(x, loss, run, gradient=[ROWS] * N)
    else:
        refuse(LOST, loss, run)


def test_overwritten_by_the_same_iteration() -> None:
    x, loss = make()
    y, v = ti.field(ti.f32, N), ti.Vector.field(2, ti.f32, N)

    @ti.kernel
    def at_once():
        for i in x:
            y[i] = 2 * x[i]
            y[i] = 1.0
        for i in x:
            loss[None] += x[i] * y[i]

    @ti.kernel
    def components():
        for i in x:
            v[i][0] = 2 * x[i]
            v[i] = ti.Vector([1.0, 2.0])
        for i in x:
            loss[None] += x[i] * v[i].sum()

    @ti.kernel
    def only_one_component():
        for i in x:
            v[i] = ti.Vector([x[i], x[i]])
            v[i][0] = 1.0
        for i in x:
            loss[None] += x[i] * v[i].sum()

    @ti.kernel
    def elsewhere():
        for i in x:
            y[i] = 2 * x[i]
            y[(i + 1) % N] = 1.0
        for i in x:
            loss[None] += x[i] * y[i]

    @ti.kernel
    def perhaps(limit: ti.f32):
        for i in x:
            y[i] = 2 * x[i]
            if x[i] > limit:
                y[i] = 1.0
        for i in x:
            loss[None] += x[i] * y[i]

    check(x, loss, at_once, gradient=[1] * N)
    check(x, loss, components, gradient=[3] * N)
    refuse("the gradient flows through `v`, which has none", loss, only_one_component)
    refuse(LOST, loss, elsewhere)
    refuse(LOST, loss, lambda: perhaps(0.0))


def test_overwritten_by_the_same_iteration_and_read_by_another_kernel() -> None:
    x, loss = make()
    y = ti.field(ti.f32, N)

    @ti.kernel
    def put(is_read: ti.template()):
        for i in x:
            y[i] = 2 * x[i]
            if ti.static(is_read):
                loss[None] += y[i]
            y[i] = 1.0

    @ti.kernel
    def use():
        for i in x:
            loss[None] += x[i] * y[i]

    check(x, loss, lambda: put(False), use, gradient=[1] * N)
    refuse(LOST, loss, lambda: put(True), use)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_branches_that_arguments_decide(n: int) -> None:
    x, loss = make()
    y = ti.field(ti.f32, N)

    @ti.kernel
    def whole(n: ti.i32):
        if n > 1 and n != 5:
            for i in x:
                y[i] = 2 * x[i]

    @ti.kernel
    def each(n: ti.i32):
        for i in x:
            if not (n <= 1 or n == 5):
                y[i] = 2 * x[i]
            else:
                loss[None] += x[i]

    @ti.kernel
    def use():
        for i in x:
            loss[None] += x[i] * (y[i] + 1)

    y.fill(1)
    if n == 2:
        refuse(LOST, loss, lambda: whole(n), use)
        refuse(LOST, loss, lambda: each(n), use)
    else:
        check(x, loss, lambda: whole(n), use, gradient=[2] * N)
        check(x, loss, lambda: each(n), use, gradient=[3] * N)


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("n", [3, 4])
def test_branches_on_bools(flag: bool, n: int) -> None:
    x, loss = make()
    y = ti.field(ti.f32, N)

    @ti.kernel
    def put(flag: ti.u1, n: ti.i32):
        for i in x:
            if flag and n > 3:
                y[i] = x[i]
            elif not flag:
                loss[None] += x[i]
            else:
                y[i] = 5.0

    @ti.kernel
    def use():
        for i in x:
            loss[None] += x[i] * y[i]

    y.fill(1)
    if flag and n == 4:
        refuse(LOST, loss, lambda: put(flag, n), use)
    else:
        check(x, loss, lambda: put(flag, n), use, gradient=[5 if flag else 2] * N)


def test_branches_that_numbers_in_memory_decide() -> None:
    x, loss = make()
    y = ti.field(ti.f32, N)

    @ti.kernel
    def put():
        for i in x:
            if x[i] > 100.0:
                y[i] = 2 * x[i]

    @ti.kernel
    def use():
        for i in x:
            loss[None] += x[i] * (y[i] + 1)

    refuse(LOST, loss, put, use)


FULL: Box = ((0, 3), (0, 5))


def covers(*boxes: Box) -> list[Covered]:
    return [Covered(k, "y", box) for k, box in enumerate(boxes)]


def test_boxes_that_fill_another() -> None:
    top, bottom = ((0, 1), (0, 5)), ((2, 3), (0, 5))
    assert first_filling_segment(covers(FULL), (), FULL) == 0
    assert first_filling_segment(covers(top, bottom, FULL), (), FULL) == 1
    assert first_filling_segment(covers(top), (), FULL) is None
    assert first_filling_segment(covers(top), ((1, 1), None), FULL) == 0
    assert first_filling_segment(covers(((0, 3), (0, 2)), ((0, 3), (2, 4))), (), FULL) is None
    assert (
        first_filling_segment(covers(((0, 3), (0, 2)), ((1, 2), (3, 9)), bottom, top), (), FULL)
        == 3
    )
    assert first_filling_segment([], ((3, 2), None), FULL) is None


def test_numbers_that_are_left_are_those_of_no_box() -> None:
    rows = [((r, r), (0, 5)) for r in range(4)]
    assert first_filling_segment(covers(*rows), (), FULL) == 3
    assert first_filling_segment(covers(*rows[:3]), (), FULL) is None
