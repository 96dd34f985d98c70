"""Work of a Func in a launch (`analysis/cost`)."""

from __future__ import annotations

from vkchi.analysis.cost import known_work_of, work_of
from vkchi.ir.text import parse_func

TEXT = """\
func @f(%x: array<f32[?]>, %n: i32) {
  %h = shape %x [0] : i32
  %zero = const 0 : i32
  %four = const 4 : i32
  parallel %zero, %h {
    ^(%i: i32)
    %p = elem %x, %i : ptr<f32 global>
    for %zero, %n {
      ^(%j: i32)
      for %zero, %four {
        ^(%k: i32)
        %v = load %p : f32
        yield
      }
      for %zero, %j {
        ^(%m: i32)
        %w = load %p : f32
        yield
      }
      yield
    }
    yield
  }
  yield
}
"""


def test_ops_are_counted_once_per_iteration() -> None:
    """Ops of a loop whose bound is an index count as often as those around it."""
    work = work_of(parse_func(TEXT))
    assert [ops for ops, _ in work] == [5, 3, 5, 2]
    (_, once), (_, each), (_, inner), (_, innermost) = work
    assert once == ("const", 1) and each == ("dim", "x", 0)
    assert inner == ("mul", each, ("max", ("arg", "n"), ("const", 0)))
    assert innermost == ("mul", inner, ("const", 4))


def test_constants_alone_give_minimum_counts() -> None:
    assert known_work_of(parse_func(TEXT).body) == 5 + 3 + 5 + 4 * 2
