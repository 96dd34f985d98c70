"""Loads that may see a write of their own invocation (`analysis.memory.segments`): addresses that
uniform values keep disjoint."""

from __future__ import annotations

import pytest

from vkchi.analysis.memory.segments import find_late
from vkchi.ir.core import walk
from vkchi.ir.text import parse_func


def late(body: str) -> list[bool]:
    """Of each load, in order, of a kernel of t that works on x, in a loop over i."""
    fn = parse_func(
        "func @f(%t: i32, %u: i32, %x: array<f32[200,200]>) {\n"
        "%c0 = const 0 : i32\n%c1 = const 1 : i32\n%c9 = const 9 : i32\n%v = const 2.0 : f32\n"
        f"parallel %c0, %c9 {{\n^(%i: i32)\n%next = add %t, %c1 : i32\n{body}\nyield\n}}\nyield\n}}"
    )
    found = find_late(fn.body.ops)
    return [op in found for op in walk(fn.body) if op.kind == "load"]


def access(what: str, row: str, column: str, name: str) -> str:
    place = f"%{name} = elem %x, %{row}, %{column} : ptr<f32 global>\n"
    last = f"store %{name}, %v" if what == "store" else f"%{name}.v = load %{name} : f32"
    return place + last + "\n"


@pytest.mark.parametrize(
    ("write", "read", "is_late"),
    [
        (("t", "i"), ("t", "i"), True),
        (("t", "i"), ("next", "i"), False),
        (("next", "i"), ("t", "c0"), False),
        (("c0", "i"), ("c1", "i"), False),
        (("t", "i"), ("u", "i"), True),  # they may be equal
        (("t", "i"), ("c0", "i"), True),
        (("c0", "t"), ("c0", "next"), False),
    ],
)
def test_elements_by_their_fixed_indices(write, read, is_late):
    assert late(access("store", *write, "a") + access("load", *read, "b")) == [is_late]
    assert late(access("load", *read, "b") + access("store", *write, "a")) == [False]


def test_elements_that_move_with_iterations_may_be_equal():
    after = "%j = add %i, %c1 : i32\n"
    assert late(after + access("store", "t", "i", "a") + access("load", "t", "j", "b")) == [True]


def test_iterations_of_a_loop():
    read, write = access("load", "t", "k", "b"), access("store", "t", "l", "a")
    body = "for %c0, %c9 {{\n^(%k: i32)\n%l = add %k, %c1 : i32\n{}yield\n}}\n"
    assert late(body.format(read + write)) == [True]
    other = access("store", "next", "l", "a")
    assert late(body.format(read + other)) == [False]
    assert late(body.format(write) + access("load", "t", "i", "c")) == [True]
    assert late(body.format(other) + access("load", "t", "i", "c")) == [False]


def test_many_elements():
    names = "".join(f"%k{k} = const {k} : i32\n" for k in range(70))
    writes = "".join(access("store", f"k{k}", "i", f"a{k}") for k in range(70))
    assert late(names + writes + "%m = const 99 : i32\n" + access("load", "m", "i", "b")) == [True]
