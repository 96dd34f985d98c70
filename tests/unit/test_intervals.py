"""Intervals of integers where loops do not run: nothing is computed there, and nothing fails."""

from __future__ import annotations

import pytest

from vkchi.analysis.values.interval_analysis import Intervals, axes_in
from vkchi.ir.core import Op, walk
from vkchi.ir.text import parse_func

PROGRAM = """
func @f(%n: i32, %out: array<i32[8]>) {{
  %c0 = const 0 : i32
  %c5 = const 5 : i32
  %c30 = const 30 : i32
  parallel %c5, %n {{
    ^(%i: i32)
    %k = {index}
    %r = add %k, %c0 : i32
    %p = elem %out, %r : ptr<i32 global>
    store %p, %c0
    yield
  }}
  yield
}}
"""
INDICES = [
    *[f"{kind} %c30, %i : i32" for kind in ("floordiv", "truncdiv", "mod", "rem", "shr", "shl")],
    "mul %i, %i : i32",
    "neg %i : i32",
]


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("n", [-(1 << 31), -9, -1, 0, 1, 5, 6, 8])
def test_loops_that_do_not_run(index: str, n: int) -> None:
    fn = parse_func(PROGRAM.format(index=index))
    ranges = Intervals(axes_in(fn.body), {fn.params[0]: n})
    (element,) = (op for op in walk(fn.body) if op.kind == "elem")
    result = element.args[1]
    assert isinstance(result, Op)
    found = ranges.of(result)
    if n > 5:
        assert found is None or found[0] <= found[1]
    elif found is not None:
        assert found[0] > found[1]
