"""Rule-based rewriting: the algebraic rules of `simplify`, in the language of `match.py`.

A row has the scalar kinds it applies to (i u f b), a pattern, its replacement, and for floats an
exactness class. Integers wrap, so identities modulo 2^n are valid. Only EXACT rows run unless
`fast_math`.

    >>> Row("iu", "add x 0", "x").exactness
    EXACT
"""

from __future__ import annotations

import enum

from vkchi.tuples import NamedTuple


class Float(enum.Enum):
    """Allowed difference between a float result and the replaced one."""

    EXACT = "the same number, or the correctly rounded one where the row's function is not that"
    NSZ = "the sign of a zero may differ"
    NNAN = "wrong if an operand is NaN or infinite"
    INEXACT = "other rounding, overflow or range"

    def __repr__(self) -> str:
        return self.name


EXACT, NSZ, NNAN, INEXACT = Float.EXACT, Float.NSZ, Float.NNAN, Float.INEXACT


class Row(NamedTuple):
    """One rule: scalar kinds of the last operand, pattern, result, float class."""

    kinds: str
    pattern: str
    result: str
    exactness: Float = EXACT


ROWS: tuple[Row, ...] = (
    Row("iufb", "with_derivative_of x y z", "x"),  # in a gradient; `gradients.prepare` has chosen
    # constants go to the right; the rows below rely on it
    Row("iuf", "add C x", "add x C"),
    Row("iuf", "mul C x", "mul x C"),
    Row("iu", "min C x", "min x C"),
    Row("iu", "max C x", "max x C"),
    Row("iub", "and C x", "and x C"),
    Row("iub", "or C x", "or x C"),
    Row("iub", "xor C x", "xor x C"),
    Row("iufb", "eq C x", "eq x C"),
    Row("iufb", "ne C x", "ne x C"),
    Row("iuf", "lt C x", "gt x C"),
    Row("iuf", "le C x", "ge x C"),
    Row("iuf", "gt C x", "lt x C"),
    Row("iuf", "ge C x", "le x C"),
    # sums of integers: a constant offset ends up as the last addition
    Row("iu", "add x 0", "x"),
    Row("iu", "sub x 0", "x"),
    Row("iu", "sub x x", "0"),
    Row("i", "sub x C", "add x (neg C)"),
    Row("iu", "sub 0 x", "neg x"),
    Row("iu", "add (add x C) D", "add x (add C D)"),
    Row("iu", "sub (add x C) (add y D)", "add (sub x y) (sub C D)"),
    Row("iu", "sub (add x C) x", "C"),
    Row("iu", "sub x (add x C)", "neg C"),
    Row("iu", "sub (add x y) x", "y"),
    Row("iu", "sub x (add x y)", "neg y"),
    Row("iu", "sub (sub x y) x", "neg y"),
    Row("iu", "sub x (sub x y)", "y"),
    Row("iu", "add (sub x y) y", "x"),
    Row("iu", "sub C (add x D)", "sub (sub C D) x"),
    Row("iu", "add (sub C x) D", "sub (add C D) x"),
    # signs
    Row("iuf", "neg (neg x)", "x"),
    Row("iuf", "add x (neg y)", "sub x y"),
    Row("iuf", "sub x (neg y)", "add x y"),
    Row("iu", "neg (sub x y)", "sub y x"),
    Row("iuf", "mul (neg x) (neg y)", "mul x y"),
    Row("iuf", "mul (neg x) C", "mul x (neg C)"),
    Row("iuf", "mul x -1", "neg x"),
    Row("i", "floordiv x -1", "neg x"),
    Row("i", "truncdiv x -1", "neg x"),
    Row("if", "abs (neg x)", "abs x"),
    Row("if", "abs (abs x)", "abs x"),
    Row("u", "abs x", "x"),
    # products and quotients of integers
    Row("iu", "mul x 0", "0"),
    Row("iu", "mul x 1", "x"),
    Row("iu", "mul (mul x C) D", "mul x (mul C D)"),
    Row("iu", "floordiv x 1", "x"),
    Row("iu", "truncdiv x 1", "x"),
    Row("iu", "mod x 1", "0"),
    Row("iu", "rem x 1", "0"),
    Row("iu", "mod (mod x C) C", "mod x C"),
    Row("u", "truncdiv x y", "floordiv x y"),
    Row("u", "rem x y", "mod x y"),
    # minimum and maximum
    Row("iuf", "min x x", "x"),
    Row("iuf", "max x x", "x"),
    Row("iu", "min (min x C) D", "min x (min C D)"),
    Row("iu", "max (max x C) D", "max x (max C D)"),
    Row("iu", "min (min x y) x", "min x y"),
    Row("iu", "max (max x y) x", "max x y"),
    Row("u", "min x 0", "0"),
    Row("u", "max x 0", "x"),
    # bits and bools
    Row("iub", "and x x", "x"),
    Row("iub", "and x 0", "0"),
    Row("iub", "and x -1", "x"),
    Row("iub", "and x (not x)", "0"),
    Row("iub", "and (and x y) x", "and x y"),
    Row("iub", "and (and x C) D", "and x (and C D)"),
    Row("iub", "or x x", "x"),
    Row("iub", "or x 0", "x"),
    Row("iub", "or x -1", "-1"),
    Row("iub", "or x (not x)", "-1"),
    Row("iub", "or (or x y) x", "or x y"),
    Row("iub", "or (or x C) D", "or x (or C D)"),
    Row("iub", "xor x x", "0"),
    Row("iub", "xor x 0", "x"),
    Row("iub", "xor x -1", "not x"),
    Row("iub", "xor (xor x C) D", "xor x (xor C D)"),
    Row("iub", "not (not x)", "x"),
    Row("iu", "shl x 0", "x"),
    Row("iu", "shr x 0", "x"),
    # comparisons
    Row("iub", "eq x x", "1"),
    Row("iub", "ne x x", "0"),
    Row("iuf", "lt x x", "0"),
    Row("iuf", "gt x x", "0"),
    Row("iu", "le x x", "1"),
    Row("iu", "ge x x", "1"),
    Row("iu", "eq (add x C) D", "eq x (sub D C)"),
    Row("iu", "ne (add x C) D", "ne x (sub D C)"),
    Row("u", "lt x 0", "0"),
    Row("u", "ge x 0", "1"),
    Row("b", "eq x 1", "x"),
    Row("b", "eq x 0", "not x"),
    Row("b", "ne x 1", "not x"),
    Row("b", "ne x 0", "x"),
    Row("b", "not (eq x y)", "ne x y"),
    Row("b", "not (ne x y)", "eq x y"),
    Row("b", "not (lt x:iu y)", "ge x y"),
    Row("b", "not (le x:iu y)", "gt x y"),
    Row("b", "not (gt x:iu y)", "le x y"),
    Row("b", "not (ge x:iu y)", "lt x y"),
    # selects
    Row("iufb", "select c x x", "x"),
    Row("iufb", "select 1 x y", "x"),
    Row("iufb", "select 0 x y", "y"),
    Row("iufb", "select (not c) x y", "select c y x"),
    Row("iufb", "select c (select c x y) z", "select c x z"),
    Row("iufb", "select c x (select c y z)", "select c x z"),
    Row("b", "select c x 0", "and c x"),
    Row("b", "select c 1 x", "or c x"),
    Row("b", "select c 0 x", "and (not c) x"),
    Row("b", "select c x 1", "or (not c) x"),
    # floats
    Row("f", "add x -0.0", "x"),
    Row("f", "sub x 0.0", "x"),
    Row("f", "sub -0.0 x", "neg x"),
    Row("f", "mul x 1.0", "x"),
    Row("f", "div x 1.0", "x"),
    Row("f", "div x -1.0", "neg x"),
    Row("f", "div x P", "mul x (div 1.0 P)"),
    Row("f", "div x 0.0", "mul x (div 1.0 0.0)"),  # Mesa's division by constant zero is NaN
    Row("f", "div x -0.0", "mul x (div 1.0 -0.0)"),
    Row("f", "div (neg x) (neg y)", "div x y"),
    Row("f", "floor (floor x)", "floor x"),
    Row("f", "ceil (ceil x)", "ceil x"),
    Row("f", "round (round x)", "round x"),
    Row("f", "trunc (trunc x)", "trunc x"),
    Row("f", "pow x 0.0", "1.0"),
    Row("f", "pow x 1.0", "x"),
    Row("f", "pow x 2.0", "mul x x"),
    Row("f", "pow x -1.0", "div 1.0 x"),
    Row("f", "add x 0.0", "x", NSZ),
    Row("f", "sub x -0.0", "x", NSZ),
    Row("f", "sub 0.0 x", "neg x", NSZ),
    Row("f", "neg (sub x y)", "sub y x", NSZ),
    Row("f", "eq x x", "1", NNAN),
    Row("f", "ne x x", "0", NNAN),
    Row("f", "le x x", "1", NNAN),
    Row("f", "ge x x", "1", NNAN),
    Row("f", "sub x x", "0.0", NNAN),
    Row("b", "not (lt x:f y)", "ge x y", NNAN),
    Row("b", "not (le x:f y)", "gt x y", NNAN),
    Row("b", "not (gt x:f y)", "le x y", NNAN),
    Row("b", "not (ge x:f y)", "lt x y", NNAN),
    Row("f", "mul x 0.0", "0.0", INEXACT),
    Row("f", "div x x", "1.0", INEXACT),
    Row("f", "div x C", "mul x (div 1.0 C)", INEXACT),
    Row("f", "div x (sqrt y)", "mul x (rsqrt y)", INEXACT),
    Row("f", "add (add x C) D", "add x (add C D)", INEXACT),
    Row("f", "mul (mul x C) D", "mul x (mul C D)", INEXACT),
    Row("f", "sub (add x y) x", "y", INEXACT),
    Row("f", "add (sub x y) y", "x", INEXACT),
    Row("f", "pow x 0.5", "sqrt x", INEXACT),
    Row("f", "pow x -0.5", "rsqrt x", INEXACT),
    Row("f", "pow x 3.0", "mul (mul x x) x", INEXACT),
    Row("f", "pow x 4.0", "mul (mul x x) (mul x x)", INEXACT),
    Row("f", "pow x -2.0", "div 1.0 (mul x x)", INEXACT),
    Row("f", "pow (exp x) y", "exp (mul x y)", INEXACT),
)
