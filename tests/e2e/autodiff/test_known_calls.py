"""Calls that an earlier tape analyzed are not analyzed again (`tape.call_facts`): the results are
the same, whatever else happens in the tapes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import DeviceError, GradientError, KernelRuntimeError
from vkchi.fields.storage import Storage
from vkchi.launch.compiled_kernel import CompiledKernel
from vkchi.launch.entry import Entry
from vkchi.runtime import current_runtime
from vkchi.tape import call_facts
from vkchi.tape.call_facts import KnownCalls
from vkchi.tape.call_paths import CallPath

pytestmark = pytest.mark.device
N = 5


class World:
    """x is scaled in place, its squares are added to y, which is added up."""

    def __init__(self) -> None:
        ti.init(arch=ti.vulkan)
        self.x, self.y = (ti.field(ti.f32, N, needs_grad=True) for _ in range(2))
        self.plain = ti.field(ti.f32, N)
        self.loss, self.other = (ti.field(ti.f32, (), needs_grad=True) for _ in range(2))
        x, y, plain = self.x, self.y, self.plain

        @ti.kernel
        def scale(by: ti.f32):
            for i in x:
                x[i] = x[i] * by

        @ti.kernel
        def square(k: ti.i32):
            for i in x:
                y[i] += x[i] * x[i] * (i + k)

        @ti.kernel
        def add_up(loss: ti.template()):
            for i in y:
                loss[None] += y[i]

        @ti.kernel
        def lose():
            for i in x:
                plain[i] = x[i]

        @ti.kernel
        def find():
            for i in x:
                y[i] += plain[i]

        self.scale, self.square, self.add_up = scale, square, add_up
        self.lose, self.find = lose, find

    def slopes(self, run: Callable[[], Any], loss: Any = None, **options: Any) -> list[float]:
        """The gradient of x, which is 1, 2, 3, ..."""
        self.x.from_numpy(np.arange(1, N + 1, dtype=np.float32))
        self.y.fill(0)
        with ti.ad.Tape(loss or self.loss, **options):
            run()
        return self.x.grad.to_numpy().tolist()

    def usual(self) -> None:
        """d(loss)/dx is sum over calls of 2 x s^2 (i + k), where s is the scale by then."""
        for k in range(3):
            self.scale(2.0)
            self.square(k)
        self.add_up(self.loss)


def expected(scales: list[float], ks: list[int]) -> list[float]:
    """Of scale and square in turn."""
    s = np.cumprod(scales)
    return [
        2 * (i + 1) * float(sum(s[j] ** 2 * (i + k) for j, k in enumerate(ks))) for i in range(N)
    ]


USUAL = expected([2, 2, 2], [0, 1, 2])


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of kernels whose calls were not analyzed."""
    found: list[str] = []
    find, follow = KnownCalls.find, CallPath.find

    def look(self: KnownCalls, name: str, *rest: Any) -> Any:
        known = find(self, name, *rest)
        found.extend([name] if known is not None else [])
        return known

    def look_at_path(self: CallPath, kernel: CompiledKernel, args: tuple[Any, ...]) -> Any:
        known = follow(self, kernel, args)
        found.extend([kernel.artifact.name] if known is not None else [])
        return known

    monkeypatch.setattr(KnownCalls, "find", look)
    monkeypatch.setattr(CallPath, "find", look_at_path)
    return found


def test_the_second_tape_analyzes_no_call(world: World, known: list[str]) -> None:
    world.slopes(world.usual)  # in which calls are met for the first time
    found = [world.slopes(world.usual) for _ in range(3)]
    assert found == [USUAL] * 3
    assert known[-7:] == ["scale", "square"] * 3 + ["add_up"]
    assert current_runtime().tape is None
    assert world.x.watch is world.y.watch is None


def test_saved_memory_is_counted(world: World) -> None:
    reports = []
    for _ in range(3):
        world.x.fill(1)
        with ti.ad.Tape(world.loss) as tape:
            world.usual()
        reports.append(tape.report)
    assert len(set(map(str, reports))) == 1 and reports[0].saved_bytes > 0


def test_floats_may_be_others(world: World, known: list[str]) -> None:
    for by in (2.0, 2.0, 3.0, 0.5):

        def run(by: float = by) -> None:
            world.scale(by)
            world.square(1)
            world.add_up(world.loss)

        assert world.slopes(run) == pytest.approx(expected([by], [1]))
    assert known.count("scale") == 3


@pytest.mark.parametrize("length", range(4))
def test_a_call_that_is_another_one(world: World, length: int) -> None:
    def run(ks: list[int]) -> list[float]:
        def calls() -> None:
            for k in ks:
                world.scale(2.0)
                world.square(k)
            world.add_up(world.loss)

        return world.slopes(calls)

    for _ in range(3):
        run([0, 1, 2, 3])
    others = [[0, 1, 2, 3][:length], [*range(length), 7], [*range(length), 7, 5]]
    for ks in others * 2:
        assert run(ks) == expected([2] * len(ks), ks)


def read(world: World) -> None:
    assert world.x[0] > 0


def fill(world: World) -> None:
    world.y.fill(0)


def put(world: World) -> None:
    world.y[1] = 0


def export(world: World) -> None:
    np.from_dlpack(ti.ndarray(ti.f32, 2))


ACTS = {"read": read, "fill": fill, "put": put, "copy": lambda w: w.y.copy_from(w.plain)}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("place", range(4))
def test_python_between_calls(world: World, act: str, place: int) -> None:
    def run() -> None:
        for k in range(4):
            if k == place:
                ACTS[act](world)
            world.scale(2.0)
            world.square(k)
        world.add_up(world.loss)

    def usual() -> None:
        for k in range(4):
            world.scale(2.0)
            world.square(k)
        world.add_up(world.loss)

    full = expected([2] * 4, [0, 1, 2, 3])
    for _ in range(3):
        assert world.slopes(usual) == full
    s = 4.0 ** np.arange(1, 5)
    kept = [2 * (i + 1) * sum(s[k] * (i + k) for k in range(4) if k >= place) for i in range(N)]
    want = {"read": full, "fill": kept, "copy": kept}
    want["put"] = [kept[i] if i == 1 else full[i] for i in range(N)]
    for _ in range(2):
        assert world.slopes(run) == want[act]
        assert world.slopes(usual) == full


def test_a_derivative_that_is_lost_after_all(world: World) -> None:
    def lost() -> None:
        world.usual()
        world.lose()
        world.find()
        world.add_up(world.loss)

    for _ in range(3):
        assert world.slopes(world.usual) == USUAL
        with pytest.raises(GradientError, match="plain"):
            world.slopes(lost)


def test_another_loss(world: World) -> None:
    def both() -> None:
        world.usual()
        world.add_up(world.other)

    for _ in range(3):
        assert world.slopes(both) == USUAL
        assert world.slopes(both, world.other) == USUAL


def test_a_loss_that_python_put_somewhere(world: World) -> None:
    def run() -> None:
        world.usual()
        world.other[None] = world.loss[None]

    for _ in range(3):
        assert world.slopes(world.usual) == USUAL
        assert world.slopes(run) == USUAL


def test_gradients_that_are_kept(world: World) -> None:
    for k in range(3):
        assert world.slopes(world.usual, clear_gradients=k == 0) == [g * (k + 1) for g in USUAL]


def test_options_of_tapes(world: World) -> None:
    for _ in range(2):
        for options in ({}, {"memory": 40}, {"validation": False}, {"grad_check": [world.x]}):
            assert world.slopes(world.usual, **options) == USUAL
    with pytest.raises(KernelRuntimeError, match="scale"):
        world.slopes(lambda: (world.square(1), world.scale(2.0)), validation=True)


def test_an_exception_ends_a_tape(world: World) -> None:
    def run() -> None:
        world.scale(2.0)
        raise ValueError

    for _ in range(3):
        assert world.slopes(world.usual) == USUAL
        with pytest.raises(ValueError):
            world.slopes(run)
        assert world.x.watch is None


def test_gradients_in_the_block(world: World) -> None:
    for _ in range(3):
        world.x.fill(1)
        world.y.fill(0)
        with ti.ad.Tape(world.loss) as tape:
            world.usual()
            tape.grad()
            found = world.x.grad[1]
            world.scale(3.0)  # not recorded any more
        assert found == world.x.grad[1] == USUAL[1] / 2


def test_functions_with_gradients_of_their_own(world: World) -> None:
    @ti.ad.grad_replaced
    def twice() -> None:
        world.scale(2.0)

    @ti.ad.grad_for(twice)
    def twice_grad() -> None:
        for i in range(N):
            world.x.grad[i] *= 3

    @ti.ad.no_grad
    def aside() -> None:
        world.add_up(world.other)

    def own() -> None:
        world.scale(2.0)
        twice()
        aside()
        world.square(1)
        world.add_up(world.loss)

    def plain() -> None:
        world.scale(2.0)
        world.scale(2.0)
        world.square(1)
        world.add_up(world.loss)

    want = [2 * (i + 1) * 16 * (i + 1) for i in range(N)]
    for _ in range(3):
        assert world.slopes(plain) == want
        assert world.slopes(own) == [w / 2 * 3 for w in want]


def test_arrays_that_others_see(world: World) -> None:
    def run() -> None:
        world.scale(2.0)
        view = np.from_dlpack(world.x)
        world.square(1)
        assert view[0] == 2
        world.add_up(world.loss)

    def plain() -> None:
        world.scale(2.0)
        world.square(1)
        world.add_up(world.loss)

    for _ in range(3):
        assert world.slopes(plain) == expected([2], [1])
        assert world.slopes(run) == expected([2], [1])


def test_arrays_of_arguments_come_and_go() -> None:
    ti.init(arch=ti.vulkan)

    @ti.kernel
    def add(x: ti.types.ndarray(), loss: ti.types.ndarray()):
        for i in x:
            loss[None] += x[i] ** 2

    loss = ti.ndarray(ti.f32, (), needs_grad=True)
    for k in range(6):
        x = ti.ndarray(ti.f32, 2 + k % 2, needs_grad=True)
        x.fill(k)
        for _ in range(3):
            with ti.ad.Tape(loss):
                add(x, loss)
            assert x.grad.to_numpy().tolist() == [2 * k] * (2 + k % 2)


@pytest.mark.parametrize("kind", ["index", "bound", "condition", "variable", "factor"])
def test_integers_that_decide_about_accesses(known: list[str], kind: str) -> None:
    """Calls with another index, loop bound or condition are analyzed again; other integers do not
    matter."""
    ti.init(arch=ti.vulkan)
    x, loss = ti.field(ti.f32, N, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def index(k: ti.i32):
        loss[None] += x[k] * x[k]

    @ti.kernel
    def bound(k: ti.i32):
        for i in range(k, k + 1):
            loss[None] += x[i] * x[i]

    @ti.kernel
    def condition(k: ti.i32):
        for i in x:
            if i == k:
                loss[None] += x[i] * x[i]

    @ti.kernel
    def variable(k: ti.i32):
        for _ in range(1):
            at = 0
            while at < k:
                at += 1
            loss[None] += x[at] * x[at]

    @ti.kernel
    def factor(k: ti.i32):
        for i in x:
            loss[None] += x[i] * x[i] * k

    @ti.kernel
    def halve(k: ti.i32):
        x[k] = 0.5 * x[k]

    kernels = {f.__name__: f for f in (index, bound, condition, variable, factor)}
    x.fill(1.0)
    known.clear()
    with ti.ad.Tape(loss):
        for k in range(N):
            kernels[kind](k)
            halve(k)
            kernels[kind](k)
    if kind == "factor":  # the k-th call comes after k halvings
        wanted = [sum(2 * k * (1 + 0.25) if k == i else 4 * k * (1 if k < i else 0.25)
                      for k in range(N)) for i in range(N)]  # fmt: skip
        assert known == ["factor"] * (2 * N - 1)
    else:
        wanted = [2 * (1 + 0.25)] * N
        assert known == [kind] * N  # the second call of each index
    assert x.grad.to_numpy() == pytest.approx(wanted)


def test_facts_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call_facts.MOST_CASES > 20
    monkeypatch.setattr(call_facts, "MOST_CASES", 20)
    x, loss = world.x, world.loss

    @ti.kernel
    def square(k: ti.i32):
        for i in x:
            if i >= k:
                loss[None] += x[i] * x[i]

    square(0)
    for k in range(30):

        def run(k: int = k) -> None:
            square(-k)
            square(k + 1)

        for _ in range(2):
            wanted = [2.0 * (i + 1) * (1 + (i > k)) for i in range(N)]
            assert world.slopes(run) == wanted
    (guarded,) = square._cache.compiled.values()
    (kernel,) = guarded.kernels
    assert all(len(one.known) <= 20 for one in kernel.derived.repeated.values())


def test_a_gradient_that_is_placed_later() -> None:
    """By then the same calls need more of the overwritten values."""
    ti.init(arch=ti.vulkan)
    x = ti.field(ti.f32, N, needs_grad=True)
    late = ti.field(ti.f32)
    loss = ti.field(ti.f32, (), needs_grad=True)
    ti.root.dense(ti.i, N).place(late)

    @ti.kernel
    def multiply():
        for i in x:
            loss[None] += late[i] * x[i]

    @ti.kernel
    def clear():
        for i in x:
            x[i] = 0

    def run() -> list[float]:
        x.fill(2)
        late.fill(1)
        with ti.ad.Tape(loss):
            multiply()
            clear()
        return x.grad.to_numpy().tolist()

    assert [run() for _ in range(3)] == [[1] * N] * 3
    ti.root.dense(ti.i, N).place(late.grad)
    for _ in range(3):
        assert run() == [1] * N
        assert late.grad.to_numpy().tolist() == [2] * N


def test_a_gradient_that_is_replaced_inside() -> None:
    """Calls before that add to the one that the array had then."""
    ti.init(arch=ti.vulkan)
    x = ti.ndarray(ti.f32, N, needs_grad=True)
    loss = ti.ndarray(ti.f32, (), needs_grad=True)

    @ti.kernel
    def add(x: ti.types.ndarray(), k: ti.i32, loss: ti.types.ndarray()):
        for i in x:
            loss[None] += x[i] * k

    def run(*, is_replaced: bool) -> list[float]:
        first = x.grad
        with ti.ad.Tape(loss):
            add(x, 1, loss)
            if is_replaced:
                x.add_gradient()
            add(x, 2, loss)
        return [first[0], x.grad[0]]

    for _ in range(2):
        assert [run(is_replaced=False) for _ in range(3)] == [[3, 3]] * 3
        assert run(is_replaced=True) == [1, 2]


ENDS = {"interrupt": KeyboardInterrupt, "refusal": DeviceError}


@pytest.mark.parametrize("error", ENDS)
@pytest.mark.parametrize("place", range(3))
def test_a_call_that_fails_inside(
    world: World, monkeypatch: pytest.MonkeyPatch, error: str, place: int
) -> None:
    """Notes and saved values of the failed call belong to no call."""

    def fail(*args: Any) -> None:
        raise ENDS[error]

    def run(failing: int | None) -> None:
        for k in range(3):
            world.square(k)
            if k == failing:
                with monkeypatch.context() as m, pytest.raises(ENDS[error]):
                    m.setattr(Entry, "launch", fail)
                    world.scale(2.0)
            world.scale(2.0)
        world.add_up(world.loss)

    want = expected([1, 2, 2], [0, 1, 2])
    world.slopes(lambda: (world.scale(1.0), world.square(1)))  # both are known by then
    for failing in (place, None, None, place, None):
        if failing is not None and error == "interrupt":
            with pytest.raises(KernelRuntimeError, match="ended with an exception"):
                world.slopes(lambda: run(place))
        else:
            assert world.slopes(lambda k=failing: run(k)) == want


def test_no_memory_for_copies(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is that of an analyzed call, and the values to keep are kept afterwards."""

    def fail(*args: Any) -> None:
        raise DeviceError("no memory")

    said = []

    def run() -> None:
        world.square(0)
        world.scale(2.0)
        world.square(1)
        with monkeypatch.context() as m, pytest.raises(DeviceError) as caught:
            m.setattr(Storage, "copied", fail)
            m.setattr(Storage, "copied_rows", fail)
            current_runtime().spare_copies.clear()
            world.scale(2.0)
        said.append(str(caught.value))
        world.scale(2.0)
        world.square(2)
        world.add_up(world.loss)

    def usual() -> None:
        for k in range(3):
            world.square(k)
            if k < 2:
                world.scale(2.0)
        world.add_up(world.loss)

    want = expected([1, 2, 2], [0, 1, 2])
    for _ in range(3):
        assert world.slopes(run) == want
        assert world.slopes(usual) == want
    assert len(set(said)) == 1 and "the tape has saved" in said[0]


def test_another_thread_reads_while_calls_are_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        assert world.slopes(world.usual) == USUAL
    launch, threads, calls = CallPath.follow, [], []

    def launch_beside(self: CallPath, *args: Any) -> Any:
        calls.append(args)
        if len(calls) == 3:
            threads.append(threading.Thread(target=lambda: world.x[0]))
            threads[0].start()
            threads[0].join(0.2)
        return launch(self, *args)

    monkeypatch.setattr(CallPath, "follow", launch_beside)
    assert world.slopes(world.usual) == USUAL
    threads[0].join()
    assert world.slopes(world.usual) == USUAL
