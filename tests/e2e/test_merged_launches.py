"""Kernels that follow each other in graphs as one dispatch: results, and which are merged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi import compiler
from vkchi.errors import DeviceError
from vkchi.graph import Arg, ArgKind, Graph, GraphBuilder
from vkchi.interop.in_place import HostNdarray
from vkchi.launch import replay
from vkchi.runtime import current_runtime

A, B = (Arg(ArgKind.SCALAR, name, ti.f32) for name in "ab")
N = Arg(ArgKind.SCALAR, "n", ti.i32)
X, Y = (Arg(ArgKind.NDARRAY, name, ti.f32, ndim=1) for name in "xy")
F1 = ti.types.ndarray(ti.f32, 1)


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


@ti.kernel
def scale(a: ti.f32, x: F1, y: F1):
    for i in x:
        y[i] = a * x[i]


@ti.kernel
def shift(b: ti.f32, y: F1):
    for i in y:
        y[i] += b


@ti.kernel
def smooth(x: F1, y: F1):
    for i in x:
        x[i] = y[ti.max(i - 1, 0)] + y[i]


@ti.kernel
def begin(n: ti.i32, x: F1):
    for i in range(n):
        x[i] = -1.0


def graph(*calls: Any) -> Graph:
    builder = GraphBuilder()
    for call in calls:
        builder.dispatch(*call)
    return builder.compile()


def array(n: int = 8) -> Any:
    x = ti.ndarray(ti.f32, n)
    x.from_numpy(np.arange(n, dtype=np.float32))
    return x


def test_changed_scalars_of_merged_kernels(executed: list[int]) -> None:
    g, x, y = graph((scale, A, X, Y), (shift, B, Y), (shift, A, Y)), array(), array()
    for a, b in ((1.0, 2.0), (1.0, 2.0), (3.0, 2.0), (3.0, -1.0), (0.5, 4.0)):
        g.run({"a": a, "b": b, "x": x, "y": y})
        assert (y.to_numpy() == a * np.arange(8) + b + a).all()
    assert executed == [1] * 5


def test_changed_arrays(executed: list[int]) -> None:
    g = graph((scale, A, X, Y), (shift, B, Y))
    x, y, z = array(), array(), array(5)
    for one, other in ((x, y), (y, x), (x, x), (z, z)):
        want = 2 * one.to_numpy() + 1
        g.run({"a": 2.0, "b": 1.0, "x": one, "y": other})
        assert (other.to_numpy() == want).all()
    assert executed == [1] * 4


def test_lengths_that_differ(executed: list[int]) -> None:
    g, x, y = graph((scale, A, X, Y), (shift, B, Y)), array(6), array(8)
    g.run({"a": 2.0, "b": 1.0, "x": x, "y": y})
    assert y.to_numpy().tolist() == [1, 3, 5, 7, 9, 11, 7, 8]
    assert executed == [2]


def test_neighbours_wait(executed: list[int]) -> None:
    g, x, y = graph((shift, A, Y), (shift, B, Y), (smooth, X, Y)), array(), array()
    g.run({"a": 2.0, "b": 1.0, "x": x, "y": y})
    want = np.arange(8) + 3
    assert (y.to_numpy() == want).all()
    assert (x.to_numpy() == want + np.maximum(want - 1, 3)).all()
    assert executed == [2]


def test_lengths_that_numbers_give(executed: list[int]) -> None:
    g, x = graph((begin, N, X), (shift, A, X)), array()
    for n in (8, 3, 0, 5, 8):
        x.from_numpy(np.arange(8, dtype=np.float32))
        g.run({"n": n, "a": 1.0, "x": x})
        want = np.arange(8.0)
        want[:n] = -1
        assert (x.to_numpy() == want + 1).all()
    assert executed[0] == 2


def test_fields_and_methods(executed: list[int]) -> None:
    u, v = ti.field(ti.f32, 8), ti.Vector.field(2, ti.f32, 8)

    @ti.data_oriented
    class Solver:
        def __init__(self) -> None:
            self.gain = 2.0

        @ti.kernel
        def push(self, x: F1):
            for i in u:
                v[i].x = u[i] * self.gain
                v[i].y += x[i]

        @ti.kernel
        def take(self, x: ti.template(), a: ti.f32):
            for i in x:
                x[i] = a * v[i].x + v[i].y

    solver, x = Solver(), array()
    u.fill(3)
    with ti.record() as g:
        solver.push(x)
        solver.take(u, 0.5)
    g.run()
    assert (u.to_numpy() == 3 + np.arange(8)).all()
    g.run(2)
    want = 3.0 + np.arange(8)
    for k in (2, 3):
        want = want + k * np.arange(8)
    assert (u.to_numpy() == want).all()
    assert executed[0] == 1


def test_arguments_that_share_memory_in_one_kernel_only() -> None:
    @ti.kernel
    def carry(x: F1, y: F1):
        for i in x:
            y[i] = x[i] + 1

    x, y = array(), array()
    with ti.record() as g:
        carry(x, y)
        carry(y, x)
        carry(x, x)
    g.run(2)
    assert (x.to_numpy() == np.arange(8) + 6).all()
    assert (y.to_numpy() == np.arange(8) + 4).all()


def test_views_of_one_memory() -> None:
    memory = np.arange(8, dtype=np.float32)
    x, y = ti.from_dlpack(memory), ti.from_dlpack(memory)
    is_shared = isinstance(x, HostNdarray)  # on other devices, these are two copies
    with ti.record() as g:
        shift(1.0, x)
        shift(2.0, y)
    g.run()
    assert (x.to_numpy() == np.arange(8) + (3 if is_shared else 1)).all()
    assert (y.to_numpy() == np.arange(8) + (3 if is_shared else 2)).all()


def test_left_out(executed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKCHI_PASSES", "-fusion")
    g, x, y = graph((scale, A, X, Y), (shift, B, Y)), array(), array()
    g.run({"a": 1.0, "b": 2.0, "x": x, "y": y})
    assert executed == [2]


def test_rejected_merge_keeps_separate_launches(
    executed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each launch goes on having its own."""
    x, y = array(), array()
    numbers = {"a": 2.0, "b": 3.0, "x": x, "y": y}
    made = graph((scale, A, X, Y), (shift, B, Y))

    def refuse(*_: Any) -> None:
        raise DeviceError("not here")

    scale(1.0, x, y)
    shift(0.0, y)
    monkeypatch.setattr(compiler, "build_artifact", refuse)
    made.run(numbers)
    np.testing.assert_array_equal(y.to_numpy(), 2 * np.arange(8) + 3)
    assert executed == [2]
