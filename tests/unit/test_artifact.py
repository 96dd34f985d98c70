"""Artifacts are plain data: they are the same after they were written and read."""

from __future__ import annotations

import pickle

import pytest

from vkchi.cache.codec import Malformed, decode, encode, is_plain_test
from vkchi.cache.content import numbers_to_spans, spans_to_numbers
from vkchi.compiler import build_artifact
from vkchi.ir.core import walk
from vkchi.ir.text import ir_text, parse_func
from vkchi.target.artifact import Artifact
from vkchi.target.caps import FULL, SMALLEST
from vkchi.target.options import Options
from vkchi.target.shader import Check

SUM = """
func @total(%x: array<f32[?]>, %out: array<f32[] @(;0;1;)>, %n: i32, %m: i32) {
  %c0 = const 0 : i32
  %end = mul %n, %m : i32
  parallel %c0, %end {
    ^(%i: i32)
    %p = elem %x, %i : ptr<f32 global>
    %v = load %p : f32
    %o = elem %out : ptr<f32 global>
    %old = atomic_add %o, %v : f32
    yield
  }
  yield
}
"""


@pytest.fixture(params=[FULL, SMALLEST], ids=["full", "smallest"])
def artifact(request) -> Artifact:
    return build_artifact(parse_func(SUM), Options(), request.param)


def test_written_and_read(artifact):
    assert decode(encode(artifact, "Artifact"), "Artifact") == artifact
    assert pickle.loads(pickle.dumps(artifact)) == artifact


def test_artifact_lists_accessed_arrays(artifact):
    assert artifact.arrays.keys() == {"x", "out"}
    assert "x" in artifact.reads and "out" in artifact.writes


def test_spans_are_of_the_func_at_hand(artifact):
    """Code does not depend on them: the code of one Func serves another with the same text."""
    here, there = parse_func(SUM, "here.chi"), parse_func("\n\n" + SUM, "there.chi")
    made = build_artifact(here, Options(), FULL)
    assert made.limits and made.limits[0].span.file == "here.chi"
    moved = numbers_to_spans(
        decode(encode(spans_to_numbers(made, here), "Artifact"), "Artifact"), there
    )
    assert moved.limits[0].span.file == "there.chi"
    assert moved.limits[0].span.line == made.limits[0].span.line + 2


def test_text_has_locations_of_ops():
    fn = parse_func(SUM, "here.chi")
    made = ir_text(fn)
    found = [made.spans[k] for k in made.places]
    assert found == [*(op.span for op in walk(fn.body)), fn.span]
    assert parse_func(made.text).name == "total"


@pytest.mark.parametrize("test", ["n <= 5", "-3 <= n <= 7", "n == w and n <= 2147483647"])
def test_checks_compare_numbers(test):
    assert is_plain_test(test) and is_plain_test(f"all({test} for n in (n, w))")


@pytest.mark.parametrize(
    "test",
    ["__import__('os').remove('x')", "exit()", "n.real", "(lambda: 1)()", "9 ** 9 ** 9", "print(n)",
     "[n for n in ()]", "n <= 1; n", "open", "n if n else w", "n[0]", "'n' == w"],
)  # fmt: skip
def test_checks_do_nothing_else(test):
    assert not is_plain_test(test)
    with pytest.raises(Malformed):
        encode(Check(("const", 1), test, "", None), "Check")


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 8, b"\2\0\0\0\2\0\0\0[][]more", b'\x0e\0\0\0\2\0\0\0{"record": "X"[]',
     b"\2\0\0\0\2\0\0\0{}[]", encode((1, 2), "Shape"), encode((1, 2), "Shape")[:-1]],
)  # fmt: skip
def test_malformed_record_raises(data):
    with pytest.raises(Malformed):
        decode(data, "Slot")


def test_unserializable_value_raises():
    with pytest.raises(TypeError):
        encode({"a": object()}, "dict[str, int]")
