"""Forms of IR at stage borders: each rule, by IR that violates it; errors of the pipeline."""

from __future__ import annotations

import pytest

from vkchi.errors import InternalError
from vkchi.ir.core import Func, walk
from vkchi.ir.text import parse_func
from vkchi.opt import pipeline
from vkchi.opt.forms import FORMS, Rule, check_form, violations
from vkchi.target.caps import FULL
from vkchi.target.options import Options

HEAD = """
func @f(%x: array<f32[8] @(1%0*1;0;8;)>, %y: array<f32[?]>, %k: i32) {
  %c0 = const 0 : i32
  %n = const 8 : i32
  %one = const 1.0 : f32
"""
LOOP = "parallel %c0, {end} [{attr}] {{\n^(%i: i32)\n{body}yield\n}}\nyield\n}}"
STORE = "%p = elem %x, %i [{mark}] : ptr<f32 global>\nstore %p, %one\n"
ADDRESS = (
    "%o = bitcast %i : u32\n%p = address %x, %o [0] : ptr<f32 global>\n%v = load %p : f32\n"
    "%w = {kind} %v, %v : f32\nstore %p, %w\n"
)


def loop(body: str = "", attr: str = "", end: str = "%n") -> str:
    return HEAD + LOOP.format(end=end, attr=attr, body=body).replace("[]", "")


def store(mark: str = "") -> str:
    return STORE.format(mark=mark).replace("[]", "")


VIOLATIONS = [
    ("Source", "the axes of a `parallel` are i32", "parallel",
     HEAD + "%b = const 0 : i64\nparallel %b, %b {\n^(%i: i64)\nyield\n}\nyield\n}"),
    ("Source", "a `parallel` has no grid yet", "parallel",
     HEAD + "parallel %c0, %n, %c0, %n [(4, 8)] {\n^(%i: i32, %j: i32)\nyield\n}\nyield\n}"),
    ("Source", "places are elements, not addresses or words", "address",
     loop(ADDRESS.format(kind="add"))),
    ("Dispatch", "a Func has one `parallel` at most", "parallel",
     loop(store()).removesuffix("yield\n}") + "parallel %c0, %n {\n^(%j: i32)\nyield\n}\nyield\n}"),
    ("Dispatch", "ops beside a `parallel` have no loops and no effects", "store",
     loop(store()).removesuffix("yield\n}")
     + "%q = elem %x, %c0 : ptr<f32 global>\nstore %q, %one\nyield\n}"),
    ("Reduced", "no invocation has an element of its own that it updates atomically", "atomic_add",
     loop("%p = elem %x, %i : ptr<f32 global>\n%v = atomic_add %p, %one : f32\n")),
    ("Mapped", "a `parallel` has a workgroup size for each axis", "parallel",
     loop(store("inbounds"))),
    ("Mapped", "the host can compute the length of each axis", "parallel",
     loop(store("inbounds"), "32", "%m").replace(
         "parallel", "%q = elem %y, %c0 : ptr<f32 global>\n%l = load %q : f32\n"
         "%m = cast %l : i32\nparallel", 1)),
    ("Mapped", "accesses that are provably in range are marked", "elem", loop(store(), "32")),
    ("Machine", "the device supports all ops", "atan2", loop(ADDRESS.format(kind="atan2"), "32")),
    ("Machine", "ops of the trait LOWERED are expanded", "elem", loop(store("inbounds"), "32")),
    ("Machine", "accesses are to addresses, words, private or workgroup memory", "store",
     loop(store("inbounds"), "32")),
]  # fmt: skip


def broken(fn: Func, form: str) -> list[tuple[Rule, str]]:
    return [(rule, op.kind) for rule, op in violations(fn, form, FULL)]


@pytest.mark.parametrize(("form", "words", "kind", "text"), VIOLATIONS)
def test_violations(form: str, words: str, kind: str, text: str) -> None:
    fn = parse_func(text)
    assert (words, kind) in [(rule.words, kind) for rule, kind in broken(fn, form)]
    base = FORMS[form].base
    assert not base or not broken(fn, base)


def test_every_rule_is_violated_here() -> None:
    listed = {(form, words) for form, words, _, _ in VIOLATIONS}
    assert listed == {(name, r.words) for name, form in FORMS.items() for r in form.rules}


def test_message() -> None:
    fn = parse_func(loop(store(), "32"))
    expected = "after stage `mapping`, `f` is not in form Mapped: accesses that are provably in "
    with pytest.raises(InternalError, match=expected + "range are marked; `elem` violates it"):
        check_form(fn, "Mapped", FULL, "after stage `mapping`")


SUM = loop("%p = elem %x, %i : ptr<f32 global>\n%v = atomic_add %p, %one : f32\n")


@pytest.mark.parametrize("is_each", ["", "1"])
def test_the_pipeline_checks_forms_if_it_verifies_each_pass(
    monkeypatch: pytest.MonkeyPatch, is_each: str
) -> None:
    real = pipeline.load_pass
    keep = {"demote", "demote_all"}
    monkeypatch.setattr(
        pipeline, "load_pass", lambda name: (lambda fn, *_: fn) if name in keep else real(name)
    )
    monkeypatch.setenv("VKCHI_VERIFY", is_each)
    if is_each:
        with pytest.raises(InternalError, match="after stage `reductions`, .* `atomic_add`"):
            pipeline.optimize_kernel(parse_func(SUM), FULL, Options())
    else:
        assert pipeline.optimize_kernel(parse_func(SUM), FULL, Options())[0].funcs


def test_rules_of_disabled_passes_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKCHI_VERIFY", "1")
    monkeypatch.setenv("VKCHI_PASSES", "-demote,-demote_all")
    (fn,) = pipeline.optimize_kernel(parse_func(SUM), FULL, Options())[0].funcs
    assert any(op.kind == "atomic_add" for op in walk(fn.body))
