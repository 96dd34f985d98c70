"""In which order loops over several axes step through memory."""

from __future__ import annotations

import pytest

from vkchi.ir.core import Op, find_parallel
from vkchi.ir.text import parse_func
from vkchi.opt.mapping.axis_order import find_order, iteration_digits

PLAIN = ((0, 0, 1), (1, 0, 1), (2, 0, 1))


def loop_with(*accesses: str, more: str = "") -> Op:
    """A loop over i, j and k with these accesses of arrays of three axes."""
    lines = [f"%p{k} = elem %x, {a} : ptr<i32 global>" for k, a in enumerate(accesses)]
    fn = parse_func(f"""
func @f(%x: array<i32[???]>, %n: i32) {{
  parallel %n, %n, %n, %n, %n, %n {{
    ^(%i: i32, %j: i32, %k: i32)
    {more}
    {" ".join(line + chr(10) for line in lines)}
    yield
  }}
  yield
}}
""")
    loop = find_parallel(fn)
    assert loop is not None
    return loop


@pytest.mark.parametrize(
    ("accesses", "order", "has_rival"),
    [
        (("%i, %j, %k",), "ijk", False),
        (("%k, %j, %i",), "kji", False),
        (("%k, %j, %i", "%i, %j, %k"), "jik", True),  # as it stands, but for the rival
        (("%i, %j, %k", "%i, %k, %j"), "ijk", True),
        (("%i, %k, %j", "%i, %k, %j", "%i, %j, %k"), "ikj", True),
        (("%i, %i, %k",), "ijk", False),  # goes not with all axes
        ((), "ijk", False),
    ],
)
def test_axis_orders(accesses: tuple[str, ...], order: str, has_rival: bool) -> None:
    digits, is_square = iteration_digits(loop_with(*accesses))
    assert "".join("ijk"[k] for k, _, _ in digits) == order
    assert is_square is has_rival


def test_numbered_iterations_keep_their_order() -> None:
    loop = loop_with("%k, %j, %i", more="%t = thread_index : i32")
    assert iteration_digits(loop)[0] == PLAIN
    assert find_order(loop) == ()
