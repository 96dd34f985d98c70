"""Dispatches that are replaced by setting memory to a number (`analysis/memory/must_write`): the
results of programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.launch import replay
from vkchi.runtime import current_runtime
from vkchi.vk.pipelines import BufferFills

F1 = ti.types.ndarray(ti.f32, 1)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each dispatch from now on, whether memory is set in its place."""
    device, found = current_runtime().device, []
    if not device.caps.is_cpu:
        pytest.skip("graphics cards run such dispatches")
    run = device.record

    def record(pipeline: Any, *rest: Any) -> None:
        found.append(isinstance(pipeline, BufferFills))
        run(pipeline, *rest)

    monkeypatch.setattr(device, "record", record)
    return found


def test_a_cleared_grid_is_summed_into_again_and_again(recorded: list[bool]) -> None:
    n = 64
    x, mass, speed = ti.field(ti.i32, n), ti.field(ti.f32, 8), ti.Vector.field(2, ti.f32, 8)
    x.from_numpy(np.arange(n, dtype=np.int32) % 8)

    @ti.kernel
    def step(a: ti.f32):
        for i in mass:
            mass[i] = 0
            speed[i] = [0, 0]
        for p in x:
            mass[x[p]] += a
            speed[x[p]] += [a, -a]

    for a in (1.0, 2.0, 3.0, 4.0, 5.0):
        step(a)
    np.testing.assert_array_equal(mass.to_numpy(), np.full(8, 40.0))
    np.testing.assert_array_equal(speed.to_numpy(), np.tile([40.0, -40.0], (8, 1)))
    assert recorded == [True, False] * 5


def test_returned_sum_begins_at_zero(recorded: list[bool]) -> None:
    x = ti.field(ti.f32, 1000)

    @ti.kernel
    def total() -> ti.f32:
        found = 0.0
        for i in x:
            found += x[i]
        return found

    for k in range(1, 5):
        x.fill(k)
        assert [total(), total()] == [1000 * k] * 2
    assert recorded == [True, False] * 8


def test_python_writes_kernels_and_reads_keep_their_order() -> None:
    x, y = ti.field(ti.i32, 300), ti.field(ti.i32, 300)

    @ti.kernel
    def clear(x: ti.template()):
        for i in x:
            x[i] = 7

    @ti.kernel
    def copy(x: ti.template(), y: ti.template()):
        for i in x:
            y[i] += x[i]

    want = np.zeros(300, np.int32)
    y.fill(0)
    for k in range(40):
        x[k] = k
        clear(x)
        x[k + 1] = 100
        copy(x, y)
        clear(x)
        x[k] = -1
        copy(x, y)
        want += 14
        want[k + 1] += 93
        want[k] -= 8
    np.testing.assert_array_equal(y.to_numpy(), want)


@pytest.mark.parametrize("name", ["i8", "u8", "i16", "f16", "i32", "u32", "f32", "i64", "f64"])
def test_fills_by_dtype(need: Any, name: str) -> None:
    need(name)
    t = getattr(ti, name)
    for extent in (1, 2, 3, 4, 31, 32):
        x = ti.field(t, extent)
        last = ti.field(t, extent + 1)

        @ti.kernel
        def fill_both():
            for i in x:
                x[i] = 3
            for i in range(extent):
                last[i] = -1

        last.fill(9)
        fill_both()
        want = np.full(extent + 1, 9).astype(last.to_numpy().dtype)
        want[:extent] = np.array(-1).astype(want.dtype)
        np.testing.assert_array_equal(x.to_numpy(), np.full(extent, 3, want.dtype))
        np.testing.assert_array_equal(last.to_numpy(), want)


def test_structs_blocks_and_offsets() -> None:
    pair = ti.types.struct(a=ti.f32, b=ti.f32)
    aos = pair.field(shape=(8,), layout=ti.Layout.AOS)
    blocks, shifted = ti.field(ti.f32), ti.field(ti.f32, (4, 4), offset=(-2, 3))
    ti.root.dense(ti.ij, (2, 2)).dense(ti.ij, (4, 2)).place(blocks)

    @ti.kernel
    def clear():
        for i in aos:
            aos[i].a = 1
        for i, j in blocks:
            blocks[i, j] = 2
        for i, j in shifted:
            shifted[i, j] = 3

    aos.b.fill(5)
    clear()
    np.testing.assert_array_equal(aos.a.to_numpy(), np.full(8, 1))
    np.testing.assert_array_equal(aos.b.to_numpy(), np.full(8, 5))
    np.testing.assert_array_equal(blocks.to_numpy(), np.full((8, 4), 2))
    np.testing.assert_array_equal(shifted.to_numpy(), np.full((4, 4), 3))


@pytest.mark.parametrize("in_memory", [False, True])
def test_fills_in_graphs(monkeypatch: pytest.MonkeyPatch, in_memory: bool) -> None:
    if in_memory:
        monkeypatch.setattr(replay, "MOST_RERECORDED", 0)
    x, y = ti.field(ti.f32, 100), ti.ndarray(ti.f32, 100)

    @ti.kernel
    def clear():
        for i in x:
            x[i] = 2

    @ti.kernel
    def gather(a: ti.f32, y: F1):
        for i in y:
            x[99 - i] += a
            y[i] += x[99 - i]

    with ti.record() as graph:
        clear()
        gather(0.5, y)
    y.fill(0)
    graph.run()
    graph.run(300)
    np.testing.assert_array_equal(y.to_numpy(), np.full(100, 301 * 2.5))


@pytest.mark.parametrize("launches", [1, 2])
def test_graphs_that_the_device_ends(launches: int) -> None:
    """Recorded iterations after the last one do nothing."""
    x, left = ti.field(ti.i32, 8), ti.field(ti.i32, ())

    @ti.kernel
    def clear():
        for i in x:
            x[i] = 0

    @ti.kernel
    def count():
        for i in x:
            x[i] += 5
        left[None] -= 1

    with ti.record() as graph:
        for _ in range(launches):  # it may be one dispatch
            clear()
        count()
    for rounds in (3, 1, 0):
        left[None] = rounds
        x.fill(9)
        assert graph.run_while(left) == rounds
        np.testing.assert_array_equal(x.to_numpy(), np.full(8, 5 if rounds else 9))


def test_numbers_of_graphs_that_fills_do_not_ask_for() -> None:
    """`n` stands in the code, but changes nothing."""
    x = ti.field(ti.i32, 8)

    @ti.kernel
    def clear(n: ti.i32):
        for i in range(8):
            x[i + ((n & 7) >> 3)] = 1

    @ti.kernel
    def add(n: ti.i32):
        for i in x:
            x[7 - i] += n * x[i] // x[i]

    builder = ti.graph.GraphBuilder()
    number = ti.graph.Arg(ti.graph.ArgKind.SCALAR, "n", ti.i32)
    builder.dispatch(clear, number)
    builder.dispatch(add, number)
    graph = builder.compile()
    for n in (3, 8, 100):
        graph.run({"n": n})
        np.testing.assert_array_equal(x.to_numpy(), np.full(8, 1 + n))


def test_gradients_of_overwritten_values() -> None:
    x, y = (ti.field(ti.f32, 20, needs_grad=True) for _ in range(2))
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def clear():
        for i in y:
            y[i] = 1

    @ti.kernel
    def put(k: ti.f32):
        for i in x:
            y[i] += k * x[i]

    @ti.kernel
    def add_up():
        for i in y:
            loss[None] += y[i] * y[i]

    x.fill(3)
    y.fill(0)
    for _ in range(3):
        with ti.ad.Tape(loss):
            put(5.0)
            clear()
            put(2.0)
            add_up()
        np.testing.assert_array_equal(x.grad.to_numpy(), np.full(20, 2 * 7 * 2.0))


def test_profiler_names_fills() -> None:
    x = ti.field(ti.f32, 100)

    @ti.kernel
    def clear():
        for i in x:
            x[i] = 2

    with current_runtime().device.timing() as timing:
        clear()
    assert [name for name, _ in timing.dispatches] == ["clear.0"]


def test_programs_at_random() -> None:
    """Boxes of fields set to numbers, some of them whole: as numpy does it."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        shape = tuple(int(n) for n in rng.integers(1, 6, 2))
        x = ti.field(ti.f32, shape)
        boxes = []
        for _ in range(2):
            ends = [sorted(rng.choice([0, n, int(rng.integers(0, n + 1))], 2)) for n in shape]
            boxes.append([int(n) for pair in ends for n in pair])
        (a, b, c, d), (e, f, g, h) = boxes
        p, q = (float(v) for v in rng.integers(-2, 3, 2))
        is_flipped = bool(rng.integers(2))
        width = max(1, h - g)

        @ti.kernel
        def run():
            for i, j in ti.ndrange((a, b), (c, d)):
                if ti.static(is_flipped):
                    x[b - 1 - i + a, j] = p
                else:
                    x[i, j] = p
            for n in range((f - e) * (h - g)):
                x[e + n // width, g + n % width] = q

        start = rng.random(shape, dtype=np.float32)
        x.from_numpy(start)
        run()
        start[a:b, c:d] = p
        start[e:f, g:h] = q
        np.testing.assert_array_equal(x.to_numpy(), start)
