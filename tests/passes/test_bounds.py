"""Pass `eliminate_bounds_checks`: its proofs, checked by random programs."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.fuzz.indices import Generator, arguments
from vkchi.analysis.values.ranges import Facts
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, walk
from vkchi.ir.interp import run_reference
from vkchi.ir.rebuild import rebuild
from vkchi.ir.text import parse_func, print_func
from vkchi.ir.verify import verify
from vkchi.opt.rewrite.bounds import eliminate_bounds_checks
from vkchi.types import Array, i32, i64, row_major, u1

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "60"))


def marks(text: str) -> list[bool]:
    """True if each access of the program, in order, is proved inside."""
    fn = parse_func(text)
    verify(fn)
    new = eliminate_bounds_checks(fn)
    verify(new)
    return [op.attr == "inbounds" for op in walk(new.body) if op.kind == "elem"]


def one_access(index: str, *, array: str = "f32[?]", end: str = "%n", setup: str = "") -> bool:
    """True if `elem %x, %k` is proved in a loop over %i from 0 to `end`; `index` computes %k."""
    return marks(f"""
func @f(%x: array<{array}>, %y: array<f32[?]>, %a: i32) {{
  %c0 = const 0 : i32
  %c1 = const 1 : i32
  %c2 = const 2 : i32
  %c10 = const 10 : i32
  %big = const 2147483647 : i32
  %n = shape %x [0] : i32
  %m = shape %y [0] : i32
  %n1 = sub %n, %c1 : i32
  {setup}
  parallel %c0, {end} {{
    ^(%i: i32)
    {index}
    %p = elem %x, %k : ptr<f32 global>
    yield
  }}
  yield
}}
""")[0]


PROVED = {
    "the index": "%k = add %i, %c0 : i32",
    "backwards": "%k = sub %n1, %i : i32",
    "clamped": "%d = sub %i, %c1 : i32\n %k = max %d, %c0 : i32",
    "clamped above": "%h = shr %i, %c1 : i32\n %d = add %h, %c10 : i32\n %k = min %d, %n1 : i32",
    "wrapped around": "%d = sub %i, %c1 : i32\n %k = mod %d, %n : i32",
    "half": "%k = shr %i, %c1 : i32",
    "through i64": "%w = cast %i : i64\n %k = cast %w : i32",
    "masked": "%k = and %i, %a : i32",
    "selected": "%c = lt %i, %n1 : u1\n %d = add %i, %c1 : i32\n %k = select %c, %d, %c0 : i32",
}
OPEN = {
    "one beyond": "%k = add %i, %c1 : i32",
    "one below": "%k = sub %i, %c1 : i32",
    "an argument": "%k = add %a, %c0 : i32",
    "twice": "%k = mul %i, %c2 : i32",
    "remainder": "%d = sub %i, %c1 : i32\n %k = rem %d, %n : i32",
    "clamped too far": "%d = add %i, %c10 : i32\n %k = min %d, %n : i32",
    "clamped, may overflow": "%d = add %i, %c10 : i32\n %k = min %d, %n1 : i32",
    "shifted by less than nothing": "%d = add %i, %c1 : i32\n %b = sub %c1, %c2 : i32\n"
    "%h = shr %d, %b : i32\n %k = sub %h, %c1 : i32",
    "overflow": "%d = add %i, %big : i32\n %k = sub %d, %big : i32",
}


@pytest.mark.parametrize("name", PROVED)
def test_bounds_checks_proved_redundant(name: str) -> None:
    assert one_access(PROVED[name])


@pytest.mark.parametrize("name", OPEN)
def test_bounds_checks_not_proved(name: str) -> None:
    assert not one_access(OPEN[name])


def test_static_extents() -> None:
    half = "%k = floordiv %i, %c2 : i32"
    assert one_access(half, array="f32[5]", end="%c10")
    assert not one_access(half, array="f32[4]", end="%c10")
    assert not one_access("%k = add %i, %c0 : i32", array="f32[10]", end="%a")
    capped = "%e = min %a, %c10 : i32"
    assert one_access("%k = add %i, %c0 : i32", array="f32[10]", end="%e", setup=capped)


def test_flattened_axes() -> None:
    """A loop over all elements of an array of three axes, its index taken apart again."""
    text = """
func @f(%x: array<f32[???]>, %y: array<f32[???]>) {
  %c0 = const 0 : i32
  %d0 = shape %x [0] : i32
  %d1 = shape %x [1] : i32
  %d2 = shape %x [2] : i32
  %d12 = mul %d1, %d2 : i32
  %all = mul %d0, %d12 : i32
  parallel %c0, %all {
    ^(%t: i32)
    %i = floordiv %t, %d12 : i32
    %r = mod %t, %d12 : i32
    %j = floordiv %r, %d2 : i32
    %k = mod %t, %d2 : i32
    %p = elem %x, %i, %j, %k : ptr<f32 global>
    %ij = floordiv %t, %d2 : i32
    %j2 = mod %ij, %d1 : i32
    %i2 = floordiv %ij, %d1 : i32
    %p2 = elem %x, %i2, %j2, %k : ptr<f32 global>
    %swapped = elem %x, %j, %i, %k : ptr<f32 global>
    %other = elem %y, %i, %j, %k : ptr<f32 global>
    yield
  }
  yield
}
"""
    assert marks(text) == [True, True, False, False]


def test_bounds_proved_by_conditions() -> None:
    text = """
func @f(%x: array<f32[??]>, %a: i32, %b: i32) {
  %c0 = const 0 : i32
  %c1 = const 1 : i32
  %n = shape %x [0] : i32
  %m = shape %x [1] : i32
  %n1 = sub %n, %c1 : i32
  %low = ge %a, %c0 : u1
  %v = if %low : u1 {
    %high = lt %a, %n1 : u1
    yield %high
  } {
    %no = const false : u1
    yield %no
  }
  %low_b = ge %b, %c0 : u1
  %high_b = lt %b, %m : u1
  %w = and %low_b, %high_b : u1
  %vw = and %v, %w : u1
  if %vw {
    %a1 = add %a, %c1 : i32
    %p = elem %x, %a1, %b : ptr<f32 global>
    yield
  } {
    %q = elem %x, %a, %b : ptr<f32 global>
    yield
  }
  %not = not %w : u1
  if %not {
    yield
  } {
    %r = elem %x, %c0, %b : ptr<f32 global>
    yield
  }
  yield
}
"""
    assert marks(text) == [True, False, False]  # %r: the first axis may have no element


def test_counting_loop() -> None:
    text = """
func @f(%x: array<f32[10]>) {
  %c0 = const 0 : i32
  %c10 = const 10 : i32
  %end = while %c0 : i32 {
    ^(%k: i32)
    %more = lt %k, %c10 : u1
    yield %more
  } {
    ^(%j: i32)
    %p = elem %x, %j : ptr<f32 global>
    %c1 = const 1 : i32
    %next = add %j, %c1 : i32
    yield %next
  }
  %q = elem %x, %end : ptr<f32 global>
  yield
}
"""
    assert marks(text) == [True, False]
    assert marks(text.replace("const 1 ", "const -1 ")) == [False, False]


# --- random programs -----------------------------------------------------------------------------


def with_checks(fn: Func) -> Func:
    """The program with a count of all proved accesses that are outside after all."""
    bad = Param(Array.of(i32, 0, (), row_major((), 1)), "bad")

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> list[Value] | None:
        if op.kind != "elem" or op.attr != "inbounds":
            return None
        t = op.args[0].type
        assert isinstance(t, Array)
        ok: Value = b.const(True, u1)
        for k, v in enumerate(args[1:]):
            first = t.layout.origin[k] if t.layout and t.layout.origin else 0
            index = b.emit("sub", b.emit("cast", v, type=i64), b.const(first, i64))
            extent = b.const(t.shape[k], i64) if t.shape else b.emit(
                "cast", b.emit("shape", args[0], attr=k), type=i64
            )  # fmt: skip
            ok = b.emit("and", ok, b.emit("ge", index, b.const(0, i64)))
            ok = b.emit("and", ok, b.emit("lt", index, extent))
        wrong = b.emit("cast", b.emit("not", ok), type=i32)
        b.emit("atomic_add", b.emit("elem", bad), wrong)
        return None

    new = rebuild(fn, visit)
    return Func(new.name, (*new.params, bad), new.body)


def chain_of_selects(n: int) -> Func:
    """An index that is made in n selects, each of the one before, whose conditions ask for it."""
    steps = "\n".join(
        f"%t{k} = add %v{k}, %c1 : i32\n %b{k} = lt %t{k}, %a : u1\n"
        f"%v{k + 1} = select %b{k}, %t{k}, %v{k} : i32"
        for k in range(n)
    )
    return parse_func(f"""
func @f(%x: array<f32[?]>, %a: i32, %v0: i32) {{
  %c1 = const 1 : i32
  {steps}
  %p = elem %x, %v{n} : ptr<f32 global>
  yield
}}
""")


def test_conditions_of_selects_in_selects_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    compute = Facts._compute
    monkeypatch.setattr(Facts, "_compute", lambda *args: (looks.append(1), compute(*args))[1])
    eliminate_bounds_checks(chain_of_selects(300))
    assert len(looks) < 2000


@pytest.mark.parametrize("chunk", range(5))
def test_proofs_hold_for_random_programs(chunk: int) -> None:
    proved = total = 0
    for seed in range(chunk, PROGRAMS, 5):
        fn = Generator(seed).program()
        verify(fn)
        new = eliminate_bounds_checks(fn)
        verify(new)
        accesses = [op for op in walk(new.body) if op.kind == "elem"]
        total += len(accesses)
        proved += sum(op.attr == "inbounds" for op in accesses)
        checked = with_checks(new)
        verify(checked)
        rng = np.random.default_rng(seed)
        for _ in range(2):
            args = arguments(rng) | {"bad": np.zeros((), np.int32)}
            assert run_reference(checked, args)["bad"] == 0, f"seed {seed}\n{print_func(new)}"
    assert proved > 0.1 * total, "the generator makes too little that can be proved"
