"""The form of records in the cache: only data that fits the annotations is read."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.unit.test_artifact import SUM
from vkchi.cache import (
    codec,  # they have further records
    manifest,  # they have further records
    query_cache,  # they have further records
)
from vkchi.cache.codec import RECORDS, Malformed, decode, encode, from_tree, reader, to_tree, writer
from vkchi.calls import facts as kernel_facts
from vkchi.calls import questions
from vkchi.compiler import build_artifact
from vkchi.ir.text import ir_text, parse_func
from vkchi.races import finder, meeting
from vkchi.span import Span
from vkchi.target.artifact import Artifact, Interface
from vkchi.target.caps import FULL
from vkchi.target.options import Options
from vkchi.target.shader import Check
from vkchi.types import Array, f32


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    fn = parse_func(SUM, "here.chi")
    return build_artifact(fn, Options(), FULL)._replace(ir=ir_text(fn))


def test_every_field_has_a_form():
    assert {"KernelRecord", "Table", "CompiledGradient"} <= RECORDS.keys()
    for record in RECORDS.values():
        for form in record.__annotations__.values():
            assert reader(form) and writer(form), form


@pytest.mark.parametrize("asked, module", [(kernel_facts, questions), (finder, meeting)])
def test_forms_of_answers_are_those_of_the_functions(asked, module):
    for name, found in vars(asked.facts).items():
        (question,), function = found.args, getattr(module, name)
        assert question.form == function.__annotations__["return"], name
        assert question.is_of_call == ("case" in function.__annotations__), name
        assert reader(question.form) and writer(question.form)


@pytest.mark.parametrize(
    "value, form",
    [
        (((0, 3), None), "Box"),
        ({"x": ((0, 3),), "y": ()}, "dict[str, Box]"),
        (frozenset(["b", "a"]), "Names"),
        (None, "Names | None"),
        ({"x": Span("f.py", 1, 2, 3, 4, "run", Span("g.py", 1, 1, 1, 1)), "y": None}, "Spans"),
        ((Array.of(f32, 1), f32), "tuple[Array, Scalar | Tensor]"),
        (("a", b"bytes", True, 1.5), "tuple[str, bytes, bool, float]"),
        (("max", ("sub", ("arg", "n"), ("const", 1)), ("wrap", "u32", ("dim", "x", 0))), "Count"),
        ((("arg", "n"), ("field", 0, "self.x"), ("seed",)), "tuple[Binding, ...]"),
    ],
)
def test_values_come_back(value, form):
    found = decode(encode(value, form), form)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "tree, form",
    [
        (1, "str"), (True, "int"), (1, "bool"), ("1", "int"), (None, "str"), ("f32", "Array"),
        ("array<f32[?]>", "Scalar | Tensor"), ("no type", "Type"), ([1, "2"], "Shape"),
        ({}, "Shape"),
        ([1], "Range"), ([1, 2, 3], "Range"), ({}, "Span"), ([], "Span"), (-1, "bytes"),
        (7, "bytes"),
        (["f.py", "1", 2, 3, 4, "", None], "Span"), ([[1, 2, 3]], "Spans"),
        ([[[], 1]], "dict[str, int]"),
        (["pow", ["const", 2], ["const", 2]], "Count"), (["const", "n"], "Count"),
        (["const"], "Count"), (["add", ["const", 2]], "Count"), ([], "Count"),
        (["wrap", "f32", ["const", 2]], "Count"), (["wrap", 5, ["const", 2]], "Count"),
        (["field", "x"], "Binding"), (["other"], "Binding"), ("seed", "Binding"),
        ([[]], "Binding"),
    ],
)  # fmt: skip
def test_unexpected_trees_raise(tree, form):
    with pytest.raises((ValueError, TypeError, LookupError)):
        from_tree(tree, form, [])


def test_spans_are_moved(artifact):
    def there(span: Span) -> Span:
        return span._replace(line=span.line + 100)

    data = encode(artifact, "Artifact", span=there)
    moved = decode(data, "Artifact")
    lines = [check.span.line for check in artifact.limits]
    assert lines and [check.span.line for check in moved.limits] == [n + 100 for n in lines]
    assert decode(data, "Artifact", span=lambda s: s._replace(line=s.line - 100)) == artifact
    inner = Span("f.py", 1, 1, 1, 1, "", Span("g.py", 5, 1, 5, 1))
    assert there(inner)._replace(caller=there(inner.caller)) == decode(
        encode(inner, "Span", span=there), "Span"
    )


@pytest.mark.parametrize("sentence", ["{n.__class__}", "{w}", "{", "{0}"])
def test_sentences_show_a_number(sentence):
    with pytest.raises(Malformed):
        encode(Check(("const", 1), "n <= 5", sentence, None), "Check")


def test_invalid_records_are_not_written(artifact):
    with pytest.raises(TypeError):
        encode(artifact._replace(sites={"one": 1}), "Artifact")
    with pytest.raises(TypeError):
        encode(artifact, "Interface")
    with pytest.raises(TypeError):
        encode(object(), "object")


def places_in(tree: Any, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """The paths to all parts of a tree of lists."""
    inner = tree if isinstance(tree, list) else []
    return [path, *(p for k, part in enumerate(inner) for p in places_in(part, (*path, k)))]


def with_part(tree: Any, path: tuple[int, ...], part: Any) -> Any:
    """The tree with another part at this path."""
    if not path:
        return part
    return [with_part(v, path[1:], part) if k == path[0] else v for k, v in enumerate(tree)]


ODD = (
    None,
    True,
    -1,
    1 << 70,
    0.5,
    "",
    "f32",
    "arg",
    [],
    {},
    ["const", 1],
    [[]],
    {"record": "Span"},
)


def test_broken_trees_raise_or_are_valid(artifact):
    """Whatever stands in a tree, a reader gives a record of the form, or says that it is none."""
    rng, refused = random.Random(1), 0
    interface = Interface({"x": ("arg", "x"), "s": ("seed",)}, (f32,), (f32,), False, (), ())
    for value, form in ((artifact, "Artifact"), (interface, "Interface")):
        blobs: list[bytes] = []
        tree = to_tree(value, form, blobs)
        assert from_tree(tree, form, blobs) == value
        places = places_in(json.loads(json.dumps(tree)))
        for path in places:
            broken = with_part(tree, path, rng.choice(ODD))
            try:
                found = from_tree(broken, form, blobs)
            except (ValueError, TypeError, LookupError):
                refused += 1
            else:
                to_tree(found, form, [])  # it checks types
    assert refused > 100


def test_there_is_one_table_of_records():
    assert (
        codec.RECORDS["KernelRecord"] is manifest.KernelRecord
        and codec.RECORDS["Table"] is query_cache.Table
    )
