"""Loop fission: long parallel loops in parts have the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.fuzz.programs import ALL, EXACT, generate
from tests.ops.cases import same_bits
from vkchi.ir.core import Func
from vkchi.ir.interp import run_reference
from vkchi.ir.text import parse_func, print_func
from vkchi.ir.verify import verify
from vkchi.opt.loops.fission import cut_long_loops
from vkchi.target import tuning

SIZE = 6


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops of three accesses are long."""
    monkeypatch.setattr(tuning, "FISSION_ACCESSES", 2)
    monkeypatch.setattr(tuning, "FISSION_PART", 2)


FIELD = "[6] @(1%0*1;0;6;)"
HEAD = f"""func @f(%x: array<f32{FIELD}>, %y: array<f32{FIELD}>, %z: array<f32[6,3]>,
        %w: array<i32{FIELD}>, %a: array<f32[?]>, %b: array<f32[?]>) {{
  %c0 = const 0 : i32
  %c1 = const 1 : i32
  %c2 = const 2 : i32
  %c6 = const 6 : i32
  parallel %c0, %c6 {{
    ^(%i: i32)
"""
TAIL = """    yield
  }
  yield
}
"""


def add_to(array: str, *index: str, value: str = "%one") -> str:
    """Lines that add a value to an element."""
    name = f"{array}.{'.'.join(index)}".replace("%", "")
    return f"""    %p.{name} = elem %{array}, {", ".join(index)} : ptr<f32 global>
    %v.{name} = load %p.{name} : f32
    %s.{name} = add %v.{name}, {value} : f32
    store %p.{name}, %s.{name}
"""


def make(body: str) -> Func:
    text = HEAD.replace("\n        ", " ") + "    %one = const 1.5 : f32\n" + body + TAIL
    fn = parse_func(text)
    verify(fn)
    return fn


def loops_of(fn: Func) -> int:
    return sum(op.kind == "parallel" for op in fn.body.ops)


def check(body: str, parts: int) -> None:
    """So many parts, and the same in memory."""
    fn = make(body)
    cut = cut_long_loops(fn)
    verify(cut)
    assert loops_of(cut) == parts, print_func(cut)
    if parts == 1:
        assert cut is fn
    args: dict[str, Any] = {n: np.arange(SIZE, dtype=np.float32) for n in ("x", "y", "a", "b")}
    args["z"] = np.arange(3 * SIZE, dtype=np.float32).reshape(SIZE, 3)
    args["w"] = np.arange(SIZE, dtype=np.int32)[::-1]
    want, got = (run_reference(f, {k: v.copy() for k, v in args.items()}) for f in (fn, cut))
    assert all(np.array_equal(want[k], got[k]) for k in args)


def test_arrays_of_their_own_part() -> None:
    check(add_to("x", "%i") + add_to("y", "%i"), 2)


def test_loop_over_one_array_is_not_split() -> None:
    check(add_to("x", "%i") + add_to("x", "%c0"), 1)


def test_constant_indices_part() -> None:
    check("".join(add_to("z", "%i", f"%c{k}") for k in range(3)), 3)


def test_the_same_constant_index_stays_together() -> None:
    check(add_to("z", "%i", "%c1") + add_to("z", "%c0", "%c1") + add_to("z", "%i", "%c2"), 2)


def test_a_computed_index_stays_with_all() -> None:
    check(add_to("z", "%i", "%c1") + add_to("z", "%c0", "%i") + add_to("z", "%i", "%c2"), 1)


def test_arrays_that_may_be_the_same_memory_stay_together() -> None:
    check(add_to("a", "%i") + add_to("b", "%i") + add_to("x", "%i"), 2)


def test_sharing_is_found_in_any_order() -> None:
    """Of arrays that lie apart, each may be the same memory as one that does not say so."""
    body = add_to("d", "%i") + add_to("e", "%i") + add_to("b", "%i")
    head = HEAD.replace("%a: array<f32[?]>", "%d: array<f32[?]> noalias, %e: array<f32[?]> noalias")
    fn = parse_func(head.replace("\n        ", " ") + "    %one = const 1.5 : f32\n" + body + TAIL)
    assert cut_long_loops(fn) is fn


def test_values_that_are_used_keep_ops_together() -> None:
    check(add_to("x", "%i") + add_to("y", "%i", value="%s.x.i"), 1)


def test_loads_of_unwritten_memory_are_recomputed() -> None:
    load = """    %p = elem %w, %i : ptr<i32 global>
    %j = load %p : i32
"""
    check(load + add_to("x", "%j") + add_to("y", "%j"), 2)


def test_loads_of_written_memory_are_not_recomputed() -> None:
    load = """    %p = elem %w, %i : ptr<i32 global>
    %j = load %p : i32
"""
    store = "    store %p, %c0\n"
    check(load + add_to("x", "%j") + add_to("y", "%j") + store, 1)


@pytest.mark.parametrize("op", ["%r = random : u32", "%t = thread_index : i32", "barrier"])
def test_loops_that_know_of_invocations_stay_whole(op: str) -> None:
    fn = make(f"    {op}\n" + add_to("x", "%i") + add_to("y", "%i"))
    assert cut_long_loops(fn) is fn


def test_a_long_computation_is_not_done_twice() -> None:
    chain = "    %k0 = add %i, %c0 : i32\n" + "".join(
        f"    %k{n + 1} = mul %k{n}, %c1 : i32\n" for n in range(tuning.FISSION_RECOMPUTED)
    )
    last = f"%k{tuning.FISSION_RECOMPUTED}"
    check(chain + add_to("x", last) + add_to("y", last), 1)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    case = generate(seed, ALL if seed % 3 else EXACT)
    cut = cut_long_loops(case.fn)
    if cut is case.fn:
        return
    verify(cut)
    want, got = (run_reference(f, case.args()) for f in (case.fn, cut))
    assert all(np.all(same_bits(want[name], got[name])) for name in want)
