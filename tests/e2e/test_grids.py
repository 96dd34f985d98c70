"""Loops over several axes on grids of invocations with as many axes, where the device counts few
workgroups along each: every iteration is run once, whatever the extents."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.devices import FEW_GROUPS, like_gpu
from vkchi.ir.core import find_parallel
from vkchi.opt import pipeline
from vkchi.runtime import current_runtime
from vkchi.spirv.module_builder import with_workgroup_shape

pytestmark = pytest.mark.usefixtures("as_gpu")

LENGTHS = (0, 1, 2, 3, 5, 7, 13, 16, 31, 32, 33, 64, 97, 128, 131, 257, 640)
MOST = 60_000  # iterations of a loop
WEIGHTS = (1, 1000, 7, 31)


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The workgroups of all loops that are mapped: lengths along axes, or a number in a row."""
    found: list[Any] = []
    load = pipeline.load_pass

    def noting(fn: Any, *given: Any) -> Any:
        new = load("map_grid")(fn, *given)
        loop = find_parallel(new)
        found.append(None if loop is None else loop.attr)
        return new

    found_by = {"map_grid": noting}
    monkeypatch.setattr(pipeline, "load_pass", lambda name: found_by.get(name) or load(name))
    return found


@ti.kernel
def one(a: ti.types.ndarray(), b0: ti.i32, e0: ti.i32):
    for i in ti.ndrange((b0, e0)):
        a[i - b0] += i + 1


@ti.kernel
def two(a: ti.types.ndarray(), b0: ti.i32, e0: ti.i32, b1: ti.i32, e1: ti.i32):
    for i, j in ti.ndrange((b0, e0), (b1, e1)):
        a[i - b0, j - b1] += i + 1000 * j + 1


@ti.kernel
def three(
    a: ti.types.ndarray(), b0: ti.i32, e0: ti.i32, b1: ti.i32, e1: ti.i32, b2: ti.i32, e2: ti.i32
):
    for i, j, k in ti.ndrange((b0, e0), (b1, e1), (b2, e2)):
        a[i - b0, j - b1, k - b2] += i + 1000 * j + 7 * k + 1


@ti.kernel
def four(a: ti.types.ndarray(), bounds: ti.types.matrix(4, 2, ti.i32)):
    for i, j, k, m in ti.ndrange(
        (bounds[0, 0], bounds[0, 1]),
        (bounds[1, 0], bounds[1, 1]),
        (bounds[2, 0], bounds[2, 1]),
        (bounds[3, 0], bounds[3, 1]),
    ):
        a[i - bounds[0, 0], j - bounds[1, 0], k - bounds[2, 0], m - bounds[3, 0]] += (
            i + 1000 * j + 7 * k + 31 * m + 1
        )


@ti.kernel
def fixed(a: ti.types.ndarray(), bounds: ti.template()):
    for I in ti.grouped(ti.ndrange(*bounds)):
        total = 1
        for k in ti.static(range(len(bounds))):
            total += I[k] * WEIGHTS[k]
        a[I - ti.Vector([b for b, _ in bounds])] += total


def expected(bounds: Sequence[tuple[int, int]], shape: Sequence[int]) -> Any:
    """Sum of a loop over these bounds on zeros of a shape that is as long or longer."""
    want = np.zeros(shape, np.int32)
    lengths = [max(0, e - b) for b, e in bounds]
    total = np.ones(lengths, np.int32)
    for k, (indices, (begin, _)) in enumerate(zip(np.indices(lengths), bounds)):
        total += ((indices + begin) * WEIGHTS[k]).astype(np.int32)
    want[tuple(slice(0, n) for n in lengths)] = total
    return want


def random_bounds(rng: random.Random, ndim: int) -> list[tuple[int, int]]:
    """Bounds of axes, with no more than MOST iterations together; some are empty or backwards."""
    lengths: list[int] = []
    for _ in range(ndim):
        room = MOST // max(1, int(np.prod([max(1, n) for n in lengths])))
        lengths.append(rng.choice([n for n in LENGTHS if n <= room]))
    rng.shuffle(lengths)
    begins = [rng.choice((0, 0, 3, -5)) for _ in lengths]
    return [(b, b + n - (n == 0 and rng.random() < 0.5)) for b, n in zip(begins, lengths)]


@pytest.mark.parametrize("seed", range(40))
def test_every_iteration_is_run_once(seed: int) -> None:
    rng = random.Random(seed)
    bounds = random_bounds(rng, 1 + seed % 4)
    shape = [max(1, e - b) for b, e in bounds]
    a = np.zeros(shape, np.int32)
    if seed % 4 == 3:
        four(a, ti.Matrix(bounds))
    else:
        (one, two, three)[seed % 4](a, *[v for ends in bounds for v in ends])
    np.testing.assert_array_equal(a, expected(bounds, shape), err_msg=str(bounds))


@pytest.mark.parametrize("seed", range(12))
def test_every_iteration_of_fixed_extents_is_run_once(seed: int) -> None:
    bounds = random_bounds(random.Random(100 + seed), 2 + seed % 3)
    shape = [max(1, e - b) for b, e in bounds]
    a = np.zeros(shape, np.int32)
    fixed(a, tuple(bounds))
    np.testing.assert_array_equal(a, expected(bounds, shape), err_msg=str(bounds))


def test_more_workgroups_than_the_device_counts(mapped: list[Any]) -> None:
    shape = (20, 31, 1500)
    a = np.zeros(shape, np.int32)
    fixed(a, tuple([(0, n) for n in shape]))
    (tile,) = mapped
    groups = [-(-n // length) for n, length in zip(shape[::-1], tile[::-1])]
    assert all(n > most for n, most in zip(groups, FEW_GROUPS))
    np.testing.assert_array_equal(a, expected([(0, n) for n in shape], shape))


@pytest.mark.parametrize(
    "shape",
    [(900, 3), (3, 900), (300, 1), (1, 1), (2, 2), (61, 5, 3), (3, 5, 61), (400, 1, 2)],
    ids=str,
)
def test_short_axes_get_other_workgroups(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds known only at launch: most of a row of 128 would idle."""
    made: list[tuple[int, ...]] = []

    def noting(shader: Any, block: Any) -> Any:
        made.append(tuple(block))
        return with_workgroup_shape(shader, block)

    monkeypatch.setattr("vkchi.spirv.module_builder.with_workgroup_shape", noting)

    @ti.kernel
    def add(a: ti.types.ndarray()):
        for I in ti.grouped(a):
            a[I] += I[0] * 1000 + I[1] * 7 + 1

    for _ in range(2):
        a = np.zeros(shape, np.int32)
        add(a)
        want = np.indices(shape)
        np.testing.assert_array_equal(a, want[0] * 1000 + want[1] * 7 + 1)
    assert len(made) == (shape[-1] < 64 and np.prod(shape) > 60)
    assert all(np.prod(block) == 128 and block[0] < 128 for block in made)


def test_the_number_of_an_iteration(mapped: list[Any]) -> None:
    """That of the last axis as the fastest, on which random numbers depend too."""

    @ti.kernel
    def number(a: ti.types.ndarray(), b: ti.types.ndarray()):
        for i, j in a:
            a[i, j] = ti.simt.block.global_thread_idx()
        for i, j, k, m in b:
            b[i, j, k, m] = ti.simt.block.global_thread_idx()

    a, b = np.zeros((45, 210), np.int32), np.zeros((5, 6, 7, 70), np.int32)
    number(a, b)
    assert [len(tile) for tile in mapped] == [2, 3]
    np.testing.assert_array_equal(a, np.arange(a.size).reshape(a.shape))
    np.testing.assert_array_equal(b, np.arange(b.size).reshape(b.shape))


def test_random_streams_differ(mapped: list[Any]) -> None:
    @ti.kernel
    def fill(a: ti.types.ndarray()):
        for i, j in a:
            a[i, j] = ti.random(ti.i32)

    a = np.zeros((40, 70), np.int32)
    fill(a)
    assert [len(tile) for tile in mapped] == [2]
    assert len(np.unique(a)) > a.size - 10


def test_a_demanded_workgroup(mapped: list[Any]) -> None:
    @ti.kernel
    def add(a: ti.types.ndarray()):
        ti.loop_config(block_dim=64)
        for i, j in a:
            a[i, j] += i * 1000 + j + 1

    a = np.zeros((50, 333), np.int32)
    add(a)
    (tile,) = mapped
    assert np.prod(tile) == 64
    i, j = np.indices(a.shape)
    np.testing.assert_array_equal(a, i * 1000 + j + 1)


def test_loops_that_use_workgroup_ids_have_grids_of_one_row(mapped: list[Any]) -> None:
    @ti.kernel
    def shift(a: ti.types.ndarray()):
        ti.loop_config(block_dim=32)
        for i, j in a:
            tile = ti.simt.block.SharedArray((32,), ti.i32)
            at = ti.simt.block.global_thread_idx() % 32
            tile[at] = i * 1000 + j
            ti.simt.block.sync()
            a[i, j] = tile[31 - at]

    a = np.zeros((16, 64), np.int32)
    shift(a)
    assert mapped == [32]
    i, j = np.indices(a.shape)
    want = (i * 1000 + j).reshape(-1, 32)[:, ::-1].reshape(a.shape)
    np.testing.assert_array_equal(a, want)


@pytest.mark.parametrize("order", ["ij", "ji"])
def test_fields_that_lie_otherwise(order: str, mapped: list[Any]) -> None:
    x = ti.field(ti.i32, (45, 170), order=order)
    y = ti.field(ti.i32, (170, 45))

    @ti.kernel
    def run():
        for i, j in x:
            x[i, j] += i * 1000 + j
        for i, j in x:
            y[j, i] += x[i, j]

    run()
    assert all(len(tile) == 2 for tile in mapped)
    i, j = np.indices((45, 170))
    np.testing.assert_array_equal(x.to_numpy(), i * 1000 + j)
    np.testing.assert_array_equal(y.to_numpy(), (i * 1000 + j).T)


def test_blocked_fields(mapped: list[Any]) -> None:
    x = ti.field(ti.i32)
    ti.root.dense(ti.ij, (5, 9)).dense(ti.ij, (4, 8)).place(x)

    @ti.kernel
    def run():
        for i, j in x:
            x[i, j] += i * 1000 + j

    run()
    assert [len(tile) for tile in mapped] == [3]  # the blocks are one axis
    i, j = np.indices((20, 72))
    np.testing.assert_array_equal(x.to_numpy(), i * 1000 + j)


def test_sums_over_axes(mapped: list[Any]) -> None:
    @ti.kernel
    def total(a: ti.types.ndarray()) -> ti.i32:
        found = 0
        for i, j in a:
            found += a[i, j]
        return found

    a = np.arange(60 * 131, dtype=np.int32).reshape(60, 131)
    assert total(a) == a.sum()


def test_reports_come_from_all_parts(capfd: pytest.CaptureFixture[str]) -> None:
    @ti.kernel
    def say(a: ti.types.ndarray()):
        for i, j in a:
            if a[i, j] > 0:
                print(i, j)

    a = np.zeros((70, 800), np.int32)
    places = [(0, 0), (3, 799), (69, 1), (69, 799)]
    for place in places:
        a[place] = 1
    say(a)
    lines = capfd.readouterr().out.split("\n")[:-1]
    assert sorted(lines) == sorted(f"{i} {j}" for i, j in places)


def test_gradients_of_loops_over_axes(mapped: list[Any]) -> None:
    n = 45
    x = ti.field(ti.f32, (n, n), needs_grad=True)
    y = ti.field(ti.f32, (n, n), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def smooth():
        for i, j in ti.ndrange((1, n - 1), (1, n - 1)):
            y[i, j] = x[i - 1, j] * x[i, j + 1] + 2.0 * x[i, j]

    @ti.kernel
    def measure():
        for i, j in y:
            loss[None] += y[i, j] * (i + 0.5)

    rng = np.random.default_rng(3)
    values = rng.random((n, n)).astype(np.float32)
    x.from_numpy(values)
    with ti.ad.Tape(loss):
        smooth()
        measure()
    g = np.zeros((n, n))
    g[1:-1, 1:-1] = np.arange(1, n - 1)[:, None] + 0.5
    want = 2.0 * g
    want[:-1] += (g * np.roll(values, -1, 1))[1:]
    want[:, 1:] += (g * np.roll(values, 1, 0))[:, :-1]
    np.testing.assert_allclose(x.grad.to_numpy(), want, rtol=1e-4)
    assert any(isinstance(tile, tuple) for tile in mapped)


def test_graphs_take_all_parts() -> None:
    """A dispatch that is several on this device, recorded once and run again."""

    @ti.kernel
    def add(a: ti.types.ndarray(ndim=2), v: ti.i32):
        for i, j in a:
            a[i, j] += v + i

    builder = ti.graph.GraphBuilder()
    a = ti.graph.Arg(ti.graph.ArgKind.NDARRAY, "a", ti.i32, ndim=2)
    v = ti.graph.Arg(ti.graph.ArgKind.SCALAR, "v", ti.i32)
    builder.dispatch(add, a, v)
    graph = builder.compile()
    x = ti.ndarray(ti.i32, (90, 801))
    for number in (1, 1, 5):
        graph.run({"a": x, "v": number})
    np.testing.assert_array_equal(x.to_numpy(), (7 + 3 * np.indices((90, 801))[0]))


def test_capabilities_are_those_of_a_card() -> None:
    caps = current_runtime().device.caps
    assert caps == like_gpu(caps)
