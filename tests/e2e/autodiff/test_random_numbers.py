"""Gradients of kernels that draw random numbers, and that count in parallel: the tape keeps the
drawn values."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import X, check, field, is_near, make, refuse


def test_random_factors() -> None:
    x, loss = make()
    noise = ti.field(ti.f32, 4)

    @ti.kernel
    def run():
        for i in x:
            r = ti.random()
            noise[i] = r
            loss[None] += x[i] * x[i] * r

    for _ in range(2):
        with ti.ad.Tape(loss):
            run()
        is_near(x.grad, 2 * X * noise.to_numpy())
        is_near(loss, (X * X * noise.to_numpy()).sum())


def test_random_branches_and_normal_numbers() -> None:
    x, loss = make()
    y = field(4, values=np.ones(4))

    @ti.kernel
    def run():
        for i in x:
            y[i] *= ti.sin(x[i] * ti.randn())
            if ti.random() < 0.5:
                y[i] += x[i] * ti.random()
        for i in x:
            loss[None] += y[i] * y[i]

    with ti.ad.Tape(loss, grad_check=[x]):
        run()


def test_random_numbers_in_loops_and_beside_them() -> None:
    x, loss = make()

    @ti.kernel
    def run(n: ti.i32):
        scale = ti.random()
        for i in x:
            for j in range(1, n):
                for k in range(2):
                    if (i + j) % 2 == k:
                        loss[None] += ti.sin(x[i] * ti.random()) * (scale + ti.random() * x[i])

    with ti.ad.Tape(loss, grad_check=[x]):
        run(4)


def test_random_steps_are_replayed() -> None:
    n = 1000
    x, y, loss = field(n, values=np.linspace(0.5, 1.5, n)), field(n), field()
    added = ti.field(ti.f32, n)

    @ti.kernel
    def step():
        for i in x:
            added[i] = ti.random()
            y[i] = ti.sin(y[i] * ti.random()) + x[i] * added[i]

    @ti.kernel
    def total():
        for i in x:
            loss[None] += y[i] * y[i] * added[i]

    def run() -> ti.ad.Tape:
        with ti.ad.Tape(loss, memory="40KB", grad_check=[x]) as tape:
            for _ in range(12):
                step()
            total()
        return tape

    report = run().report
    assert report is not None
    assert report.repeated > 0


def test_a_list_filled_in_any_order() -> None:
    x, loss = make()
    kept, count, slot = field(4), ti.field(ti.i32, ()), ti.field(ti.i32, 4)

    @ti.kernel
    def fill():
        for i in x:
            if x[i] > 0.5:
                k = ti.atomic_add(count[None], 1)
                slot[i] = k
                kept[k] = x[i] * x[i]

    @ti.kernel
    def total():
        for k in range(count[None]):
            loss[None] += kept[k] * kept[k] * (k + 1)

    with ti.ad.Tape(loss):
        fill()
        total()
    is_near(x.grad, 4 * X**3 * (slot.to_numpy() + 1) * (X > 0.5))


def test_lists_per_cell() -> None:
    n = 40
    values = np.random.default_rng(2).uniform(0.1, 3.9, n)
    x, loss = field(n, values=values), field()
    cells, counts = ti.Vector.field(2, ti.f32, (4, n), needs_grad=True), ti.field(ti.i32, 4)

    @ti.kernel
    def run():
        for i in x:
            c = int(x[i])
            cells[c, ti.atomic_add(counts[c], 1)] = ti.Vector([x[i], ti.sqrt(x[i])])
        for c in counts:
            for k in range(counts[c]):
                loss[None] += cells[c, k][0] * cells[c, k][1] * (c + 1)

    check(x, loss, run, gradient=1.5 * np.sqrt(values) * (values.astype(int) + 1))


def test_a_list_is_the_same_when_it_is_filled_again() -> None:
    n = 2000
    x, y, loss = field(n, values=np.linspace(0, 1, n)), field(n), field()
    count, order = ti.field(ti.i32, ()), ti.field(ti.i32, n)

    @ti.kernel
    def sort():
        count[None] = 0
        for i in x:
            order[ti.atomic_add(count[None], 1)] = i

    @ti.kernel
    def step():
        for k in x:
            y[order[k]] = ti.sin(y[order[k]]) + x[order[k]] * (k % 5)

    @ti.kernel
    def total():
        for i in x:
            loss[None] += y[i] * y[i]

    with ti.ad.Tape(loss, memory="85KB", grad_check=[x]) as tape:
        for _ in range(6):
            sort()
            step()
        total()
    assert tape.report is not None
    assert tape.report.repeated > 0


# --- serial loops of unknown length --------------------------------------------------------------


@ti.func
def in_disc():
    """Rejection sampling."""
    p = ti.Vector([ti.random(), ti.random()]) * 2 - 1
    while p.norm() >= 1:
        p = ti.Vector([ti.random(), ti.random()]) * 2 - 1
    return p


@pytest.mark.parametrize("memory", [None, "1KB"])
def test_roulette_and_rejection_sampling(memory: str | None) -> None:
    """Calls of different lengths; their numbers outlive them."""
    x, y, loss = field(6, values=np.linspace(0.4, 1.1, 6)), field(6), field()

    @ti.kernel
    def step():
        for i in x:
            p = in_disc()
            y[i] = ti.sin(y[i] * (1 + p[0])) + x[i] * ti.random()
            for _ in range(8):
                y[i] *= 1 + 0.3 * x[i] * ti.random()
                if ti.random() < 0.3:
                    break

    @ti.kernel
    def total():
        for i in y:
            loss[None] += y[i] * y[i]

    with ti.ad.Tape(loss, memory=memory, grad_check=[x, y]):
        for _ in range(5):
            step()
        total()


def test_draws_in_conditions_and_nested_loops() -> None:
    x, loss = make()

    @ti.kernel
    def run(n: ti.i32):
        s = 0.0
        while ti.random() < 0.7:
            s += ti.random() * x[1] * x[2]
        loss[None] += s
        for i in range(1, n):
            a = ti.random()
            for _ in range(2):
                t = x[i]
                while ti.random() < 0.6:
                    r = ti.random(ti.f32) + a
                    while r < 1:
                        t = 0.5 * ti.sin(t * x[i]) + r
                        r += 0.5 * ti.random()
                loss[None] += t * t
        for i, j in ti.ndrange(2, 2):
            if x[i] > 0.1:
                loss[None] += in_disc()[0] * x[i] * x[i + j]

    for n in (4, 2, 4):
        with ti.ad.Tape(loss, grad_check=[x]):
            run(n)


def test_cotangents_after_later_draws() -> None:
    x, _ = make()
    y, drawn = field(4), field(4)

    @ti.kernel
    def run():
        for i in x:
            p = in_disc()
            drawn[i] = p[0]
            y[i] = p[0] * x[i] ** 2

    with ti.ad.Tape() as tape:
        run()
    want = 2 * X * drawn.to_numpy()
    run()
    for _ in range(2):
        x.grad.fill(0)
        tape.backward({y: 1.0})
        is_near(x.grad, want)


def test_many_iterations_draw_as_often_as_they_like() -> None:
    n = 5000
    x, drawn, loss = field(n, values=np.linspace(0.5, 1, n)), ti.field(ti.f32, n), field()
    longest = ti.field(ti.i32, ())

    @ti.kernel
    def run():
        for i in x:
            s, k = 0.0, 0
            while ti.random() < 0.9:
                s += ti.random()
                k += 1
            drawn[i] = s
            ti.atomic_max(longest[None], k)
            loss[None] += x[i] * x[i] * s

    with ti.ad.Tape(loss):
        run()
    assert longest[None] > 20
    is_near(x.grad, 2 * x.to_numpy() * drawn.to_numpy())


# --- values that are not saved -------------------------------------------------------------------


def test_random_numbers_in_parallel_loops_of_unknown_length() -> None:
    x, loss = make()
    n = ti.field(ti.i32, ())
    n[None] = 4

    @ti.kernel
    def run():
        for i in range(n[None]):
            loss[None] += x[i] * ti.random()

    refuse("the random numbers drawn here", loss, run)


def test_gradients_outside_a_tape_and_validated_ones() -> None:
    x, loss = make()
    drawn = field(4)

    @ti.kernel
    def run():
        for i in x:
            r = ti.random()
            drawn[i] = r
            loss[None] += x[i] * r

    with pytest.raises(ti.ad.GradientError, match="the random numbers drawn here"):
        run.grad()
    with ti.ad.Tape(loss, validation=True):
        run()
    is_near(x.grad, drawn.to_numpy())


def test_old_values_with_a_derivative_are_not_kept() -> None:
    x, loss = make()
    total = ti.field(ti.f32, ())

    @ti.kernel
    def run():
        for i in x:
            loss[None] += ti.atomic_add(total[None], x[i]) * ti.random()

    refuse("flows through `total`", loss, run)


def test_pairs_in_contact() -> None:
    """A counter in a loop whose range depends on the index of the one around."""
    n = 24
    x, loss = field(n, values=np.random.default_rng(3).uniform(0, 3, n)), field()
    force = field(n * n)
    count = ti.field(ti.i32, ())

    @ti.kernel
    def find():
        for i in range(n):
            for j in range(i + 1, n):
                d = x[i] - x[j]
                if ti.abs(d) < 0.4:
                    k = ti.atomic_add(count[None], 1)
                    force[k] = (0.4 - ti.abs(d)) ** 2 * (1 + 0.1 * i)

    @ti.kernel
    def add():
        for k in range(count[None]):
            loss[None] += force[k]

    values = x.to_numpy().astype(np.float64)
    d = values[:, None] - values[None]
    near = np.triu(abs(d) < 0.4, 1)
    g = np.where(near, -2 * (0.4 - abs(d)) * np.sign(d) * (1 + 0.1 * np.arange(n)[:, None]), 0)
    for memory in (None, "4KiB"):
        count[None] = 0
        with ti.ad.Tape(loss, memory=memory):
            find()
            add()
        assert count[None] == near.sum() > 10
        is_near(x.grad, g.sum(1) - g.sum(0))


def test_random_numbers_in_loops_of_varying_length() -> None:
    """Every round has a place of its own, whichever way the lengths vary."""
    x, loss = make()
    drawn, seen = ti.field(ti.f32, (4, 7, 7, 4)), ti.field(ti.i32, ())

    @ti.kernel
    def run(m: ti.i32):
        for i in x:
            for j in range(-1, m - i):
                for k in range(j, 5 - i + 1):
                    for l in range(ti.max(k - 2, 0), ti.min(4, 2 * m - j)):
                        r = ti.random()
                        drawn[i, j + 1, k + 1, l] = r
                        ti.atomic_add(seen[None], 1)
                        loss[None] += ti.sin(x[i] * r)

    with ti.ad.Tape(loss):
        run(3)
    r = drawn.to_numpy()
    assert np.count_nonzero(r) == seen[None] > 100
    is_near(x.grad, np.where(r > 0, r * np.cos(X[:, None, None, None] * r), 0).sum((1, 2, 3)))


def test_a_counter_in_a_loop_that_data_bound() -> None:
    x, loss = make()
    bound, count = ti.field(ti.i32, 4), ti.field(ti.i32, ())
    out = field(16)

    @ti.kernel
    def run():
        for i in x:
            for _ in range(bound[i]):
                out[ti.atomic_add(count[None], 1)] = x[i] * x[i]
        for k in out:
            loss[None] += out[k]

    bound.fill(2)
    refuse("the gradient needs what an atomic operation returned here", loss, run)


def test_ranges_with_extremes_that_wrap() -> None:
    x, loss = make()

    @ti.kernel
    def run(n: ti.i32, reach: ti.i32):
        for p in x:
            for i in range(n):
                for _ in range(i, ti.min(i + reach, n)):
                    loss[None] += x[p] * ti.random()

    refuse("the random numbers drawn here", loss, lambda: run(9, 2**31 - 1))
    with ti.ad.Tape(loss):
        run(9, 5)
    is_near((x.grad.to_numpy() * X).sum(), loss[None])
