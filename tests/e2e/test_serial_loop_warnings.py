"""Warnings about long loops that became serial: reason, line, help; no warning for other loops."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.warm_processes import run_thrice
from vkchi.errors import SerialLoopWarning

MEANT = "if the order is meant, write ti.loop_config(serialize=True) before the loop"
OWN = "assign `s` first in the loop's body, so that each iteration has its own; " + MEANT
CONDITION = "help: put the condition inside the loop, or decide in Python which kernel to call"


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    ti.init(log_level=ti.ERROR, offline_cache=False)
    yield
    ti.init(random_seed=7)


def told(run: Callable[..., Any], *args: Any, calls: int = 2) -> list[str]:
    """The texts of the warnings of some calls, with lines counted from the kernel's `def`."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(calls):
            run(*args)
    first = run.__wrapped__.__code__.co_firstlineno + 1  # type: ignore[attr-defined]
    texts = []
    for w in found:
        assert w.category is SerialLoopWarning
        words = str(w.message).split(" ")
        for k, word in enumerate(words[:-1]):
            if word == "line":
                words[k + 1] = str(int(words[k + 1]) - first)
        texts.append(f"{w.lineno - first}: {' '.join(words)}")
    return texts


def test_a_recurrence_names_the_line_that_reads_the_variable() -> None:
    y = ti.field(ti.f32, 10_001)

    @ti.kernel
    def run():
        s = 0.0
        for i in y:
            s = s * 0.5 + 1.0
            y[i] = s

    assert told(run) == [
        "2: this loop runs its 10,001 iterations serially: line 3 reads `s` of the previous "
        "iteration\nhelp: " + OWN
    ]
    assert y[10_000] == 2.0


def test_warning_for_a_sum_explains_how_to_stay_parallel() -> None:
    @ti.kernel
    def run() -> ti.i32:
        s = 0
        for i in range(20_000):
            s = s + 1
        return s

    assert told(run) == [
        "2: this loop runs its 20,000 iterations serially: line 3 reads `s` of the previous "
        "iteration\nhelp: write s += ...: sums, products, minima and maxima stay parallel"
    ]


def test_warning_for_an_extreme_explains_how_to_stay_parallel() -> None:
    @ti.kernel
    def run() -> ti.i32:
        s = 0
        for i in range(20_000):
            s = ti.max(s, i)
        return s

    (text,) = told(run)
    assert text.endswith(
        "help: write ti.atomic_max(s, ...): sums, products, minima and maxima stay parallel"
    )
    assert run() == 19_999


def test_a_variable_that_is_read_after_the_loop_is_named() -> None:
    @ti.kernel
    def run() -> ti.i32:
        s = 0
        for i in range(20_000):
            s = i
        return s

    assert told(run) == [
        "2: this loop runs its 20,000 iterations serially: line 4 reads `s` after the loop\n"
        "help: store what is read later in an array; " + MEANT
    ]
    assert run() == 19_999


def test_a_conditional_assignment_may_be_read_later() -> None:
    x = ti.field(ti.i32, 20_000)

    @ti.kernel
    def run():
        s = 0
        for i in x:
            if i % 3 == 0:
                s = i
            x[i] = s

    (text,) = told(run)
    assert "line 5 may read `s` of the previous iteration\nhelp: " + OWN in text
    assert x[11] == 9


def test_an_inner_loop_that_reads_before_it_assigns_is_sure() -> None:
    x = ti.field(ti.f32, 20_000)

    @ti.kernel
    def run():
        s = 0.0
        for i in x:
            for _ in range(2):
                s = s * 0.5 + 1.0
            x[i] = s

    assert "line 4 reads `s` of the previous iteration" in told(run)[0]


def test_a_trip_count_known_at_launch_warns_once_when_it_is_long() -> None:
    y = ti.field(ti.f32, 1)

    @ti.kernel
    def run(n: ti.i32):
        s = 0.0
        for i in range(n):
            s = s * 0.5 + 1.0
        y[0] = s

    assert told(run, 10_000, calls=3) == []
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for n in (10, 10_001, 20_000, 10_002):
            run(n)
    assert [str(w.message).split(": ")[0] for w in found] == [
        "this loop runs its 10,001 iterations serially"
    ]


def test_arrays_of_any_shape_and_steps_count() -> None:
    @ti.kernel
    def run(x: ti.types.ndarray(), step: ti.i32):
        s = 0
        for i in range(0, x.shape[0] * x.shape[1], step):
            s = s * 3 + i
        x[0, 0] = s

    x = np.zeros((200, 100), np.int32)
    assert told(run, x, 2) == []
    assert "its 20,000 iterations" in told(run, x, 1)[0]


def test_two_axes_count_together() -> None:
    x = ti.field(ti.i32, (150, 100))

    @ti.kernel
    def run():
        s = 0
        for i, j in x:
            s = s * 3 + i
            x[i, j] = s

    assert "its 15,000 iterations" in told(run)[0]


def test_a_loop_under_a_condition_warns() -> None:
    x = ti.field(ti.i32, 20_000)

    @ti.kernel
    def run(n: ti.i32):
        if n > 0:
            for i in range(20_000):
                x[i] = i * n

    assert told(run, 2) == [
        "2: this loop runs its 20,000 iterations serially: it runs under a condition, and only "
        "loops that always run are parallel\n" + CONDITION
    ]
    assert x[19_999] == 39_998


def test_a_loop_of_a_function_under_a_constant_condition_warns() -> None:
    x = ti.field(ti.i32, 20_000)
    enabled = True

    @ti.func
    def fill(n: int):
        for i in range(n):
            x[i] = i

    @ti.kernel
    def run(n: ti.i32):
        if enabled:
            fill(n)

    assert told(run, 10_000) == []
    (text,) = told(run, 20_000)
    assert "its 20,000 iterations serially: it runs under a condition" in text
    assert text.endswith(CONDITION)


def test_no_warning() -> None:
    """Loops that are short, asked for, parallel, in other loops, or end early."""
    x, y = ti.field(ti.f32, 20_000), ti.field(ti.f32, 4)
    many = 20_000

    @ti.kernel
    def short():
        s = 0.0
        for i in range(10_000):
            s = s * 0.5 + x[i]
        x[0] = s

    @ti.kernel
    def asked():
        s = 0.0
        ti.loop_config(serialize=True)
        for i in range(many):
            s = s * 0.5 + x[i]
        x[0] = s

    @ti.kernel
    def sums() -> ti.f32:
        s = 0.0
        for i in range(many):
            s += x[i]
        return s

    @ti.kernel
    def own():
        s, t = 0.0, 1.0
        for i in range(many):
            s = x[i]
            x[i] = s + t

    @ti.kernel
    def pair():
        s, t = 0.0, 1.0
        for i in range(many):
            s, t = x[i], 2.0
            x[i] = s * t

    @ti.kernel
    def typed():
        s: ti.f32 = 0.0
        for i in range(many):
            s: ti.f32 = x[i] * 2
            y[i % 4] = s

    @ti.kernel
    def flag() -> ti.i32:
        s = 0
        for i in range(many):
            if x[i] < -1e30:
                s = 1
        return s

    @ti.kernel
    def inside():
        for _ in range(1):
            s = 0.0
            for i in range(many):
                s = s * 0.5 + x[i]
            x[0] = s

    @ti.kernel
    def condition(n: ti.i32):
        if n > 0:
            for i in range(10_000):
                x[i] = i
            ti.loop_config(serialize=True)
            for i in range(many):
                x[i] = i

    @ti.kernel
    def known_condition():
        if many > 0:
            ti.loop_config(serialize=True)
            for i in range(many):
                x[i] = i

    @ti.kernel
    def static_condition():
        if ti.static(many > 0):
            for i in range(many):
                x[i] = i

    @ti.kernel
    def search(n: ti.i32):
        if n > 0:
            for i in range(many):
                if x[i] > 3:
                    break

    @ti.kernel
    def inner_condition(n: ti.i32):
        for i in range(4):
            if n > 0:
                for j in range(many):
                    y[i] += x[j]

    @ti.kernel
    def parallel():
        for i in range(4):
            s = 0.0
            for j in range(many):
                s = s * 0.5 + x[j]
            y[i] = s

    for kernel in (short, asked, sums, own, pair, typed, flag, inside, parallel):
        assert told(kernel) == [], kernel.__name__
    for kernel in (known_condition, static_condition):
        assert told(kernel) == [], kernel.__name__
    for kernel in (condition, search, inner_condition):
        assert told(kernel, 1) == [], kernel.__name__


def test_a_tuple_that_an_iteration_assigns_is_private() -> None:
    x = ti.field(ti.i32, 100)

    @ti.kernel
    def run():
        a, b = 0, 0
        for i in x:
            a, b = i, 2 * i
            x[i] = a + b

    run()
    assert (x.to_numpy() == 3 * np.arange(100)).all()


def test_the_race_warning_is_enough() -> None:
    """Loops that ti.cpu puts in order have had their warning."""
    ti.init(arch=ti.cpu, log_level=ti.ERROR, offline_cache=False)
    x = ti.field(ti.i32, 20_000)

    @ti.kernel
    def run():
        for i in range(1, 20_000):
            x[i] = x[i - 1] + 1

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        run()
    assert not [w for w in found if w.category is SerialLoopWarning]


PROGRAM = """
import sys
import vkchi as ti
if "warm" in sys.argv:
    import vkchi.kernel
    def refuse(fn, *rest):
        raise SystemExit(str(fn) + " was compiled anew")
    sys.modules["vkchi.kernel"].compile_anew = refuse
ti.init(log_level="error", cache_dir=sys.argv[1])
y = ti.field(ti.i32, 4)
{shift}
@ti.kernel
def run(n: ti.i32):
    s = 0
    for i in range(20000):
        s = s * 3 + i
    for i in range(n):
        s = s * 5 + i
    y[0] = s

run(30000)
"""


def test_a_process_that_finds_the_kernel_in_the_cache_warns_too(tmp_path: Path) -> None:
    """Also if the kernel has moved in its file."""
    cold, warm, moved = run_thrice(PROGRAM, tmp_path, "#\n#\n#")
    expected = (
        "program.py:{}: SerialLoopWarning: this loop runs its {} iterations serially: line {}"
    )
    for row in ((15, "20,000", 16), (17, "30,000", 18)):
        assert expected.format(*row) in cold
    assert warm == cold
    for row in ((17, "20,000", 18), (19, "30,000", 20)):
        assert expected.format(*row) in moved
