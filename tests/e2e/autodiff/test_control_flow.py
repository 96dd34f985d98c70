"""Gradients of loops and branches: state that loops carry, early exits, trip counts from data.
Every gradient is that of the same program in numpy, or by hand."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import X, check, field, make, refuse, slope


def test_state_carried_by_nested_loops() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in x:
            a, b = x[i], 1.0
            for j in range(3):
                for k in range(j + 1):
                    a, b = b * ti.sin(a), a + b * x[k] * 0.3
            loss[None] += a * b

    def program(x):
        total = 0
        for v in x:
            a, b = v, 1.0
            for j in range(3):
                for k in range(j + 1):
                    a, b = b * np.sin(a), a + b * x[k] * 0.3
            total += a * b
        return total

    check(x, loss, run, gradient=slope(program))


def test_two_loops_in_a_loop() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in range(4):
            s = x[i]
            for j in range(2):
                s *= x[j]
            for j in range(3):
                s = s * s + x[(i + j) % 4]
            loss[None] += s

    def program(x):
        s = x * x[0] * x[1]
        for j in range(3):
            s = s * s + np.roll(x, -j)
        return s.sum()

    check(x, loss, run, gradient=slope(program))


def test_vectors_and_matrices_carried_and_changed_in_place() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in range(1):
            m = ti.Matrix([[x[0], x[1]], [x[2], x[3]]])
            for j in range(3):
                m = m @ m * 0.5
                m[j % 2, 0] += x[j]
                m[0, :] = m[1, :] * x[0]
            loss[None] += m.sum()

    def program(x):
        m = x.reshape(2, 2).copy()
        for j in range(3):
            m = m @ m * 0.5
            m[j % 2, 0] += x[j]
            m[0] = m[1] * x[0]
        return m.sum()

    check(x, loss, run, gradient=slope(program))


def test_several_returns_in_nested_functions() -> None:
    x, loss = make()

    @ti.func
    def inner(v, n):
        for j in range(n):
            if v * j > 2.0:
                return v * v
        return v + 1.0

    @ti.func
    def f(v, n):
        s = v
        for j in range(n):
            s = s * inner(v, j)
            if s > 2.0:
                return s * 3
            if s < 0.7:
                return v * inner(s, 4)
        return s + v

    @ti.kernel
    def run():
        for i in x:
            loss[None] += f(x[i], i + 3)

    def inner_python(v, n):
        return v * v if any(v * j > 2.0 for j in range(n)) else v + 1.0

    def python(v, n):
        s = v
        for j in range(n):
            s = s * inner_python(v, j)
            if s > 2.0:
                return s * 3
            if s < 0.7:
                return v * inner_python(s, 4)
        return s + v

    gradient = slope(lambda x: sum(python(v, i + 3) for i, v in enumerate(x)))
    check(x, loss, run, gradient=gradient)


def test_break_in_a_serial_loop() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        ti.loop_config(serialize=True)
        for i in range(4):
            if x[i] > 1.5:
                break
            loss[None] += x[i] * x[i]

    check(x, loss, run, gradient=[2 * X[0], 2 * X[1], 2 * X[2], 0])


def test_break_depends_on_state() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in x:
            s = x[i]
            for j in range(10):
                s = s * 1.5
                if s > 3.0:
                    break
            loss[None] += s * s

    def factor(v):  # iterations of 1.5 until past 3
        return next((1.5**n for n in range(1, 11) if v * 1.5**n > 3.0), 1.5**10)

    check(x, loss, run, gradient=[2 * v * factor(v) ** 2 for v in X])


def test_continue_skips_state_changes() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in x:
            if x[i] > 1.5:
                continue
            s = x[i]
            for j in range(4):
                if j == 2:
                    continue
                s = s * x[i]
            loss[None] += s

    check(x, loss, run, gradient=np.where(X > 1.5, 0, 4 * X**3))


def test_trip_counts_from_memory_that_changes() -> None:
    x, loss = make()
    n = ti.field(ti.i32, 4)
    n.from_numpy(np.array([0, 3, 1, 5], np.int32))

    @ti.kernel
    def run():
        for i in x:
            s = 1.0
            for j in range(n[i]):
                s *= x[i]
            n[i] = 7
            loss[None] += s

    check(x, loss, run, gradient=[0, 3 * X[1] ** 2, 1, 5 * X[3] ** 4])


def test_trip_counts_changed_between_calls() -> None:
    x, loss = make()
    n = ti.field(ti.i32, ())
    n[None] = 2

    @ti.kernel
    def run():
        for i in x:
            s = 1.0
            for j in range(n[None]):
                s *= x[i]
            loss[None] += s

    @ti.kernel
    def more(by: ti.i32):
        n[None] += by

    def clear():
        n[None] = 0

    check(x, loss, run, lambda: more(1), run, clear, gradient=2 * X + 3 * X**2)


def test_number_of_iterations_set_in_the_kernel() -> None:
    x, loss = make()
    n = ti.field(ti.i32, ())
    n[None] = 1

    @ti.kernel
    def run():
        n[None] = n[None] + 1
        for i in range(n[None]):
            s = x[i]
            for j in range(n[None]):
                s = s * s
            loss[None] += s
        n[None] = 0

    check(x, loss, run, gradient=4 * X**3 * [1, 1, 0, 0])


def test_while_until_large() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in x:
            s = x[i]
            while s < 50:
                s = s * s + s * 0.5 + x[i]
            loss[None] += ti.log(s)

    def program(x):
        total = 0
        for v in x:
            s = v
            while s < 50:
                s = s * s + s * 0.5 + v
            total += np.log(s)
        return total

    check(x, loss, run, gradient=slope(program))


def test_while_true_with_several_exits() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in x:
            s, n = x[i], 0
            while True:
                n += 1
                if n > 6:
                    break
                if s > 1.0:
                    s = s * 0.5
                    continue
                s = s + x[i] * x[i]
                if s > 3.0:
                    break
            loss[None] += s * n

    def program(x):
        total = 0
        for v in x:
            s, n = v, 0
            while True:
                n += 1
                if n > 6:
                    break
                if s > 1.0:
                    s = s * 0.5
                    continue
                s = s + v * v
                if s > 3.0:
                    break
            total += s * n
        return total

    check(x, loss, run, gradient=slope(program))


def test_while_condition_that_changes_memory() -> None:
    x, loss = make()
    y = field(4)

    @ti.kernel
    def run():
        ti.loop_config(serialize=True)
        for i in x:
            while ti.atomic_add(y[i], x[i]) < 3.0:
                y[i] = y[i] * 1.5
            loss[None] += y[i]

    def program(x):
        total = 0
        for v in x:
            y = 0.0
            while True:
                old, y = y, y + v
                if old >= 3.0:
                    break
                y = y * 1.5
            total += y
        return total

    check(x, loss, run, gradient=slope(program))


def test_empty_loops() -> None:
    x, loss = make()

    @ti.kernel
    def run(n: ti.i32):
        for i in range(n):
            loss[None] += x[i] * x[i]
        for i in range(4):
            s = x[i]
            for j in range(n - 1):
                s = s * s
            for j in range(5, n):
                s = s * s
            loss[None] += s

    check(x, loss, lambda: run(0), gradient=[1, 1, 1, 1])


def test_static_loops_and_branches() -> None:
    x, loss = make()

    @ti.kernel
    def run(which: ti.template()):
        for i in x:
            s = x[i]
            for j in ti.static(range(3)):
                if ti.static(j == which):
                    s = s * s
                elif s > 1.0:
                    s = s * x[j]
            loss[None] += s

    def program(x, which):
        total = 0
        for v in x:
            s = v
            for j in range(3):
                if j == which:
                    s = s * s
                elif s > 1.0:
                    s = s * x[j]
            total += s
        return total

    for which in (0, 2):
        gradient = slope(lambda x, which=which: program(x, which))
        check(x, loss, lambda which=which: run(which), gradient=gradient)


def test_backward_and_stepped_ranges() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in range(1):
            s = 1.0
            for j in range(3, -1, -1):
                s = s * 0.5 + x[j] * x[j] * s
            for j in range(0, 4, 3):
                s *= x[j]
            loss[None] += s

    def program(x):
        s = 1.0
        for j in (3, 2, 1, 0):
            s = s * 0.5 + x[j] * x[j] * s
        return s * x[0] * x[3]

    check(x, loss, run, gradient=slope(program))


def test_branches_on_state_kept_in_integers() -> None:
    x, loss = make()
    flag = ti.field(ti.i32, 4)

    @ti.kernel
    def mark():
        for i in x:
            flag[i] = 1 if x[i] > 1 else 0

    @ti.kernel
    def step():
        for i in x:
            if flag[i] == 1:
                x[i] = x[i] * x[i]
            else:
                x[i] = x[i] * 3
            flag[i] = 1 - flag[i]

    @ti.kernel
    def add():
        for i in x:
            loss[None] += x[i]

    check(x, loss, mark, step, step, add, gradient=np.where(X > 1, 6 * X, 18 * X))


def test_index_chosen_by_data() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in range(1):
            best = 0
            for j in range(1, 4):
                if x[j] > x[best]:
                    best = j
            loss[None] += x[best] * x[best] * x[0]

    check(x, loss, run, gradient=[X[3] ** 2, 0, 0, 2 * X[3] * X[0]])


def test_the_same_value_stored_by_all_iterations() -> None:
    x, loss = make()
    y = field()

    @ti.kernel
    def run():
        for i in x:
            y[None] = x[0] * x[1]
        loss[None] = y[None] * 3

    check(x, loss, run, gradient=[3 * X[1], 3 * X[0], 0, 0])


def test_a_value_of_its_own_stored_by_every_iteration() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in x:
            loss[None] = x[i]

    refuse("several iterations of one loop store to the same element of `loss`", loss, run)


def test_stored_by_one_iteration() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in x:
            if i == 2:
                loss[None] = x[i] * x[i]

    check(x, loss, run, gradient=[0, 0, 2 * X[2], 0])


def test_only_the_gradient_reports_recursion_that_is_too_deep() -> None:
    x, y = field(3, values=[1, 2, 3]), field(3)

    @ti.real_func
    def both(v: ti.math.vec2, n: ti.i32) -> ti.f32:
        if n == 0:
            return v.x
        return both(v * 1, n - 1) + both(v, n - 1)

    @ti.kernel
    def run(n: ti.i32):
        for i in x:
            y[i] += both(ti.Vector([x[i], 0.0]), n)

    y.grad.fill(1)
    run.grad(7)
    assert x.grad.to_numpy().tolist() == [128] * 3
    with pytest.raises(ti.TaichiAssertionError, match="calls itself more than 8 times"):
        run.grad(9)
    assert x.grad.to_numpy().tolist() == [128] * 3
    assert y.to_numpy().tolist() == [0] * 3


def test_only_the_gradient_reports_a_full_stack() -> None:
    x, y = field(3, values=[1, 2, 3]), field(3)

    @ti.real_func
    def down(v: ti.f32, n: ti.i32) -> ti.f32:
        if n == 0:
            return v
        if n % 2 == 0:
            return down(v, n - 1) * 2
        return down(v, n - 1)

    @ti.kernel
    def run(n: ti.i32):
        for i in x:
            y[i] += down(x[i], n)

    y.grad.fill(1)
    run.grad(8)
    assert x.grad.to_numpy().tolist() == [16] * 3
    with pytest.raises(ti.TaichiAssertionError, match="calls itself more than 64 times"):
        run.grad(64)


def test_a_function_that_calls_itself_twice() -> None:
    x, loss = make()

    @ti.real_func
    def spread(depth: ti.i32, v: ti.f32) -> ti.f32:
        if depth == 0:
            return v
        return spread(depth - 1, v * v * 0.5) + spread(depth - 1, ti.sin(v))

    @ti.kernel
    def run():
        for i in x:
            loss[None] += spread(3, x[i])

    def program(x):
        for _ in range(3):
            x = np.concatenate([x * x * 0.5, np.sin(x)])
        return x.sum()

    check(x, loss, run, gradient=slope(program))
