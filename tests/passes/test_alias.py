"""Alias analysis: bases, indices with offsets, components, changes of regions."""

from __future__ import annotations

import pytest

from vkchi.analysis.memory.alias import SideEffectTable, location_of, may_alias
from vkchi.analysis.values.polynomials import OffsetIndex, split_offset
from vkchi.errors import InternalError
from vkchi.ir.core import Func, Op, Value, base_memory, walk
from vkchi.ir.text import parse_func

TEXT = """
func @f(%x: array<f32[?]>, %y: array<f32[?]>, %k: array<i32[?]>, %v: array<f32<3>[?]>,
        %g: array<f32[8] @(1%0*1;0;8;)>, %h: array<f32[8] @(1%0*1;0;8;)>, %m: array<f32[??]>,
        %slot: array<f32[]>, %i: i32, %j: i32, %w: i64) {
  %c0 = const 0 : i32
  %c1 = const 1 : i32
  %cm1 = const -1 : i32
  %one = const 1 : i64
  %zero = const 0.0 : f32
  %i1 = add %i, %c1 : i32
  %i2 = add %i1, %c1 : i32
  %i0 = sub %i1, %c1 : i32
  %im = add %cm1, %i : i32
  %w1 = add %w, %one : i64
  %xi = elem %x, %i : ptr<f32 global>
  %xi0 = elem %x, %i0 : ptr<f32 global>
  %xi1 = elem %x, %i1 : ptr<f32 global>
  %xi2 = elem %x, %i2 : ptr<f32 global>
  %xim = elem %x, %im : ptr<f32 global>
  %xj = elem %x, %j : ptr<f32 global>
  %x0 = elem %x, %c0 : ptr<f32 global>
  %x1 = elem %x, %c1 : ptr<f32 global>
  %x1w = elem %x, %one : ptr<f32 global>
  %xw = elem %x, %w : ptr<f32 global>
  %xw1 = elem %x, %w1 : ptr<f32 global>
  %yi = elem %y, %i : ptr<f32 global>
  %yi1 = elem %y, %i1 : ptr<f32 global>
  %ki = elem %k, %i : ptr<i32 global>
  %gi = elem %g, %i : ptr<f32 global>
  %hi = elem %h, %i : ptr<f32 global>
  %s = elem %slot : ptr<f32 global>
  %mij = elem %m, %i, %j : ptr<f32 global>
  %mi1j = elem %m, %i1, %j : ptr<f32 global>
  %mji = elem %m, %j, %i : ptr<f32 global>
  %vi = elem %v, %i : ptr<f32<3> global>
  %vi0 = member %vi [0] : ptr<f32 global>
  %vi1 = member %vi [1] : ptr<f32 global>
  %vik = member_at %vi, %j : ptr<f32 global>
  %vj = elem %v, %j : ptr<f32<3> global>
  %vj1 = member %vj [1] : ptr<f32 global>
  %a = local %zero : ptr<f32 local>
  %b = local %zero : ptr<f32 local>
  %t = shared : array<f32[64] shared>
  %ti = elem %t, %i : ptr<f32 shared>
  %tj = elem %t, %j : ptr<f32 shared>
  if_here
  yield
}
"""


def parse_names(text: str) -> tuple[Func, dict[str, Value]]:
    fn = parse_func(text)
    return fn, {op.name: op for op in walk(fn.body) if op.name}


FN, NAMES = parse_names(TEXT.replace("  if_here\n", "").replace(",\n       ", ","))


@pytest.mark.parametrize(
    ("a", "b", "may"),
    [
        ("xi", "xi", True),
        ("xi", "xi0", True),
        ("xi", "xj", True),
        ("xi", "x0", True),
        ("xi", "xi1", False),
        ("xi", "xim", False),
        ("xi1", "xi2", False),
        ("x0", "x1", False),
        ("x1", "x1w", True),
        ("x0", "x1w", False),
        ("xw", "xw1", False),
        ("xi", "xw1", True),
        ("xi", "yi", True),
        ("xi", "yi1", True),
        ("xi", "ki", False),
        ("xi", "gi", False),
        ("gi", "hi", False),
        ("xi", "s", True),
        ("gi", "s", False),
        ("mij", "mi1j", False),
        ("mij", "mji", True),
        ("vi", "vi1", True),
        ("vi0", "vi1", False),
        ("vi0", "vik", True),
        ("vi1", "vj1", True),
        ("vi0", "vj1", False),
        ("a", "a", True),
        ("a", "b", False),
        ("a", "xi", False),
        ("ti", "tj", True),
        ("ti", "xi", False),
    ],
)
def test_may_alias(a: str, b: str, may: bool) -> None:
    places = location_of(NAMES[a]), location_of(NAMES[b])
    assert may_alias(*places) == may
    assert may_alias(*reversed(places)) == may


def test_equal_indices_are_equal_addresses() -> None:
    assert location_of(NAMES["xi"]) == location_of(NAMES["xi0"])
    assert location_of(NAMES["x1"]) == location_of(NAMES["x1w"])


def test_offsets_wrap_and_constants_are_exact() -> None:
    i = FN.params[8]
    assert split_offset(NAMES["i2"]) == OffsetIndex(i, 2)
    assert split_offset(NAMES["im"]) == OffsetIndex(i, 2**32 - 1)
    assert split_offset(NAMES["cm1"]) == OffsetIndex(None, -1)


def test_alias_of_bases() -> None:
    assert base_memory(NAMES["vik"]) is FN.params[3]
    assert base_memory(NAMES["a"]) is NAMES["a"]
    assert base_memory(NAMES["ti"]) is NAMES["t"]
    with pytest.raises(InternalError, match="not by a parameter"):
        location_of(FN.params[0])


def changes_of(body: str) -> tuple[SideEffectTable, dict[str, Value], Op]:
    text = TEXT.replace("  if_here\n", body).replace(",\n       ", ",")
    fn, names = parse_names(text)
    return SideEffectTable(), names, fn.body.ops[-2]


def test_changes_of_nested_regions() -> None:
    table, names, loop = changes_of("""
  for %c0, %i {
    ^(%n: i32)
    %on = gt %n, %c1 : u1
    if %on {
      store %gi, %zero
      yield
    } {
      %old = atomic_add %vi1, %zero : f32
      yield
    }
    yield
  }
""")
    changes = table.of(loop.regions)
    names_asked = ("gi", "hi", "x0", "yi", "vi", "vi0", "ki")
    changed = {k for k in names_asked if changes.may_change(location_of(names[k]))}
    assert changed == {"gi", "x0", "yi", "vi"}  # x and y may be the memory of v, of f32 too
    assert not changes.sync


def test_synchronisation_changes_memory_that_others_see() -> None:
    table, names, loop = changes_of("""
  for %c0, %i {
    ^(%n: i32)
    barrier
    yield
  }
""")
    changes = table.of(loop.regions)
    assert changes.sync
    seen = {k for k in ("xi", "gi", "ti", "a") if changes.may_change(location_of(names[k]))}
    assert seen == {"xi", "gi", "ti"}
