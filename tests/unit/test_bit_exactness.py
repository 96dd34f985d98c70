"""Loops whose result bits do not depend on the compiler's knowledge of indices."""

import pytest

from vkchi.ir.parse import parse
from vkchi.opt.opaque import is_bit_exact

LOOP = """
func @f(%x: array<f32[100]>, %y: array<f32[100]>, %z: array<i32[100]>, %a: f32) {{
  %c0 = const 0 : i32
  %c9 = const 9 : i32
  %n = const 100 : i32
  %half = const 0.5 : f32
  %outside = mul %a, %half : f32
  parallel %c0, %n {{
    ^(%i: i32)
    %at = max %i, %c9 : i32
    %first = lt %i, %c9 : u1
    %p = elem %x, %at : ptr<f32 global>
    %v = load %p : f32
    %q = elem %y, %i : ptr<f32 global>
    {body}
    yield
  }}
  yield
}}
"""
SAME = {
    "a sum of loads": "%s = add %v, %v : f32\n store %q, %s",
    "a product with a constant": "%s = mul %v, %half : f32\n store %q, %s",
    "a function of a load": "%s = sin %v : f32\n store %q, %s",
    "a function of what is computed before": "%s = sin %outside : f32\n store %q, %s",
    "either of two that are loaded": (
        "%w = load %q : f32\n %s = select %first, %v, %v : f32\n %t = sqrt %s : f32\n"
        " %r = elem %z, %i : ptr<i32 global>\n %k = cast %t : i32\n store %r, %k"
    ),
    "what both branches loaded": (
        "%s = if %first : f32 { %b = neg %v : f32\n yield %b } { yield %v }\n"
        " %t = sqrt %s : f32\n store %q, %t"
    ),
    "what is loaded in a loop that goes round": (
        "%s = for %c0, %c9, %half : f32 { ^(%k: i32, %u: f32)\n %w = load %p : f32\n"
        " yield %w }\n"
        " %t = sqrt %s : f32\n store %q, %t"
    ),
    "the bits of a load": (
        "%r = elem %z, %i : ptr<i32 global>\n %k = bitcast %v : i32\n store %r, %k"
    ),
    "integers alone": "%r = elem %z, %i : ptr<i32 global>\n %k = mul %at, %c9 : i32\n store %r, %k",
    "a constant in one branch, stored": ("%s = select %first, %half, %v : f32\n store %q, %s"),
}
OTHER = {
    "a float of an index": "%s = cast %i : f32\n store %q, %s",
    "a constant in one branch, in a sum with what is loaded": (
        "%s = select %first, %half, %v : f32\n %t = sub %v, %s : f32\n store %q, %t"
    ),
    "the larger of a load and a constant in one branch": (
        "%s = select %first, %half, %v : f32\n %t = max %v, %s : f32\n store %q, %t"
    ),
    "an integer of a constant in one branch": (
        "%s = select %first, %half, %v : f32\n %r = elem %z, %i : ptr<i32 global>\n"
        " %k = cast %s : i32\n store %r, %k"
    ),
    "the bits of what is computed, which may be NaN": (
        "%s = add %v, %v : f32\n %r = elem %z, %i : ptr<i32 global>\n"
        " %k = bitcast %s : i32\n store %r, %k"
    ),
    "a comparison with a constant in one branch": (
        "%s = select %first, %half, %v : f32\n %r = elem %z, %i : ptr<i32 global>\n"
        " %l = lt %s, %half : u1\n %k = select %l, %c0, %c9 : i32\n store %r, %k"
    ),
    "a constant in one branch": (
        "%s = select %first, %half, %v : f32\n %t = sin %s : f32\n store %q, %t"
    ),
    "a constant in one branch, doubled": (
        "%s = select %first, %half, %v : f32\n %t = add %s, %s : f32\n store %q, %t"
    ),
    "a quotient by a constant of one branch": (
        "%s = select %first, %half, %v : f32\n %t = div %v, %s : f32\n store %q, %t"
    ),
    "a component that is a constant in one branch": (
        "%s = select %first, %half, %v : f32\n %w = pack %v, %s : f32<2>\n"
        " %u = extract %w [1] : f32\n %t = sqrt %u : f32\n store %q, %t"
    ),
    "what the loop stored": (
        "store %q, %half\n %w = load %q : f32\n %t = sqrt %w : f32\n store %q, %t"
    ),
    "a sum in a loop whose first round one form may write out": (
        "%s = for %c0, %c9, %half : f32 { ^(%k: i32, %u: f32)\n %w = add %u, %v : f32\n"
        " yield %w }\n"
        " %t = sqrt %s : f32\n store %q, %t"
    ),
    "a loop that may not go round": (
        "%s = for %c0, %at, %half : f32 { ^(%k: i32, %u: f32)\n %w = load %p : f32\n"
        " yield %w }\n"
        " %t = sqrt %s : f32\n store %q, %t"
    ),
    "a sum of many iterations": (
        "%r = elem %y, %c9 : ptr<f32 global>\n %w = atomic_add %r, %v : f32"
    ),
}  # fmt: skip
CASES = [(body, True) for body in SAME.values()] + [(body, False) for body in OTHER.values()]


@pytest.mark.parametrize(("body", "expected"), CASES, ids=[*SAME, *OTHER])
def test_bits_of_a_loop(body: str, expected: bool) -> None:
    fn = parse(LOOP.format(body=body)).funcs[0]
    (loop,) = [op for op in fn.body.ops if op.kind == "parallel"]
    assert is_bit_exact(loop) is expected
