"""Grids: counts read from IR against the interpreter's arithmetic; workgroup sizes and guards."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.counts import read_mapping
from vkchi.errors import DeviceError, InternalError
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Param, Value
from vkchi.ir.interp import run_reference
from vkchi.ir.text import parse_func
from vkchi.launch.executable import BufferRef, counts_of
from vkchi.opt.cost_model import most_threads
from vkchi.opt.mapping.map_grid import map_grid, plan_grid
from vkchi.target import tuning
from vkchi.target.caps import FULL, SMALLEST
from vkchi.target.cell_lists import ENTRIES_AT, LEAST_SCALE, MOST_SCALE, groups_at
from vkchi.target.options import Options
from vkchi.target.shader import SERIAL, Grid, compile_count, row_grid, split_groups
from vkchi.types import Array, Tensor, i32, i64, row_major, u32

OPTIONS = Options()


def grid_of(bounds: str, *, block: str = "", caps: Any = FULL, options: Options = OPTIONS) -> Grid:
    """The grid of `parallel %b, %e` with the two defined by `bounds`."""
    text = f"""
func @f(%x: array<f32[??]>, %n: i32, %v: i32<3>, %big: i64, %f: f32) {{
  {bounds}
  parallel %b, %e {block} {{
    ^(%i: i32)
    yield
  }}
  yield
}}
"""
    return plan_grid(map_grid(parse_func(text), caps, options), caps)


def constant(n: int, begin: int = 0) -> str:
    return f"%b = const {begin} : i32\n %e = const {begin + n} : i32"


def test_serial_grid() -> None:
    fn = parse_func("func @f() {\n  yield\n}\n")
    assert plan_grid(map_grid(fn, FULL), FULL) == SERIAL


@pytest.mark.parametrize(
    ("n", "block", "guard"),
    [
        (1024, 128, False),
        (1 << 22, 128, False),
        (1 << 24, 256, False),  # 65,536 groups are 32,768 times 2; 131,072 are not x times 3
        (1_000_000, 160, False),  # 128 does not divide it
        (1022 * 1022, 128, True),
        (100, 128, True),
        (16, 32, True),
        (1, 32, True),
        (0, 32, False),
        (-5, 32, False),
    ],
)
def test_constant_counts(n: int, block: int, guard: bool) -> None:
    assert grid_of(constant(n, 7)) == row_grid(("const", max(0, n)), block, guard=guard)


def test_block_grid() -> None:
    assert grid_of(constant(1 << 20), block="[96]").block == 96
    assert not grid_of(constant(960), block="[96]").axes[0].guard
    assert grid_of(constant(1 << 20), options=Options(block_dim=64)).block == 64
    assert grid_of("%b = const 0 : i32\n %e = max %n, %b : i32", caps=SMALLEST).block == 128
    with pytest.raises(DeviceError, match="block_dim=256 .*128 invocations"):
        grid_of(constant(1 << 20), block="[256]", caps=SMALLEST)


def test_unknown_counts() -> None:
    """A fixed number of invocations partitions loops that the host does not count."""
    crowd = ("const", most_threads(FULL))
    found = grid_of("%b = const 0 : i32\n %e = cast %f : i32")
    assert found == row_grid(crowd, tuning.BLOCK, guard=False)
    doubled = "\n".join(f"%d{k + 1} = add %d{k}, %d{k} : i32" for k in range(40))
    found = grid_of(
        f"%b = const 0 : i32\n %d0 = shape %x [0] : i32\n {doubled}\n %e = add %d40, %n : i32"
    )
    assert found == row_grid(crowd, tuning.BLOCK, guard=False)


def test_unmapped_func_has_no_grid() -> None:
    fn = parse_func("func @f(%n: i32) {\n parallel %n, %n {\n ^(%i: i32)\n yield\n }\n yield\n}\n")
    with pytest.raises(InternalError, match="not mapped"):
        plan_grid(fn, FULL)


def test_split_groups() -> None:
    for groups in (0, 1, 65535, 65536, 131072, 100_000_007):
        x, y = split_groups(groups)
        assert x <= 65535
        assert groups <= x * y < groups + y
    assert split_groups(131072) == (43691, 3)


# --- counts --------------------------------------------------------------------------------------

BINARY = "add add sub mul mul min max floordiv mod".split()


def random_number(b: Builder, rng: random.Random, leaves: list[Value], depth: int) -> Value:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(leaves)
    x, y = (random_number(b, rng, leaves, depth - 1) for _ in range(2))
    kind = rng.random()
    if kind < 0.1:
        return b.emit("neg", x)
    if kind < 0.3:
        t = rng.choice((u32, i64))
        x, y = b.emit("cast", x, type=t), b.emit("cast", y, type=t)
        return b.emit("cast", b.emit(rng.choice(BINARY), x, y), type=i32)
    return b.emit(rng.choice(BINARY), x, y)


def random_kernel(seed: int) -> tuple[Func, Func]:
    """A parallel with random bounds, and a Func that stores its begin and end."""
    rng, b = random.Random(seed), Builder()
    x, n = Param(Array.of(i32, 2), "x"), Param(i32, "n")
    v, w = Param(Tensor.of(i32, (2,)), "v"), Param(i64, "w")
    out = Param(Array.of(i32, 1, (2,), row_major((2,), 1)), "out")
    with b.region() as body:
        leaves: list[Value] = [n, b.emit("extract", v, attr=1), b.emit("cast", w, type=i32)]
        leaves += [b.emit("shape", x, attr=k) for k in range(2)]
        leaves += [b.const(k, i32) for k in (0, 1, 2, -3, 1000, 2**31 - 1)]
        bounds = [random_number(b, rng, leaves, 3) for _ in range(2)]
        ops = list(b.ops)
        for k, bound in enumerate(bounds):
            b.emit("store", b.emit("elem", out, b.const(k, i32)), bound)
        b.emit("yield")
    with b.region() as dispatch:
        for op in ops:
            b.insert(op)
        with b.region(Param(i32, "i")) as inner:
            b.emit("yield")
        b.parallel(bounds[:2], inner)
        b.emit("yield")
    params = (x, n, v, w)
    return Func("stored", (*params, out), body), Func("dispatch", params, dispatch)


@pytest.mark.parametrize("seed", range(150))
def test_counts_agree_with_the_kernel(seed: int) -> None:
    stored, dispatch = random_kernel(seed)
    (axis,) = plan_grid(map_grid(dispatch, FULL), FULL).axes
    count = compile_count(axis.length, read_mapping)
    rng = np.random.default_rng(seed)
    for _ in range(5):
        x = np.zeros(rng.integers(0, 5, 2), np.int32)
        n = int(rng.choice([0, 1, 7, -4, 2**31 - 1, -(2**31)]))
        v, w = rng.integers(-100, 100, 2).astype(np.int32), int(rng.integers(-(2**40), 2**40))
        out = np.zeros(2, np.int32)
        run_reference(stored, {"x": x, "n": n, "v": v, "w": w, "out": out})
        got = count({"x": x.shape, "n": n, "v": v.tolist(), "w": w})
        assert max(0, got) == max(0, int(out[1]) - int(out[0]))


# --- active lists ---------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [1, 8, 65, 1 << 28, (1 << 28) + 1, 1 << 30])
def test_lists_have_workgroup_counts_for_cells_of_any_size(inner: int) -> None:
    fn = parse_func(f"""
func @f(%.active.a: array<i32[129]>) {{
  %zero = const 0 : i32
  %inner = const {inner} : i32
  %first = elem %.active.a, %zero : ptr<i32 global>
  %n = load %first : i32
  parallel %zero, %n, %zero, %inner {{
    ^(%k: i32, %p: i32)
    yield
  }}
  yield
}}
""")
    grid = plan_grid(map_grid(fn, FULL), FULL)
    buffer = object()
    found = counts_of(grid, {".active.a": BufferRef(1, buffer, 256)})
    assert found is not None and found[0] is buffer
    scale, rest = divmod((found[1] - 256) // 4 - groups_at(LEAST_SCALE), 3)
    assert rest == 0 and 0 <= scale <= MOST_SCALE - LEAST_SCALE
    groups, block = 2.0 ** (scale + LEAST_SCALE), grid.axes[0].block
    assert inner <= groups * block < inner + max(block, groups)
    assert groups_at(MOST_SCALE + 1) <= ENTRIES_AT
