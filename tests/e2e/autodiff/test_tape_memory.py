"""Tapes in limited memory: the same gradients, bit for bit, and the arrays as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import X, field, is_near, slope
from vkchi.device import Device

N, STEPS = 8, 25


class Planets:
    """Bodies that attract each other, moved in place: every step overwrites values that gradients
    need."""

    def __init__(self) -> None:
        self.x = ti.Vector.field(2, ti.f32, N, needs_grad=True)
        self.v = ti.Vector.field(2, ti.f32, N, needs_grad=True)
        self.loss = ti.field(ti.f32, (), needs_grad=True)
        self.first = np.random.default_rng(0).normal(size=(N, 2)).astype(np.float32)
        x, v, loss = self.x, self.v, self.loss

        @ti.kernel
        def push(k: ti.f32):
            for i in range(N):
                f = ti.Vector([0.0, 0.0])
                for j in range(N):
                    if i != j:
                        d = x[i] - x[j]
                        f += d / (d.norm_sqr() + 0.5)
                v[i] += k * f

        @ti.kernel
        def move():
            for i in x:
                x[i] += 0.1 * v[i]

        @ti.kernel
        def measure():
            for i in x:
                loss[None] += x[i].norm_sqr()

        self.push, self.move, self.measure = push, move, measure

    def run(self) -> None:
        for t in range(STEPS):
            self.push(0.01 * t)
            self.move()
            if t == 10:
                self.x[3] = [1.0, 2.0]
        self.measure()

    def gradient(self, memory: Any) -> tuple[Any, ...]:
        self.x.from_numpy(self.first)
        self.v.fill(0)
        with ti.ad.Tape(self.loss, memory=memory) as tape:
            self.run()
        arrays = [a.to_numpy() for a in (self.x.grad, self.v.grad, self.x, self.v)]
        return (*arrays, tape.report)


STATE = 2 * N * 2 * 4 + 4  # bytes: x, v and the loss


@pytest.mark.parametrize("states", [2, 3, 4, 6])
def test_checkpoints_change_nothing(states: int) -> None:
    planets = Planets()
    *expected, report = planets.gradient(None)
    assert report.repeated == 0
    *found, report = planets.gradient(states * STATE)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, want)
    assert report.states <= states
    assert report.saved_bytes <= states * STATE
    assert report.repeated > 0
    assert f"{report.repeated} calls recomputed" in str(report)


def test_more_memory_repeats_less() -> None:
    planets = Planets()
    repeated = [planets.gradient(k * STATE)[-1].repeated for k in (2, 3, 4, 6)]
    assert repeated == sorted(repeated, reverse=True)
    assert repeated[0] == 53 * 52 // 2  # 51 calls and writes of Python, from the start every time


def test_enough_memory_repeats_nothing() -> None:
    assert Planets().gradient("1MiB")[-1].repeated == 0


def test_too_little_memory() -> None:
    with pytest.raises(ti.TaichiRuntimeError, match="must hold two states of 132 bytes"):
        Planets().gradient(200)


@pytest.mark.parametrize("memory", [".", "lots", "12 parsecs", 0, -5, "1.5.2MiB", True])
def test_wrong_amounts(memory: Any) -> None:
    with pytest.raises(ti.TaichiRuntimeError, match="memory is a number of bytes"):
        ti.ad.Tape(ti.field(ti.f32, (), needs_grad=True), memory=memory)


class Owned(Planets):
    """The same, with steps that have gradients of their own: which recompute, keep adjoints in an
    array without gradient, and overwrite values that other kernels have read."""

    def __init__(self) -> None:
        super().__init__()
        x = self.x
        self.k = ti.field(ti.f32, ())
        self.seen = ti.field(ti.f32, 4)
        self.before = ti.Vector.field(2, ti.f32, N)
        k, seen, before = self.k, self.seen, self.before

        @ti.kernel
        def scale():
            for i in x:
                x[i] *= k[None]

        @ti.kernel
        def scale_grad():
            for i in x:
                x.grad[i] *= k[None]
                seen[0] += x.grad[i].x
                seen[1] += x.grad[i].y * k[None]

        @ti.kernel
        def keep():
            for i in x:
                before[i] = x[i] * ti.random()

        @ti.ad.grad_replaced
        def own(t):
            seen[3] += t
            keep()
            scale()

        @ti.ad.grad_for(own)
        def own_grad(t):
            scale_grad()
            k[None] *= 0.5  # others have read it
            seen[2] = seen[2] * 2 + t

        @ti.ad.no_grad
        def watch():
            keep()
            seen[3] = seen[3] + 1

        self.scale, self.own, self.watch = scale, own, watch

    def run(self) -> None:
        for t in range(20):
            self.push(0.01 * t)
            self.own(t)
            self.move()
            self.scale()
            self.watch()
        self.measure()

    def gradient(self, memory: Any) -> tuple[Any, ...]:
        self.k[None] = 0.9
        self.seen.fill(0)
        found = super().gradient(memory)
        return self.k[None], self.seen.to_numpy(), self.before.to_numpy(), *found


@pytest.mark.parametrize("states", [2, 3, 5])
def test_gradients_of_ones_own_in_little_memory(states: int) -> None:
    owned, state = Owned(), STATE + 16 + N * 2 * 4
    *expected, report = owned.gradient(None)
    assert report.repeated == 0
    *found, report = owned.gradient(states * state)
    for k, (got, want) in enumerate(zip(found, expected, strict=True)):
        if k != 2:  # other random numbers
            np.testing.assert_array_equal(got, want)
    assert report.repeated > 0


@pytest.mark.parametrize("memory", [None, 96])
def test_a_step_in_numpy_with_its_gradient(memory: Any) -> None:
    x = ti.field(ti.f32, 4, needs_grad=True)
    y = ti.field(ti.f32, 4, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    kept: list[Any] = []

    @ti.kernel
    def copy():
        for i in x:
            x[i] = y[i]
        loss[None] = 0.0
        for i in x:
            loss[None] += x[i] ** 2

    @ti.ad.grad_replaced
    def sine():
        kept.append(x.to_numpy())
        y.from_numpy(np.sin(kept[-1]))

    @ti.ad.grad_for(sine)
    def sine_grad():
        x.grad.from_numpy(x.grad.to_numpy() + y.grad.to_numpy() * np.cos(kept.pop()))
        y.grad.fill(0)

    x.from_numpy([0.1, 0.5, 1.0, 1.4])
    now, slope = x.to_numpy(), np.ones(4, np.float32)
    with ti.ad.Tape(loss, memory=memory) as tape:
        for _ in range(6):
            sine()
            copy()
    for _ in range(6):
        slope, now = slope * np.cos(now), np.sin(now)
    np.testing.assert_allclose(x.grad.to_numpy(), 2 * now * slope, 1e-5)
    np.testing.assert_allclose(x.to_numpy(), now, 1e-6)
    assert tape.report is not None
    assert (tape.report.repeated > 0) == (memory is not None)
    assert len(kept) == 0


def test_arrays_among_others_in_little_memory() -> None:
    x = ti.field(ti.f32, needs_grad=True)
    v = ti.Vector.field(2, ti.f32, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    ti.root.dense(ti.i, 2).dense(ti.i, 4).place(x, v, x.grad, v.grad)

    @ti.kernel
    def step():
        for i in x:
            x[i] = x[i] * x[i] + v[i].y
            v[i] += [x[i], 0.25 * v[i].x * v[i].y]

    @ti.kernel
    def measure():
        for i in x:
            loss[None] += x[i] * v[i].x

    found = []
    for memory in (None, 800):
        x.from_numpy(np.linspace(0, 0.6, 8))
        v.fill(0.3)
        with ti.ad.Tape(loss, memory=memory) as tape:
            for _ in range(8):
                step()
            measure()
        found.append([a.to_numpy() for a in (x.grad, v.grad, x, v)])
    assert tape.report is not None and tape.report.repeated > 0
    for want, got in zip(*found, strict=True):
        np.testing.assert_array_equal(got, want)


def test_only_overwritten_arrays_are_saved() -> None:
    """Time-indexed arrays overwrite nothing that was read."""
    x = ti.field(ti.f32, (20, 64), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def step(t: ti.i32):
        for i in range(64):
            x[t, i] = ti.sin(x[t - 1, i]) + x[t - 1, (i + 1) % 64] ** 2

    @ti.kernel
    def measure():
        for i in range(64):
            loss[None] += x[19, i]

    with ti.ad.Tape(loss) as tape:
        for t in range(1, 20):
            step(t)
        measure()
    assert tape.report is not None
    assert tape.report.saved_bytes == 0


@pytest.mark.parametrize("is_custom", [False, True])
def test_order_dependent_results_are_kept(is_custom: bool) -> None:
    n = 20_000  # the counter goes to whichever iteration comes first
    x, y = (ti.field(ti.f32, n, needs_grad=True) for _ in range(2))
    place, counter = ti.field(ti.i32, n), ti.field(ti.i32, ())
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def deal():
        counter[None] = 0
        for i in x:
            place[ti.atomic_add(counter[None], 1)] = i

    @ti.kernel
    def gather(t: ti.i32):
        for k in y:
            y[k] = t * x[place[k]] ** 2

    @ti.kernel
    def measure():
        for k in y:
            loss[None] += (k % 7) * y[k]

    dealt = ti.ad.no_grad(deal) if is_custom else deal
    a = np.random.default_rng(1).random(n).astype(np.float32)
    x.from_numpy(a)
    want = np.zeros(n)
    with ti.ad.Tape(loss, memory=1_400_000) as tape:
        for t in range(10):
            dealt()
            gather(t)
            measure()
            at = place.to_numpy()
            want[at] += 2 * a[at] * (np.arange(n) % 7) * t
    assert tape.report is not None and tape.report.repeated > 0
    np.testing.assert_allclose(x.grad.to_numpy(), want, rtol=1e-5)


def test_a_replayed_tape_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, loss = field(4, values=X), field(4), field()

    @ti.kernel
    def run():
        for i in x:
            y[i] = x[i] ** 2

    @ti.kernel
    def measure():
        for i in x:
            loss[None] += x[i] ** 2

    def tape() -> None:
        x.from_numpy(X)
        with ti.ad.Tape(loss):
            run()
            x.copy_from(y)
            measure()

    tape()
    loaded: list[str] = []
    load = Device.load
    monkeypatch.setattr(Device, "load", lambda self, s: loaded.append(s.name) or load(self, s))
    tape()
    assert loaded == []
    is_near(x.grad, 4 * X**3)


def test_recomputation_has_no_visible_effects(capfd: pytest.CaptureFixture[str]) -> None:
    """Lines that were printed, and numpy arrays that the kernel wrote and Python has changed."""
    n = 4096
    x, loss = field(n, values=np.ones(n)), field()
    seen = np.zeros(1, np.float32)

    @ti.kernel
    def step(seen: ti.types.ndarray()):
        for i in x:
            drawn = ti.random()
            x[i] = ti.sin(x[i]) * (1 + drawn)
            if i == 0:
                seen[0] = drawn
                print("seen", drawn)

    @ti.kernel
    def measure():
        for i in x:
            loss[None] += x[i]

    now, slope = 1.0, 1.0
    with ti.ad.Tape(loss, memory=4 * n * 4) as tape:
        for _ in range(8):
            step(seen)
            now, slope = np.sin(now) * (1 + seen[0]), slope * np.cos(now) * (1 + seen[0])
            seen[0] = -1
        measure()
    assert tape.report is not None and tape.report.repeated > 0
    np.testing.assert_allclose(x.grad[0], slope, rtol=1e-4, atol=1e-4)
    assert seen[0] == -1
    assert capfd.readouterr().out.count("seen") == 8


def test_of_an_array_over_time_only_rows_are_saved() -> None:
    steps, width = 6, 100
    x, loss = field(steps + 1, width), field()
    start = np.linspace(0.2, 0.9, width)

    @ti.kernel
    def step(t: ti.i32):
        for i in range(width):
            x[t + 1, i] = x[t, i] * x[t, (i + 1) % width]

    @ti.kernel
    def bend(t: ti.i32):
        for i in range(width):
            x[t, i] = 1.1 * ti.sin(x[t, i])

    @ti.kernel
    def smooth(t: ti.i32):
        for i in range(width):
            if i % 2 == 0 and i + 1 < width:
                x[t, i] *= x[t, i + 1]

    @ti.kernel
    def add():
        for i in range(width):
            loss[None] += x[steps, i]

    def program(x: Any) -> Any:
        for _ in range(steps):
            x = 1.1 * np.sin(x * np.roll(x, -1))
        return x.sum()

    def run() -> None:
        for t in range(steps):
            step(t)
            bend(t + 1)
        add()

    values = np.zeros((steps + 1, width))
    values[0] = start
    x.from_numpy(values)
    with ti.ad.Tape(loss) as tape:
        run()
    is_near(x.grad.to_numpy()[0], slope(program, start))
    assert tape.report is not None
    assert steps * width * 4 <= tape.report.saved_bytes <= steps * (width * 4 + 256)
    x.from_numpy(values)
    with ti.ad.Tape(loss) as tape:  # its indices may lie outside, where they do not count
        run()
        smooth(steps)
    assert tape.report is not None


def test_rows_of_vectors_of_ndarrays_and_in_second_derivatives() -> None:
    x, y = ti.Vector.ndarray(3, ti.f32, (5, 7), needs_grad=True), field(5, 7)
    loss, values = field(), np.random.default_rng(0).uniform(0.5, 1.5, (5, 7, 3))

    @ti.kernel
    def square(a: ti.types.ndarray(), t: ti.i32):
        for i in range(7):
            a[t, i] *= a[t, i]
            y[t, i] = y[t, i] * a[t, i].sum() + 1.0

    @ti.kernel
    def add(a: ti.types.ndarray()):
        for t, i in a:
            loss[None] += a[t, i].norm_sqr() * y[t, i]

    def run() -> None:
        y.fill(0.5)
        for t in (1, 4, 2, 4):
            square(x, t)
        add(x)

    def program(x: Any) -> Any:
        x, y = x.copy(), np.full((5, 7), 0.5)
        for t in (1, 4, 2, 4):
            x[t] *= x[t]
            y[t] = y[t] * x[t].sum(-1) + 1
        return ((x * x).sum(-1) * y).sum()

    x.from_numpy(values)
    with ti.ad.Tape(loss):
        run()
    is_near(x.grad, slope(program, values))
    x.from_numpy(values)
    v = np.random.default_rng(1).normal(size=values.shape)
    more, less = (slope(program, values + 1e-3 * k * v) for k in (1, -1))
    is_near(ti.ad.hvp(run, loss, x, v), (more - less) / 2e-3, 5e-3)
