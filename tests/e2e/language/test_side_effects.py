"""Side effects of an expression happen once, with or without a use of its value, in debug mode or
not."""

from collections.abc import Callable

import pytest

import vkchi as ti
from tests.e2e.language.compare import check

Init = Callable[..., None]


@pytest.fixture(params=[False, True], ids=["release", "debug"])
def mode(request: pytest.FixtureRequest, init: Init) -> None:
    """Both modes."""
    init(debug=request.param)


def counters() -> tuple[ti.ScalarField, Callable[[int], int]]:
    """A field of counters, and a func that counts a call of it in one of them."""
    calls = ti.field(ti.i32, shape=12)

    @ti.func
    def count(i):
        return ti.atomic_add(calls[i], 1) + 1

    return calls, count


def test_conditions_of_assertions(mode: None) -> None:
    calls, count = counters()

    @ti.func
    def vector(i):
        return ti.Vector([count(i), 7])

    @ti.func
    def of_loop(i):
        last = 0
        for _ in range(3):
            last = count(i)
        return last

    @ti.kernel
    def run():
        for _ in range(1):
            assert count(0) == 1
            assert count(1) * 0 == 0, "text"
            assert count(2) == 1 and count(3) == 1
            assert vector(4)[1] == 7
            assert of_loop(5) == 3
            assert 1 <= count(6) <= 1
            assert not (count(7) == 2)
            assert ti.atomic_add(calls[8], 1) == 0, f"{1}"
            assert calls[count(9)] == 1
            assert (count(10) if count(11) == 1 else 1) == 1

    run()
    check(calls.to_numpy().tolist(), [1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1, 1])


def test_message_of_an_assertion_that_holds(mode: None) -> None:
    calls, count = counters()

    @ti.kernel
    def run() -> ti.i32:
        assert count(0) == 1, "never"
        return count(1)

    check(run(), 1)
    check(calls.to_numpy()[:2].tolist(), [1, 1])


def test_random_numbers_in_assertions_are_drawn(init: Init) -> None:
    drawn = []
    for debug in (False, True):
        init(debug=debug, random_seed=3)

        @ti.kernel
        def run() -> ti.f32:
            assert ti.random() < 1.0
            return ti.random()

        drawn.append(run())
    assert drawn[0] == drawn[1]


def test_values_that_nobody_uses(mode: None) -> None:
    calls, count = counters()

    @ti.kernel
    def run():
        for _ in range(1):
            count(0) * 0
            y = count(1) - count(1)
            calls[count(2)]
            z = ti.zero(ti.Vector([count(3), count(4)]))  # noqa: F841
            [count(5), (count(6), -count(7))]
            y = ti.max(count(8), 0) & 0
            f"{count(9)}"
            y = count(10) % 1
            if count(11):
                pass

    run()
    check(calls.to_numpy().tolist(), [1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])


def test_elements_are_evaluated_once(mode: None) -> None:
    calls, count = counters()

    @ti.kernel
    def run():
        for _ in range(1):
            calls[count(0) + 1] += 5
            ti.atomic_max(calls[count(3) + 3], 7)
            calls[count(6) + 6] = 9

    run()
    check(calls.to_numpy().tolist(), [1, 0, 5, 1, 7, 0, 1, 9, 0, 0, 0, 0])
