"""`ti.record()`: recorded graphs, loops on the device, and unsupported operations."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ArgumentError, KernelRuntimeError
from vkchi.launch import replay
from vkchi.runtime import current_runtime

F1 = ti.types.ndarray(ti.f32, 1)


@ti.kernel
def add(a: ti.f32, x: F1):
    for i in x:
        x[i] += a


@ti.kernel
def mix(m: ti.math.vec2, x: F1, y: F1):
    for i in x:
        y[i] = m.x * x[i] + m.y * y[i]


@ti.kernel
def draw(x: F1):
    for i in x:
        x[i] += ti.random()


@ti.kernel
def total(x: F1) -> ti.f32:
    found = 0.0
    for i in x:
        found += x[i]
    return found


@ti.kernel
def fill(x: ti.template(), k: ti.i32):
    for i in x:
        x[i] = k


@ti.kernel
def halve(x: F1, going: ti.types.ndarray(ti.i32, 1)):
    for i in x:
        x[i] *= 0.5
        if i == 0:
            going[0] = x[0] > 1


def array(n: int = 8) -> Any:
    x = ti.ndarray(ti.f32, n)
    x.from_numpy(np.arange(n, dtype=np.float32))
    return x


@pytest.fixture(autouse=True, params=["in commands", "in memory"])
def arguments(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Location of recorded dispatches' arguments: in memory from the first run, or not."""
    if request.param == "in memory":
        monkeypatch.setattr(replay, "MOST_RERECORDED", 0)


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of dispatches in every sequence that is run from now on."""
    found: list[int] = []
    device = current_runtime().device
    run = device.execute
    monkeypatch.setattr(device, "execute", lambda s: (found.append(s.count), run(s))[1])
    return found


def test_calls_are_recorded_and_not_run(executed: list[int]) -> None:
    x, y, m = array(), array(), ti.Vector([1.0, 2.0])
    with ti.record() as g:
        add(1, x)
        mix(m, x, y)
        add(a=-1, x=y)
        m[0] = 5.0  # arguments are as they were
        assert x.shape == (8,)
    assert (x.to_numpy() == np.arange(8)).all() and not executed
    g.run()
    wanted_x = np.arange(8) + 1.0
    wanted_y = wanted_x + 2 * np.arange(8) - 1
    assert (x.to_numpy() == wanted_x).all() and (y.to_numpy() == wanted_y).all()
    g.run(0)
    g.run(3)
    for _ in range(3):
        wanted_x += 1
        wanted_y = wanted_x + 2 * wanted_y - 1
    assert (x.to_numpy() == wanted_x).all() and (y.to_numpy() == wanted_y).all()
    assert executed == [1] * 4  # three kernels, one dispatch


def test_many_runs_are_few_commands(executed: list[int]) -> None:
    x = array()
    with ti.record() as g:
        add(1, x)
    g.run(1000)
    assert x[0] == 1000 and len(executed) < 300 and sum(executed) == 1000


def test_kernels_run_again_after_the_block() -> None:
    x = array()
    with ti.record() as g:
        add(1, x)
    add(2, x)
    g.run()
    assert x[0] == 3


def test_fields_templates_and_methods() -> None:
    @ti.data_oriented
    class Sim:
        def __init__(self) -> None:
            self.x = ti.field(ti.i32, 4)

        @ti.kernel
        def step(self, k: ti.i32):
            for i in self.x:
                self.x[i] += k

    sim = Sim()
    with ti.record() as g:
        fill(sim.x, 2)
        sim.step(3)
        sim.step(3)
    g.run(2)
    assert sim.x.to_numpy().tolist() == [8] * 4


def test_drawing_and_printing_kernels_run_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    @ti.kernel
    def say(x: F1):
        print("x is", x[0])

    x, y = ti.ndarray(ti.f32, 64), array()
    with ti.record() as g:
        add(1, y)
        draw(x)
        say(y)
        add(1, y)
    g.run()
    first = x.to_numpy()
    g.run(1)
    assert capfd.readouterr().out == "x is 1.000000\nx is 3.000000\n"
    assert not np.isclose(x.to_numpy() - first, first).any() and y[0] == 4


def test_a_graph_in_the_block_and_a_saved_kernel(tmp_path: Any) -> None:
    builder = ti.graph.GraphBuilder()
    builder.dispatch(add, 3, ti.graph.Arg(ti.graph.ArgKind.NDARRAY, "x", ti.f32, ndim=1))
    graph, module = builder.compile(), ti.aot.Module()
    module.add_kernel(add)
    module.save(tmp_path)
    x, loaded = array(), ti.load(tmp_path)
    with ti.record() as g:
        graph.run({"x": x})
        loaded.add(1, x)
    assert x[0] == 0
    g.run(2)
    assert x[0] == 8


def test_in_a_tape_recorded_kernels_are_differentiated() -> None:
    x, loss = ti.field(ti.f32, (), needs_grad=True), ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def square():
        loss[None] += x[None] ** 2

    x[None] = 3
    with ti.record() as g:
        square()
    with ti.ad.Tape(loss):
        g.run(2)
    assert x.grad[None] == 12


def test_arrays_live_as_long_as_the_graph() -> None:
    x, y = array(), array()
    with ti.record() as g:
        mix(ti.Vector([1.0, 0.0]), x, y)
    gone, x = weakref.ref(x), None
    gc.collect()
    ti.ndarray(ti.f32, 8).fill(-1)
    g.run()
    assert (y.to_numpy() == np.arange(8)).all() and gone() is not None
    del g
    gc.collect()
    assert gone() is None


def test_a_field_that_is_gone() -> None:
    builder, x = ti.FieldsBuilder(), ti.field(ti.i32)
    builder.dense(ti.i, 4).place(x)
    tree = builder.finalize()
    with ti.record() as g:
        fill(x, 1)
    g.run()
    tree.destroy()
    with pytest.raises(KernelRuntimeError, match="was destroyed"):
        g.run()


def test_after_another_init(own_runtime: None) -> None:
    x = array()
    with ti.record() as g:
        add(1, x)
    ti.init()
    with pytest.raises(KernelRuntimeError, match="was made before ti.init"):
        g.run()


def test_algorithms_in_the_block() -> None:
    x, values = ti.field(ti.i32, 100), np.random.default_rng(5).integers(0, 1000, 100)
    with ti.record() as g:
        ti.algorithms.parallel_sort(x)
    x.from_numpy(values)
    g.run()
    assert (x.to_numpy() == np.sort(values)).all()


def test_other_threads_are_not_recorded() -> None:
    x, y, found = array(), array(), []

    def work() -> None:
        add(5, y)
        found.append((total(y), y[0]))

    with ti.record() as g:
        add(1, x)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == [(28 + 40, 5)]
    g.run()
    assert x[0] == 1 and y[0] == 5


# --- errors --------------------------------------------------------------------------------------


def test_unsupported_operations_in_recording_raise() -> None:
    x, y, f = array(), array(), ti.field(ti.f32, (), needs_grad=True)
    vectors = ti.Vector.field(2, ti.f32, 4)

    @ti.kernel
    def work():
        f[None] += 1
        for i in vectors:
            vectors[i] += 1

    @ti.ad.grad_replaced
    def custom():
        work()

    @ti.ad.grad_for(custom)
    def custom_grad():
        pass

    matrix = ti.linalg.SparseMatrixBuilder(8, 8, max_num_triplets=8).build()
    cases: list[tuple[Any, str]] = [
        (lambda: x[0], "does not hold what they will write: read it after g.run"),
        (lambda: x.to_numpy(), "read it after g.run"),
        (lambda: f[None], "read it after g.run"),
        (lambda: vectors[1][0], "read it after g.run"),
        (lambda: vectors.get_scalar_field(1)[2], "read it after g.run"),
        (lambda: vectors.get_scalar_field(0).to_numpy(), "read it after g.run"),
        (lambda: y.fill(0), "would be written once, now"),
        (lambda: y.from_numpy(np.zeros(8)), "would be written once, now"),
        (lambda: y.copy_from(x), "would be written once, now"),
        (lambda: y.__setitem__(0, 1), "would be written once, now"),
        (lambda: total(y), r"total\(\) cannot return anything"),
        (lambda: add(1, np.zeros(8, np.float32)), "cannot be given a numpy array"),
        (lambda: work.grad(), r"work.grad\(\) cannot be called"),
        (lambda: add("1", x), "an f32 number is needed"),
        (lambda: matrix @ y, "matrices, solvers and functions with gradients"),
        (lambda: custom(), "matrices, solvers and functions with gradients"),
        (lambda: ti.ad.clear_all_gradients(), "would be written once, now"),
        (lambda: ti.ad.FwdMode(loss=f, param=x).__enter__(), "tapes do not nest"),
    ]
    for act, message in cases:
        with pytest.raises(KernelRuntimeError, match=message), ti.record() as g:
            add(1, x)
            work()
            act()
        with pytest.raises(KernelRuntimeError, match="is not whole"):
            g.run()
        assert x[0] == 0 and f[None] == 0 and y[1] == 1
    with ti.record():
        add(1, x)
        assert y[3] == 3  # no recorded kernel writes it


def test_blocks_in_blocks() -> None:
    loss = ti.field(ti.f32, (), needs_grad=True)
    with pytest.raises(KernelRuntimeError, match="inside another ti.record"), ti.record():
        with ti.record():
            pass
    with pytest.raises(KernelRuntimeError, match="inside a tape"), ti.ad.Tape(loss):
        with ti.record():
            pass
    with pytest.raises((KernelRuntimeError, ti.TaichiCompilationError)), ti.record():
        with ti.ad.Tape(loss):
            add(1, array())
    g = ti.record()
    with pytest.raises(KernelRuntimeError, match="write `with ti.record"):
        g.run()
    x = array()
    add(1, x)
    assert x[0] == 1
    with ti.record() as g:
        add(1, x)
    for wrong in (-1, 1.5, True, "2"):
        with pytest.raises(ArgumentError, match="takes a number of times"):
            g.run(wrong)


# --- loops ---------------------------------------------------------------------------------------


def rounds(start: float) -> int:
    n = 0
    while start > 1:
        start, n = start / 2, n + 1
    return n


@pytest.mark.parametrize("start", [0.5, 2.0, 1000.0, 1e30])
def test_while_an_ndarray_is_true(start: float, executed: list[int]) -> None:
    x, going = ti.ndarray(ti.f32, 100), ti.ndarray(ti.i32, 1)
    with ti.record() as g:
        halve(x, going)
    x.fill(start)
    going[0] = int(start > 1)
    assert g.run_while(going) == rounds(start)
    assert going[0] == 0 and (x.to_numpy() == np.float32(start / 2 ** rounds(start))).all()
    assert 1 <= len(executed) <= 3  # chunks of 64 rounds


def test_until_with_a_limit() -> None:
    x, done = ti.ndarray(ti.f32, 10), ti.field(ti.f32, ())

    @ti.kernel
    def step(x: F1):
        for i in x:
            x[i] += 1
        done[None] = 0.5 if x[0] == 7 else 0.0

    with ti.record() as g:
        step(x)
    assert g.run_until(done, max=3) == 3 and x[9] == 3
    assert g.run_until(done, max=0) == 0
    assert g.run_until(done, max=1000) == 4 and x[9] == 7
    assert g.run_until(done) == 0 and x[9] == 7
    done[None] = 0
    assert g.run_until(done, max=500) == 500 and x[9] == 507
    assert g.run_while(done) == 0


def test_unrecorded_work_stays_in_order() -> None:
    x, going = ti.ndarray(ti.f32, 70_000), ti.ndarray(ti.i32, 1)
    with ti.record() as g:
        halve(x, going)
        add(0.25, x)
    for _ in range(3):
        x.fill(64)
        add(64, x)
        going[0] = 1
        count = g.run_while(going, max=9)
        wanted = 128.0
        n = 0
        while n < 9:
            wanted, n = wanted / 2, n + 1
            is_on, wanted = wanted > 1, wanted + 0.25
            if not is_on:
                break
        add(1, x)
        assert count == n and (x.to_numpy() == wanted + 1).all()


def test_loops_of_callees() -> None:
    """Random numbers are others in each round."""
    x, sums = ti.ndarray(ti.f32, 4), ti.field(ti.i32, ())

    @ti.kernel
    def look_at(x: F1):
        sums[None] = x[0] > 20

    with ti.record() as g:
        draw(x)
        look_at(x)
    count = g.run_until(sums)
    assert 30 < count < 60 and 20 < x[0] < 21


def test_loops_in_debug_mode(own_runtime: None) -> None:
    ti.init(debug=True)
    x, going = ti.ndarray(ti.f32, 4), ti.ndarray(ti.i32, 1)
    with ti.record() as g:
        halve(x, going)
    x.fill(8)
    going[0] = 1
    assert g.run_while(going) == 3


def test_conditions_that_are_none() -> None:
    x, other = array(), ti.field(ti.i32, ())
    with ti.record() as g:
        add(1, x)
    for wrong in (x, 1, ti.Vector.field(2, ti.f32, ()), ti.field(ti.i32, (1, 1))):
        with pytest.raises(ArgumentError, match="of one number is needed"):
            g.run_while(wrong)
    with pytest.raises(ArgumentError, match="so the loop would never end"):
        g.run_until(other)
    assert g.run_while(other) == 0
    assert g.run_until(other, max=5) == 5 and x[0] == 5
    with pytest.raises(ArgumentError, match="max is a number of runs"):
        g.run_while(other, max=1.5)
    with pytest.raises(ArgumentError, match="max is a number of runs"):
        g.run_while(other, max=-1)


def test_conditions_are_not_kept_for_ever() -> None:
    x = array()
    with ti.record() as g:
        add(1, x)
    gone = []
    for k in range(20):
        condition = ti.ndarray(ti.i32, 1)
        condition.fill(k % 2)
        assert g.run_while(condition, max=2) == 2 * (k % 2)
        gone.append(weakref.ref(condition))
    del condition
    gc.collect()
    assert sum(one() is not None for one in gone) < 12 and x[0] == 20


def test_arrays_that_others_see_are_recorded_as_ever() -> None:
    x, y, z = array(), array(), array()
    if y.host is None:
        pytest.skip("the host does not reach memory")
    seen = np.from_dlpack(y)
    with ti.record() as g:
        add(1, x)
        other = np.from_dlpack(z)  # no recorded kernel writes it
    with pytest.raises(KernelRuntimeError, match="would be written once, now"), ti.record():
        y.fill(3)
    g.run()
    assert x[0] == 1 and (seen == y.to_numpy()).all() and (other == np.arange(8)).all()
