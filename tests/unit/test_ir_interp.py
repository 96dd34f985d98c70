"""The reference interpreter beyond elementwise ops, which tests/ops covers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vkchi.errors import ArgumentError, InternalError
from vkchi.ir import interp
from vkchi.ir.interp import ScalarsPointer, is_interpretable, run_reference
from vkchi.ir.op_table.semantics import first_state, next_state, output_of
from vkchi.ir.ops import TABLE
from vkchi.ir.text import parse
from vkchi.ir.verify import verify_program
from vkchi.types import Tensor, u64


def interpret(text: str, **args: Any) -> dict[str, Any]:
    program = parse(text)
    verify_program(program)
    return run_reference(program, args)


def test_every_row_can_run() -> None:
    assert [kind for kind in TABLE if not is_interpretable(kind)] == []


def test_saxpy() -> None:
    x, y = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
    interpret(
        """func @saxpy(%a: f32, %x: array<f32[?]>, %y: array<f32[?]>) {
          %n = shape %x [0] : i32
          %c = const 0 : i32
          parallel %c, %n {
            ^(%i: i32)
            %p = elem %x, %i : ptr<f32 global>
            %v = load %p : f32
            %m = mul %a, %v : f32
            %q = elem %y, %i : ptr<f32 global>
            %w = load %q : f32
            %s = add %m, %w : f32
            store %q, %s
            yield
          }
          yield
        }""",
        a=2.5, x=x, y=y,
    )  # fmt: skip
    assert y.tolist() == [1.0, 3.5, 6.0, 8.5, 11.0]


def test_for_carries_values_in_parallel_and_may_be_empty() -> None:
    out = np.zeros(2, np.int64)
    text = """func @fib(%n: i32, %out: array<i64[2]>) {{
      %a0 = const 0 : i64
      %b0 = const 1 : i64
      %c0 = const {begin} : i32
      %a, %b = for %c0, %n, %a0, %b0 : i64, i64 {{
        ^(%i: i32, %u: i64, %v: i64)
        %s = add %u, %v : i64
        yield %v, %s
      }}
      %z = const 0 : i32
      %p = elem %out, %z : ptr<i64 global>
      store %p, %a
      yield
    }}"""
    interpret(text.format(begin=0), n=50, out=out)
    assert out[0] == 12586269025
    interpret(text.format(begin=51), n=50, out=out)
    assert out[0] == 0


def test_while_and_if() -> None:
    out = np.zeros((), np.int32)
    interpret(
        """func @collatz(%n: i32, %out: array<i32[]>) {
          %c0 = const 0 : i32
          %c1 = const 1 : i32
          %c2 = const 2 : i32
          %c3 = const 3 : i32
          %last, %steps = while %n, %c0 : i32, i32 {
            ^(%m: i32, %s: i32)
            %go = ne %m, %c1 : u1
            yield %go
          } {
            ^(%m.1: i32, %s.1: i32)
            %odd = mod %m.1, %c2 : i32
            %is_odd = eq %odd, %c1 : u1
            %next = if %is_odd : i32 {
              %t = mul %m.1, %c3 : i32
              %u = add %t, %c1 : i32
              yield %u
            } {
              %h = floordiv %m.1, %c2 : i32
              yield %h
            }
            %s.2 = add %s.1, %c1 : i32
            yield %next, %s.2
          }
          %p = elem %out : ptr<i32 global>
          store %p, %steps
          yield
        }""",
        n=27, out=out,
    )  # fmt: skip
    assert out == 111


STRAY = """func @stray(%x: array<f32[?]>, %i: i32, %seen: array<f32[2]>) {
  %c0 = const 0 : i32
  %c1 = const 1 : i32
  %p = elem %x, %i : ptr<f32 global>
  %q = elem %seen, %c0 : ptr<f32 global>
  %r = elem %seen, %c1 : ptr<f32 global>
  %five = const 5.0 : f32
  %v = load %p : f32
  store %q, %v
  store %p, %five
  %old = atomic_add %p, %five : f32
  store %r, %old
  yield
}"""


@pytest.mark.parametrize("i", [-1, 3, 2**31 - 1])
def test_accesses_outside_are_harmless(i: int) -> None:
    x, seen = np.ones(3, np.float32), np.full(2, 9, np.float32)
    interpret(STRAY, x=x, i=i, seen=seen)
    assert x.tolist() == [1, 1, 1] and seen.tolist() == [0, 0]
    interpret(STRAY, x=x, i=1, seen=seen)
    assert x.tolist() == [1, 10, 1] and seen.tolist() == [1, 5]


def test_members_origin_and_loads_are_copies() -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    seen = np.zeros((1, 2, 2), np.float32)
    interpret(
        """func @f(%x: array<f32<2x2>[2] @(1%0*4;0,1,2,3;8;5)>, %seen: array<f32<2x2>[1]>) {
          %c0 = const 0 : i32
          %c6 = const 6 : i32
          %c99 = const 99 : i32
          %p = elem %x, %c6 : ptr<f32<2x2> global>
          %before = load %p : f32<2x2>
          %a = member %p [2] : ptr<f32 global>
          %b = member_at %p, %c99 : ptr<f32 global>
          %v = const -1.0 : f32
          store %a, %v
          store %b, %v
          %q = elem %seen, %c0 : ptr<f32<2x2> global>
          store %q, %before
          yield
        }""",
        x=x, seen=seen,
    )  # fmt: skip
    assert x.tolist() == [[[0, 1], [2, 3]], [[4, 5], [-1, -1]]]
    assert seen.tolist() == [[[4, 5], [6, 7]]]


TENSORS = """func @f(%v: f32<3>, %k: i32, %out: array<f32<3>[4]>, %one: array<f32[2]>) {
  %c0 = const 0 : i32
  %c1 = const 1 : i32
  %c2 = const 2 : i32
  %c3 = const 3 : i32
  %x = const 10.0 : f32
  %a = insert %v, %x [1] : f32<3>
  %p0 = elem %out, %c0 : ptr<f32<3> global>
  store %p0, %a
  %b = insert_at %v, %x, %k : f32<3>
  %p1 = elem %out, %c1 : ptr<f32<3> global>
  store %p1, %b
  %m = outer %v, %v : f32<3x3>
  %t = transpose %m : f32<3x3>
  %mv = matmul %t, %v : f32<3>
  %p2 = elem %out, %c2 : ptr<f32<3> global>
  store %p2, %mv
  %s = splat %x : f32<3>
  %e = extract %s [0] : f32
  %w = pack %e, %e, %x : f32<3>
  %p3 = elem %out, %c3 : ptr<f32<3> global>
  store %p3, %w
  %q0 = elem %one, %c0 : ptr<f32 global>
  %sum = sum %m : f32
  store %q0, %sum
  %at = extract_at %v, %k : f32
  %q1 = elem %one, %c1 : ptr<f32 global>
  store %q1, %at
  yield
}"""


TENSOR_CASES = [(2, [1, 2, 10], 3), (-1, [1, 2, 3], 1), (7, [1, 2, 3], 3)]


@pytest.mark.parametrize(("k", "b", "at"), TENSOR_CASES)
def test_tensor_ops(k: int, b: list[float], at: float) -> None:
    out, one = np.zeros((4, 3), np.float32), np.zeros(2, np.float32)
    interpret(TENSORS, v=np.array([1, 2, 3], np.float32), k=k, out=out, one=one)
    assert out.tolist() == [[1, 10, 3], b, [14, 28, 42], [10, 10, 10]]
    assert one.tolist() == [36, at]


def test_local_is_separate_memory() -> None:
    out = np.zeros(4, np.int32)
    interpret(
        """func @f(%n: i32, %out: array<i32[4]>) {
          %c0 = const 0 : i32
          %total = local %c0 : ptr<i32 local>
          parallel %c0, %n {
            ^(%i: i32)
            %mine = local %i : ptr<i32 local>
            %old = atomic_mul %mine, %i : i32
            %square = load %mine : i32
            %sum = atomic_add %total, %square : i32
            %p = elem %out, %i : ptr<i32 global>
            store %p, %sum
            yield
          }
          yield
        }""",
        n=4, out=out,
    )  # fmt: skip
    assert out.tolist() == [0, 0, 1, 5]


ATOMICS = [
    ("atomic_add", 5, 12), ("atomic_min", 5, 5), ("atomic_max", 9, 9), ("atomic_mul", 3, 21),
    ("atomic_and", 3, 3), ("atomic_or", 8, 15), ("atomic_xor", 1, 6), ("atomic_exchange", 4, 4),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "operand", "new"), ATOMICS)
def test_atomics_give_the_old_value(kind: str, operand: int, new: int) -> None:
    x = np.array([7, 0], np.int32)
    text = f"""func @f(%x: array<i32[2]>, %v: i32) {{
      %c0 = const 0 : i32
      %c1 = const 1 : i32
      %p = elem %x, %c0 : ptr<i32 global>
      %q = elem %x, %c1 : ptr<i32 global>
      %old = {kind} %p, %v : i32
      store %q, %old
      yield
    }}"""
    interpret(text, x=x, v=operand)
    assert x.tolist() == [new, 7]


@pytest.mark.parametrize(("expected", "stands"), [(7, 1), (8, 7)])
def test_compare_and_swap(expected: int, stands: int) -> None:
    x = np.array([7], np.int32)
    text = """func @f(%x: array<i32[1]>, %expected: i32) {
      %c0 = const 0 : i32
      %c1 = const 1 : i32
      %p = elem %x, %c0 : ptr<i32 global>
      %old = atomic_cas %p, %expected, %c1 : i32
      yield
    }"""
    interpret(text, x=x, expected=expected)
    assert x.tolist() == [stands]


REVERSE = """func @reverse(%x: array<i32[?]>, %where: array<i32<5>[?]>) {
  %n = shape %x [0] : i32
  %c0 = const 0 : i32
  %c1 = const 1 : i32
  parallel %c0, %n [4] {
    ^(%i: i32)
    %tile = shared : array<i32[4] shared>
    %l = local_index : i32
    %g = group_index : i32
    %size = group_size : i32
    %grid = grid_size : i32
    %t = thread_index : i32
    %p = elem %x, %i : ptr<i32 global>
    %v = load %p : i32
    %q = elem %tile, %l : ptr<i32 shared>
    store %q, %v
    barrier
    %top = sub %size, %c1 : i32
    %other = sub %top, %l : i32
    %r = elem %tile, %other : ptr<i32 shared>
    %w = load %r : i32
    barrier
    store %p, %w
    %at = elem %where, %i : ptr<i32<5> global>
    %facts = pack %l, %g, %size, %grid, %t : i32<5>
    store %at, %facts
    yield
  }
  yield
}"""


def test_workgroups_run_in_lockstep() -> None:
    x, where = np.arange(10, 20, dtype=np.int32), np.zeros((10, 5), np.int32)
    interpret(REVERSE, x=x, where=where)
    assert x.tolist() == [13, 12, 11, 10, 17, 16, 15, 14, 0, 0]  # the last tile is half empty
    assert where[6].tolist() == [2, 1, 4, 12, 6]


def test_a_barrier_in_a_loop_and_in_serial_code() -> None:
    x = np.arange(4, dtype=np.int32)
    interpret(
        """func @scan(%x: array<i32[4]>) {
          barrier
          %c0 = const 0 : i32
          %c1 = const 1 : i32
          %c4 = const 4 : i32
          parallel %c0, %c4 [4] {
            ^(%i: i32)
            %p = elem %x, %i : ptr<i32 global>
            for %c0, %c4 {
              ^(%k: i32)
              %j = add %i, %c1 : i32
              %q = elem %x, %j : ptr<i32 global>
              %v = load %q : i32
              barrier
              store %p, %v
              barrier
              yield
            }
            yield
          }
          yield
        }""",
        x=x,
    )  # fmt: skip
    assert x.tolist() == [0, 0, 0, 0]


def test_random_stream() -> None:
    x = np.zeros((3, 2), np.uint32)
    text = """func @f(%x: array<u32<2>[3]>, %.seed: u32) {
      %c0 = const 0 : i32
      %c3 = const 3 : i32
      parallel %c0, %c3 {
        ^(%i: i32)
        %a = random : u32
        %b = random : u32
        %v = pack %a, %b : u32<2>
        %p = elem %x, %i : ptr<u32<2> global>
        store %p, %v
        yield
      }
      yield
    }"""
    interpret(text, **{"x": x, ".seed": 12345})
    for index in range(3):
        state = first_state(12345, index)
        for k in range(2):
            state = next_state(state)
            assert x[index, k] == output_of(state)
    assert len(set(x.reshape(-1).tolist())) == 6


def test_random_formula() -> None:
    """PCG-RXS-M-XS-32, worked out with 64-bit numbers."""
    state = np.uint64(12345) * np.uint64(747796405) + np.uint64(2891336453) & np.uint64(0xFFFFFFFF)
    assert next_state(12345) == state
    word = int((state >> ((state >> np.uint64(28)) + np.uint64(4))) ^ state) * 277803737 % 2**32
    assert output_of(int(state)) == (word >> 22) ^ word
    assert first_state(7, 3) == output_of(next_state(7 ^ (3 * 2654435769 % 2**32)))


def test_subgroups_are_single_invocations() -> None:
    out = np.zeros(5, np.int32)
    interpret(
        """func @f(%out: array<i32[5]>) {
          %c0 = const 0 : i32
          %c5 = const 5 : i32
          parallel %c0, %c5 {
            ^(%i: i32)
            %elected = subgroup_elect : u1
            if %elected {
              %s = subgroup_add %i : i32
              %size = subgroup_size : i32
              %k = subgroup_index : i32
              %t = mul %s, %size : i32
              %u = add %t, %k : i32
              %p = elem %out, %i : ptr<i32 global>
              store %p, %u
              fence
              yield
            } {
              yield
            }
            yield
          }
          yield
        }""",
        out=out,
    )  # fmt: skip
    assert out.tolist() == [0, 1, 2, 3, 4]


SPLIT = """func @f.0(%.temp.0: array<f32<2>[]>, %v: f32<2>) {
  %p = elem %.temp.0 : ptr<f32<2> global>
  store %p, %v
  yield
}
func @f.1(%.temp.0: array<f32<2>[]>, %out: array<f32<2>[2]>) {
  %c0 = const 0 : i32
  %c2 = const 2 : i32
  parallel %c0, %c2 {
    ^(%i: i32)
    %p = elem %.temp.0 : ptr<f32<2> global>
    %v = load %p : f32<2>
    %q = elem %out, %i : ptr<f32<2> global>
    store %q, %v
    yield
  }
  yield
}"""


def test_programs_share_temporaries() -> None:
    out = np.zeros((2, 2), np.float32)
    arrays = interpret(SPLIT, v=np.array([1, 2]), out=out)
    assert out.tolist() == [[1, 2], [1, 2]] and arrays[".temp.0"].tolist() == [1, 2]
    own = np.zeros(2, np.float32)
    interpret(SPLIT, **{"v": np.array([3, 4]), "out": out, ".temp.0": own})
    assert own.tolist() == [3, 4]


BAD_ARGUMENTS = [
    ({}, "argument `x` (array<f32[?]>) is missing"),
    ({"x": 1.0}, "argument `x` is 1.0, which is no array<f32[?]>"),
    ({"x": np.zeros(3)}, "argument `x` is float64[3]"),
    ({"x": np.zeros((3, 1), np.float32)}, "argument `x` is float32[3, 1]"),
]


@pytest.mark.parametrize(("args", "text"), BAD_ARGUMENTS)
def test_arguments_must_fit(args: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        interpret("func @f(%x: array<f32[?]>) { yield }", **args)
    assert text in str(caught.value)


def test_static_shapes_must_fit() -> None:
    with pytest.raises(ArgumentError, match="which is no"):
        interpret("func @f(%x: array<f32[3]>) { yield }", x=np.zeros(4, np.float32))


def test_endless_loops_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interp, "STEP_LIMIT", 100)
    with pytest.raises(InternalError, match="no end after 100 iterations"):
        interpret("func @f(%go: u1) { while { yield %go } { yield }\n yield }", go=True)


def test_components_of_several_scalars() -> None:
    memory = np.array([1, 0, 2, 0, 3, 0], np.uint32)
    whole = ScalarsPointer(memory, [(k,) for k in range(6)], Tensor.of(u64, (3,)))
    assert [int(whole.member(k).load()) for k in range(3)] == [1, 2, 3]
    whole.member(2).store(np.uint64(7 << 32))
    assert memory.tolist() == [1, 0, 2, 0, 0, 7]
