"""Threads that launch kernels while another one is inside a tape."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from time import sleep
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import X, field, is_near, make
from vkchi.errors import KernelAssertionError
from vkchi.fields.storage import Storage
from vkchi.kernel import Kernel
from vkchi.launch.call_cache import CallCache
from vkchi.launch.compiled_kernel import CompiledKernel
from vkchi.launch.entry import Entry
from vkchi.runtime import current_runtime
from vkchi.tape.recording import Recording

pytestmark = pytest.mark.device


def squares(x: Any, loss: Any) -> Callable[[], None]:
    @ti.kernel
    def square():
        for i in x:
            loss[None] += x[i] ** 2

    return square


def in_thread(act: Callable[[], Any]) -> list[BaseException]:
    """Run something in another thread, to its end; returns the exception."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            raised.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    return raised


def test_a_launch_that_is_under_way_when_the_tape_ends(monkeypatch) -> None:
    """The end of the tape waits for it."""
    x, loss = make()
    square, y = squares(x, loss), field(4)

    @ti.kernel
    def other():
        for i in y:
            y[i] += 1.0

    other()
    begun, ends = Event(), Event()
    launch = Recording.launch

    def slow(self: Any, name: str, kernel: CompiledKernel, args: Any) -> Any:
        if name == "other":
            begun.set()
            assert not ends.wait(0.3)  # the tape does not end before this launch
        return launch(self, name, kernel, args)

    monkeypatch.setattr(Recording, "launch", slow)
    thread = Thread(target=other)
    with ti.ad.Tape(loss):
        square()
        thread.start()
        begun.wait()
    ends.set()
    thread.join()
    is_near(x.grad, 2 * X)


def test_a_tape_that_opens_while_a_launch_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch is one of the tape's."""
    x, loss = make()
    square, tape, compiled_for = squares(x, loss), ti.ad.Tape(loss), Kernel._compiled_for

    def slow(*args: Any, **options: Any) -> CompiledKernel:
        kernel = compiled_for(*args, **options)
        if tape.state == "new":
            tape.__enter__()
        return kernel

    monkeypatch.setattr(Kernel, "_compiled_for", slow)
    square()
    tape.__exit__(None, None, None)
    is_near(x.grad, 2 * X)


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_tape_that_opens_while_a_launch_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, is_cached: bool
) -> None:
    """The launch is one of the tape's."""
    x, loss = make()
    square, waits = squares(x, loss), Event()
    square()
    loss[None] = 0
    for method in (Entry, CompiledKernel):
        launch = method.launch
        monkeypatch.setattr(method, "launch", lambda *a, f=launch: waits.set() or f(*a))
    if not is_cached:
        monkeypatch.setattr(CallCache, "note", lambda *args: None)
        square._cache.entries.clear()
    thread = Thread(target=square)
    with current_runtime().lock:
        thread.start()
        waits.wait(0.3)
        tape = ti.ad.Tape(loss)
        tape.__enter__()
    thread.join()
    tape.__exit__(None, None, None)
    is_near(x.grad, 2 * X)


def test_a_launch_while_another_thread_writes_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch waits until the whole array is written."""
    x, loss = make()
    square, begun, ends = squares(x, loss), Event(), Event()
    with ti.ad.Tape(loss):
        square()
    put, new = Storage.put_unnoticed, np.array([5.0, 6.0, 7.0, 8.0], np.float32)

    def slow(self: Any, values: Any) -> None:
        if self is x:
            begun.set()
            assert not ends.wait(0.3)  # the launch does not end before this write
        put(self, values)

    monkeypatch.setattr(Storage, "put_unnoticed", slow)
    thread = Thread(target=lambda: x.from_numpy(new))
    with ti.ad.Tape(loss):
        thread.start()
        begun.wait()
        square()
        ends.set()
    thread.join()
    assert loss[None] == np.sum(new**2)
    is_near(x.grad, 2 * new)


@pytest.mark.usefixtures("own_runtime")
@pytest.mark.parametrize("is_used", [False, True])
def test_a_failed_launch_of_another_thread(is_used: bool) -> None:
    ti.init(arch=ti.vulkan, debug=True)
    x, loss = field(4, values=X), field()
    y, square = field(4), squares(x, loss)

    @ti.kernel
    def other():
        for i in y:
            assert i < 2
            y[i] = x[i]

    @ti.kernel
    def use():
        for i in y:
            loss[None] += y[i]

    def run() -> list[BaseException]:
        with ti.ad.Tape(loss):
            square()
            raised = in_thread(other)
            if is_used:
                use()
        return raised

    if is_used:
        with pytest.raises(ti.ad.GradientError, match="overwritten by other.., which failed"):
            run()
    else:
        assert [type(e) for e in run()] == [KernelAssertionError]
        is_near(x.grad, 2 * X)


def test_functions_of_another_thread_that_are_not_differentiated() -> None:
    """This thread's kernels are recorded meanwhile, and the tape may end."""
    x, loss = make()
    square, y = squares(x, loss), field(4)
    begun, ends = Event(), Event()

    @ti.kernel
    def other():
        for i in y:
            y[i] += 1.0

    @ti.ad.no_grad
    def load() -> None:
        other()
        begun.set()
        assert ends.wait(60)
        other()

    thread = Thread(target=load)
    with ti.ad.Tape(loss):
        thread.start()
        begun.wait()
        square()
    ends.set()
    thread.join()
    is_near(x.grad, 2 * X)
    assert y.to_numpy().tolist() == [2] * 4


@pytest.mark.usefixtures("own_runtime")
def test_a_failed_launch_while_another_thread_is_not_differentiated() -> None:
    """The other thread ends later; the gradients stay unknown."""
    ti.init(arch=ti.vulkan, debug=True)
    x, loss = field(4, values=X), field()
    square, begun, ends = squares(x, loss), Event(), Event()

    @ti.kernel
    def fail():
        for i in x:
            assert i < 2

    @ti.ad.no_grad
    def load() -> None:
        begun.set()
        assert ends.wait(60)

    thread = Thread(target=load)
    with pytest.raises(ti.TaichiRuntimeError, match=r"fail\(\) ended with an exception"):
        with ti.ad.Tape(loss):
            square()
            thread.start()
            begun.wait()
            with pytest.raises(KernelAssertionError):
                fail()
            ends.set()
            thread.join()


def test_a_launch_between_the_report_and_the_read_of_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The launch waits, so the thread reads what stood there before, and may overwrite it."""
    x, loss = make()
    square, begun = squares(x, loss), Event()
    y, found = field(4), []

    @ti.kernel
    def move():
        for i in x:
            y[i] = x[i] * 2

    @ti.kernel
    def use():
        for i in x:
            loss[None] += y[i]

    def run(is_read: bool) -> None:
        thread = Thread(target=lambda: found.append(y[0]))
        with ti.ad.Tape(loss):
            square()
            use()
            if is_read:
                thread.start()
                begun.wait()
            move()
            use()
        if is_read:
            thread.join()

    run(is_read=False)
    y.fill(0)
    read = type(y)._read

    def slow(self: Any, index: Any) -> Any:
        if self is y and not begun.is_set():
            begun.set()
            sleep(0.3)  # the launch waits for this read
        return read(self, index)

    monkeypatch.setattr(type(y), "_read", slow)
    run(is_read=True)
    assert found == [0.0]
    is_near(x.grad, 2 * X + 2)
