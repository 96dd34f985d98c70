"""Small dispatches that follow each other are one, and do what they did one by one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.runtime import current
from vkchi.vk.recorder import Recorder
from vkchi.vk.timing import Timer

N = 40


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What follows each other twice is linked."""
    monkeypatch.setenv("VKCHI_STRETCHES", "first")
    ti.init()
    yield
    ti.reset()


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many dispatches each list has, as lists are recorded."""
    found: list[int] = []
    record = Recorder._record_stretch

    def noted(self: Any) -> None:
        if self._stretch is not None:
            found.append(len(self._stretch.dispatches))
        record(self)

    monkeypatch.setattr(Recorder, "_record_stretch", noted)
    return found


@ti.kernel
def scale(x: ti.types.ndarray(ti.f32, 1), a: ti.f32):
    for i in x:
        x[i] *= a


@ti.kernel
def shift(x: ti.types.ndarray(ti.f32, 1), y: ti.types.ndarray(ti.f32, 1), k: ti.i32):
    for i in x:
        y[i] += 0.5 * x[(i + k) % x.shape[0]]


@ti.kernel
def total(x: ti.types.ndarray(ti.f32, 1), s: ti.types.ndarray(ti.f32, 1)):
    for i in x:
        s[0] += x[i]


@ti.kernel
def serial(x: ti.types.ndarray(ti.f32, 1), s: ti.types.ndarray(ti.f32, 1)):
    ti.loop_config(serialize=True)
    for i in range(x.shape[0]):
        x[i] += 0.125 * s[0]
        s[0] *= 0.5


@ti.kernel
def plane(x: ti.types.ndarray(ti.f32, 1), a: ti.f32):
    for i, j in ti.ndrange(5, 8):
        x[8 * i + j] += a * i - j


@ti.kernel
def table(x: ti.types.ndarray(ti.f32, 1), k: ti.i32):
    for i in x:
        weights = ti.Vector([0.0, 0.5, 1.5, -1.0, 2.0, 0.25, -0.125, 1.0, 3.0, -3.0])
        x[i] += weights[(i + k) % 10]


def calls_at_random(seed: int, count: int = 200) -> list[tuple[Any, ...]]:
    """Kernels with what they take: names of arrays, and numbers."""
    rng = random.Random(seed)
    found: list[tuple[Any, ...]] = []
    for _ in range(count):
        one, other = rng.sample("abc", 2)
        choices: list[tuple[Any, ...]] = [
            (scale, one, rng.choice([0.5, -1.0, 0.75])),
            (shift, one, other, rng.randrange(N)),
            (total, one, "s"),
            (serial, one, "s"),
            (plane, one, rng.random()),
            (table, one, rng.randrange(10)),
        ]
        found.append(rng.choice(choices))
    return found


def run(calls: list[tuple[Any, ...]], *, waits: bool) -> list[Any]:
    """What arrays hold after the calls, each of which is waited for or not."""
    arrays = {name: ti.ndarray(ti.f32, 1 if name == "s" else N) for name in "abcs"}
    for k, array in enumerate(arrays.values()):
        array.from_numpy(np.linspace(-1, k + 1, array.shape[0], dtype=np.float32))
    for kernel, *args in calls:
        kernel(*[arrays.get(arg, arg) if isinstance(arg, str) else arg for arg in args])
        if waits:
            ti.sync()
    return [array.to_numpy() for array in arrays.values()]


@pytest.mark.parametrize("seed", range(4))
def test_kernels_at_random(seed: int, lists: list[int]) -> None:
    calls = calls_at_random(seed)
    expected = run(calls, waits=True)
    assert max(lists, default=0) <= 1
    for found, wanted in zip(run(calls, waits=False), expected, strict=True):
        np.testing.assert_array_equal(found.view(np.int32), wanted.view(np.int32))
    assert max(lists) > 8


def test_a_list_is_one_dispatch_and_ends_where_others_come(lists: list[int]) -> None:
    x = ti.ndarray(ti.f32, N)
    big = ti.ndarray(ti.f32, 1 << 20)
    x.fill(1.0)

    @ti.kernel
    def add(x: ti.types.ndarray(ti.f32, 1), y: ti.types.ndarray(ti.f32, 1)):
        for i in y:
            y[i] += x[0]

    for _ in range(8):
        scale(x, 2.0)
        table(x, 0)
    ti.sync()
    x.fill(1.0)
    lists.clear()
    scale(x, 2.0)
    scale(x, 2.0)
    add(x, big)
    scale(x, 2.0)
    scale(x, 2.0)
    scale(x, 2.0)
    assert x[0] == 32.0 and big[1 << 19] == 4.0
    assert [n for n in lists if n] == [2, 3]


def test_arrays_may_die_before_their_dispatches_run() -> None:
    s = ti.ndarray(ti.f32, 1)
    for k in range(100):
        x = ti.ndarray(ti.f32, N)
        x.fill(1.0)
        scale(x, float(k))
        total(x, s)
        del x
    assert s[0] == N * sum(range(100))


def test_a_gradient() -> None:
    x = ti.field(ti.f32, (12, N), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def step(t: ti.i32):
        for i in range(N):
            x[t + 1, i] = x[t, i] + 0.25 * ti.sin(x[t, (i + 1) % N])

    @ti.kernel
    def measure():
        for i in range(N):
            loss[None] += x[11, i] ** 2

    def once(*, waits: bool) -> Any:
        x.fill(0.3)
        with ti.ad.Tape(loss):
            for t in range(11):
                step(t)
                if waits:
                    ti.sync()
            measure()
        return x.grad.to_numpy()

    expected = once(waits=True)
    for _ in range(6):
        np.testing.assert_array_equal(once(waits=False), expected)


def test_kernels_that_come_later_are_linked_too(lists: list[int]) -> None:
    x = ti.ndarray(ti.f32, N)
    kernels = []
    for k in range(12):

        @ti.kernel
        def add(x: ti.types.ndarray(ti.f32, 1), a: ti.f32):
            for i in x:
                x[i] += a + ti.static(k)

        kernels.append(add)
        for f, _ in itertools.product(kernels, range(2)):
            f(x, 0.5)
    count = sum((12 - k) * 2 * (k + 0.5) for k in range(12))
    assert x[3] == count
    assert max(lists) > 8


def test_one_kernel_again_and_again(lists: list[int]) -> None:
    x = ti.ndarray(ti.f32, N)
    x.fill(1.0)
    for _ in range(100):
        scale(x, -1.0)
    assert (x.to_numpy() == 1.0).all()
    assert max(lists) > 8


def test_nothing_is_added_to_what_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where an exception comes just after that."""
    x = ti.ndarray(ti.f32, N)
    x.fill(1.0)
    for _ in range(10):
        scale(x, 1.0)
    ti.sync()
    scale(x, 2.0)
    scale(x, 2.0)
    device = current().device
    stretch = device._stretch
    assert stretch is not None
    device._record_stretch()
    assert stretch.sent
    device._stretch = stretch
    scale(x, 2.0)
    assert (x.to_numpy() == 8.0).all()


def test_off(monkeypatch: pytest.MonkeyPatch, lists: list[int]) -> None:
    monkeypatch.setenv("VKCHI_STRETCHES", "0")
    ti.init()
    x = ti.ndarray(ti.f32, N)
    x.fill(1.0)
    for _ in range(20):
        scale(x, 1.0)
        table(x, 1)
    ti.sync()
    assert not lists and current().device.stretches is None


def test_what_is_timed_is_recorded_between_its_timestamps(
    lists: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself, though it is linked."""
    x, y = ti.ndarray(ti.f32, N), ti.ndarray(ti.f32, N)

    def run() -> None:
        for k in range(4):
            scale(x, 2.0)
            shift(x, y, k)
        ti.sync()

    run()
    run()
    assert max(lists) > 1
    gathered: list[Any] = []
    stop = Timer.stop

    def noted(self: Timer, commands: Any) -> None:
        gathered.append(current().device._stretch)
        stop(self, commands)

    monkeypatch.setattr(Timer, "stop", noted)
    with current().device.timing() as timing:
        run()
    assert gathered == [None] * 8 and len(timing.dispatches) == 8
