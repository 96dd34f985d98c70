"""`analysis.cost`: iterations of a dispatch, and the bytes that it moves at least."""

from __future__ import annotations

from typing import Any

from vkchi.analysis.cost import size_of, traffic_per_iteration
from vkchi.ir.core import find_parallel
from vkchi.ir.text import parse_func
from vkchi.target.shader import Count, compile_count

HEAD = """\
func @f(%x: array<f32[?]>, %y: array<f32<3>[?]>, %s: array<i32[]>, %n: i32) {
  %zero = const 0 : i32
  %one = const 1 : i32
  %h = shape %x [0] : i32
"""
LOOP = HEAD + "  parallel %zero, %h {\n    ^(%i: i32)\n{body}    yield\n  }\n  yield\n}\n"
LOAD = """\
    %j = add %i, %one : i32
    %p = elem %x, %i : ptr<f32 global>
    %q = elem %x, %j : ptr<f32 global>
    %a = load %p : f32
    %b = load %q : f32
    %c = load %p : f32
    store %p, %a
"""


def value(count: Count | None, **given: Any) -> int | None:
    """A count for these arguments, or extents by name and axis."""
    if count is None:
        return None
    read = lambda kind, name, axis: f"f['{name}{axis if kind == 'dim' else ''}']"  # noqa: E731
    return compile_count(count, read)(given)


def test_an_array_moves_once_in_each_direction() -> None:
    """Three loads of two addresses in 100 iterations: 800 bytes, of an array of 400."""
    fn = parse_func(LOOP.replace("{body}", LOAD))
    size = size_of(fn)
    assert value(size.iterations, x0=100) == 100
    assert value(size.moved, x0=100, y0=7) == 400 + 400
    assert not size.is_serial
    loop = find_parallel(fn)
    assert loop is not None
    each = traffic_per_iteration(loop, frozenset(fn.params))
    assert each.read is not None and each.written is not None
    assert (each.read.expr, each.written.expr) == (("const", 8), ("const", 4))


def test_inner_loops_multiply_and_the_array_is_the_limit() -> None:
    body = """\
    for %zero, %n {
      ^(%k: i32)
      %p = elem %x, %k : ptr<f32 global>
      %v = load %p : f32
      %q = elem %y, %i : ptr<f32<3> global>
      %m = member %q [1] : ptr<f32 global>
      store %m, %v
      yield
    }
"""
    size = size_of(parse_func(LOOP.replace("{body}", body)))
    # 5 iterations of 3: 60 bytes read, of 20; 60 bytes of components written, of 48
    assert value(size.moved, x0=5, y0=4, n=3) == 20 + 48


def test_atomics_read_and_write() -> None:
    body = "    %p = elem %s : ptr<i32 global>\n    %o = atomic_add %p, %i : i32\n"
    assert value(size_of(parse_func(LOOP.replace("{body}", body))).moved, x0=9) == 4 + 4


def test_reductions_into_one_element_do_not_count_per_iteration() -> None:
    atomic = "    %o = atomic_add %p, %i : i32\n"
    place = "    %p = elem %s : ptr<i32 global>\n"
    for body, expected in ((place + atomic, 0), (place + "    %v = load %p : i32\n" + atomic, 4)):
        fn = parse_func(LOOP.replace("{body}", body))
        loop = find_parallel(fn)
        assert loop is not None
        each = traffic_per_iteration(loop, frozenset(fn.params))
        assert each.written is not None and each.written.expr == ("const", expected)


def test_data_that_decide_leave_the_bytes_unknown() -> None:
    guard = """\
    %p = elem %x, %i : ptr<f32 global>
    %v = load %p : f32
    %k = cast %v : i32
    %c = gt {of}, %n : u1
    if %c {
      store %p, %v
      yield
    }
"""
    known = size_of(parse_func(LOOP.replace("{body}", guard.replace("{of}", "%i"))))
    assert value(known.moved, x0=10, n=3) == 80
    unknown = size_of(parse_func(LOOP.replace("{body}", guard.replace("{of}", "%k"))))
    assert unknown.moved is None and value(unknown.iterations, x0=10) == 10
    loop = "    %t = load %p : f32\n    %u = cast %t : i32\n"
    body = f"    %p = elem %x, %i : ptr<f32 global>\n{loop}    for %zero, %u {{\n      ^(%k: i32)\n"
    body += "      store %p, %t\n      yield\n    }\n"
    assert size_of(parse_func(LOOP.replace("{body}", body))).moved is None


def test_a_serial_dispatch_has_the_iterations_of_its_only_loop() -> None:
    loop = "  for %zero, %n {\n    ^(%i: i32)\n    %p = elem %x, %i : ptr<f32 global>\n"
    loop += "    %v = load %p : f32\n    yield\n  }\n"
    other = loop.replace("%i", "%k").replace("%p", "%q").replace("%v", "%w")
    one, two = HEAD + loop + "  yield\n}\n", HEAD + loop + other + "  yield\n}\n"
    size = size_of(parse_func(one))
    assert size.is_serial and value(size.iterations, n=6) == 6
    assert value(size.moved, n=6, x0=100) == 24
    both = size_of(parse_func(two))
    assert both.is_serial and both.iterations is None
    assert size_of(parse_func(HEAD + "  yield\n}\n")) == (None, None, False)
