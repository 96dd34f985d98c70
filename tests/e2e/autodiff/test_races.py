"""Races under differentiation: loops whose iterations read elements that others change raise, and
only those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import check, field, is_near, make, refuse, slope

RACE = r"(?s)one iteration reads an element of `x` .*it is changed here"
N = 8
START = np.linspace(0.1, 1.0, N)


def grid() -> tuple[Any, Any, Callable[[], None]]:
    """A field, a loss, and the kernel that adds up."""
    x, loss = field(N, values=START), field()

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i] * x[i]

    return x, loss, total


def average(x: Any, near: Any) -> Any:
    @ti.kernel
    def run():
        for i in range(1, N - 1):
            x[i] = 0.5 * (x[i - 1] + x[i + 1])

    return run


def add_all_others(x: Any, near: Any) -> Any:
    @ti.kernel
    def run():
        for i in x:
            for j in range(N):
                if i != j:
                    x[i] += 0.1 * ti.sin(x[j])

    return run


def add_those_in_a_list(x: Any, near: Any) -> Any:
    @ti.kernel
    def run():
        for i in x:
            x[i] += 0.1 * x[near[i]]

    return run


def push_both(x: Any, near: Any) -> Any:
    @ti.kernel
    def run():
        for i in range(N - 1):
            d = x[i + 1] - x[i]
            x[i] += 0.1 * d
            x[i + 1] -= 0.1 * d

    return run


def reverse(x: Any, near: Any) -> Any:
    @ti.kernel
    def run():
        for i in x:
            x[i] = x[N - 1 - i]

    return run


def step_after_step(x: Any, near: Any) -> Any:
    @ti.kernel
    def run():
        for t in range(N // 2 - 1):  # in parallel
            for i in range(2):
                x[2 * t + 2 + i] = 1.1 * x[2 * t + i]

    return run


KERNELS = average, add_all_others, add_those_in_a_list, push_both, reverse, step_after_step


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradient_of_race_raises(kernel: Callable[..., Any]) -> None:
    x, loss, total = grid()
    near = ti.field(ti.i32, N)
    near.from_numpy((np.arange(N) * 3 + 1) % N)
    run = kernel(x, near)
    refuse(RACE, loss, run, total)
    with pytest.raises(ti.TaichiAssertionError, match=RACE), ti.ad.Tape(loss, validation=True):
        run()
    with pytest.raises(ti.ad.GradientError, match=RACE):
        ti.ad.hvp(lambda: (run(), total()), loss, x, np.ones(N))


def test_neighbours_in_a_list_that_are_none_of_the_changed() -> None:
    x, loss, total = grid()
    near = ti.field(ti.i32, N)
    near.from_numpy(np.arange(N) // 2 * 2)

    @ti.kernel
    def run():
        for k in range(N // 2):
            i = 2 * k + 1
            x[i] *= x[near[i]]

    def program(x: Any) -> Any:
        x = x.copy()
        x[1::2] *= x[::2]
        return (x * x).sum()

    check(x, loss, run, total, gradient=slope(program, START))


def test_raises_again_until_the_race_is_fixed() -> None:
    x, loss = field(N, values=START), field()
    a, b, near = field(N), field(N), ti.field(ti.i32, N)

    @ti.kernel
    def run():
        for i in a:
            b[i] = a[near[i]] if near[i] < N else x[i]
            a[i] = x[i]
        for i in b:
            loss[None] += b[i] * b[i]

    near.fill(1)
    for _ in range(3):  # from the second time on `a` holds the stored values already
        refuse("reads an element of `a`", loss, run)
    near.fill(N)
    check(x, loss, run, gradient=2 * START)


def test_every_other_element() -> None:
    x, loss, total = grid()
    mask = ti.field(ti.f32, N)
    mask.from_numpy(np.arange(N) % 2)

    @ti.kernel
    def chosen(k: ti.i32):
        for i in range(1, N - 1):
            if i % 2 == k:
                x[i] = 0.5 * x[i - 1] * x[i + 1]

    @ti.kernel
    def selected():
        for i in range(1, N - 1):
            x[i] = ti.select(i % 2 == 0, x[i - 1] * x[i + 1], x[i])

    @ti.kernel
    def masked():
        for i in range(1, N - 1):
            x[i] += mask[i] * (x[i - 1] + x[i + 1] - 2 * x[i])

    def program(x: Any) -> Any:
        x = x.copy()
        x[2:-1:2] = 0.5 * x[1:-2:2] * x[3::2]
        x[1:-1:2] = 0.5 * x[:-2:2] * x[2::2]
        x[2:-1:2] = x[1:-2:2] * x[3::2]
        x[1:-1:2] = x[:-2:2] + x[2::2] - x[1:-1:2]
        return (x * x).sum()

    runs = (lambda: chosen(0)), (lambda: chosen(1)), selected, masked, total
    check(x, loss, *runs, gradient=slope(program, START))


def test_a_boundary_that_stays_as_it_is() -> None:
    x, loss, y = field(N, values=np.arange(N)), field(), field(N)

    @ti.kernel
    def run():
        for i in x:
            if 0 < i < N - 1:
                y[i] = x[i - 1] * x[i + 1]
            else:
                x[i] = i
        for i in y:
            loss[None] += y[i]

    with ti.ad.Tape(loss):
        run()
    want = slope(lambda x: (x[:-2] * x[2:]).sum(), np.arange(N))
    is_near(x.grad.to_numpy()[1:-1], want[1:-1])


def test_race_without_derivative_is_allowed() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in x:
            loss[None] += x[i] ** 2
        for i in range(3):
            x[i] += x[i + 1]

    check(x, loss, run, gradient=[1.4, 2.6, 0.8, 3.8])


def test_races_that_come_late_are_found_by_validation() -> None:
    x, loss, _ = grid()

    @ti.kernel
    def run(t: ti.i32):
        for i in range(N - 1):
            if t == 2:
                x[i] += x[i + 1]

    with pytest.raises(ti.TaichiAssertionError, match=RACE), ti.ad.Tape(loss, validation=True):
        for t in range(3):
            run(t)


def test_a_gradient_outside_a_tape() -> None:
    x, _, _ = grid()

    @ti.kernel
    def run():
        for i in range(N - 1):
            x[i] += x[i + 1]

    x.grad.fill(1)
    with pytest.raises(ti.ad.GradientError, match=RACE):
        run.grad()


def test_a_gradient_outside_a_tape_after_stores_of_a_constant() -> None:
    """The kernel has run: its stores are there already, not when others read."""
    x, y = field(N), field()

    @ti.kernel
    def run(k: ti.i32):
        for i in range(N):
            y[None] += x[k] * 0.125
            x[(k + i) % N] = -0.25

    run(3)
    y.grad.fill(1)
    with pytest.raises(ti.ad.GradientError, match=RACE):
        run.grad(3)


def test_a_gradient_outside_a_tape_where_a_switch_is_gone() -> None:
    """The condition under which others write is overwritten: nothing proves that it was false."""
    x, y = field(N), field()
    is_on = ti.field(ti.i32, N)
    is_on.fill(1)

    @ti.kernel
    def run():
        for i in range(N):
            y[None] += x[3] * 0.125
            if is_on[i] > 0:
                x[i // 2] += 1.0
        for i in is_on:
            is_on[i] = 0

    run()
    y.grad.fill(1)
    with pytest.raises(ti.ad.GradientError, match=RACE):
        run.grad()


def test_a_gradient_outside_a_tape_where_all_store_one_computed_number() -> None:
    x, y = field(N), field()
    shared, table = ti.field(ti.f32, ()), ti.field(ti.f32, 4)
    table.fill(3)

    @ti.kernel
    def run():
        for _ in range(N):
            shared[None] = table[1] * 2
        for i in x:
            y[None] += x[i] * shared[None]

    run()
    y.grad.fill(1)
    run.grad()
    is_near(x.grad, 6)


def test_vectors_are_distinguished_by_component() -> None:
    v, loss = ti.Vector.field(2, ti.f32, N, needs_grad=True), field()
    v.fill(1.5)

    @ti.kernel
    def run():
        for i in v:
            v[i].x *= v[(i + 1) % N].y
        for i in v:
            loss[None] += v[i].x

    check(v, loss, run, gradient=np.full((N, 2), 1.5))
    is_near(loss, N * 2.25)


def test_products_of_parallel_iterations_in_forward_mode() -> None:
    """`x[i] *= v` is no atomic, and `ti.atomic_mul` is."""
    v, x = (ti.field(ti.f32, n, needs_dual=True) for n in (N, 2))
    v.from_numpy(START.astype(np.float32))
    x.fill(1)

    @ti.kernel
    def racing():
        for i in v:
            x[i % 2] *= v[i]

    @ti.kernel
    def right():
        for i in v:
            ti.atomic_mul(x[i % 2], v[i])

    with pytest.raises(ti.ad.GradientError, match=RACE), ti.ad.FwdMode(x, v, START):
        racing()
    x.fill(1)
    with ti.ad.FwdMode(x, v, START):
        right()
    is_near(x.dual, x.to_numpy() * N / 2)
