"""Expansion of arithmetic ops whose instruction is missing, broken or slow: divisions, trip counts,
shifts.

FORMULAS maps an op kind and the name of a scalar type to a formula. A formula returns None if the
operands need no expansion, such as a shift by an amount that is provably in range.

Floor division by a constant power of two becomes a shift, its remainder a mask. Other signed
remainders are computed from quotients, since Vulkan leaves those of negative numbers undefined
(specification, appendix "Precision and Operation of SPIR-V Instructions").

Runs after `legalize`, and after all passes that match the original ops.

    floordiv %a, %b : i32    ->    truncdiv, mul, sub; 1 less if the remainder is not 0 and
                                   differs in sign from %b
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value, constant_array, constant_int, is_constant
from vkchi.ir.num import Num
from vkchi.ir.ops import Trait, kinds_with
from vkchi.ir.rebuild import rebuild
from vkchi.opt.math.formula import where
from vkchi.opt.memo import Memo
from vkchi.target.caps import Caps
from vkchi.types import SCALARS, i32, scalar_of

Formula = Callable[..., "Num | None"]
PASSED_ON = kinds_with(Trait.CARRIES)
DEEPEST = 4  # most ops between a constant and a dividend that contains it
SIGNED, UNSIGNED = "i8 i16 i32 i64", "u8 u16 u32 u64"


def lower_arithmetic(fn: Func, caps: Caps, memo: Memo | None = None) -> Func:
    """Expand the ops in FORMULAS whose instruction on the device is missing, broken or slow."""
    formulas = formulas_for(
        chooses_integers=not caps.integer_extremes,
        chooses_floats=caps.slow_float_minmax and caps.signed_zero_inf_nan_f32,
        divides_zero=not caps.zero_dividends,
    )
    kinds = {kind for kind, _ in formulas}
    if memo is not None and not memo.has(fn, kinds):
        return fn

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        formula = formulas.get((op.kind, scalar_of(args[0].type).name))
        made = formula and formula(op.kind, *[Num(b, v) for v in args])
        return None if made is None else [made.v]

    return rebuild(fn, visit, kinds)


def power_of(x: Num) -> int | None:
    """Return k if `x` is the integer constant 2 ** k in every component, else None."""
    n = same_number(x)
    return None if n is None or n <= 0 or n & (n - 1) else n.bit_length() - 1


def same_number(x: Num) -> Any:
    """Return the value of a constant, or the common value of a constant tensor's bit-identical
    components; else None."""
    found = constant_int(x.v)
    if found is not None or not is_constant(x.v):
        return found
    numbers = constant_array(x.v).ravel()
    is_one = numbers.tobytes() == numbers[:1].tobytes() * numbers.size
    return numbers[0].item() if is_one else None


def unsigned(x: Num) -> Num:
    t = scalar_of(x.type)
    return x if t.kind == "u" else x.bits(SCALARS[f"u{t.bits}"])


# --- quotients -----------------------------------------------------------------------------------


def divide_signed(kind: str, a: Num, b: Num) -> Num:
    """Expand signed `floordiv`, `mod` and `rem` by way of `truncdiv`. For a constant power of two,
    `floordiv` becomes a shift and `mod` a mask."""
    power = power_of(b) if kind != "rem" else None
    if power is not None:
        return a >> power if kind == "floordiv" else a & ((1 << power) - 1)
    quotient = a.op("truncdiv", b)
    rest = a - quotient * b
    if kind == "rem":
        return rest
    divisor = same_number(b)
    is_astray = rest < 0 if divisor is not None and divisor > 0 else ((rest ^ b) < 0) & (rest != 0)
    if kind == "mod":
        return where(is_astray, rest + b, rest)
    return where(is_astray, quotient - 1, quotient)


def divide_unsigned(kind: str, a: Num, b: Num) -> Num | None:
    """Expand an unsigned division by a constant power of two to a shift or mask; None for other
    divisors."""
    power = power_of(b)
    if power is None:
        return None
    return a >> power if kind in ("floordiv", "truncdiv") else a & ((1 << power) - 1)


def count_trips(kind: str, begin: Num, end: Num, step: Num) -> Num:
    """Expand a trip count: `(high - low - 1) // size + 1` if low < high, else 0.

    `size` is the step's magnitude; low and high are begin and end, exchanged for a negative step.
    The computation is in unsigned integers, which hold every trip count. A step of 0 gives 0,
    without a division by 0.
    """
    by = same_number(step)
    if by == 0:
        return unsigned(step)
    if by is None:
        is_up, moves = step > 0, step != 0
        low, high = where(is_up, begin, end), where(is_up, end, begin)
        size = unsigned(where(moves, where(is_up, step, -step), 1))
        return steps_of(low, high, size, moves & (low < high))
    low, high = (begin, end) if by > 0 else (end, begin)
    if abs(by) == 1:
        return distance(low, where(low < high, high, low))
    return steps_of(low, high, abs(by), low < high)


def steps_of(low: Num, high: Num, size: Num | int, has_some: Num) -> Num:
    length = distance(low, high) - 1
    whole = divide_unsigned("floordiv", length, length.of(size)) or length.op("floordiv", size)
    return where(has_some, whole + 1, 0)


def distance(low: Num, high: Num) -> Num:
    return unsigned(high) if same_number(low) == 0 else unsigned(high) - unsigned(low)


# --- others --------------------------------------------------------------------------------------


def shift(kind: str, a: Num, amount: Num) -> Num | None:
    """Expand a shift by an amount that may be out of range; return None if it is provably in range.

    An amount of the width or more shifts all bits out: the result is 0, or for a signed `shr` the
    sign in every bit. A negative amount, read as unsigned, is such an amount.
    """
    bits, known = scalar_of(a.type).bits, same_number(amount)
    keeps_sign = kind == "shr" and scalar_of(a.type).kind == "i"
    if is_below(amount, bits):
        return None
    if known is not None:
        return a >> (bits - 1) if keeps_sign else a.number(0)
    is_within = unsigned(amount) < bits
    if keeps_sign:
        return a >> where(is_within, amount, bits - 1)
    return where(is_within, a.op(kind, amount & (bits - 1)), 0)


def is_below(amount: Num, bits: int) -> bool:
    """True if a shift amount is provably in [0, bits): a constant, or an `and` with one."""
    v = amount.v
    parts = v.args if isinstance(v, Op) and v.kind == "and" else (v,)
    known = [same_number(Num(amount.b, part)) for part in parts]
    return any(n is not None and 0 <= n < bits for n in known)


def power(kind: str, x: Num, y: Num) -> Num:
    """Expand `pow` of f32 to GLSL's Pow of |x|, with selects where that is undefined or wrong:
    negative or zero x, |x| = 1, y = 0.

    For x < 0, an integer or infinite y gives |x| ** y with the correct sign, any other y NaN. A
    constant y or an `abs` as x needs fewer selects.
    """
    exponent = same_number(y)
    if exponent is not None:
        return power_known(x, y, exponent)
    raised = where(abs(x).equals(1.0) & y.equals(y), x.number(1.0), abs(x).op("pow", y))
    at_zero = where(y > 0.0, 0.0, where(y < 0.0, y.number(math.inf), y))
    raised = where(x.equals(0.0), at_zero, raised)
    if not is_absolute(x):
        half = y * 0.5
        is_even, is_whole = half.op("floor").equals(half), y.op("floor").equals(y)
        with_sign = where(is_even, raised, -raised)
        of_negative = where(is_whole, with_sign, where(x < 0.0, math.nan, raised))
        raised = where(x.bits(i32) < 0, of_negative, raised)
    return where(y.equals(0.0) | x.equals(1.0), 1.0, raised)


def is_absolute(x: Num) -> bool:
    return isinstance(x.v, Op) and x.v.kind == "abs"


def power_known(x: Num, y: Num, exponent: float) -> Num:
    if exponent in (0.0, 1.0):
        return x if exponent else x.number(1.0)
    at_zero = 0.0 if exponent > 0 else math.inf if exponent < 0 else exponent
    raised = where(x.equals(0.0), x.number(at_zero), abs(x).op("pow", y))
    if not math.isfinite(exponent):
        if math.isnan(exponent):
            return where(x.equals(1.0), x.number(1.0), exponent)
        return where(abs(x).equals(1.0), x.number(1.0), raised)
    if is_absolute(x):
        return raised
    if not exponent.is_integer():
        return where(x < 0.0, x.number(math.nan), raised)
    return where(x.bits(i32) < 0, -raised, raised) if exponent % 2 else raised


def choose(kind: str, a: Num, b: Num) -> Num:
    return where(a < b if kind == "min" else a > b, a, b)


def choose_float(kind: str, a: Num, b: Num) -> Num | None:
    """Expand `min` or `max` of an f32 and a constant to one comparison and a select. Returns None
    if neither operand is a constant, or if the constant is NaN.

    If the other operand is NaN, the result is the constant. If both are equal, it is the constant
    too, except for `min` with 0.0 and `max` with -0.0.
    """
    if same_number(b) is None:
        a, b = b, a
    number = same_number(b)
    if number is None or math.isnan(number):
        return None
    yields = number == 0 and (math.copysign(1.0, number) > 0) == (kind == "min")
    if kind == "min":
        return where(a <= b if yields else a < b, a, b)
    return where(a >= b if yields else a > b, a, b)


def divide_zero(kind: str, a: Num, b: Num) -> Num | None:
    """Expand a quotient whose constant dividend contains 0, for drivers that fold it to 0 even if
    the divisor is 0 or NaN. Returns None for other dividends."""
    if not has_zero(a.v):
        return None
    zero = where(b > 0, a, where(b < 0, -a, a.number(math.nan)))
    return where(a.equals(0), zero, a / b)


def has_zero(v: Value, depth: int = 0) -> bool:
    """True for a constant with a zero component. Also true for a `cast`, or an op with trait
    CARRIES such as `pack`, that has one as an operand, through at most DEEPEST ops."""
    if is_constant(v):
        return not constant_array(v).all()
    if not isinstance(v, Op) or depth == DEEPEST or not (v.kind in PASSED_ON or v.kind == "cast"):
        return False
    return any(has_zero(x, depth + 1) for x in v.args)


def sign_of(kind: str, x: Num) -> Num:
    """Expand `sign` to comparisons, so that NaN gives 0."""
    return where(x > 0, 1, where(x < 0, -1, x.number(0)))


FORMULAS: dict[tuple[str, str], Formula] = {
    (kind, name): formula
    for kinds, names, formula in (
        ("floordiv mod rem", SIGNED, divide_signed),
        ("floordiv truncdiv mod rem", UNSIGNED, divide_unsigned),
        ("trip_count", f"{SIGNED} {UNSIGNED}", count_trips),
        ("shl shr", f"{SIGNED} {UNSIGNED}", shift),
        ("min max", f"{SIGNED} {UNSIGNED}", choose),
        ("min max", "f32", choose_float),
        ("div", "f16 f32 f64", divide_zero),
        ("sign", "f16 f32 f64", sign_of),
        ("sign", UNSIGNED, lambda kind, x: where(x > 0, 1, x.number(0))),
        ("abs", UNSIGNED, lambda kind, x: x),
        ("pow", "f32", power),
        ("rsqrt", "f64", lambda kind, x: 1.0 / x.op("sqrt")),
    )
    for kind in kinds.split()
    for name in names.split()
}
KINDS = frozenset(kind for kind, _ in FORMULAS)


@cache
def formulas_for(
    *, chooses_integers: bool, chooses_floats: bool, divides_zero: bool
) -> dict[tuple[str, str], Formula]:
    """Return FORMULAS without `choose`, `choose_float` and `divide_zero`, as far as their flags are
    False. Cached."""
    choices = {choose: chooses_integers, choose_float: chooses_floats, divide_zero: divides_zero}
    left_out = {formula for formula, is_in in choices.items() if not is_in}
    return {key: formula for key, formula in FORMULAS.items() if formula not in left_out}
