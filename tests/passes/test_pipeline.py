"""The pipeline's order as data, and the driver: checks between passes, what it leaves out."""

from __future__ import annotations

import re

import pytest

from vkchi.errors import InternalError
from vkchi.ir.core import Func, find_parallel, walk
from vkchi.ir.text import parse_func, print_func
from vkchi.passes import pipeline
from vkchi.passes.pipeline import BEFORE_SPLIT, ENTRIES, PASSES, PER_DISPATCH, optimise
from vkchi.target.caps import FULL, SMALLEST
from vkchi.target.options import Options

KERNEL = """
func @f(%x: array<f32[8] @(1%0*1;0;8;)>, %a: f32) {
  %c0 = const 0 : i32
  %n = shape %x [0] : i32
  %zero = const 0.0 : f32
  %dead = mul %a, %a : f32
  %unread = local %dead : ptr<f32 local>
  store %unread, %a
  parallel %c0, %n {
    ^(%i: i32)
    %p = elem %x, %i : ptr<f32 global>
    %v = load %p : f32
    %w = add %v, %zero : f32
    store %p, %w
    %u = load %p : f32
    %q = elem %x, %i : ptr<f32 global>
    store %q, %u
    yield
  }
  parallel %c0, %n {
    ^(%j: i32)
    %m = mul %j, %j : i32
    yield
  }
  yield
}
"""


@pytest.mark.parametrize("name", ENTRIES)
def test_every_pass_can_be_loaded(name: str) -> None:
    assert callable(pipeline.load_pass(name))
    assert name in PASSES


def test_unknown_passes_are_named() -> None:
    with pytest.raises(KeyError, match="no pass is called 'fuse'; there are simplify"):
        pipeline.load_pass("fuse")


@pytest.mark.parametrize("steps", [BEFORE_SPLIT, PER_DISPATCH])
def test_steps_say_why_and_name_passes(steps: tuple[pipeline.Step, ...]) -> None:
    seen: set[str] = set()
    for step in steps:
        assert step.name in ENTRIES
        assert step.why and set(step.after) <= seen, step
        seen.add(step.name)


@pytest.mark.parametrize("caps", [FULL, SMALLEST], ids=["full", "smallest"])
def test_only_dispatches_with_effects_are_left(caps: pipeline.Caps) -> None:
    program, temps = optimise(parse_func(KERNEL), caps, Options())
    [fn] = program.funcs
    assert temps == ()
    kinds = [op.kind for op in walk(fn.body) if op.kind != "const"]
    assert kinds == ["parallel", "elem", "load", "add", "store", "yield", "yield"]
    assert find_parallel(fn) is not None


def test_fast_math_asks_for_the_fast_rules() -> None:
    program, _ = optimise(parse_func(KERNEL), FULL, Options(fast_math=True))
    assert not any(op.kind == "add" for fn in program.funcs for op in walk(fn.body))


def test_a_pass_that_breaks_the_ir_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_it(fn: Func) -> Func:
        return parse_func(re.sub("yield\n}", "}", print_func(fn)))

    monkeypatch.setattr(pipeline, "load_pass", lambda name: break_it)
    with pytest.raises(InternalError, match="after pass `simplify`"):
        optimise(parse_func(KERNEL), FULL, Options())


def test_optimising_again_changes_nothing() -> None:
    program, _ = optimise(parse_func(KERNEL), FULL, Options())
    texts = [print_func(fn) for fn in program.funcs]
    again = [optimise(fn, FULL, Options())[0].funcs for fn in program.funcs]
    assert [print_func(fn) for funcs in again for fn in funcs] == texts


def test_time_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("VKCHI_TIME", "1")
    optimise(parse_func(KERNEL), FULL, Options())
    assert re.search(r"vkchi: f: passes \(ms\): simplify \d+\.\d\d", capsys.readouterr().err)
