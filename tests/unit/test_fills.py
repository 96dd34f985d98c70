"""Dispatches that only set whole arrays to a number (`analysis/memory/must_write`)."""

from __future__ import annotations

import struct

import pytest

from vkchi.analysis.memory.must_write import fills_of
from vkchi.ir.text import parse_func
from vkchi.target.artifact import MemoryFill

ROWS = """\
func @f({params}) {{
  %c0 = const 0 : i32
  %c1 = const 1 : i32
  %c3 = const 3 : i32
  %c4 = const 4 : i32
  %c8 = const 8 : i32
  %c12 = const 12 : i32
{before}
  parallel {bounds} {{
    ^({indices})
{body}
    yield
  }}
  yield
}}
"""
X = "%x: array<f32[4,8]>"
WHOLE = "%c0, %c4, %c0, %c8"


def fills(
    body: str, params: str = X, bounds: str = WHOLE, indices: str = "%i: i32, %j: i32",
    before: str = "",
) -> tuple[MemoryFill, ...]:  # fmt: skip
    text = ROWS.format(params=params, bounds=bounds, indices=indices, body=body, before=before)
    return fills_of(parse_func(text))


def store(value: str = "1.0 : f32", place: str = "%x, %i, %j", t: str = "f32", n: int = 0) -> str:
    return f"%e{n} = elem {place} : ptr<{t} global>\n%v{n} = const {value}\nstore %e{n}, %v{n}"


def bits(code: str, number: float) -> int:
    return int.from_bytes(struct.pack("<" + code, number), "little")


def test_a_store_of_a_constant_to_every_element() -> None:
    assert fills(store()) == (MemoryFill("x", bits("f", 1.0), 128),)
    assert fills(store("-0.0 : f32")) == (MemoryFill("x", 1 << 31, 128),)


def test_indices_may_be_made_of_others() -> None:
    """One index for both axes, and rows from the last to the first."""
    body = "%i = div %n, %c8 : i32\n%j = mod %n, %c8 : i32\n" + store()
    found = fills(body.replace("div", "floordiv"), bounds="%c0, %c32", indices="%n: i32",
                  before="%c32 = const 32 : i32")  # fmt: skip
    assert found == (MemoryFill("x", bits("f", 1.0), 128),)
    body = "%k = sub %c3, %i : i32\n" + store(place="%x, %k, %j")
    assert fills(body) == (MemoryFill("x", bits("f", 1.0), 128),)


def test_several_arrays_and_loops_inside() -> None:
    params = X + ", %y: array<i32[8]>"
    inner = store("7 : i32", "%y, %k", "i32", 1)
    body = store() + f"\nfor %c0, %c8 {{\n^(%k: i32)\n{inner}\nyield\n}}"
    assert fills(body, params) == (MemoryFill("x", bits("f", 1.0), 128), MemoryFill("y", 7, 32))


@pytest.mark.parametrize(
    ("t", "value", "word"),
    [
        ("f64", "0.0 : f64", 0),
        ("f64", "1.0 : f64", None),
        ("i64", "-1 : i64", 0xFFFFFFFF),
        ("u8", "5 : u8", 0x05050505),
        ("i16", "-2 : i16", 0xFFFEFFFE),
        ("f16", "1.0 : f16", 0x3C003C00),
        ("f32<2>", "[2.0, 2.0] : f32<2>", bits("f", 2.0)),
        ("f32<2>", "[2.0, 1.0] : f32<2>", None),
    ],
)
def test_numbers_are_words_that_repeat(t: str, value: str, word: int | None) -> None:
    sizes = {"f64": 256, "i64": 256, "u8": 32, "i16": 64, "f16": 64, "f32<2>": 256}
    found = fills(store(value, t=t), f"%x: array<{t}[4,8]>")
    assert found == (() if word is None else (MemoryFill("x", word, sizes[t]),))


def test_components_one_by_one() -> None:
    place = "%e = elem %x, %i, %j : ptr<f32<2> global>\n%v = const 3.0 : f32\n"
    parts = [f"%m{k} = member %e [{k}] : ptr<f32 global>\nstore %m{k}, %v\n" for k in (0, 1)]
    params = "%x: array<f32<2>[4,8]>"
    assert fills(place + "".join(parts), params) == (MemoryFill("x", bits("f", 3.0), 256),)
    assert fills(place + parts[1], params) == ()


@pytest.mark.parametrize(
    "params",
    [
        "%x: array<f32[4,8] @(1%0*16|1%0*1;0;64;)>",  # room between rows
        "%x: array<f32[4,8] @(1%0*16|1%0*2;0;64;)>",  # other arrays' numbers between them
        "%x: array<f32[5,8]>",  # a row is left
        "%x: array<f32[??]>",
    ],
)
def test_partially_filled_memory(params: str) -> None:
    assert fills(store(), params) == ()


def test_layouts_in_one_piece() -> None:
    blocks = "%x: array<f32[4,8] @(2%0*16+1%2*4|4%0*8+1%4*1;0;32;)>"
    assert fills(store(), blocks) == (MemoryFill("x", bits("f", 1.0), 128),)
    columns = "%x: array<f32[4,8] @(1%0*1|1%0*4;0;32;)>"
    assert fills(store(), columns) == (MemoryFill("x", bits("f", 1.0), 128),)
    shifted = "%x: array<f32[4,8] @(1%0*8|1%0*1;0;32;-1:2)>"
    place = "%a = sub %i, %c1 : i32\n%b = add %j, %c2 : i32\n" + store(place="%x, %a, %b")
    found = fills(place, shifted, before="%c2 = const 2 : i32")
    assert found == (MemoryFill("x", bits("f", 1.0), 128),)


def test_odd_bytes() -> None:
    assert fills(store("5 : u8", "%x, %i", "u8"), "%x: array<u8[3]>", "%c0, %c3", "%i: i32") == ()


@pytest.mark.parametrize(
    "body",
    [
        store() + "\n" + store("2.0 : f32", "%x, %c0, %c1", n=1),  # another number somewhere
        "%q = lt %i, %c3 : u1\nif %q {\n" + store() + "\nyield\n} {\nyield\n}",
        "%p = elem %x, %i, %j : ptr<f32 global>\n%l = load %p : f32\nstore %p, %l",
        store() + "\n%a = atomic_add %e0, %v0 : f32",
        store() + "\n%l = load %e0 : f32",
    ],
)
def test_dispatches_that_do_more(body: str) -> None:
    assert fills(body) == ()


def test_scalar_fill_without_loop() -> None:
    text = """\
func @f(%x: array<f32[]>) {
  %e = elem %x : ptr<f32 global>
  %v = const 0.0 : f32
  store %e, %v
  yield
}
"""
    assert fills_of(parse_func(text)) == (MemoryFill("x", 0, 4),)
    assert fills_of(parse_func("func @f(%x: array<f32[]>) {\n  yield\n}\n")) == ()
