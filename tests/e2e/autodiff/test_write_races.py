"""Iterations of one loop that write to the same elements: refused where a gradient hangs on it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import check, field, is_near, refuse, slope
from vkchi.errors import DeviceError
from vkchi.races import conflicts
from vkchi.races import meeting as races

STORES = r"several iterations of one loop store to the same element of `\w+`"
READS = r"one iteration reads an element of `\w+` [^`]*"
N, BINS = 24, 6
START = np.linspace(0.1, 1.0, N)
Program = tuple[Any, list[Callable[[], Any]]]  # the loss, and its function


def integers(values: Any) -> Any:
    """A field of integers."""
    made = ti.field(ti.i32, len(values))
    made.from_numpy(np.asarray(values, np.int32))
    return made


def last_writer_wins() -> Program:
    x, y, loss = field(N, values=START), field(BINS), field()
    bins = integers(np.arange(N) * 5 % BINS)

    @ti.kernel
    def scatter():
        for i in x:
            y[bins[i]] = x[i] * x[i]

    @ti.kernel
    def total():
        for i in y:
            loss[None] += y[i] * y[i]

    return loss, [scatter, total]


def owners_gathered_later() -> Program:
    x, y, loss = field(N, values=START), field(BINS), field()
    bins, owner = integers(np.arange(N) * 5 % BINS), integers(np.zeros(BINS))

    @ti.kernel
    def run():
        for i in x:
            owner[bins[i]] = i
        for i in y:
            y[i] = x[owner[i]] ** 2
        for i in y:
            loss[None] += y[i] * y[i]

    return loss, [run]


def flag_by_whoever_finds_it() -> Program:
    x, loss = field(N, values=START), field()
    found = ti.field(ti.i32, ())

    @ti.kernel
    def run():
        for i in x:
            if x[i] > 0.3:
                found[None] = i
        loss[None] += x[found[None]] ** 2

    return loss, [run]


def result_by_whoever_finds_it() -> Program:
    x, result, loss = field(N, values=START), field(), field()

    @ti.kernel
    def find():
        for i in x:
            if x[i] > 0.3:
                result[None] = x[i]

    @ti.kernel
    def total():
        loss[None] += result[None] ** 2

    return loss, [find, total]


def best_so_far() -> Program:
    x, best, loss, which = field(N, values=START), field(), field(), integers([0])

    @ti.kernel
    def run():
        for i in x:
            if x[i] > best[None]:
                best[None] = x[i]
                which[0] = i
        loss[None] += x[which[0]] ** 2 + best[None]

    return loss, [run]


def short_recurrence() -> Program:
    x, y, loss = field(N, values=START), ti.field(ti.f32, N), field()

    @ti.kernel
    def run():
        for i in range(3):
            y[i + 1] = ti.sin(y[i]) + 0.3
        for i in x:
            loss[None] += x[i] ** 2 * y[i]

    return loss, [run]


def recurrence_in_one_element() -> Program:
    x, s, loss = field(N, values=START), field(), field()

    @ti.kernel
    def run():
        s[None] = 1.0
        for _ in range(3):
            s[None] = s[None] * x[0]
        loss[None] += s[None]

    return loss, [run]


def contacts(first: int) -> Program:
    """Contacts that arise at a call that is no power of two, and end after it."""
    x, loss = field(N, values=START), field()

    @ti.kernel
    def step(t: ti.i32):
        for i in range(N - 1):
            if t == first:
                d = x[i + 1] - x[i]
                x[i] += 0.1 * d
                x[i + 1] -= 0.1 * d

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i] * x[i]

    return loss, [*(lambda t=t: step(t) for t in range(1, 8)), total]


PROGRAMS = {
    last_writer_wins: STORES,
    owners_gathered_later: STORES,
    flag_by_whoever_finds_it: STORES,
    result_by_whoever_finds_it: STORES,
    best_so_far: f"{READS}|{STORES}",
    short_recurrence: READS,
    recurrence_in_one_element: f"{READS}|{STORES}",
    (lambda: contacts(3)): READS,
    (lambda: contacts(5)): READS,
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradient_of_write_race_raises(program: Callable[[], Program]) -> None:
    message = PROGRAMS[program]
    loss, kernels = program()
    refuse(message, loss, *kernels)
    loss, kernels = program()
    with pytest.raises(ti.TaichiAssertionError, match=message):
        with ti.ad.Tape(loss, validation=True):
            for kernel in kernels:
                kernel()


def test_sums_that_are_read_under_way_are_in_order() -> None:
    x, y, loss = field(N, values=START), field(N), field()

    @ti.kernel
    def run():
        s = 0.0
        for i in x:
            s += x[i]
            y[i] = s
        for i in y:
            loss[None] += y[i] ** 2

    with ti.ad.Tape(loss):
        run()
    sums = np.cumsum(x.to_numpy())
    np.testing.assert_allclose(y.to_numpy(), sums, rtol=1e-5)
    is_near(x.grad, 2 * np.cumsum(sums[::-1])[::-1])


def test_variables_of_the_kernel_are_assigned_in_order() -> None:
    x, loss = field(N, values=START), field()

    @ti.kernel
    def run():
        found, power = -1, 1.0
        for i in x:
            if x[i] > 0.3:
                found = i
        for _ in range(3):
            power = power * x[0]
        loss[None] += x[found] ** 2 + power

    with ti.ad.Tape(loss, validation=True):
        run()
    want = np.zeros(N, np.float32)
    want[np.flatnonzero(START > 0.3)[-1]] = 2 * START[np.flatnonzero(START > 0.3)[-1]]
    want[0] += 3 * START[0] ** 2
    np.testing.assert_allclose(x.grad.to_numpy(), want, rtol=1e-5)


def test_write_race_without_derivative_is_allowed() -> None:
    x, y, loss = field(N, values=START), field(BINS), field()

    @ti.kernel
    def run():
        for i in x:
            y[i % BINS] = x[i]
        for i in x:
            loss[None] += x[i] ** 2

    check(x, loss, run, gradient=2 * START)


def test_a_race_without_a_derivative_hides_no_other() -> None:
    x, z, loss = field(N, values=START), field(N), field()

    @ti.kernel
    def run():
        for i in x:
            x[i % 3] += 0.5 * x[2]
        for i in z:
            z[i // 2] += z[i // 3] + 1
        for i in x:
            loss[None] += x[i]

    refuse(READS, loss, run)


def test_forward_mode_where_the_run_lost_the_derivative() -> None:
    """In another order it would have come through."""
    x, y = (ti.field(ti.f32, N, needs_dual=True) for _ in range(2))
    where = integers(np.arange(N)[::-1])

    @ti.kernel
    def run():
        for i in x:
            x[where[i]] = 0.5
            y[i] = x[i]

    for seed in np.ones(N), -np.arange(N):
        with pytest.raises(ti.ad.GradientError, match=READS), ti.ad.FwdMode(y, x, seed):
            run()
    with ti.ad.FwdMode(y, x, np.zeros(N)):
        run()
    is_near(y.dual, np.zeros(N))


def test_winners_in_memory() -> None:
    """Values that an earlier kernel left there are read, not recomputed."""
    x, loss, owner = field(N, values=START), field(), integers(np.zeros(BINS))

    @ti.kernel
    def elect():
        for i in x:
            owner[i % BINS] = i

    @ti.kernel
    def gather():
        for i in range(BINS):
            loss[None] += x[owner[i]] ** 2

    for memory in None, "1KiB":
        with ti.ad.Tape(loss, memory=memory):
            for _ in range(3):
                elect()
                gather()
        won = owner.to_numpy()
        assert won.max() >= BINS
        want = np.zeros(N)
        want[won] = 6 * START[won]
        is_near(x.grad, want)


# --- no races ------------------------------------------------------------------------------------


def test_colours_over_many_cells() -> None:
    """Iterations far apart were once taken for one."""
    n = 300_000
    x, b, loss = field(n), field(n), field()

    @ti.kernel
    def sweep(colour: ti.i32):
        for i in range(1, n - 1):
            if i % 3 == colour:
                x[i] = 0.5 * (x[i - 1] + x[i + 1] + b[i])

    @ti.kernel
    def total():
        for i in range(6):
            loss[None] += x[i] ** 2

    def program(b: Any) -> Any:
        x = np.zeros(8)
        for c in range(3):
            for i in range(1, 7):
                if i % 3 == c:
                    x[i] = 0.5 * (x[i - 1] + x[i + 1] + b[i])
        return (x[:6] ** 2).sum()

    b.fill(1)
    with ti.ad.Tape(loss):
        for c in range(3):
            sweep(c)
        total()
    is_near(b.grad.to_numpy()[:8], slope(program, np.ones(8)))


def test_colours_by_lists() -> None:
    x, loss = field(N, values=START), field()
    cells = integers([*range(0, N, 2), *range(1, N, 2)])

    @ti.kernel
    def sweep(begin: ti.i32, end: ti.i32):
        for k in range(begin, end):
            i = cells[k]
            x[i] = x[ti.max(i - 1, 0)] * x[ti.min(i + 1, N - 1)] if 0 < i < N - 1 else x[i]

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i] ** 2

    def program(x: Any) -> Any:
        x = x.copy()
        x[2:-1:2] = x[1:-2:2] * x[3::2]
        x[1:-1:2] = x[:-2:2] * x[2::2]
        return (x**2).sum()

    runs = (lambda: sweep(0, N // 2)), (lambda: sweep(N // 2, N)), total
    check(x, loss, *runs, gradient=slope(program, START))


def test_the_same_values() -> None:
    x, y, loss, flag = field(N, values=START), field(BINS), field(), integers([0])

    @ti.kernel
    def run():
        for i in x:
            y[i // 4] = x[i // 4] ** 2  # told by the element
            if x[i] > 0.5:
                flag[0] = 1
        for i in y:
            loss[None] += y[i] * flag[0]

    check(x, loss, run, gradient=np.where(np.arange(N) < BINS, 2 * START, 0))


def test_equal_values_of_different_origin_raise() -> None:
    """The stored values are equal; their derivatives are not."""
    x, y, loss = field(N, values=np.ones(N)), field(BINS), field()

    @ti.kernel
    def run():
        for i in x:
            y[i % BINS] = x[i]
        for i in y:
            loss[None] += y[i]

    refuse(STORES, loss, run)


def test_elements_that_counters_select() -> None:
    x, kept, loss, count = field(N, values=START), field(N), field(), integers([0])

    @ti.kernel
    def run():
        for i in x:
            if x[i] > 0.5:
                k = ti.atomic_add(count[0], 1)
                kept[k] = x[i] ** 2

    @ti.kernel
    def total():
        for k in range(count[0]):
            loss[None] += kept[k]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(x, loss, run, total, gradient=np.where(START > 0.5, 2 * START, 0))


def test_an_extreme_under_its_own_guard() -> None:
    x, most, loss = field(N, values=START), field(), field()

    @ti.kernel
    def run():
        for i in x:
            if most[None] < x[i]:
                ti.atomic_max(most[None], x[i])
        loss[None] += most[None] ** 2

    check(x, loss, run, gradient=np.eye(N)[N - 1] * 2)


def test_vectors_that_are_stored_by_component() -> None:
    v, x, loss = ti.Vector.field(2, ti.f32, BINS, needs_grad=True), field(12), field()
    x.from_numpy(np.arange(12))

    @ti.kernel
    def run():
        for i in x:
            if i % 2 == 0:
                v[i // 2].x = x[i]
            else:
                v[i // 2].y = x[i] ** 2
        for i in v:
            loss[None] += v[i].x * v[i].y

    def program(x: Any) -> Any:
        return (x[::2] * x[1::2] ** 2).sum()

    check(x, loss, run, gradient=slope(program, np.arange(12)))


# --- trials --------------------------------------------------------------------------------------


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of kernels that were tried."""
    made: list[str] = []
    run = races.InstrumentedRun.find
    monkeypatch.setattr(
        races.InstrumentedRun, "find", lambda self, call: made.append(call.name) or run(self, call)
    )
    return made


def test_disjoint_indices_need_no_trial_run(trials: list[str]) -> None:
    x, y, loss = field(N, values=START), field(N, N), field()

    @ti.kernel
    def run(t: ti.i32):
        for i in x:
            x[i] = 0.5 * x[i] + y[i, t]
        for i, j in y:
            y[i, j] += x[i] * x[j]
            loss[None] += y[i, j]
        for i in x:
            y[i, t + 1] = y[i, t]

    with ti.ad.Tape(loss):
        for t in range(3):
            run(t)
    assert trials == []


def test_disjoint_multiples_and_rows_need_no_trial_run(trials: list[str]) -> None:
    """Also rows of a serial loop that the scalars of a call keep disjoint."""
    n, m = N // 2, 3
    x, y, loss = field(N, values=START), field(n * m), field()

    @ti.kernel
    def run(n: ti.i32, m: ti.i32):
        for i in range(n):
            x[2 * i] *= x[2 * i + 1]
        for i, j in ti.ndrange(n, m):
            y[i * m + j] = x[2 * i] * x[2 * i] * (j + 1)
        for i in range(n):
            for j in range(m):
                y[i * m + j] *= x[2 * i + 1]
        for k in y:
            loss[None] += y[k]

    with ti.ad.Tape(loss):
        run(n, m)
    a, b = START[0::2], START[1::2]
    want = np.stack([6 * 2 * a * b**3, 6 * 3 * a**2 * b**2], axis=1)
    is_near(x.grad, want.reshape(-1))
    assert trials == []


def test_a_trial_is_repeated_if_its_conditions_changed(trials: list[str]) -> None:
    x, loss, near = field(N, values=START), field(), integers(np.arange(N) // 2 * 2)

    @ti.kernel
    def run():
        for k in range(N // 2):
            x[2 * k + 1] *= x[near[2 * k + 1]]

    @ti.kernel
    def change(v: ti.i32):
        near[1] = v

    with ti.ad.Tape(loss):
        for _ in range(3):
            run()
        assert trials == ["run"]
        change(2)
        run()
        near[1] = 0
        run()
        assert trials == ["run"] * 3
        near.fill(2)
        run()
        run()
        assert trials == ["run"] * 4

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    refuse(READS, loss, run, (lambda: change(3)), run, total)
    near.from_numpy(np.arange(N, dtype=np.int32) // 2 * 2)
    refuse(READS, loss, run, (lambda: change(3)), run, total)


def test_scalar_dependent_race_is_tried_once_per_value(trials: list[str]) -> None:
    x, loss = field(N, values=START), field()

    @ti.kernel
    def sweep(colour: ti.i32, rate: ti.f32):
        for i in range(1, N - 1):
            if i % 2 == colour:
                x[i] += rate * (x[i - 1] + x[i + 1] - 2 * x[i])

    for _ in range(2):
        with ti.ad.Tape(loss):
            for t in range(6):
                sweep(t % 2, 0.1 * t)
    assert trials == ["sweep"] * 2


def test_numbers_of_numpy() -> None:
    x, loss = field(N, values=START), field()

    @ti.kernel
    def sweep(shift: ti.i32):
        for i in range(4):
            x[i + shift % 5] = 2 * x[i]

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    with ti.ad.Tape(loss):
        for shift in (0, np.int32(0), np.int64(5)):
            sweep(shift)
        total()
    is_near(x.grad, [8] * 4 + [1] * (N - 4))
    refuse(READS, loss, (lambda: sweep(0)), (lambda: sweep(np.int32(1))), total)


@pytest.mark.parametrize("other", [33, 1])
def test_equal_stores_are_found_in_any_order(other: int) -> None:
    x, y, loss = field(64, values=np.ones(64)), field(64), field()
    flag = ti.field(ti.f32, 64)
    place = np.arange(64)
    reader = 2 if other == 33 else 62
    place[other] = reader  # stores after, or before, the one iteration that reads
    near = integers(place)

    @ti.kernel
    def run():
        for i in range(64):
            if i % 2 == 0:
                y[i] = x[i] * flag[near[i]]
            flag[near[i]] = 1.0

    @ti.kernel
    def total():
        for i in y:
            loss[None] += y[i]

    refuse(READS, loss, run, total)
    with ti.ad.Tape(loss):
        run()  # it stands there by now
        total()
    is_near(x.grad, [1, 0] * 32)


def test_a_value_of_many_steps_is_reported_quickly() -> None:
    x, loss = field(BINS, values=np.ones(BINS)), field()
    bins = integers(np.arange(N) * 5 % BINS)

    @ti.kernel
    def run(start: ti.f32):
        for i in range(N):
            v = start
            for _ in ti.static(range(40)):
                v = v * v + v
            x[bins[i]] = v

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    with ti.ad.Tape(loss):
        run(0.0)
        total()
    is_near(x.grad, [0] * BINS)


@pytest.mark.parametrize("most", [1, conflicts.MOST_ACCESSES])
def test_unrolled_accesses(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(conflicts, "MOST_ACCESSES", most)
    x, loss = field(N, values=START), field()
    near = integers(np.arange(N) // 2)

    @ti.kernel
    def run():
        for i in range(BINS):
            s = 0.0
            for k in ti.static(range(4)):
                s += x[4 * near[2 * i] + k] ** 2
            for k in ti.static(range(3)):
                x[4 * near[2 * i] + k] = s * (k + 1)

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    kept = np.arange(N) % 4 == 3
    with ti.ad.Tape(loss):
        run()
        total()
    is_near(x.grad, 12 * START + kept)
    near.from_numpy(np.zeros(N, np.int32))
    refuse(READS, loss, run, total)


def test_accesses_of_an_unrolled_loop_are_taken_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[conflicts.Conflict] = []

    def find(fn: Any) -> list[conflicts.Conflict]:
        found[:] = conflicts.find_conflicts(fn)
        return []  # as it would take long to try them

    monkeypatch.setattr(races, "find_conflicts", find)
    x, loss = field(N, values=START), field()
    near, count = integers(np.arange(N)), conflicts.MOST_ACCESSES

    @ti.kernel
    def run():
        for i in range(N):
            for k in ti.static(range(count)):
                x[near[i] // (k + 1)] = 0.5 * x[near[i] // (k + 2)]

    with ti.ad.Tape(loss):
        run()
    assert sorted((len(m.first), len(m.second)) for m in found) == [(count, count)] * 2


UNKNOWN = r"whether several iterations of one loop come to the same element of `\w+` is not known"


def test_without_memory_it_counts_as_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, call: Any) -> int:
        raise DeviceError("out of memory")

    monkeypatch.setattr(races.InstrumentedRun, "find", fail)
    loss, kernels = last_writer_wins()
    refuse(UNKNOWN + ", for there is no memory", loss, *kernels)
    with ti.ad.Tape(loss):
        kernels[0]()  # no derivative flows through it
    with pytest.raises(DeviceError, match="out of memory"):
        with ti.ad.Tape(loss, validation=True):
            kernels[0]()


# --- random numbers and counters decide: trial runs ----------------------------------------------


def drawn_places(count: int) -> tuple[Any, Any, Any, list[Callable[[], Any]]]:
    """Every iteration stores somewhere among so many."""
    x, y, loss = field(N, values=START), field(count), field()

    @ti.kernel
    def scatter():
        for i in x:
            y[ti.cast(ti.random() * count, ti.i32)] = x[i] ** 2

    @ti.kernel
    def total():
        for i in y:
            loss[None] += y[i]

    return x, y, loss, [scatter, total]


@pytest.mark.parametrize("options", [{}, {"memory": "1KiB"}, {"validation": True}])
def test_elements_that_are_drawn_at_random(options: dict[str, Any]) -> None:
    ti.init(random_seed=3, log_level=ti.ERROR)
    x, y, loss, kernels = drawn_places(1 << 22)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ti.ad.Tape(loss, **options):
            for kernel in kernels:
                kernel()
    assert np.count_nonzero(y.to_numpy()) == N
    is_near(x.grad, 2 * START)
    x, y, loss, kernels = drawn_places(N // 2)
    kind = ti.TaichiAssertionError if "validation" in options else ti.ad.GradientError
    with pytest.raises(kind, match=STORES), ti.ad.Tape(loss, **options):
        for kernel in kernels:
            kernel()


def elected(count: int) -> tuple[Any, Any, list[Callable[[], Any]]]:
    """The first so many that come store."""
    x, y, loss, done = field(N, values=START), field(), field(), integers([0])

    @ti.kernel
    def elect():
        for i in x:
            if x[i] > 0.3:
                if ti.atomic_add(done[0], 1) < count:
                    y[None] = x[i] ** 2
        loss[None] += 3 * y[None]

    return x, loss, [lambda: done.fill(0), elect]


@pytest.mark.parametrize("options", [{}, {"memory": "1KiB"}, {"validation": True}])
def test_winning_iteration_stores(options: dict[str, Any]) -> None:
    """The gradient is that of the run's own winner."""
    x, loss, kernels = elected(1)
    with ti.ad.Tape(loss, **options):
        for kernel in kernels:
            kernel()
    won = np.flatnonzero(x.grad.to_numpy())
    assert len(won) == 1
    is_near(x.grad[int(won[0])], 6 * START[won[0]])
    is_near(loss[None], 3 * START[won[0]] ** 2)
    x, loss, kernels = elected(2)
    kind = ti.TaichiAssertionError if "validation" in options else ti.ad.GradientError
    with pytest.raises(kind, match=STORES), ti.ad.Tape(loss, **options):
        for kernel in kernels:
            kernel()


def test_random_winner_in_forward_mode_and_outside_tapes() -> None:
    x, y = (ti.field(ti.f32, N, needs_dual=True, needs_grad=True) for _ in range(2))

    @ti.kernel
    def run():
        for i in x:
            y[ti.cast(ti.random() * N, ti.i32)] = x[i]

    with pytest.raises(ti.ad.GradientError, match=UNKNOWN):
        with ti.ad.FwdMode(y, x, np.ones(N)):
            run()
    y.grad.fill(1)
    with pytest.raises(ti.ad.GradientError, match="random numbers drawn here"):
        run.grad()


# --- flags that only rise ------------------------------------------------------------------------


def flags(n: int) -> dict[str, Any]:
    """Iterations leave early once somebody has raised a flag: right in any order, or (`wrong`)
    not."""
    x, y, loss, done = field(n), field(n), field(), integers([0])
    x.from_numpy(np.linspace(0, 1, n))

    @ti.kernel
    def by_condition():
        for i in x:
            if done[0] == 0:
                if x[i] > 0.5:
                    done[0] = 1
        for i in x:
            loss[None] += x[i] ** 2 * (1 + done[0])

    @ti.kernel
    def by_continue():
        for i in x:
            if done[0] == 1:
                continue
            s = 0.0
            for _ in range(5):
                s += x[i]
            if s > 2.5:
                done[0] = 1
        for i in x:
            loss[None] += x[i] ** 2 * (1 + done[0])

    @ti.kernel
    def by_break():
        for i in x:
            for k in range(5):
                if done[0]:
                    break
                if x[i] * k > 2.0:
                    done[0] = 1
        for i in x:
            loss[None] += x[i] ** 2 * (1 + done[0])

    @ti.kernel
    def by_variable():
        hit = 0
        for i in x:
            if hit == 0 and x[i] > 0.5:
                hit = 1
        for i in x:
            loss[None] += x[i] ** 2 * (1 + hit)

    @ti.kernel
    def wrong_what_else_is_done():
        for i in x:
            if done[0] == 0:
                loss[None] += x[i] ** 2
                if x[i] > 0.5:
                    done[0] = 1

    @ti.kernel
    def wrong_two_constants():
        for i in x:
            if done[0] == 0:
                done[0] = 1 if x[i] > 0.5 else 2
        for i in x:
            loss[None] += x[i] ** 2 * (1 + done[0])

    @ti.kernel
    def wrong_lowered_again():
        for i in x:
            if done[0] == 0:
                if x[i] > 0.5:
                    done[0] = 1
            else:
                done[0] = 0
        for i in x:
            loss[None] += x[i] ** 2 * (1 + done[0])

    @ti.kernel
    def wrong_another_place():
        for i in x:
            if done[0] == 0:
                if x[i] > 0.5:
                    done[0] = 1
            if done[0] == 1:
                y[0] = 1
                loss[None] += x[i] ** 2
        loss[None] += y[0] * x[0]

    @ti.kernel
    def wrong_random_numbers():
        for i in x:
            if done[0] == 0:
                if ti.random() > 0.5:
                    done[0] = 1
            loss[None] += x[i] * ti.random()

    kernels = {name: k for name, k in locals().items() if name.startswith(("by", "wrong"))}
    return {name: (loss, [kernel], x) for name, kernel in kernels.items()}


FLAGS = ["by_condition", "by_continue", "by_break", "by_variable"]


@pytest.mark.parametrize("name", FLAGS)
def test_flags_that_only_rise(name: str) -> None:
    n = 2000
    loss, (run,), x = flags(n)[name]
    for validation in False, True:
        with ti.ad.Tape(loss, validation=validation):
            run()
        is_near(x.grad, 4 * np.linspace(0, 1, n))


@pytest.mark.parametrize("name", [
    "what_else_is_done", "two_constants", "lowered_again", "another_place", "random_numbers"
])  # fmt: skip
def test_flags_on_which_something_hangs(name: str) -> None:
    loss, (run,), _ = flags(2000)["wrong_" + name]
    with pytest.raises(ti.TaichiAssertionError, match=READS):
        with ti.ad.Tape(loss, validation=True):
            run()
