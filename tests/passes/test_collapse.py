"""Nests that `collapse` leaves as they are, because invocations would draw other random numbers or
exceed what the host can count."""

from __future__ import annotations

import pytest

from vkchi.ir.text import parse_func
from vkchi.opt.loops.collapse import collapse_nests
from vkchi.target.caps import FULL

NEST = """
func @nest(%z: array<f32[64,64]> noalias) {{
  %c0 = const 0 : i32
  %n = const {n} : i32
  %v = const 1.0 : f32
  parallel %c0, %n {{
    ^(%i: i32)
    for %c0, %n {{
      ^(%j: i32)
      {op}
      %pz = elem %z, %i, %j : ptr<f32 global>
      store %pz, %v
      yield
    }}
    yield
  }}
  yield
}}
"""


@pytest.mark.parametrize(
    ("n", "op", "axes"),
    [
        (64, "", 2),
        (32768, "", 2),
        (32769, "", 1),
        (70000, "", 1),
        (64, "%r = random : u32", 1),
        (64, "barrier", 1),
    ],
)
def test_number_of_axes(n: int, op: str, axes: int) -> None:
    fn = collapse_nests(parse_func(NEST.format(n=n, op=op)), FULL)
    (loop,) = [op for op in fn.body.ops if op.kind == "parallel"]
    assert len(loop.args) == 2 * axes
