"""The pipeline's order as data, and the driver: checks between passes, omitted passes."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from itertools import product

import pytest

from vkchi.errors import DeviceError, InternalError
from vkchi.ir.core import Func, Region, find_parallel, walk
from vkchi.ir.text import parse, parse_func, print_func
from vkchi.opt import pipeline
from vkchi.opt.forms import FORMS
from vkchi.opt.memo import Memo
from vkchi.opt.pipeline import ENTRIES, PASSES, REMARKS, STAGES, optimize_kernel
from vkchi.opt.rewrite.simplify import simplify
from vkchi.target.caps import FULL, SMALLEST
from vkchi.target.options import Options
from vkchi.target.remarks import Log

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

SUM = """
func @f(%x: array<f32[65536] @(1%0*1;0;65536;)>, %s: array<f32[] @(;0;1;)>) {
  %c0 = const 0 : i32
  %n = const 65536 : i32
  parallel %c0, %n {
    ^(%i: i32)
    %p = elem %x, %i : ptr<f32 global>
    %v = load %p : f32
    %q = elem %s : ptr<f32 global>
    %old = atomic_add %q, %v : f32
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


@pytest.mark.parametrize("stage", STAGES)
def test_steps_say_why_and_name_passes(stage: str) -> None:
    for step in STAGES[stage].steps:
        names = step.names if isinstance(step, pipeline.Cleanup) else (step.name,)
        assert step.why and ENTRIES.keys() >= set(names), step


def test_each_stage_guarantees_a_form_of_its_own() -> None:
    assert [stage.form for stage in STAGES.values()] == list(FORMS)


def test_sentences_are_about_steps() -> None:
    steps = [step for stage in STAGES.values() for step in stage.steps]
    assert {s.name for s in steps if isinstance(s, pipeline.PassStep)} >= REMARKS.keys()


def test_changed_loops_are_recorded() -> None:
    log: Log = []
    optimize_kernel(parse_func(SUM), pipeline.CPU, Options(), Memo(log))
    found = [(d.name, d.reason) for d in log if d.kind == "changed"]
    assert found == [("f", REMARKS["jam_sums"])]


@pytest.mark.parametrize("caps", [FULL, SMALLEST], ids=["full", "smallest"])
def test_only_dispatches_with_effects_are_left(caps: pipeline.Caps) -> None:
    program, temps = optimize_kernel(parse_func(KERNEL), caps, Options())
    [fn] = program.funcs
    assert temps == ()
    kinds = [op.kind for op in walk(fn.body) if op.kind != "const"]
    assert kinds == ["parallel", "elem", "load", "add", "store", "yield", "yield"]
    assert find_parallel(fn) is not None


def test_fast_math_asks_for_the_fast_rules() -> None:
    program, _ = optimize_kernel(parse_func(KERNEL), FULL, Options(fast_math=True))
    assert not any(op.kind == "add" for fn in program.funcs for op in walk(fn.body))


@pytest.mark.parametrize("each", ["0", "1"])
@pytest.mark.parametrize("name", ["dce", "bounds", "map_grid"])
def test_a_pass_that_breaks_the_ir_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, each: str
) -> None:
    def break_it(fn: Func, *_: object) -> Func:
        return parse_func(re.sub("yield\n}", "}", print_func(fn)))

    real = pipeline.load_pass
    monkeypatch.setattr(pipeline, "load_pass", lambda n: break_it if n == name else real(n))
    monkeypatch.setenv("VKCHI_VERIFY", each)
    with pytest.raises(InternalError, match=f"after pass `{name}`"):
        optimize_kernel(parse_func(KERNEL), FULL, Options())


def test_a_pass_that_fails_on_invalid_ir_of_another_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose_constants(fn: Func) -> Func:
        body = Region((), [op for op in fn.body.ops if op.kind != "const"])
        return Func(fn.name, fn.params, body)

    def stumble(fn: Func, *_: object) -> Func:
        raise KeyError("no such value")

    real = pipeline.load_pass
    bad = {"forward": lose_constants, "bounds": stumble}
    monkeypatch.setattr(pipeline, "load_pass", lambda name: bad.get(name) or real(name))
    monkeypatch.setenv("VKCHI_VERIFY", "0")
    with pytest.raises(InternalError, match="after pass `forward`"):
        optimize_kernel(parse_func(KERNEL), FULL, Options())


def test_missing_device_feature_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKCHI_VERIFY", "0")
    caps = SMALLEST._replace(float64=False)
    with pytest.raises(DeviceError) as caught:
        optimize_kernel(parse_func(KERNEL.replace("f32", "f64")), caps, Options())
    assert caught.value.__context__ is None


GOLDENS = sorted((pathlib.Path(__file__).parents[1] / "golden" / "passes").glob("*/*.chi"))
WITH_NEEDS = [name for name, entry in ENTRIES.items() if entry.needs]


def inputs() -> Iterator[Func]:
    """The Funcs that goldens of passes begin with."""
    for path in GOLDENS:
        yield from parse(path.read_text().partition("; expect:")[0]).funcs


def test_passes_change_nothing_where_their_kinds_are_missing() -> None:
    memo = Memo()
    seen: set[str] = set()
    for fn, caps in product(inputs(), (FULL, pipeline.CPU)):
        given = pipeline.given_to(caps, Options(), memo)
        for name in WITH_NEEDS:
            if not pipeline.may_apply(ENTRIES[name], fn, memo):
                run = pipeline.load_pass(name)
                new = run(fn, *[given[x] for x in ENTRIES[name].takes.split()])
                assert print_func(new) == print_func(fn), name
                seen.add(name)
    assert seen == set(WITH_NEEDS)


def test_irreducible_means_simplify_fixpoint() -> None:
    for fn in inputs():
        memo = Memo()
        once = simplify(fn, memo)
        assert print_func(simplify(once, memo)) == print_func(simplify(once))


def test_workgroup_size_alone_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real = pipeline.run_pass
    monkeypatch.setattr(
        pipeline, "run_pass", lambda name, *rest: calls.append(name) or real(name, *rest)
    )
    optimize_kernel(parse_func(KERNEL), FULL, Options())
    behind = calls[calls.index("map_grid") :]
    assert "legalize" in behind and "simplify" not in behind


def test_optimising_again_changes_nothing() -> None:
    program, _ = optimize_kernel(parse_func(KERNEL), FULL, Options())
    texts = [print_func(fn) for fn in program.funcs]
    again = [optimize_kernel(fn, FULL, Options())[0].funcs for fn in program.funcs]
    assert [print_func(fn) for funcs in again for fn in funcs] == texts


def test_time_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VKCHI_TIME", "1")
    optimize_kernel(parse_func(KERNEL), FULL, Options())
    assert re.search(r"vkchi: f: passes \(ms\): .*simplify \d+\.\d\d", capsys.readouterr().err)
