"""Conditions of several parts: nested on processors; GPUs keep their loads together."""

from __future__ import annotations

from vkchi.ir.core import walk
from vkchi.ir.text import parse
from vkchi.opt.control.jump_threading import thread_jumps
from vkchi.opt.pipeline import CPU
from vkchi.target.caps import FULL

CONDITION = """
func @both(%x: array<f32[16]>, %i: i32, %n: i32) {
  %zero = const 0.0 : f32
  %no = const false : u1
  %p = elem %x, %i [inbounds] : ptr<f32 global>
  %is = lt %i, %n : u1
  %both = if %is : u1 {
    %a = load %p : f32
    %gt = gt %a, %zero : u1
    yield %gt
  } {
    yield %no
  }
  if %both {
    store %p, %zero
    yield
  } {
    yield
  }
  yield
}
"""


def test_graphics_cards_keep_loads_of_conditions_together() -> None:
    fn = parse(CONDITION).funcs[0]
    assert thread_jumps(fn, FULL) is fn


def test_of_nested_conditions_as_well() -> None:
    asked = "    %gt = gt %a, %zero : u1\n    yield %gt"
    inner = """    %gt = gt %a, %zero : u1
    %more = if %gt : u1 {
      %b = load %p : f32
      %ne = ne %b, %a : u1
      yield %ne
    } {
      yield %no
    }
    yield %more"""
    fn = parse(CONDITION.replace(asked, inner)).funcs[0]
    assert thread_jumps(fn, FULL) is fn
    assert thread_jumps(fn, CPU) is not fn


def test_processors_branch() -> None:
    fn = thread_jumps(parse(CONDITION).funcs[0], CPU)
    first, *others = (op for op in walk(fn.body) if op.kind == "if")
    assert all(op in first.regions[0].ops for op in others)
    assert [op.kind for op in fn.body.ops].count("if") == 1


def test_subgroup_ops_are_not_duplicated() -> None:
    other = "    %one = subgroup_add %n : i32\n    yield\n  }\n  yield\n}"
    fn = parse(CONDITION.replace("    yield\n  }\n  yield\n}", other)).funcs[0]
    assert thread_jumps(fn, CPU) is fn
