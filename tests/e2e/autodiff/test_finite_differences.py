"""Whole programs, each in every way of differentiation: a tape, one in limited memory, forward mode
and a product with the Hessian, compared with differences of the program itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti

N = 5
X = np.array([0.7, 1.3, 0.4, 1.9, 1.1])
Program = tuple[Callable[[], Any], Any, Any]  # function of the loss, the loss, its inputs


def numbers(*shape: int, values: Any = None) -> Any:
    """A field with a gradient and a dual."""
    made = ti.field(ti.f64, shape, needs_grad=True, needs_dual=True)
    if values is not None:
        made.from_numpy(np.asarray(values))
    return made


def loops_left_early() -> Program:
    x, loss = numbers(N, values=X), numbers()

    @ti.kernel
    def run():
        for i in x:
            s = 1.0 * x[i]
            for a in range(4):
                if a == 2:
                    continue
                for b in range(5):
                    if s > 3.0 + a:
                        break
                    if b % 2 == 1:
                        continue
                    s += x[(i + a + b) % N] * s * 0.2
                s *= 1.1
            loss[None] += ti.sin(s)

    return run, loss, x


def loops_until_data_say_so() -> Program:
    x, loss = numbers(N, values=X), numbers()

    @ti.kernel
    def run():
        for i in x:
            s, c = x[i], 0
            while s < 20.0 and c < 10:
                t = s
                while t > 1.0:
                    t = t * 0.5
                    s += t * x[(i + c) % N]
                c += 1
                s += x[i]
            loss[None] += s

    return run, loss, x


def conditions_on_what_the_loop_stores() -> Program:
    x, y, loss = numbers(N, values=X), numbers(N), numbers()

    @ti.kernel
    def run():
        for i in x:
            y[i] = x[i]
            while y[i] < 4.0:
                y[i] = y[i] * 1.5 + 0.1 * x[i]
            loss[None] += y[i] * x[i]

    return run, loss, x


def two_elements_swapped() -> Program:
    x, y, loss = numbers(N, values=X), numbers(N), numbers()

    @ti.kernel
    def begin():
        for i in x:
            y[i] = ti.cos(x[i])

    @ti.kernel
    def swap():
        for i in x:
            x[i], y[i] = y[i] * 0.5, x[i] * x[i]

    @ti.kernel
    def end():
        for i in x:
            loss[None] += x[i] * y[i] * (i + 1)

    return lambda: (begin(), swap(), swap(), swap(), end()), loss, x


def atomics_on_elements_of_ones_own() -> Program:
    x, y, loss = numbers(N, values=X), numbers(N), numbers()

    @ti.kernel
    def run():
        for i in x:
            y[i] = 1.0
            a = ti.atomic_add(y[i], x[i])
            b = ti.atomic_mul(y[i], x[i] * x[i])
            c = ti.atomic_sub(y[i], ti.sin(x[i]))
            d = ti.atomic_max(y[i], x[i] * 1.5)
            e = ti.atomic_min(y[i], x[i] * 5.0)
            loss[None] += a * 0.3 + b * x[i] + c * c + d + e + y[i]

    return run, loss, x


def extremes_and_sums_of_all() -> Program:
    x, m, loss = numbers(N, values=X), numbers(3), numbers()

    @ti.kernel
    def run():
        m[0], m[1], m[2] = -1e3, 1e3, 0.0
        for i in x:
            ti.atomic_max(m[0], x[i] * x[(i + 2) % N])
            ti.atomic_min(m[1], ti.exp(-x[i]) + x[i])
            ti.atomic_sub(m[2], x[i] ** 3)
        loss[None] = m[0] * m[1] + m[0] * m[2]

    return run, loss, x


def loops_one_after_another() -> Program:
    x, y, z, loss = numbers(N, values=X), numbers(N), numbers(N), numbers()

    @ti.kernel
    def run():
        for i in x:
            y[i] = x[i] * x[i]
        for i in x:
            z[i] = y[(i + 1) % N] * x[i]
        for i in x:
            y[i] = z[i] + y[i]
        for i in x:
            loss[None] += y[i] * z[i]
        loss[None] *= 0.5
        y[0] = loss[None]
        for i in x:
            x[i] = x[i] / y[0]
        for i in x:
            loss[None] += x[i] ** 2

    return run, loss, x


def private_vectors_with_computed_indices() -> Program:
    x, loss = numbers(N, values=X), numbers()

    @ti.kernel
    def run():
        for i in x:
            q = ti.Vector.zero(ti.f64, 4)
            for j in range(4):
                q[j] = x[(i + j) % N] * 0.5
                if j > 0:
                    q[j] += q[j - 1] * q[j]
            for j in range(3):
                q[j + 1] = q[j] * q[3 - j]
            loss[None] += q[3] + q[1]

    return run, loss, x


def branches_that_change_what_they_test() -> Program:
    x, y, loss = numbers(N, values=X), numbers(N), numbers()

    @ti.kernel
    def run():
        for i in x:
            y[i] = 0.5
            if i % 2 == 0:
                y[i] = x[i] ** 2
            if x[i] > 1.0:
                y[i] = y[i] * x[i]
            else:
                t = x[i]
                x[i] = t * t
                y[i] += x[i] * t
        for i in x:
            if y[i] > 1.2:
                x[i] = y[i]
        for i in x:
            loss[None] += x[i] * y[i]

    return run, loss, x


def rounds_counted_in_memory() -> Program:
    x, loss = numbers(N, values=X), numbers()
    n = ti.field(ti.i32, N)
    n.from_numpy(np.array([0, 3, 1, 5, 2], np.int32))

    @ti.kernel
    def run():
        for i in x:
            s = x[i]
            for j in range(n[i]):
                for q in range(j):
                    s = s * 0.9 + x[(i + q) % N] * s * 0.3
            for j in range(8, i - 1, -2):
                s = s * x[i] + j
            loss[None] += s

    return run, loss, x


def halves_that_take_turns() -> Program:
    x, loss = numbers(2 * N, values=np.linspace(0.3, 1.2, 2 * N)), numbers()

    @ti.kernel
    def low():
        for i in range(N):
            x[i] = x[i] * x[i + N]

    @ti.kernel
    def high():
        for i in range(N):
            x[i + N] = x[i] + x[i + N] * x[i]

    @ti.kernel
    def end(power: ti.f64):
        for i in x:
            loss[None] += x[i] ** power

    return lambda: (low(), high(), low(), high(), end(2.0), low(), end(1.5)), loss, x


def constants_in_between() -> Program:
    x, y, loss = numbers(N, values=X), numbers(N), numbers()

    @ti.kernel
    def put():
        for i in x:
            y[i] = x[i] ** 2

    @ti.kernel
    def use():
        for i in x:
            loss[None] += y[i] * x[i]

    def run() -> None:
        put()
        y[2] = 4.0
        use()
        y.copy_from(x)
        use()
        y.fill(1.5)
        use()

    return run, loss, x


PROGRAMS = [
    loops_left_early, loops_until_data_say_so, conditions_on_what_the_loop_stores,
    two_elements_swapped, atomics_on_elements_of_ones_own, extremes_and_sums_of_all,
    loops_one_after_another, private_vectors_with_computed_indices,
    branches_that_change_what_they_test, rounds_counted_in_memory, halves_that_take_turns,
    constants_in_between,
]  # fmt: skip


def gradient(program: Program, at: Any, **options: Any) -> Any:
    """That of a tape."""
    run, loss, x = program
    x.from_numpy(at)
    with ti.ad.Tape(loss, **options):
        run()
    return x.grad.to_numpy()


def differences(program: Program, at: Any) -> Any:
    """The gradient by central differences."""
    run, loss, x = program
    found, step = np.zeros_like(at), 1e-6
    for k in range(at.size):
        ends = []
        for h in (step, -step):
            moved = at.copy()
            moved[k] += h
            x.from_numpy(moved)
            loss.fill(0)
            run()
            ends.append(float(loss[None]))
        found[k] = (ends[0] - ends[1]) / (2 * step)
    return found


def is_near(found: Any, expected: Any, tolerance: float) -> None:
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_gradients_match_finite_differences(
    make: Callable[[], Program], need: Callable[..., None]
) -> None:
    need("f64")
    program = make()
    run, loss, x = program
    at = x.to_numpy()
    slopes = differences(program, at)
    found = gradient(program, at)
    is_near(found, slopes, 1e-6)
    is_near(gradient(program, at, memory=1000), found, 1e-12)
    along = np.linspace(-1.0, 2.0, at.size)
    x.from_numpy(at)
    loss.fill(0)
    with ti.ad.FwdMode(loss, x, list(along)):
        run()
    is_near(loss.dual[None], (found * along).sum(), 1e-9)
    x.from_numpy(at)
    product = ti.ad.hvp(run, loss, x, along)
    ends = [gradient(program, at + h * along) for h in (1e-6, -1e-6)]
    is_near(product, (ends[0] - ends[1]) / 2e-6, 1e-5)
