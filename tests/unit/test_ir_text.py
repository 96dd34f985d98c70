"""Printing and parsing: names, literals, types; cases beyond the goldens."""

from __future__ import annotations

import numpy as np
import pytest

from vkchi.errors import CompilationError, InternalError
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, bits_of
from vkchi.ir.literal import (
    attr_of,
    attr_text,
    name_of,
    name_text,
    number_bits,
    number_text,
    type_named,
)
from vkchi.ir.text import parse, parse_func, print_func, print_op
from vkchi.types import (
    SCALARS,
    Affine,
    Array,
    AxisTerm,
    Ptr,
    Scalar,
    Tensor,
    f16,
    f32,
    f64,
    i8,
    i32,
    row_major,
    u1,
    u8,
    u32,
)

FLOAT_EDGES = [0, 1, 0x8000, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7E01, 0x7C01, 0x3555, 0x03FF]
TYPES = [
    *SCALARS.values(),
    Tensor.of(f32, (3,)),
    Tensor.of(u1, (2, 2)),
    Array.of(f32, 2),
    Array.of(f32, 0),
    Array.of(u1, 1),
    Array.of(u1, 1, None, None, "global", u32),
    Array.of(Tensor.of(f16, (2,)), 2, (4, 5), row_major((4, 5), 2)),
    Array.of(i8, 1, (64,), None, "shared"),
    Array.of(i8, 1, (1,), Affine(((),), (0,), 1, (-3,))),
    Array.of(f32, 1, (8,), Affine(((AxisTerm(4, 0, 8), AxisTerm(1, 4, 1)),), (2,), 24, (5,))),
    Ptr.of(f64, "global"),
    Ptr.of(Tensor.of(u8, (4, 4)), "local"),
]


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_types_read_back_as_themselves(t: object) -> None:
    assert type_named(repr(t)) is t


@pytest.mark.parametrize("bits", FLOAT_EDGES, ids=hex)
def test_half_edges(bits: int) -> None:
    assert number_bits(number_text(bits, f16), f16) == bits


@pytest.mark.parametrize("t", SCALARS.values(), ids=str)
def test_random_bits_read_back(t: Scalar) -> None:
    rng = np.random.default_rng(7)
    for _ in range(300):
        bits = int.from_bytes(rng.bytes(8), "little") & ((1 << t.bits) - 1)
        assert number_bits(number_text(bits, t), t) == bits


def test_numbers_are_readable() -> None:
    texts = [number_text(bits_of(v, f32), f32) for v in (1.5, -0.0, np.inf, np.nan, 0.1)]
    assert texts == ["1.5", "-0.0", "inf", "nan", "0.1"]
    assert number_text(0x7FC00001, f32) == "0x7fc00001"
    assert number_text(0xFFFFFFFF, i32) == "-1"
    assert number_text(1, u1) == "true"


ATTRS = [0, -5, "inbounds", "None", "two words", 'a"b', (), (1, "a", (2,)), None, True]


@pytest.mark.parametrize("attr", ATTRS, ids=repr)
def test_attrs_read_back(attr: object) -> None:
    got = attr_of(attr_text(attr))
    assert got == attr and type(got) is type(attr)


def test_attr_without_text_form() -> None:
    with pytest.raises(ValueError, match="no text form"):
        attr_text(1.5)


@pytest.mark.parametrize("name", ["x", "temp.3", "größe", "a b", "", 'quote"'])
def test_names_read_back(name: str) -> None:
    assert name_of(name_text(name)) == name
    fn = parse_func(f"func @{name_text(name)}(%{name_text(name)}: i32) {{ yield }}")
    assert fn.name == name and fn.params[0].name == name
    assert print_func(parse_func(print_func(fn))) == print_func(fn)


def build(*hints: str) -> Func:
    """A Func of constants with these hints, behind a parameter called x."""
    b = Builder()
    with b.region() as body:
        for k, hint in enumerate(hints):
            b.emit("const", attr=k, type=f64, name=hint)
        b.emit("yield")
    return Func("f", (Param(i32, "x"),), body)


def names_in(fn: Func) -> list[str]:
    lines = print_func(fn).splitlines()
    return [line.split("=")[0].strip(" %") for line in lines if "=" in line]


def test_names_are_unique_by_a_counter_of_their_own() -> None:
    assert names_in(build("a", "b", "a", "b", "x", "a")) == ["a", "b", "a.1", "b.1", "x.1", "a.2"]


def test_a_taken_number_is_skipped_and_not_numbered_again() -> None:
    assert names_in(build("a", "a.1", "a", "a.1", "a.1")) == ["a", "a.1", "a.2", "a.3", "a.4"]


def test_names_without_hints() -> None:
    b = Builder()
    with b.region() as body:
        two, half = b.const(2, i32), b.const(0.5, f32)
        b.const(2, i32)
        b.const(-1, i32)
        b.const(True, u1)
        b.const(1.0e-7 / 3, f64)
        b.const([1, 2], Tensor.of(i32, (2,)))
        b.emit("neg", b.emit("add", two, two))
        b.emit("mul", half, half)
        b.emit("yield")
    names = ["c2", "c0_5", "c2.1", "cm1", "true", "const", "const.1", "add", "neg", "mul"]
    assert names_in(Func("f", (), body)) == names


def test_print_op_uses_the_names_of_the_func() -> None:
    fn = parse_func("func @f(%x: i32) {\n %y = neg %x : i32\n %y.1 = neg %y : i32\n yield }")
    assert print_op(fn.body.ops[1], fn) == "%y.1 = neg %y : i32"
    assert print_op(fn.body.ops[2]) == "yield"


def test_malformed_ops_print() -> None:
    assert print_op(Op("const", (), 1.5, f32)) == "%c1_5 = const 1.5 : f32"
    assert print_op(Op("const", (), None, i32)) == "%cNone = const None : i32"
    assert "strange" in print_op(Op("strange", (Op("x", (), None, None),), None, None))


def test_spans_are_lines_of_the_text() -> None:
    fn = parse_func(
        "; first\nfunc @f(%x: i32) {\n  %y = neg %x : i32  ; why\n  yield\n}\n", "f.chi"
    )
    assert [op.span.place for op in fn.body.ops if op.span] == ["f.chi:3:3", "f.chi:4:3"]
    assert fn.span is not None and fn.span.place == "f.chi:2:1"


def test_one_line_regions() -> None:
    fn = parse_func("func @f(%n: i32) { for %n, %n { ^(%i: i32) yield }\n yield }")
    assert [op.kind for op in fn.body.ops] == ["for", "yield"]


def test_several_funcs() -> None:
    program = parse("func @a() { yield }\nfunc @b() { yield }")
    assert [fn.name for fn in program.funcs] == ["a", "b"] and program.name == "a"
    with pytest.raises(CompilationError, match="one func expected"):
        parse_func("func @a() { yield }\nfunc @b() { yield }")


def test_builder_errors_quote_the_row() -> None:
    b = Builder()
    with b.region(), pytest.raises(InternalError, match="`add` takes i32 here, not f32"):
        b.emit("add", b.const(1, i32), b.const(1, f32))
