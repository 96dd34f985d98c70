"""Values that loops save for their gradients in little memory: iterations of a parallel loop run in
chunks, or the kernel does not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import X, field, is_near, make
from vkchi.calls import questions
from vkchi.device import Device
from vkchi.errors import DeviceError
from vkchi.tape import plan


@pytest.fixture
def leave(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """Leaves so many bytes for saved values; gives the names of the kernels made narrow since."""
    made: list[str] = []
    real = questions.build_strip_mined

    def build_strip_mined(gradient: Any, *args: Any) -> Any:
        made.append(gradient.primal.fn.name)
        return real(gradient, *args)

    def leave(size_bytes: int) -> list[str]:
        monkeypatch.setattr(Device, "free_bytes", lambda self: 2 * size_bytes)
        return made

    monkeypatch.setattr(questions, "build_strip_mined", build_strip_mined)
    return leave


def spiral(n: int, begin: int = 0) -> tuple[Any, Any, Callable[[], None]]:
    """A kernel whose iterations go round from 0 to 6 times, carrying a vector and a number."""
    x, loss = field(n, values=np.linspace(0.2, 0.9, n)), field()

    @ti.kernel
    def run():
        for i in range(begin, n):
            p, w = ti.Vector([x[i], 1.0]), 1.0
            k = 0
            while k < i % 7:
                p = ti.Vector([p.y * w, ti.sin(p.x)])
                w *= 0.9 + 0.1 * p.x
                k += 1
            loss[None] += p.x * w + p.y

    return x, loss, run


def gradient(x: Any, loss: Any, run: Callable[[], None]) -> Any:
    with ti.ad.Tape(loss):
        run()
    return x.grad.to_numpy()


@pytest.mark.parametrize("columns", [1, 2, 3, 16, 31])
@pytest.mark.parametrize("begin", [0, 5])
def test_iterations_take_turns(leave: Any, columns: int, begin: int) -> None:
    n = 37
    leave(1 << 30)
    want = gradient(*spiral(n, begin))
    assert np.all(want[max(begin, 1) :]) and not np.any(want[:begin])
    made = leave(columns * 6 * 3 * 4)  # up to 6 rounds of three numbers
    assert made == []
    np.testing.assert_array_equal(gradient(*spiral(n, begin)), want)
    assert made == ["run"]


def test_calls_of_different_sizes(leave: Any) -> None:
    """Buffers that fit are used again, those that do not are made anew."""
    leave(1 << 10)
    x, loss = make()

    @ti.kernel
    def run(a: ti.types.ndarray(), n: ti.i32):
        for i in range(a.shape[0]):
            y = x[i % 4]
            for _ in range(n):
                y = y * (1.02 - 0.05 * y)
            loss[None] += y * a[i]

    for count, rounds in ((1, 2), (100, 50), (7, 3), (300, 20), (2, 60), (0, 5), (90, 0)):
        with ti.ad.Tape(loss):
            run(np.ones(count, np.float32), rounds)
        slope, y = np.ones(4), X.copy()
        for _ in range(rounds):
            slope, y = slope * (1.02 - 0.1 * y), y * (1.02 - 0.05 * y)
        uses = np.bincount(np.arange(count) % 4, minlength=4)
        is_near(x.grad, slope * uses)


def two_loops() -> tuple[Any, Any, Callable[[], None]]:
    """A kernel that saves in two parallel loops and outside of them."""
    x, loss = make()

    @ti.kernel
    def run():
        s = 1.0
        ti.loop_config(serialize=True)
        for _ in range(4):
            s = s * x[0]
        for i in x:
            y = x[i]
            for _ in range(8):
                y = y * ti.cos(y)
            x[i] = y + s
        for i in x:
            y = x[i]
            for _ in range(20):
                y = ti.sin(y) * 1.1
            loss[None] += y

    return x, loss, run


def test_several_loops_and_values_saved_outside_of_them(leave: Any) -> None:
    leave(1 << 30)
    want = gradient(*two_loops())
    made = leave((4 + 8 + 20) * 4 * 2)
    np.testing.assert_array_equal(gradient(*two_loops()), want)
    assert made == ["run"]


def test_second_derivatives(leave: Any) -> None:
    x, loss = make()
    made = leave(200)

    @ti.kernel
    def run():
        for i in x:
            y = x[i]
            for _ in range(15):
                y = y + 0.1 * ti.sin(y)
            loss[None] += y

    found = ti.ad.hvp(run, loss, x, np.ones(4, np.float32))
    y, d1, d2 = X.copy(), np.ones(4), np.zeros(4)
    for _ in range(15):
        d2 = d2 * (1 + 0.1 * np.cos(y)) - d1 * d1 * 0.1 * np.sin(y)
        d1, y = d1 * (1 + 0.1 * np.cos(y)), y + 0.1 * np.sin(y)
    is_near(found, d2)
    assert "run" in made


def test_too_little_memory_for_one_iteration_raises_before_the_kernel_runs(leave: Any) -> None:
    x, loss = make()
    leave(1000)

    @ti.kernel
    def run(n: ti.i32):
        for i in x:
            for _ in range(n):
                x[i] = ti.sin(x[i])
        for i in x:
            loss[None] += x[i]

    with pytest.raises(DeviceError, match="must save 4000000 numbers"), ti.ad.Tape(loss):
        run(1_000_000)
    np.testing.assert_array_equal(x.to_numpy(), X.astype(np.float32))
    with ti.ad.Tape(loss):
        run(2)
    is_near(x.grad, np.cos(X) * np.cos(np.sin(X)))


@pytest.mark.parametrize("size_bytes", [1 << 30, 4000])
def test_invocation_ids_are_those_of_the_kernel(leave: Any, size_bytes: int) -> None:
    """Invocations of the gradient are those of the kernel: there is no narrow form."""
    x, loss = field(256, values=np.full(256, 1.01)), field()

    @ti.kernel
    def run(n: ti.i32):
        ti.loop_config(block_dim=32)
        for i in range(256):
            y = x[i]
            for _ in range(n):
                y = y * x[i]
            loss[None] += y * ti.simt.block.thread_idx()

    made = leave(size_bytes)
    if size_bytes < 1 << 20:
        with pytest.raises(DeviceError, match="must save"), ti.ad.Tape(loss):
            run(9)
        assert made == ["run"]
    else:
        with ti.ad.Tape(loss):
            run(9)
        is_near(x.grad, 10 * 1.01**9 * (np.arange(256) % 32))


def test_narrow_buffers_are_used_again(leave: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their memory is not free, and they need not be made smaller for that."""
    n = 1000
    x, loss, run = spiral(n)
    leave(1 << 30)
    want = gradient(x, loss, run)
    x, loss, run = spiral(n)
    held: list[int] = []
    real = plan.new_buffer

    def new_buffer(runtime: Any, t: Any, shape: Any, title: str) -> Any:
        made = real(runtime, t, shape, title)
        held.append(made.size_bytes)
        return made

    monkeypatch.setattr(plan, "new_buffer", new_buffer)
    monkeypatch.setattr(Device, "free_bytes", lambda self: 50_000 - sum(held))
    for _ in range(8):
        np.testing.assert_array_equal(gradient(x, loss, run), want)
    assert 0 < len(held) <= 6
