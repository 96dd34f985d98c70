"""Pass `split`: the same results, dispatch by dispatch, and no more dispatches than needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from vkchi.ir.core import Func, Program, find_parallel
from vkchi.ir.interp import run_reference
from vkchi.ir.text import parse_func
from vkchi.ir.verify import verify, verify_program
from vkchi.opt.mapping.split import split_dispatches
from vkchi.target import tuning
from vkchi.types import Array, f32, i32


def split(text: str) -> tuple[Func, Program]:
    fn = parse_func(text)
    verify(fn)
    program, temps = split_dispatches(fn)
    verify_program(program)
    used = {p for f in program.funcs for p in f.params if p.name.startswith(".temp.")}
    assert used == set(temps)
    return fn, program


def check_same(fn: Func, program: Program, **args: Any) -> dict[str, Any]:
    """Run both; the arrays they leave must be equal."""

    def copies() -> dict[str, Any]:
        return {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in args.items()}

    want, got = run_reference(fn, copies()), run_reference(program, copies())
    for name in want:
        if name in args and name in got:
            np.testing.assert_array_equal(got[name], want[name])
    return got


def kinds(program: Program) -> str:
    """One letter per dispatch."""
    return "".join("p" if find_parallel(f) else "s" for f in program.funcs)


SUM = """
func @sum(%x: array<f32[?]>, %return.0: array<f32[] @(;0;1;)>) {
  %c0 = const 0 : i32
  %none = const 0.0 : f32
  %total = local %none : ptr<f32 local>
  %n = shape %x [0] : i32
  parallel %c0, %n {
    ^(%i: i32)
    %p = elem %x, %i : ptr<f32 global>
    %v = load %p : f32
    %old = atomic_add %total, %v : f32
    yield
  }
  %sum = load %total : f32
  %length = cast %n : f32
  %mean = div %sum, %length : f32
  %r = elem %return.0 : ptr<f32 global>
  store %r, %mean
  yield
}
"""


def test_mean_is_three_dispatches() -> None:
    fn, program = split(SUM)
    assert kinds(program) == "sps"
    got = check_same(fn, program, x=np.arange(10, dtype=np.float32), **slot())
    assert got["return.0"] == 4.5


def slot() -> dict[str, Any]:
    return {"return.0": np.zeros((), np.float32)}


def test_parallel_alone_is_one_dispatch() -> None:
    text = """
func @fill(%x: array<f32[16] @(1%0*1;0;16;)>, %y: array<f32[?]>, %a: f32) {
  %c0 = const 0 : i32
  %c16 = const 16 : i32
  %b = mul %a, %a : f32
  parallel %c0, %c16 {
    ^(%i: i32)
    %p = elem %x, %i : ptr<f32 global>
    store %p, %b
    yield
  }
  yield
}
"""
    fn, program = split(text)
    assert kinds(program) == "p"
    assert program.funcs[0].name == "fill"
    assert [p.name for p in program.funcs[0].params] == ["x", "a"]
    check_same(fn, program, x=np.zeros(16, np.float32), y=np.zeros(1, np.float32), a=3.0)


def test_empty_func_has_no_dispatch() -> None:
    _, program = split("func @none(%a: i32) {\n  %b = add %a, %a : i32\n  yield\n}\n")
    assert program.funcs == ()


def test_serial_code_is_one_dispatch() -> None:
    text = """
func @serial(%x: array<i32[?]>, %a: i32) {
  %c0 = const 0 : i32
  %var = local %a : ptr<i32 local>
  %p = elem %x, %c0 : ptr<i32 global>
  %v = load %p : i32
  store %var, %v
  %w = load %var : i32
  %more = gt %w, %a : u1
  if %more {
    store %p, %a
    yield
  } {
    yield
  }
  yield
}
"""
    fn, program = split(text)
    assert kinds(program) == "s"
    assert not any(isinstance(p.type, Array) and p.type.ndim == 0 for p in program.funcs[0].params)
    check_same(fn, program, x=np.array([5, 6], np.int32), a=2)


def test_private_memory_moves_to_the_dispatch_that_uses_it() -> None:
    text = """
func @late(%x: array<i32[?]>, %a: i32) {
  %c0 = const 0 : i32
  %n = shape %x [0] : i32
  %var = local %a : ptr<i32 local>
  parallel %c0, %n {
    ^(%i: i32)
    %p = elem %x, %i : ptr<i32 global>
    store %p, %i
    yield
  }
  for %c0, %n {
    ^(%k: i32)
    %q = elem %x, %k : ptr<i32 global>
    %v = load %q : i32
    %o = atomic_add %var, %v : i32
    store %q, %o
    yield
  }
  yield
}
"""
    fn, program = split(text)
    assert kinds(program) == "ps"
    assert all(p.name in ("x", "a") for f in program.funcs for p in f.params)
    check_same(fn, program, x=np.zeros(6, np.int32), a=7)


def test_results_of_control_ops_cross() -> None:
    """A loop's result travels; a pure `if` is recomputed; a loaded bound stands in a temporary."""
    text = """
func @control(%x: array<i32[?]>, %a: i32) {
  %c0 = const 0 : i32
  %c3 = const 3 : i32
  %big = gt %a, %c3 : u1
  %bound = if %big : i32 {
    yield %c3
  } {
    %twice = add %a, %a : i32
    yield %twice
  }
  %sum, %last = for %c0, %c3, %a, %c0 : i32, i32 {
    ^(%k: i32, %s: i32, %l: i32)
    %t = add %s, %k : i32
    yield %t, %k
  }
  %p = elem %x, %c0 : ptr<i32 global>
  %count = load %p : i32
  parallel %c0, %count {
    ^(%i: i32)
    %q = elem %x, %i : ptr<i32 global>
    %r = add %sum, %bound : i32
    %u = mul %r, %i : i32
    store %q, %u
    yield
  }
  %end = elem %x, %bound : ptr<i32 global>
  store %end, %last
  yield
}
"""
    fn, program = split(text)
    assert kinds(program) == "sps"
    temps = [p.name for p in program.funcs[1].params if p.name.startswith(".temp.")]
    assert len(temps) == 2  # the count, since the loop writes to the array, and the sum
    for a in (1, 9):
        check_same(fn, program, x=np.array([4, 0, 0, 0, 0, 0], np.int32), a=a)


def test_long_recomputation_travels() -> None:
    steps = "\n".join(f"  %v{k + 1} = mul %v{k}, %v{k} : f32" for k in range(400))
    text = f"""
func @long(%x: array<f32[?]>, %v0: f32) {{
  %c0 = const 0 : i32
  %n = shape %x [0] : i32
{steps}
  parallel %c0, %n {{
    ^(%i: i32)
    %p = elem %x, %i : ptr<f32 global>
    store %p, %v400
    yield
  }}
  yield
}}
"""
    fn, program = split(text)
    assert kinds(program) == "sp"
    assert len(program.funcs[1].body.ops) < tuning.SPLIT_RECOMPUTED
    check_same(fn, program, x=np.zeros(3, np.float32), v0=1.0)


def test_flags_are_numbers_in_temporaries() -> None:
    text = """
func @flag(%x: array<f32[?]>, %y: array<i32[?]>) {
  %c0 = const 0 : i32
  %no = const [false, false] : u1<2>
  %n = shape %x [0] : i32
  %flags = local %no : ptr<u1<2> local>
  parallel %c0, %n {
    ^(%i: i32)
    %p = elem %x, %i : ptr<f32 global>
    %v = load %p : f32
    %zero = const 0.0 : f32
    %less = lt %v, %zero : u1
    %m = member %flags [1] : ptr<u1 local>
    %old = atomic_or %m, %less : u1
    yield
  }
  %both = load %flags : u1<2>
  %any = extract %both [1] : u1
  %k = cast %any : i32
  %q = elem %y, %c0 : ptr<i32 global>
  store %q, %k
  yield
}
"""
    fn, program = split(text)
    types = [p.type for f in program.funcs for p in f.params if p.name.startswith(".temp.")]
    assert all(isinstance(t, Array) and t.stored is i32 for t in types)
    for low in (-1, 1):
        x = np.array([3, low, 4], np.float32)
        assert check_same(fn, program, x=x, y=np.zeros(1, np.int32))["y"][0] == (low < 0)


def test_temporaries_are_typed() -> None:
    _, program = split(SUM)
    temp = program.funcs[1].params[-1]
    assert temp.type is Array.of(f32, 0, (), temp.type.layout)  # type: ignore[attr-defined]
