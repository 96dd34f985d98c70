"""Scatter-adds where a device has no atomic for them: lanes with equal addresses are summed before
the compare-and-swap (`combine`), on a device treated as a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti
from tests.devices import like_gpu
from vkchi.ir.core import Func
from vkchi.ir.text import parse_func
from vkchi.opt.lowering.combine import combine_lanes
from vkchi.runtime import current_runtime
from vkchi.target.caps import FULL

N = 3000
LANES = np.arange(N)
PLACES = {
    "own": LANES[::-1],
    "pairs": LANES // 2,
    "rows": LANES // 64,
    "two": LANES % 2,
    "some": np.random.default_rng(3).integers(0, 16, N),
    "most": np.where(np.random.default_rng(4).random(N) < 0.8, 5, LANES),
    "one": 0 * LANES,
}


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, own_runtime: None) -> None:
    """The device as a card without atomic sums of floats."""
    device = current_runtime().device
    without = like_gpu(device.caps)._replace(f32_atomic_add=False, f64_atomic_add=False)
    if not (without.subgroup_arithmetic and without.subgroup_ballot):
        pytest.skip("no subgroup operations")
    monkeypatch.setattr(device, "caps", without)


@pytest.mark.parametrize("places", PLACES)
def test_scatter_add(card: None, places: str) -> None:
    """Of numbers and vectors, under a condition, beside one whose old value is used; each lane's
    numbers are whole, so that any order gives the same."""
    x, at = ti.ndarray(ti.f32, N), ti.ndarray(ti.i32, N)
    v, n = ti.Vector.ndarray(2, ti.f32, N), ti.ndarray(ti.f32, N)
    at.from_numpy(PLACES[places].astype(np.int32))
    for array in (x, n):
        array.fill(0)
    v.fill(0)

    @ti.kernel
    def scatter(
        x: ti.types.ndarray(ti.f32, 1),
        v: ti.types.ndarray(ti.math.vec2, 1),
        n: ti.types.ndarray(ti.f32, 1),
        at: ti.types.ndarray(ti.i32, 1),
    ):
        for i in at:
            k = at[i]
            if i % 5 != 0:
                x[k] += 1.0 + i % 3
            for _ in range(i % 3):
                v[k] += ti.Vector([1.0, i % 4])
            n[i] = ti.atomic_add(n[N - 1 - i], 0.0)

    scatter(x, v, n, at)
    weights = (LANES % 5 != 0) * (1.0 + LANES % 3)
    p = PLACES[places]
    np.testing.assert_array_equal(x.to_numpy(), np.bincount(p, weights, N))
    np.testing.assert_array_equal(v.to_numpy()[:, 0], np.bincount(p, LANES % 3, N))
    np.testing.assert_array_equal(v.to_numpy()[:, 1], np.bincount(p, LANES % 3 * (LANES % 4), N))


def test_elements_that_lanes_share(card: None) -> None:
    """Of rows, and of a serial loop that not all lanes go through as often."""
    x, rows, steps = (ti.ndarray(ti.f32, shape) for shape in ((40, 75), 40, 9))
    x.from_numpy(np.arange(N, dtype=np.float32).reshape(40, 75) % 7)
    rows.fill(0)
    steps.fill(0)

    @ti.kernel
    def run(
        x: ti.types.ndarray(ti.f32, 2),
        rows: ti.types.ndarray(ti.f32, 1),
        steps: ti.types.ndarray(ti.f32, 1),
    ):
        for i, j in x:
            if x[i, j] != 3.0:
                rows[i] += x[i, j]
            for k in range((i + j) % 9):
                steps[k] += 1.0

    run(x, rows, steps)
    data = x.to_numpy()
    np.testing.assert_array_equal(rows.to_numpy(), (data * (data != 3)).sum(axis=1))
    ends = np.add.outer(np.arange(40), np.arange(75)) % 9
    np.testing.assert_array_equal(steps.to_numpy(), [(ends > k).sum() for k in range(9)])


def test_a_lane_finds_its_own_sum(card: None) -> None:
    """So elements that are also read are left alone."""
    x, found = ti.field(ti.f32, 3), ti.field(ti.i32, N)

    @ti.kernel
    def run():
        for i in range(N):
            x[i * i % 3] += 1.0
            found[i] = x[i * i % 3] >= 1.0

    run()
    assert found.to_numpy().all()


@pytest.mark.parametrize("kind", ["mul", "add"])
def test_products_and_sums(card: None, kind: str) -> None:
    x = ti.field(ti.f32, 4)
    x.fill(1)

    @ti.kernel
    def run():
        for i in range(300):
            if ti.static(kind == "mul"):
                ti.atomic_mul(x[i * i % 3], 1.0 + (i % 100 == 0))
            else:
                x[i * i % 3] += 1.0

    run()
    squares = np.arange(300) ** 2 % 3
    hits = np.arange(300) % 100 == 0
    for k in range(3):
        want = 2.0 ** hits[squares == k].sum() if kind == "mul" else 1 + (squares == k).sum()
        assert x[k] == want


APART = "%p: array<i32[8]> noalias, %y: array<f32[16]> noalias, %v: array<f32<2>[16]> noalias"
TEXT = """func @f(APART, %n: array<f32[16]>, %w: f32<2>) {
  %c0 = const 0 : i32
  %c8 = const 8 : i32
  %one = const 1.5 : f32
  parallel %c0, %c8 {
    ^(%i: i32)
    %a = elem %p, %c0 : ptr<i32 global>
    %k = load %a : i32
    %e = elem %y, %k : ptr<f32 global>
    BODY
    yield
  }
  yield
}"""
LACKS = FULL._replace(f32_atomic_add=False)
ONE = "%old = atomic_add %e, %one : f32"


def body(text: str) -> Func:
    return parse_func(TEXT.replace("APART", APART).replace("BODY", text))


def test_aggregation_by_device() -> None:
    """Not on processors, nor on devices that have the atomic or cannot ask."""
    fn = body(ONE)
    assert combine_lanes(fn, LACKS) is not fn
    for other in (
        LACKS._replace(kind="cpu", subgroup_size=8),
        LACKS._replace(subgroup_arithmetic=False),
        LACKS._replace(subgroup_ballot=False),
        FULL,
    ):
        assert combine_lanes(fn, other) is fn


@pytest.mark.parametrize(
    "text",
    [
        f"%c = subgroup_elect : u1\n if %c {{\n {ONE}\n yield\n }} {{\n yield\n }}",
        "%m = elem %v, %k : ptr<f32<2> global>\n"
        + "\n".join(f"%o{k} = atomic_add %m, %w : f32<2>" for k in range(3)),
        "%old = atomic_add %e, %one : f32\n %b = elem %y, %i : ptr<f32 global>\n store %b, %old",
        "%b = elem %y, %i : ptr<f32 global>\n %old = atomic_add %b, %one : f32",
        "%b = elem %p, %i : ptr<i32 global>\n %m = load %b : i32\n"
        "%d = elem %y, %m : ptr<f32 global>\n %old = atomic_add %d, %one : f32",
        "%j = add %c8, %i : i32\n %b = elem %y, %j : ptr<f32 global>\n"
        "%old = atomic_add %b, %one : f32",
        f"{ONE}\n %r = load %e : f32\n store %e, %r",
        f"store %e, %one\n {ONE}",
        f"{ONE}\n %m = atomic_mul %e, %one : f32",
        f"%b = elem %n, %k : ptr<f32 global>\n %r = load %b : f32\n {ONE}",
        f"for %c0, %c8 {{\n ^(%s: i32)\n {ONE}\n barrier\n %r = load %e : f32\n yield\n }}",
    ],
    ids=[
        "elected",
        "many",
        "used",
        "own",
        "data-dependent",
        "own behind others",
        "read",
        "stored to",
        "another kind",
        "read by another name",
        "read by the next round",
    ],
)
def test_unaggregated_atomics(text: str) -> None:
    fn = body(text)
    assert combine_lanes(fn, LACKS) is fn


def test_barriers_separate_accesses_of_one_element() -> None:
    fn = body(f"store %e, %one\n barrier\n {ONE}\n barrier\n %r = load %e : f32")
    assert combine_lanes(fn, LACKS) is not fn
