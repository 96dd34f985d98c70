"""Register tiles of `jam` on CPUs: their shape, and equal results at extents that leave rests."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from vkchi.ir.core import Func, Program, walk
from vkchi.ir.interp import run_reference
from vkchi.ir.text import parse_func
from vkchi.ir.verify import verify
from vkchi.opt import cost_model
from vkchi.opt.loops import jam
from vkchi.opt.loops.jam import jam as unroll_and_jam
from vkchi.target.caps import FULL
from vkchi.types import f32

CPU = FULL._replace(kind="cpu", subgroup_size=8)
PRODUCT = """
func @product(%a: array<f32[{n},{m}]>, %b: array<f32[{m},{p}]>, %c: array<f32[{n},{p}]>) {{
  %c0 = const 0 : i32
  %n = const {n} : i32
  %m = const {m} : i32
  %p = const {p} : i32
  parallel %c0, %n, %c0, %p {{
    ^(%i: i32, %j: i32)
    %zero = const 0.0 : f32
    %s = for %c0, %m, %zero : f32 {{
      ^(%q: i32, %t: f32)
      %pa = elem %a, %i, %q [inbounds] : ptr<f32 global>
      %va = load %pa : f32
      %pb = elem %b, %q, %j [inbounds] : ptr<f32 global>
      %vb = load %pb : f32
      %x = mul %va, %vb : f32
      {work}
      %u = add %t, %y : f32
      yield %u
    }}
    %pc = elem %c, %i, %j [inbounds] : ptr<f32 global>
    store %pc, %s
    yield
  }}
  yield
}}
"""
COPY = "%y = neg %x : f32"
ROOTS = "\n".join(
    [f"%r{k + 1} = sqrt %{f'r{k}' if k else 'x'} : f32" for k in range(20)]
    + ["%y = add %r20, %x : f32"]
)


def product(n: int, m: int, p: int, work: str = COPY) -> Func:
    return parse_func(PRODUCT.format(n=n, m=m, p=p, work=work))


def area_of(fn: Func) -> int:
    """The iterations of a whole tile: products in its serial loop."""
    loops = [op for op in walk(unroll_and_jam(fn, CPU).body) if op.kind == "for"]
    return max(
        sum(op.args[0].type is f32 and op.kind == "mul" for op in x.regions[0].ops if op.args)
        for x in loops
    )


@pytest.mark.parametrize(
    ("extents", "work", "area"),
    [
        ((512, 512, 512), COPY, 8 * 2),
        ((509, 512, 512), COPY, 8 * 2),  # 63 groups of eight, and a partial one
        ((508, 512, 509), COPY, 8),
        ((36, 512, 512), COPY, 4 * 2),  # four of 36 would be left
        ((512, 8, 512), COPY, 4 * 2),  # too short for cooperative loads
        ((512, 512, 512), ROOTS, 4),  # loads cost little beside the roots
        ((32, 512, 64), COPY, 2),  # more would leave too few invocations
    ],
)
def test_areas(extents: tuple[int, int, int], work: str, area: int) -> None:
    assert area_of(product(*extents, work)) == area


@pytest.mark.parametrize("extents", [(64, 16, 4), (67, 17, 6), (71, 5, 7), (64, 1, 2), (16, 19, 2)])
def test_results(extents: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (jam, cost_model):
        monkeypatch.setattr(module, "least_threads", lambda caps: 1)
    n, m, p = extents
    fn = product(n, m, p)
    after = unroll_and_jam(fn, CPU)
    verify(after)
    assert sum(op.kind == "store" for op in walk(after.body)) >= 4
    rng = np.random.default_rng(prod(extents))
    shapes = {"a": (n, m), "b": (m, p), "c": (n, p)}
    given = {name: rng.random(shape, dtype=np.float32) for name, shape in shapes.items()}
    results = []
    for f in (fn, after):
        values = {name: x.copy() for name, x in given.items()}
        run_reference(Program("product", (f,)), values)
        results.append(values["c"])
    np.testing.assert_array_equal(results[0], results[1])
