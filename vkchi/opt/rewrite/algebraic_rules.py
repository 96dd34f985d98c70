"""Rule-based rewriting: the algebraic rules of `simplify`, in the language of `match.py`.

A row has the scalar kinds it applies to (i u f b), a pattern, its replacement, and for floats an
exactness class. Integers wrap, so identities modulo 2^n are valid. Only EXACT rows run unless
`fast_math`.

    >>> RuleRow("iu", "add x 0", "x").exactness
    EXACT
"""

from __future__ import annotations

import enum

from vkchi.tuples import NamedTuple


class Exactness(enum.Enum):
    """Allowed difference between a float result and the replaced one."""

    EXACT = "the same number, or the correctly rounded one where the row's function is not that"
    NSZ = "the sign of a zero may differ"
    NNAN = "wrong if an operand is NaN or infinite"
    INEXACT = "other rounding, overflow or range"

    def __repr__(self) -> str:
        return self.name


EXACT, NSZ, NNAN, INEXACT = Exactness.EXACT, Exactness.NSZ, Exactness.NNAN, Exactness.INEXACT


class RuleRow(NamedTuple):
    """One rule: scalar kinds of the last operand, pattern, replacement, exactness class."""

    kinds: str
    pattern: str
    result: str
    exactness: Exactness = EXACT


ROWS: tuple[RuleRow, ...] = (
    RuleRow(
        "iufb", "with_derivative_of x y z", "x"
    ),  # in a gradient; `gradients.prepare` has chosen
    # constants go to the right; the rows below rely on it
    RuleRow("iuf", "add C x", "add x C"),
    RuleRow("iuf", "mul C x", "mul x C"),
    RuleRow("iu", "min C x", "min x C"),
    RuleRow("iu", "max C x", "max x C"),
    RuleRow("iub", "and C x", "and x C"),
    RuleRow("iub", "or C x", "or x C"),
    RuleRow("iub", "xor C x", "xor x C"),
    RuleRow("iufb", "eq C x", "eq x C"),
    RuleRow("iufb", "ne C x", "ne x C"),
    RuleRow("iuf", "lt C x", "gt x C"),
    RuleRow("iuf", "le C x", "ge x C"),
    RuleRow("iuf", "gt C x", "lt x C"),
    RuleRow("iuf", "ge C x", "le x C"),
    # sums of integers: a constant offset ends up as the last addition
    RuleRow("iu", "add x 0", "x"),
    RuleRow("iu", "sub x 0", "x"),
    RuleRow("iu", "sub x x", "0"),
    RuleRow("i", "sub x C", "add x (neg C)"),
    RuleRow("iu", "sub 0 x", "neg x"),
    RuleRow("iu", "add (add x C) D", "add x (add C D)"),
    RuleRow("iu", "sub (add x C) (add y D)", "add (sub x y) (sub C D)"),
    RuleRow("iu", "sub (add x C) x", "C"),
    RuleRow("iu", "sub x (add x C)", "neg C"),
    RuleRow("iu", "sub (add x y) x", "y"),
    RuleRow("iu", "sub x (add x y)", "neg y"),
    RuleRow("iu", "sub (sub x y) x", "neg y"),
    RuleRow("iu", "sub x (sub x y)", "y"),
    RuleRow("iu", "add (sub x y) y", "x"),
    RuleRow("iu", "sub C (add x D)", "sub (sub C D) x"),
    RuleRow("iu", "add (sub C x) D", "sub (add C D) x"),
    # signs
    RuleRow("iuf", "neg (neg x)", "x"),
    RuleRow("iuf", "add x (neg y)", "sub x y"),
    RuleRow("iuf", "sub x (neg y)", "add x y"),
    RuleRow("iu", "neg (sub x y)", "sub y x"),
    RuleRow("iuf", "mul (neg x) (neg y)", "mul x y"),
    RuleRow("iuf", "mul (neg x) C", "mul x (neg C)"),
    RuleRow("iuf", "mul x -1", "neg x"),
    RuleRow("i", "floordiv x -1", "neg x"),
    RuleRow("i", "truncdiv x -1", "neg x"),
    RuleRow("if", "abs (neg x)", "abs x"),
    RuleRow("if", "abs (abs x)", "abs x"),
    RuleRow("u", "abs x", "x"),
    # products and quotients of integers
    RuleRow("iu", "mul x 0", "0"),
    RuleRow("iu", "mul x 1", "x"),
    RuleRow("iu", "mul (mul x C) D", "mul x (mul C D)"),
    RuleRow("iu", "floordiv x 1", "x"),
    RuleRow("iu", "truncdiv x 1", "x"),
    RuleRow("iu", "mod x 1", "0"),
    RuleRow("iu", "rem x 1", "0"),
    RuleRow("iu", "mod (mod x C) C", "mod x C"),
    RuleRow("u", "truncdiv x y", "floordiv x y"),
    RuleRow("u", "rem x y", "mod x y"),
    # minimum and maximum
    RuleRow("iuf", "min x x", "x"),
    RuleRow("iuf", "max x x", "x"),
    RuleRow("iu", "min (min x C) D", "min x (min C D)"),
    RuleRow("iu", "max (max x C) D", "max x (max C D)"),
    RuleRow("iu", "min (min x y) x", "min x y"),
    RuleRow("iu", "max (max x y) x", "max x y"),
    RuleRow("u", "min x 0", "0"),
    RuleRow("u", "max x 0", "x"),
    # bits and bools
    RuleRow("iub", "and x x", "x"),
    RuleRow("iub", "and x 0", "0"),
    RuleRow("iub", "and x -1", "x"),
    RuleRow("iub", "and x (not x)", "0"),
    RuleRow("iub", "and (and x y) x", "and x y"),
    RuleRow("iub", "and (and x C) D", "and x (and C D)"),
    RuleRow("iub", "or x x", "x"),
    RuleRow("iub", "or x 0", "x"),
    RuleRow("iub", "or x -1", "-1"),
    RuleRow("iub", "or x (not x)", "-1"),
    RuleRow("iub", "or (or x y) x", "or x y"),
    RuleRow("iub", "or (or x C) D", "or x (or C D)"),
    RuleRow("iub", "xor x x", "0"),
    RuleRow("iub", "xor x 0", "x"),
    RuleRow("iub", "xor x -1", "not x"),
    RuleRow("iub", "xor (xor x C) D", "xor x (xor C D)"),
    RuleRow("iub", "not (not x)", "x"),
    RuleRow("iu", "shl x 0", "x"),
    RuleRow("iu", "shr x 0", "x"),
    # comparisons
    RuleRow("iub", "eq x x", "1"),
    RuleRow("iub", "ne x x", "0"),
    RuleRow("iuf", "lt x x", "0"),
    RuleRow("iuf", "gt x x", "0"),
    RuleRow("iu", "le x x", "1"),
    RuleRow("iu", "ge x x", "1"),
    RuleRow("iu", "eq (add x C) D", "eq x (sub D C)"),
    RuleRow("iu", "ne (add x C) D", "ne x (sub D C)"),
    RuleRow("u", "lt x 0", "0"),
    RuleRow("u", "ge x 0", "1"),
    RuleRow("b", "eq x 1", "x"),
    RuleRow("b", "eq x 0", "not x"),
    RuleRow("b", "ne x 1", "not x"),
    RuleRow("b", "ne x 0", "x"),
    RuleRow("b", "not (eq x y)", "ne x y"),
    RuleRow("b", "not (ne x y)", "eq x y"),
    RuleRow("b", "not (lt x:iu y)", "ge x y"),
    RuleRow("b", "not (le x:iu y)", "gt x y"),
    RuleRow("b", "not (gt x:iu y)", "le x y"),
    RuleRow("b", "not (ge x:iu y)", "lt x y"),
    # selects
    RuleRow("iufb", "select c x x", "x"),
    RuleRow("iufb", "select 1 x y", "x"),
    RuleRow("iufb", "select 0 x y", "y"),
    RuleRow("iufb", "select (not c) x y", "select c y x"),
    RuleRow("iufb", "select c (select c x y) z", "select c x z"),
    RuleRow("iufb", "select c x (select c y z)", "select c x z"),
    RuleRow("b", "select c x 0", "and c x"),
    RuleRow("b", "select c 1 x", "or c x"),
    RuleRow("b", "select c 0 x", "and (not c) x"),
    RuleRow("b", "select c x 1", "or (not c) x"),
    # floats
    RuleRow("f", "add x -0.0", "x"),
    RuleRow("f", "sub x 0.0", "x"),
    RuleRow("f", "sub -0.0 x", "neg x"),
    RuleRow("f", "mul x 1.0", "x"),
    RuleRow("f", "div x 1.0", "x"),
    RuleRow("f", "div x -1.0", "neg x"),
    RuleRow("f", "div x P", "mul x (div 1.0 P)"),
    RuleRow("f", "div x 0.0", "mul x (div 1.0 0.0)"),  # Mesa's division by constant zero is NaN
    RuleRow("f", "div x -0.0", "mul x (div 1.0 -0.0)"),
    RuleRow("f", "div (neg x) (neg y)", "div x y"),
    RuleRow("f", "floor (floor x)", "floor x"),
    RuleRow("f", "ceil (ceil x)", "ceil x"),
    RuleRow("f", "round (round x)", "round x"),
    RuleRow("f", "trunc (trunc x)", "trunc x"),
    RuleRow("f", "pow x 0.0", "1.0"),
    RuleRow("f", "pow x 1.0", "x"),
    RuleRow("f", "pow x 2.0", "mul x x"),
    RuleRow("f", "pow x -1.0", "div 1.0 x"),
    RuleRow("f", "add x 0.0", "x", NSZ),
    RuleRow("f", "sub x -0.0", "x", NSZ),
    RuleRow("f", "sub 0.0 x", "neg x", NSZ),
    RuleRow("f", "neg (sub x y)", "sub y x", NSZ),
    RuleRow("f", "eq x x", "1", NNAN),
    RuleRow("f", "ne x x", "0", NNAN),
    RuleRow("f", "le x x", "1", NNAN),
    RuleRow("f", "ge x x", "1", NNAN),
    RuleRow("f", "sub x x", "0.0", NNAN),
    RuleRow("b", "not (lt x:f y)", "ge x y", NNAN),
    RuleRow("b", "not (le x:f y)", "gt x y", NNAN),
    RuleRow("b", "not (gt x:f y)", "le x y", NNAN),
    RuleRow("b", "not (ge x:f y)", "lt x y", NNAN),
    RuleRow("f", "mul x 0.0", "0.0", INEXACT),
    RuleRow("f", "div x x", "1.0", INEXACT),
    RuleRow("f", "div x C", "mul x (div 1.0 C)", INEXACT),
    RuleRow("f", "div x (sqrt y)", "mul x (rsqrt y)", INEXACT),
    RuleRow("f", "add (add x C) D", "add x (add C D)", INEXACT),
    RuleRow("f", "mul (mul x C) D", "mul x (mul C D)", INEXACT),
    RuleRow("f", "sub (add x y) x", "y", INEXACT),
    RuleRow("f", "add (sub x y) y", "x", INEXACT),
    RuleRow("f", "pow x 0.5", "sqrt x", INEXACT),
    RuleRow("f", "pow x -0.5", "rsqrt x", INEXACT),
    RuleRow("f", "pow x 3.0", "mul (mul x x) x", INEXACT),
    RuleRow("f", "pow x 4.0", "mul (mul x x) (mul x x)", INEXACT),
    RuleRow("f", "pow x -2.0", "div 1.0 (mul x x)", INEXACT),
    RuleRow("f", "pow (exp x) y", "exp (mul x y)", INEXACT),
)
