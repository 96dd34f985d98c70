"""Funcs for arrays of known extents (`ir/rebuild`)."""

from __future__ import annotations

from vkchi.ir.rebuild import with_shapes
from vkchi.ir.text import parse_func, print_func
from vkchi.ir.verify import verify

TEXT = """\
func @f(%x: array<f32[??]> noalias aligned 16, %y: array<f32[??]> like x noguard, \
%w: array<i32[?]> ext64, %z: array<f32[4]>, %n: i32) {
  %h = shape %x [0] : i32
  parallel %n, %h {
    ^(%i: i32)
    %p = elem %y, %i, %n : ptr<f32 global>
    %q = elem %x, %i, %n : ptr<f32 global>
    %v = load %q : f32
    store %p, %v
    yield
  }
  yield
}
"""
FIRST = TEXT.splitlines()[0]


def first_line(shapes: dict[str, tuple[int, ...]]) -> str:
    fn = with_shapes(parse_func(TEXT), shapes)
    verify(fn)
    return print_func(fn).splitlines()[0]


def test_extents_are_part_of_types() -> None:
    found = first_line({"x": (3, 5), "y": (3, 5), "w": (9,), "z": (4,)})
    want = FIRST.replace("x: array<f32[??]>", "x: array<f32[3,5]>")
    assert found == want.replace("y: array<f32[??]> like x", "y: array<f32[3,5]>")


def test_an_array_with_a_known_shape_is_like_no_other() -> None:
    found = first_line({"x": (3, 5)})
    want = FIRST.replace("x: array<f32[??]>", "x: array<f32[3,5]>")
    assert found == want.replace(" like x", "")


def test_no_layout_is_made_up() -> None:
    """An array with a layout would be memory of its own."""
    fn = with_shapes(parse_func(TEXT), {"x": (3, 5), "y": (3, 5)})
    assert [p.type.layout for p in fn.params[:2]] == [None, None]


def test_unknown_shapes_change_nothing() -> None:
    fn = parse_func(TEXT)
    assert with_shapes(fn, {}) is fn
