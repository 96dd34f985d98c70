"""Passes `stride` and `reduce`: the same results, with fewer atomics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vkchi.analysis.values.host_numbers import host_count, host_length
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, find_parallel, walk
from vkchi.ir.interp import run_reference
from vkchi.ir.ops import ATOMICS
from vkchi.ir.text import parse_func
from vkchi.ir.verify import verify
from vkchi.opt.cost_model import sharing_threads
from vkchi.opt.loops.reduce import reduce
from vkchi.opt.mapping.map_grid import map_grid
from vkchi.opt.mapping.share import (
    ThreadBudget,
    count_trips,
    first_offset,
    iteration,
    share_range,
)
from vkchi.target import tuning
from vkchi.target.caps import FULL, SMALLEST, Caps
from vkchi.types import Array, i32

FEW = Caps(kind="cpu", subgroup_arithmetic=True)  # little to interpret: 8,192 invocations


def run_on(fn: Func, **args: Any) -> dict[str, Any]:
    return run_reference(
        fn, {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in args.items()}
    )


def loops_of(fn: Func) -> list[Op]:
    return [op for op in fn.body.ops if op.kind == "parallel"]


def count_atomics(fn: Func, *, looping: bool) -> int:
    """Atomics inside loops of the parallel body, or outside of them."""
    op = find_parallel(fn)
    assert op is not None
    loops = [o for o in walk(op.regions[0]) if o.kind in ("for", "while")]
    inside = {o for loop in loops for region in loop.regions for o in walk(region)}
    return sum(o.kind in ATOMICS and (o in inside) == looping for o in walk(op.regions[0]))


# --- stride --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "end"),
    [(0, 0), (0, 1), (3, 3), (5, 2), (-7, 9000), (0, 8192), (1, 8193), (2**31 - 5, 2**31 - 1)],
)
def test_stride_covers_the_range_once(begin: int, end: int) -> None:
    fn = parse_func("""
func @f(%n: array<i32[?]>, %seen: array<i32[?]>) {
  %c0 = const 0 : i32
  %c1 = const 1 : i32
  %p = elem %n, %c0 : ptr<i32 global>
  %begin = load %p : i32
  %q = elem %n, %c1 : ptr<i32 global>
  %end = load %q : i32
  parallel %begin, %end {
    ^(%i: i32)
    %k = sub %i, %begin : i32
    %place = elem %seen, %k : ptr<i32 global>
    %old = atomic_add %place, %c1 : i32
    yield
  }
  yield
}
""")
    new = map_grid(fn, FEW)
    verify(new)
    op = find_parallel(new)
    assert op is not None
    assert host_count(op) == ("const", sharing_threads(None, FEW, is_light=True).most)
    n, seen = np.array([begin, end], np.int32), np.zeros(max(1, end - begin), np.int32)
    got = run_on(new, n=n, seen=seen)["seen"]
    assert (got[: end - begin] == 1).all() if end > begin else (got == 0).all()


@pytest.mark.parametrize("length", [1, 5, 31, 33, 8191, 8192, 8193, 100_000, 2**31 - 1])
@pytest.mark.parametrize("grain", [1, 8])
def test_pieces_of_a_range(length: int, grain: int) -> None:
    """Only how a range is partitioned: the invocations' pieces are the range."""
    b, begin, end, t = Builder(), *(Param(i32, name) for name in ("begin", "end", "t"))
    out = Param(Array.of(i32, 1), "out")
    with b.region() as body:
        with b.region(Param(i32, "i")) as empty:
            b.emit("yield")
        op = Builder.parallel(b, (begin, end), empty)
        b.ops.clear()
        crowd = ThreadBudget(8192, 4, has_subgroups=True, grain=grain)
        share = share_range(b, op, (begin, end), crowd)
        first = first_offset(b, share, t)
        trips = count_trips(b, share, first)
        last = iteration(b, share, first, b.emit("sub", trips, b.const(1, i32)))
        start = iteration(b, share, first, b.const(0, i32))
        for k, v in enumerate((trips, start, last, share.threads)):
            b.emit("store", b.emit("elem", out, b.const(k, i32)), v)
        b.emit("yield")
    fn = Func("f", (out, begin, end, t), body)
    verify(fn)
    low = -(2**30) - 77
    threads = min(length, -(-length // (4 * grain)) * 4 if grain > 1 else length, 8192)
    most = -(-length // threads)
    for k in [*range(0, threads, 61), threads - 1]:
        args = {"out": np.zeros(4, np.int32), "begin": low, "end": low + length, "t": k}
        count, first_index, last_index, got_threads = run_reference(fn, args)["out"].tolist()
        assert got_threads == threads
        begins = low + k // 4 * 4 * most + k % 4
        mine = range(begins, min(low + length, begins - k % 4 + 4 * most), 4)
        assert count == len(mine)
        assert not mine or (first_index, last_index) == (mine[0], mine[-1])


MANY = """
func @f(%x: array<i32[?]>, %y: array<i32[?]>, %n: i32) {
  %begin = const BEGIN : i32
  %end = END : i32
  parallel %begin, %end {
    ^(%i: i32)
    %k = sub %i, %begin : i32
    %t = thread_index : i32
    %q = elem %x, %k : ptr<i32 global>
    %old = atomic_add %q, %i : i32
    %r = elem %y, %k : ptr<i32 global>
    store %r, %t
    yield
  }
  yield
}
"""


@pytest.mark.parametrize("count", [1024, 1500, 4096])
@pytest.mark.parametrize("known", [True, False])
def test_processors_loop(count: int, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "GROUPS", (2, 2))
    end = f"const {count - 7}" if known else "max %n, %begin"
    fn = parse_func(MANY.replace("BEGIN", "-7").replace("END", end))
    new = map_grid(fn, FEW)
    verify(new)
    op = find_parallel(new)
    assert op is not None
    length = host_length(op)
    assert length is not None
    assert length.hi == 2 * (tuning.BLOCK if known else tuning.SHARE_BLOCK)
    args = {name: np.zeros(count, np.int32) for name in "xy"} | {"n": count - 7}
    want, got = run_on(fn, **args), run_on(new, **args)
    for name in "xy":
        np.testing.assert_array_equal(got[name], want[name])
    few = run_on(new, **(args | {"n": 3}))["x"]
    assert known or few[:11].tolist() == [*range(-7, 3), 0]


@pytest.mark.parametrize("count", [2047, 2048, 2049, 5000, 16384, 32767])
@pytest.mark.parametrize("is_light", [True, False])
def test_light_iterations_are_shared_by_fewer(count: int, is_light: bool) -> None:
    """If all iterations are cheap, starting an invocation for each is most of the work."""
    text = MANY.replace("BEGIN", "0").replace("END", f"const {count}")
    if not is_light:
        text = text.replace("store", "for %begin, %k {\n^(%o: i32)\nyield\n}\nstore")
    fn = parse_func(text)
    new = map_grid(fn, FEW)
    op = find_parallel(new)
    assert op is not None
    length = host_length(op)
    assert length is not None
    if is_light and count >= 2048:
        assert count / 16 <= length.hi <= count / 8
        assert length.hi % op.attr == 0
    else:
        assert length.hi == count
    if is_light:
        args = {name: np.zeros(count, np.int32) for name in "xy"} | {"n": 0}
        want, got = run_on(fn, **args), run_on(new, **args)
        for name in "xy":
            np.testing.assert_array_equal(got[name], want[name])


def test_processors_do_not_loop_over_few_or_synchronised_iterations() -> None:
    for text in (
        MANY.replace("BEGIN", "0").replace("END", "const 1000"),
        MANY.replace("BEGIN", "0")
        .replace("END", "max %n, %begin")
        .replace("store", "fence\n store"),
        MANY.replace("BEGIN", "0")
        .replace("END", "max %n, %begin")
        .replace(" {\n    ^", " [64] {\n ^"),
    ):
        fn = parse_func(text)
        verify(fn)
        (before,), (after,) = map(loops_of, (fn, map_grid(fn, FEW)))
        assert after.regions == before.regions
        assert after.args == before.args
        assert after.attr == before.attr or before.attr is None
    long = parse_func(MANY.replace("BEGIN", "0").replace("END", "const 1000000"))
    assert loops_of(map_grid(long, FULL))[0].regions == loops_of(long)[0].regions
    assert loops_of(map_grid(long, FEW))[0].regions != loops_of(long)[0].regions


def test_stride_keeps_workgroups_and_numbers() -> None:
    fn = parse_func("""
func @f(%n: array<i32[]>, %x: array<i32[?]>, %y: array<i32[?]>) {
  %begin = const 2 : i32
  %p = elem %n : ptr<i32 global>
  %end = load %p : i32
  parallel %begin, %end [48] {
    ^(%i: i32)
    %t = thread_index : i32
    %g = group_index : i32
    %q = elem %x, %i : ptr<i32 global>
    store %q, %t
    %r = elem %y, %i : ptr<i32 global>
    store %r, %g
    yield
  }
  yield
}
""")
    new = map_grid(fn, FEW)
    op = find_parallel(new)
    assert op is not None
    assert op.attr == 48
    args = {
        "n": np.array(200, np.int32),
        "x": np.zeros(200, np.int32),
        "y": np.zeros(200, np.int32),
    }
    want, got = run_on(fn, **args), run_on(new, **args)
    for name in "xy":
        np.testing.assert_array_equal(got[name], want[name])


# --- reduce --------------------------------------------------------------------------------------

KINDS = {
    "atomic_add": "i32 u32 f32 f64 i64", "atomic_min": "i32 u32 f32 i64 f64",
    "atomic_max": "i32 u32 f32 u64", "atomic_and": "i32 u32 i64", "atomic_or": "i32 u32",
    "atomic_xor": "i32 u64", "atomic_mul": "i32 u32",
}  # fmt: skip
CASES = [(kind, t) for kind, types in KINDS.items() for t in types.split()]


@pytest.mark.parametrize("caps", [FEW, SMALLEST], ids=["subgroups", "none"])
@pytest.mark.parametrize(("kind", "t"), CASES)
def test_reduce_uses_one_atomic_per_invocation(kind: str, t: str, caps: Caps) -> None:
    """One sum per invocation or subgroup, from a loop of a size that nothing divides."""
    fn = parse_func(f"""
func @f(%x: array<{t}[?]>, %s: array<{t}[2] @(1%0*1;0;2;)>) {{
  %c0 = const 0 : i32
  %c1 = const 1 : i32
  %n = const 701 : i32
  parallel %c0, %n {{
    ^(%i: i32)
    %p = elem %x, %i : ptr<{t} global>
    %v = load %p : {t}
    %q = elem %s, %c1 : ptr<{t} global>
    %old = {kind} %q, %v : {t}
    yield
  }}
  yield
}}
""")
    new = reduce(fn, caps)
    verify(new)
    assert count_atomics(new, looping=True) == 0
    data = np.random.default_rng(1).integers(0, 100, 701)
    dtype = np.dtype({"f": f"f{int(t[1:]) // 8}"}.get(t[0], f"{t[0]}{int(t[1:]) // 8}"))
    args = {"x": data.astype(dtype), "s": np.array([3, 50], dtype)}
    np.testing.assert_array_equal(run_on(new, **args)["s"], run_on(fn, **args)["s"])


def test_reduce_needs_enough_iterations() -> None:
    text = """
func @f(%s: array<i32[] @(;0;1;)>) {
  %c0 = const 0 : i32
  %n = const COUNT : i32
  parallel %c0, %n {
    ^(%i: i32)
    %q = elem %s : ptr<i32 global>
    %old = atomic_add %q, %i : i32
    yield
  }
  yield
}
"""
    small = parse_func(text.replace("COUNT", "200"))
    assert reduce(small, FULL) is small
    for n in (256, 300, 10_000):
        fn = parse_func(text.replace("COUNT", str(n)))
        new = reduce(fn, FEW)
        verify(new)
        op = find_parallel(new)
        assert op is not None
        count = host_count(op)
        assert count is not None
        assert count[1] in (128, 1024)
        s = np.array(5, np.int32)
        np.testing.assert_array_equal(run_on(new, s=s)["s"], run_on(fn, s=s)["s"])


NESTED = """
func @f(%a: array<f32[6,5] @(1%0*5|1%0*1;0;30;)>, %c: array<f32<2>[6] @(1%0*2;0,1;12;)>) {
  %c0 = const 0 : i32
  %c5 = const 5 : i32
  %c6 = const 6 : i32
  %one = const 1 : i32
  parallel %c0, %c6 {
    ^(%i: i32)
    %e = while %c0 : i32 {
      ^(%k: i32)
      %more = lt %k, %c5 : u1
      yield %more
    } {
      ^(%l: i32)
      for %l, %c5 {
        ^(%j: i32)
        %p = elem %a, %i, %j : ptr<f32 global>
        %v = load %p : f32
        %q = elem %c, %i : ptr<f32<2> global>
        %m = member %q [1] : ptr<f32 global>
        %old = atomic_add %m, %v : f32
        yield
      }
      %next = add %l, %one : i32
      yield %next
    }
    yield
  }
  yield
}
"""


def test_reduce_takes_atomics_out_of_all_serial_loops() -> None:
    fn = parse_func(NESTED)
    new = reduce(fn, FEW)
    verify(new)
    assert count_atomics(fn, looping=True) == 1
    assert (count_atomics(new, looping=True), count_atomics(new, looping=False)) == (0, 1)
    a = np.arange(30, dtype=np.float32).reshape(6, 5)
    args = {"a": a, "c": np.ones((6, 2), np.float32)}
    np.testing.assert_array_equal(run_on(new, **args)["c"], run_on(fn, **args)["c"])


def test_reduce_in_serial_code() -> None:
    fn = parse_func("""
func @f(%s: array<i32[] @(;0;1;)>, %n: i32) {
  %c0 = const 0 : i32
  for %c0, %n {
    ^(%i: i32)
    %q = elem %s : ptr<i32 global>
    %old = atomic_add %q, %i : i32
    yield
  }
  yield
}
""")
    new = reduce(fn, FEW)
    verify(new)
    assert sum(op.kind in ATOMICS for region in new.body.ops[1:] for op in [region]) <= 1
    for n in (0, 7):
        args = {"s": np.array(5, np.int32), "n": n}
        np.testing.assert_array_equal(run_on(new, **args)["s"], run_on(fn, **args)["s"])


def test_reduce_keeps_a_minus_zero() -> None:
    fn = parse_func("""
func @f(%s: array<f32[] @(;0;1;)>, %n: i32, %v: f32) {
  %c0 = const 0 : i32
  for %c0, %n {
    ^(%i: i32)
    %q = elem %s : ptr<f32 global>
    %old = atomic_add %q, %v : f32
    yield
  }
  yield
}
""")
    for n in (0, 2):
        got = run_on(reduce(fn, FEW), s=np.array(-0.0, np.float32), n=n, v=-0.0)["s"]
        assert np.signbit(got)
