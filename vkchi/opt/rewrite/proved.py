"""Strength reduction that needs proved ranges: rows applied by the pass `bounds`.

- A rounded float quotient of integers becomes an integer quotient
  (`analysis.values.ranges` has the proof). A constant divisor uses integer division. With
  another divisor, the product with its reciprocal is an estimate, because integer division is slow
  on CPUs. Below 2**GUESSED the estimate is off by at most 1: the reciprocal is off by 2.5 units in
  the last place, the product by one more. The sum is 3.5 * 2**(GUESSED - 23) < 1. The exact integer
  remainder corrects it.
- A shift amount that is proved within the width is masked. The mask has no cost and makes the
  emitter omit its range check.
"""

from __future__ import annotations

from collections.abc import Callable

from vkchi.analysis.values.ranges import DIGITS, INT_MAX, Facts, RoundedQuotient, find_quotient
from vkchi.ir.builder import Builder
from vkchi.ir.core import Op, Value
from vkchi.ir.num import Num
from vkchi.ir.op_table.interval_rules import type_range
from vkchi.opt.math.formula import where
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, i32, scalar_of

GUESSED = 21
PLAIN_AMOUNTS = ("const", "and")  # the emitter handles these itself


class Rewrite(NamedTuple):
    """A rewrite: `expand` builds the replacement of an op if `is_proved` holds."""

    is_proved: Callable[[Facts, Op], bool]
    expand: Callable[[Builder, Op, tuple[Value, ...]], Value]


# --- quotients -----------------------------------------------------------------------------------


def is_whole_quotient(f: Facts, op: Op) -> bool:
    """True if a rounded float quotient is proved equal to an integer quotient in i32.

    For a cast, its type must also represent the quotient.
    """
    q = find_quotient(op.kind, op.args[0], op.type)
    if q is None:
        return False
    a, b = q.operands(f.of)
    bits = DIGITS[q.form] if isinstance(q.b, int) else GUESSED
    if b.lo < 1 or b.hi > INT_MAX or max(-a.lo, a.hi) >= 1 << bits:
        return False
    if a.lo < 0 and q.kind == "truncdiv" and (op.kind == "trunc" or not isinstance(q.b, int)):
        return False  # -1 / 3 truncates to -0.0
    if op.kind != "cast":
        return True
    low, high = type_range(scalar_of(op.type))
    return low <= min(a.lo, 0) and max(a.hi, 0) <= high


def divide_integers(b: Builder, op: Op, args: tuple[Value, ...]) -> Value:
    """Append the integer quotient, and return it in the op's type. The operand of a cast may
    already be rewritten to an integer quotient, which is then cast."""
    q, rounded = find_quotient(op.kind, args[0], op.type), args[0]
    assert isinstance(op.type, Scalar) and isinstance(rounded, Op)
    if q is None:
        assert rounded.kind == "cast"
        return as_type(Num(b, rounded.args[0]), op.type).v
    x = as_i32(b, q.a)
    if isinstance(q.b, int):
        return as_type(x.op(q.kind, q.b), op.type).v
    return as_type(corrected(x, as_i32(b, q.b), q), op.type).v


def as_i32(b: Builder, v: Value | int) -> Num:
    return Num(b, b.const(v, i32)) if isinstance(v, int) else as_type(Num(b, v), i32)


def as_type(x: Num, t: Scalar) -> Num:
    return x if x.v.type is t else x.cast(t)


def corrected(x: Num, y: Num, q: RoundedQuotient) -> Num:
    """x // y by estimate and correction; for truncating quotients x must not be negative."""
    dividend, divisor = (Num(x.b, v) for v in q.quotient.args)
    guess = (dividend * (1.0 / divisor)).op("floor").cast(i32)
    rest = x - guess * y
    return where(rest < 0, guess - 1, where(rest >= y, guess + 1, guess))


# --- shifts --------------------------------------------------------------------------------------


def is_within(f: Facts, op: Op) -> bool:
    """True if a scalar shift's amount is proved within the width, and is neither constant nor
    masked."""
    t, amount = op.type, op.args[1]
    if not isinstance(t, Scalar) or (isinstance(amount, Op) and amount.kind in PLAIN_AMOUNTS):
        return False
    found = f.of(amount)
    return found.lo >= 0 and found.hi < t.bits


def mask_amount(b: Builder, op: Op, args: tuple[Value, ...]) -> Value:
    return b.emit(
        op.kind, args[0], (Num(b, args[1]) & (scalar_of(op.type).bits - 1)).v, name=op.name
    )


QUOTIENT = Rewrite(is_whole_quotient, divide_integers)
SHIFT = Rewrite(is_within, mask_amount)
REWRITES: dict[str, Rewrite] = {
    "floor": QUOTIENT, "trunc": QUOTIENT, "cast": QUOTIENT, "shl": SHIFT, "shr": SHIFT,
}  # fmt: skip
