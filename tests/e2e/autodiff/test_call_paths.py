"""Tapes that make the same calls as earlier ones run prepared gradients (`tape.call_paths`). These
equal the gradients of a tape that records each call, whatever else happens in the tapes."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ArgumentError, GradientError, KernelRuntimeError
from vkchi.launch.entry import Entry
from vkchi.runtime import current_runtime
from vkchi.tape.call_paths import CallPath
from vkchi.tape.snapshots import UNLIMITED

pytestmark = pytest.mark.device
N = 5
FACTOR = 2.0


@ti.kernel
def scale(x: ti.types.ndarray(), by: ti.f32):
    for i in range(N):
        x[i] = ti.sin(x[i]) * by


@ti.kernel
def power(x: ti.types.ndarray(), y: ti.types.ndarray(), k: ti.i32):
    for i in range(N):
        for _ in range(k):
            y[i] = y[i] * x[i] + x[i]


@ti.kernel
def add_up(y: ti.types.ndarray(), loss: ti.template()):
    for i in range(N):
        loss[None] += y[i] * (i + 1) * FACTOR


@ti.kernel
def count_up(n: ti.template()):
    n[None] += 1


@ti.kernel
def double(x: ti.types.ndarray()):
    for i in range(N):
        x[i] = x[i] * 2


@dataclass
class Given:
    gain: ti.f32
    x: ti.types.ndarray()


def ndarray() -> Any:
    return ti.ndarray(ti.f32, N, needs_grad=True)


class World:
    """x is scaled in place, y is computed from it and added up."""

    def __init__(self) -> None:
        ti.init(arch=ti.vulkan)
        self.x, self.y = ndarray(), ndarray()
        self.loss, self.other = (ti.field(ti.f32, (), needs_grad=True) for _ in range(2))
        self.n = ti.field(ti.i32, ())
        self.by, self.k = 0.5, 2

    def calls(self) -> None:
        for _ in range(3):
            scale(self.x, self.by)
            power(self.x, self.y, self.k)
        add_up(self.y, self.loss)

    def start(self) -> None:
        self.x.from_numpy(np.linspace(0.3, 1.0, N, dtype=np.float32))
        self.y.from_numpy(np.linspace(0.1, 0.2, N, dtype=np.float32))

    def slopes(self, run: Callable[[], Any], loss: Any = None, **options: Any) -> list[Any]:
        """The gradients of x and y, and the loss."""
        self.start()
        loss = loss or self.loss
        with ti.ad.Tape(loss, **options):
            run()
        return [self.x.grad.to_numpy(), self.y.grad.to_numpy(), loss.to_numpy()]

    def check(self, run: Callable[[], Any], loss: Any = None) -> None:
        """Compare with a tape that records each call."""
        found = self.slopes(run, loss)
        want = self.slopes(run, loss, memory=UNLIMITED)
        for got, number in zip(found, want, strict=True):
            np.testing.assert_array_equal(got, number)
        assert np.any(found[:2])


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each tape with a path at its end, True if its gradients were prepared."""
    found: list[bool] = []
    run = CallPath.run_gradients

    def look(self: CallPath) -> Any:
        report = run(self)
        found.append(report is not None)
        return report

    monkeypatch.setattr(CallPath, "run_gradients", look)
    return found


@pytest.fixture
def warm(world: World, prepared: list[bool]) -> World:
    """A world in which the gradients of `calls` are prepared."""
    for _ in range(8):
        world.check(world.calls)
    assert prepared[-2:] == [True, True]
    prepared.clear()
    return world


def test_prepared_gradients_run_again(warm: World, prepared: list[bool]) -> None:
    for _ in range(5):
        warm.check(warm.calls)
    assert prepared == [True] * 5
    assert warm.x.watch is None and warm.y.watch is None


def test_numbers_may_change(warm: World, prepared: list[bool]) -> None:
    for by in (0.7, 0.7, -0.0, 0.0, -0.0, 1, True, 0.7, 1.0):
        warm.by = by
        found = warm.slopes(warm.calls)
        want = warm.slopes(warm.calls, memory=UNLIMITED)
        for got, number in zip(found, want, strict=True):
            np.testing.assert_array_equal(np.signbit(got), np.signbit(number))
            np.testing.assert_array_equal(got, number)
    assert prepared.count(True) >= 7


def test_longer_loops(warm: World) -> None:
    for k in (3, 2, 20, 3, 2, 0, 2):
        warm.k = k
        for _ in range(4):
            warm.check(warm.calls)


def test_another_tape_makes_the_saved_values_larger(warm: World, prepared: list[bool]) -> None:
    for _ in range(3):
        warm.k = 30
        warm.slopes(warm.calls, memory=UNLIMITED)
        warm.k = 2
        warm.check(warm.calls)


@ti.kernel
def powers(x: ti.types.ndarray(), n: ti.i32, k: ti.i32):
    for i in range(n):
        for _ in range(k):
            x[i] = ti.sin(x[i]) * 1.1


def test_calls_that_replace_the_saved_values_of_others(warm: World) -> None:
    """One has more iterations, the other one longer loops."""
    x = ti.ndarray(ti.f32, 60, needs_grad=True)

    @ti.kernel
    def total(x: ti.types.ndarray()):
        for i in range(60):
            warm.loss[None] += x[i]

    found = []
    for k in range(8):
        x.fill(0.4)
        with ti.ad.Tape(warm.loss, memory=UNLIMITED if k == 7 else None):
            powers(x, 60, 2)
            powers(x, 5, 30)
            powers(x, 60, 2)
            total(x)
        found.append(x.grad.to_numpy())
    for one in found:
        np.testing.assert_array_equal(one, found[-1])


@pytest.mark.parametrize("at", range(8))
def test_python_between_calls(warm: World, prepared: list[bool], at: int) -> None:
    def acts() -> list[Callable[[], Any]]:
        return [
            lambda: warm.x.fill(0.25),
            lambda: warm.y.__setitem__(1, 0.5),
            lambda: warm.x.from_numpy(np.full(N, 0.4, np.float32)),
            lambda: warm.loss[None],
            lambda: warm.loss.__setitem__(None, warm.loss[None] + 1),
            lambda: warm.n.fill(3),
            lambda: warm.y.grad.fill(0),
            lambda: warm.x.to_numpy(),
        ]

    for k in range(7):

        def run(k: int = k) -> None:
            for place in range(3):
                scale(warm.x, warm.by)
                power(warm.x, warm.y, warm.k)
                if place == k % 3:
                    acts()[at]()
            add_up(warm.y, warm.loss)

        warm.check(run)
        warm.check(warm.calls)
    assert prepared[-1]


def test_products_of_python(warm: World) -> None:
    def run() -> None:
        warm.calls()
        warm.loss[None] *= 2

    for _ in range(3):
        with pytest.raises(GradientError, match="had read it"):
            warm.slopes(run)
        warm.check(warm.calls)


def test_a_number_that_an_earlier_tape_read(warm: World) -> None:
    """It is not what the array holds now, so a sum with it is a new value."""
    kept = []

    def read() -> None:
        warm.calls()
        kept.append(warm.loss[None])

    warm.slopes(read)
    warm.check(warm.calls)

    def write() -> None:
        warm.calls()
        warm.loss[None] = kept[0] + 1

    for _ in range(2):
        with pytest.raises(GradientError):
            warm.slopes(write)


def test_arrays_that_are_replaced(warm: World, prepared: list[bool]) -> None:
    for _ in range(4):
        warm.y = ndarray()
        warm.check(warm.calls)
    assert not any(prepared)
    old, warm.x = warm.x, ndarray()
    warm.check(warm.calls)
    warm.x = old
    for _ in range(5):
        warm.check(warm.calls)
    assert prepared[-1]


def test_gradients_that_are_replaced(warm: World, prepared: list[bool]) -> None:
    for _ in range(2):
        for array in (warm.x, warm.y):
            array.grad = ti.ndarray(ti.f32, N)
            current_runtime().gradients.add(array.grad)
            for _ in range(4):
                warm.check(warm.calls)
    found = []

    def run() -> None:
        warm.calls()
        found.append(warm.x.grad)
        warm.x.grad = ti.ndarray(ti.f32, N)

    want = warm.slopes(warm.calls, memory=UNLIMITED)
    warm.slopes(run)
    np.testing.assert_array_equal(found[0].to_numpy(), want[0])
    assert not warm.x.grad.to_numpy().any()


def test_a_gradient_that_is_removed(warm: World) -> None:
    old, warm.y.grad = warm.y.grad, None
    with pytest.raises(GradientError):
        warm.slopes(warm.calls)
    warm.y.grad = old
    warm.check(warm.calls)


def test_another_loss(warm: World, prepared: list[bool]) -> None:
    for _ in range(4):
        found = warm.slopes(warm.calls, warm.other)
        assert not found[0].any() and not found[1].any()
        warm.check(warm.calls)
    for _ in range(4):
        warm.check(warm.calls)
    assert prepared[-1]


def test_a_changed_global(warm: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = warm.slopes(warm.calls)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    for _ in range(4):
        warm.check(warm.calls)
    np.testing.assert_allclose(warm.slopes(warm.calls)[0], first[0] * 1.5, rtol=1e-5)


@pytest.mark.parametrize("length", range(7))
def test_other_lengths(warm: World, length: int) -> None:
    def run(extra: int) -> None:
        for k in range(length + extra):
            if k % 2:
                scale(warm.x, warm.by)
            else:
                power(warm.x, warm.y, warm.k)
        add_up(warm.y, warm.loss)

    for extra in (1, 2, 1, 2, 3, 1, 2, 1):
        warm.check(lambda extra=extra: run(extra))


def test_another_thread_calls_a_kernel(warm: World) -> None:
    def run() -> None:
        scale(warm.x, warm.by)
        thread = threading.Thread(target=lambda: double(warm.x))
        thread.start()
        thread.join()
        power(warm.x, warm.y, warm.k)
        add_up(warm.y, warm.loss)

    for _ in range(5):
        warm.check(run)
        warm.check(warm.calls)


def test_options_of_tapes(warm: World, prepared: list[bool]) -> None:
    want = warm.slopes(warm.calls)
    prepared.clear()
    for options in ({"memory": 4000}, {"grad_check": [warm.y]}):
        found = warm.slopes(warm.calls, **options)
        for got, number in zip(found, want, strict=True):
            np.testing.assert_array_equal(got, number)
    warm.start()
    for _ in range(4):
        warm.start()
        with ti.ad.Tape(warm.loss, clear_gradients=False):
            warm.calls()
    assert not any(prepared)
    np.testing.assert_allclose(warm.x.grad.to_numpy(), 5 * want[0], rtol=1e-5)


def test_exceptions_in_tapes(warm: World, prepared: list[bool]) -> None:
    for count in range(4):
        with pytest.raises(ZeroDivisionError), ti.ad.Tape(warm.loss):
            for _ in range(count):
                scale(warm.x, warm.by)
            1 // 0  # noqa: B018
        assert warm.x.watch is None
        warm.check(warm.calls)
    assert all(prepared)


def test_invalid_calls(warm: World) -> None:
    def run() -> None:
        scale(warm.x, warm.by)
        with pytest.raises(ArgumentError):
            scale(warm.x, "no number")
        power(warm.x, warm.y, warm.k)
        add_up(warm.y, warm.loss)

    for _ in range(5):
        warm.check(run)


def test_an_interrupt_before_calls_are_recorded(
    warm: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves the tape without records of calls, so its gradients are refused."""

    def run() -> None:
        scale(warm.x, warm.by)
        power(warm.x, warm.y, warm.k)
        with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
            m.setattr(CallPath, "catch_up", interrupted)
            warm.x[0]  # noqa: B018
        add_up(warm.y, warm.loss)

    with pytest.raises(KernelRuntimeError, match=r"scale\(\) ended with an exception"):
        warm.slopes(run)
    warm.check(warm.calls)


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ArgumentError])
def test_launches_that_fail(
    warm: World, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    """After an error of the arguments the call counts as not made, after an interrupt all is
    open."""
    launch = Entry.launch

    def fail(self: Entry, *args: Any) -> Any:
        if self.kernel.artifact.name == "power":
            raise kind("no")
        return launch(self, *args)

    def run() -> None:
        scale(warm.x, warm.by)
        with monkeypatch.context() as m, pytest.raises(kind):
            m.setattr(Entry, "launch", fail)
            power(warm.x, warm.y, warm.k)
        power(warm.x, warm.y, warm.k)
        add_up(warm.y, warm.loss)

    def usual() -> None:
        scale(warm.x, warm.by)
        power(warm.x, warm.y, warm.k)
        add_up(warm.y, warm.loss)

    want = warm.slopes(usual, memory=UNLIMITED)
    if kind is ArgumentError:
        for got, number in zip(warm.slopes(run), want, strict=True):
            np.testing.assert_array_equal(got, number)
    else:
        with pytest.raises(KernelRuntimeError, match="ended with an exception"):
            warm.slopes(run)
    for _ in range(4):
        warm.check(usual)


@ti.ad.no_grad
def unseen(x: Any) -> None:
    double(x)


@ti.ad.grad_replaced
def doubled(x: Any) -> None:
    double(x)


@ti.ad.grad_for(doubled)
def doubled_grad(x: Any) -> None:
    double.grad(x)


def test_functions_with_other_gradients(warm: World) -> None:
    z = ti.ndarray(ti.f32, N)

    def run() -> None:
        scale(warm.x, warm.by)
        unseen(z)
        power(warm.x, warm.y, warm.k)
        doubled(warm.y)
        add_up(warm.y, warm.loss)

    for _ in range(5):
        warm.check(run)
        warm.check(warm.calls)


def test_an_undifferentiated_function(warm: World) -> None:
    def run() -> None:
        scale(warm.x, warm.by)
        power(warm.x, warm.y, warm.k)
        unseen(warm.y)
        add_up(warm.y, warm.loss)

    for _ in range(3):
        with pytest.raises(GradientError, match="unseen"):
            warm.slopes(run)


def test_gradients_of_kernels_in_tapes(warm: World) -> None:
    def run() -> None:
        scale(warm.x, warm.by)
        warm.loss.grad.fill(1)
        add_up.grad(warm.y, warm.loss)
        warm.x.grad.fill(0)
        warm.y.grad.fill(0)
        power(warm.x, warm.y, warm.k)
        add_up(warm.y, warm.loss)

    for _ in range(4):
        warm.check(run)


def test_gradients_that_run_later_have_their_own_copies(warm: World) -> None:
    want = warm.slopes(warm.calls)
    warm.start()
    with ti.ad.Tape() as tape:
        warm.calls()
    warm.by = 0.9
    for _ in range(4):
        warm.check(warm.calls)
    for _ in range(2):
        ti.ad.clear_all_gradients()
        tape.backward({warm.loss: 1.0})
        np.testing.assert_array_equal(warm.x.grad.to_numpy(), want[0])
        warm.check(warm.calls)


def test_gradients_inside_the_block(warm: World, prepared: list[bool]) -> None:
    want = warm.slopes(warm.calls)
    for _ in range(3):
        warm.start()
        with ti.ad.Tape(warm.loss) as tape:
            warm.calls()
            tape.grad()
            np.testing.assert_array_equal(warm.x.grad.to_numpy(), want[0])
            double(warm.x)
            with pytest.raises(KernelRuntimeError, match="once"):
                tape.grad()
        np.testing.assert_array_equal(warm.x.grad.to_numpy(), want[0])
    assert all(prepared)


def test_records_are_there_when_they_are_read(warm: World) -> None:
    warm.start()
    with ti.ad.Tape(warm.loss) as tape:
        warm.calls()
        assert len(tape.entries) == 7
        assert tape.snapshots.saved_bytes > 0
        assert not tape.path
    reports = []
    for _ in range(2):
        warm.start()
        with ti.ad.Tape(warm.loss) as tape:
            warm.calls()
        reports.append(str(tape.report))
    assert reports[0] == reports[1]


def test_numpy_between_calls(warm: World) -> None:
    values = np.ones(N, np.float32)

    def run() -> None:
        scale(warm.x, warm.by)
        double(values)
        power(warm.x, warm.y, warm.k)
        add_up(warm.y, warm.loss)

    for _ in range(4):
        warm.check(run)
    assert values[0] == 2.0**8


def test_tensors_between_calls(warm: World) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.full((N,), 0.5, requires_grad=True)

    def run() -> None:
        scale(warm.x, warm.by)
        power(tensor, warm.y, warm.k)
        add_up(warm.y, warm.loss)

    found = []
    for memory in (None, None, None, UNLIMITED):
        tensor.grad = None
        warm.slopes(run, memory=memory)
        found.append(tensor.grad.numpy().copy())
    for one in found:
        np.testing.assert_array_equal(one, found[-1])


def test_exported_arrays(warm: World, prepared: list[bool]) -> None:
    view = np.from_dlpack(warm.y)

    def run() -> None:
        scale(warm.x, warm.by)
        power(warm.x, warm.y, warm.k)
        add_up(warm.y, warm.loss)

    for _ in range(4):
        warm.check(run)
        warm.check(warm.calls)
    assert not any(prepared) and view.shape == (N,)


def test_nothing_is_kept_alive(prepared: list[bool]) -> None:
    ti.init(arch=ti.vulkan)

    def work() -> list[weakref.ref[Any]]:
        x, loss = ti.field(ti.f32, N, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
        a = ndarray()

        @ti.kernel
        def step(y: ti.types.ndarray()):
            for i in x:
                y[i] = x[i] * y[i]

        @ti.kernel
        def total(y: ti.types.ndarray()):
            for i in x:
                loss[None] += y[i]

        for _ in range(6):
            a.fill(1)
            with ti.ad.Tape(loss):
                step(a)
                step(a)
                total(a)
        return [weakref.ref(a), weakref.ref(step), weakref.ref(a.grad)]

    found = work()
    assert prepared[-1]
    gc.collect()
    assert [one() for one in found] == [None] * 3


def test_more_sequences_than_are_kept(warm: World) -> None:
    for k in range(40):
        for _ in range(2):
            warm.k = k % 20
            warm.slopes(warm.calls)
    assert len(current_runtime().prepared) <= 32
    warm.k = 2
    for _ in range(4):
        warm.check(warm.calls)


def test_destroyed_fields() -> None:
    ti.init(arch=ti.vulkan)
    builder = ti.FieldsBuilder()
    x, loss = ti.field(ti.f32, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    builder.dense(ti.i, N).place(x, x.grad)
    tree = builder.finalize()

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i] * x[i]

    for _ in range(5):
        x.fill(2)
        with ti.ad.Tape(loss):
            total()
        assert x.grad[1] == 4
    with pytest.raises(KernelRuntimeError), ti.ad.Tape(loss):
        total()
        tree.destroy()


def test_members_of_objects(prepared: list[bool]) -> None:
    ti.init(arch=ti.vulkan)

    @ti.data_oriented
    class Body:
        def __init__(self) -> None:
            self.x, self.loss = ndarray(), ti.field(ti.f32, (), needs_grad=True)
            self.gain = 2.0

        @ti.kernel
        def move(self):
            for i in range(N):
                self.x[i] = self.x[i] * self.x[i] * self.gain

        @ti.kernel
        def total(self):
            for i in range(N):
                self.loss[None] += self.x[i]

    bodies = [Body(), Body()]

    def slope(body: Any) -> float:
        x = body.x
        x.fill(3)
        with ti.ad.Tape(body.loss):
            body.move()
            body.total()
        return float(x.grad.to_numpy()[2])

    for k in range(6):
        for body in bodies:
            assert slope(body) == 12
            if k > 3:
                assert prepared[-1]
    bodies[0].gain = 3.0
    assert slope(bodies[0]) == 18 and slope(bodies[1]) == 12
    bodies[1].x = ndarray()
    assert slope(bodies[1]) == 12
    bodies[0].x = bodies[1].x
    for _ in range(4):
        assert slope(bodies[0]) == 18 and slope(bodies[1]) == 12


def test_numbers_of_objects(prepared: list[bool]) -> None:
    ti.init(arch=ti.vulkan)
    x, loss = ndarray(), ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def move(given: Given):
        for i in range(N):
            given.x[i] = given.x[i] * given.x[i] * given.gain

    @ti.kernel
    def total(given: Given):
        for i in range(N):
            loss[None] += given.x[i]

    given = Given(2.0, x)
    for gain in (2.0, 2.0, 2.0, 2.0, 2.0, 3.0, 3.0, 4.0, 2.0):
        given.gain = gain
        x.fill(3)
        with ti.ad.Tape(loss):
            move(given)
            given.gain = gain + 1
            move(given)
            total(given)
        want = 4 * 27 * gain**2 * (gain + 1)
        assert x.grad.to_numpy()[0] == want
    assert prepared[-1]


def test_losses_of_other_types(prepared: list[bool]) -> None:
    ti.init(arch=ti.vulkan)
    x, loss = ndarray(), ti.ndarray(ti.f32, (), needs_grad=True)

    @ti.kernel
    def total(x: ti.types.ndarray(), loss: ti.types.ndarray()):
        for i in range(N):
            loss[None] += x[i] * x[i]

    for k in range(6):
        x.fill(k)
        with ti.ad.Tape(loss):
            total(x, loss)
        assert x.grad.to_numpy()[0] == 2 * k and loss.to_numpy() == N * k * k
    assert prepared[-1]
