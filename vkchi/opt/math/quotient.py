"""Exact `//`, `%` and C remainder of floats by integer arithmetic.

Vulkan allows an f32 quotient to be off by 2.5 units in the last place. An f64 quotient need only be
as precise as one of f32. So 41.0 / 41.0 may be below 1, and floor(a / b) one too small. Here a
division only provides an estimate. The remainder decides; it is computed with integers and
therefore exact.

Let |a| = m * 2**ea, |b| = d * 2**eb, with integers m < 2**24 and 2**23 <= d < 2**24 (f64: 53 bits).
Then |a| mod |b| = (m * 2**left mod d) * 2**eb for left = ea - eb >= 0, and |a| itself for left < 0.
The loop is long division with digits of STEP = 19 bits. It divides m * 2**t, t <= 19:

    guess = m * 2**t * (1 / d)    as floats, toward zero
    rest = m * 2**t - guess * d   as integers of 32 bits, wrapping

- The quotient q = m * 2**t / d is below 2**20 (m < 2d in the first iteration, then m < d). 1 / d is
  off by 2.5 units and the product by one more. The total error is less than q * 2**-21.1 < 1/2; it
  would be less than 1 if each error were twice as large. So the guess is at most 1 away from the
  integer quotient.
- The true rest therefore lies in [-d, 2d), which fits 32 bits, so intermediate wrapping is
  harmless. Adding or subtracting d once corrects it.

Contraction of `x * y + z` to a fused operation does not matter, because nothing is added to a
rounded product. Neither does the treatment of subnormal numbers, except in operands and results.
Division by a constant power of two is exact and stays one multiplication.

For f32 the loop is only the fallback. If the quotient is below 2**21, the nearest integer is exact,
and so is the remainder, computed with floats (`formula.exact_remainder`).

See also: `legalize` chooses when to use these functions.

    floordiv(Num(b, x), Num(b, y)).v
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vkchi.ir.core import Op, Param, constant_array
from vkchi.ir.num import Num
from vkchi.opt.math.formula import exact_remainder, where
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, f32, f64, i32, i64

STEP = 19


class FloatFormat(NamedTuple):
    """A binary float format: its type, same-width integer type, fraction bits, exponent bias."""

    elem: Scalar
    word: Scalar
    digits: int
    bias: int

    @property
    def hidden(self) -> int:
        """The implicit leading bit of the significand."""
        return 1 << self.digits

    @property
    def fraction(self) -> int:
        """Mask of the fraction bits."""
        return self.hidden - 1

    @property
    def infinity(self) -> int:
        """Bits of infinity; larger values are NaNs."""
        return (2 * self.bias + 1) << self.digits

    def power(self, exponent: Num) -> Num:
        """2 ** exponent, for a normal result."""
        return ((exponent + self.bias) << self.digits).bits(self.elem)


FORMATS = {f32: FloatFormat(f32, i32, 23, 127), f64: FloatFormat(f64, i64, 52, 1023)}


class DecomposedOperands(NamedTuple):
    """Decomposed operands.

    `size_a`, `size_b` are the bits without signs; `m`, `d`, `left` are as in the module's
    docstring. `eb` is larger than there by the format's bias and `digits`.
    """

    size_a: Num
    size_b: Num
    m: Num
    d: Num
    eb: Num
    left: Num


def take_apart(a: Num, b: Num, f: FloatFormat) -> DecomposedOperands:
    """Decompose two floats; the result is arbitrary if one is not finite or b is zero."""
    size_a, size_b = (x.bits(f.word) & ~least(f) for x in (a, b))
    m, ea = whole_part(size_a, f)
    raw, eb = whole_part(size_b, f)
    scaled = raw.cast(f.elem).bits(f.word)  # exact; normal also for subnormal operands
    d = (scaled & f.fraction) | f.hidden
    eb = eb + (scaled >> f.digits) - (f.bias + f.digits)
    return DecomposedOperands(size_a, size_b, m, d, eb, ea - eb)


def least(f: FloatFormat) -> int:
    return -(1 << (f.word.bits - 1))


def whole_part(size: Num, f: FloatFormat) -> tuple[Num, Num]:
    """Return m and e: the float whose bits are `size` is m * 2**(e - bias - digits)."""
    field = size >> f.digits
    is_normal = field > 0
    hidden = where(is_normal, size.number(f.hidden), 0)
    return (size & f.fraction) | hidden, where(is_normal, field, 1)


def divide(parts: DecomposedOperands, left: Num, f: FloatFormat) -> tuple[Num, Num]:
    """Divide m * 2**left by d: quotient modulo the word, and remainder.

    They are 0 and m if left is negative.
    """
    b, word = left.b, left.v.type
    inverse = 1.0 / ((parts.d & f.fraction) | (f.bias << f.digits)).bits(f.elem)  # of [1, 2)
    first = (left.number(0).v, parts.m.v, left.v)
    names = ("quotient", "rest", "left")
    seen = [Param(word, name) for name in names]
    with b.region(*seen) as cond:
        b.emit("yield", any_component(Num(b, seen[2]) >= 0).v)
    carried = [Param(word, name) for name in names]
    with b.region(*carried) as body:
        quotient, rest, due = (Num(b, v) for v in carried)
        b.emit("yield", *[x.v for x in turn(quotient, rest, due, parts.d, inverse, f)])
    made = b.while_(first, cond, body).results
    return Num(b, made[0]), Num(b, made[1])


def turn(
    quotient: Num, rest: Num, left: Num, d: Num, inverse: Num, f: FloatFormat
) -> tuple[Num, Num, Num]:
    """One iteration of the loop: a digit of the quotient. Finished components are unchanged."""
    is_due = left >= 0
    t = where(is_due, left.op("min", STEP), 0)
    guess = ((rest.cast(f.elem) * f.power(t - f.digits)) * inverse).cast(f.word)
    new = (rest << t) - guess * d
    low, high = new < 0, new >= d
    new = where(low, new + d, where(high, new - d, new))
    guess = where(low, guess - 1, where(high, guess + 1, guess))
    return (
        where(is_due, (quotient << t) + guess, quotient),
        where(is_due, new, rest),
        left - STEP,
    )


def any_component(truths: Num) -> Num:
    if isinstance(truths.v.type, Scalar):
        return truths
    return truths.cast(i32).op("sum").op("ne", 0)


def has_no_quotient(parts: DecomposedOperands, f: FloatFormat, *, of_infinity: bool) -> Num:
    """True if an operand is not finite or the divisor is zero.

    With `of_infinity`, an infinite divisor is allowed.
    """
    largest = f.infinity + 1 if of_infinity else f.infinity
    return (parts.size_a >= f.infinity) | (parts.size_b >= largest) | parts.size_b.equals(0)


def remainder(a: Num, b: Num, f: FloatFormat, *, of_infinity: bool) -> tuple[Num, Num]:
    """|a| modulo |b|, and a bool: True if the division leaves no rest.

    The remainder is NaN if `has_no_quotient`.
    """
    parts = take_apart(a, b, f)
    bad = has_no_quotient(parts, f, of_infinity=of_infinity)
    _, rest = divide(parts, where(bad, -1, parts.left), f)
    exponent = parts.eb - (f.bias + f.digits)  # 2 ** exponent may be subnormal; split it
    half = exponent >> 1
    size = rest.cast(f.elem) * f.power(half) * f.power(exponent - half)
    size = where(parts.left < 0, abs(a), size)
    return where(bad, math.nan, size), rest.equals(0)


def negative(x: Num, f: FloatFormat) -> Num:
    return x.bits(f.word) < 0


def slow_floordiv(a: Num, b: Num, f: FloatFormat) -> Num:
    """`floordiv` for all operands."""
    parts = take_apart(a, b, f)
    rough = has_no_quotient(parts, f, of_infinity=False) | (parts.left > f.digits + 1)
    whole, rest = divide(parts, where(rough, -1, parts.left), f)
    signs_differ = negative(a, f) ^ negative(b, f)
    up = where(signs_differ & ~rest.equals(0), whole + 1, whole).cast(f.elem)
    return where(rough, (a / b).op("floor"), where(signs_differ, -up, up))


def slow_mod(a: Num, b: Num, f: FloatFormat) -> Num:
    """`mod` for all operands."""
    size, is_zero = remainder(a, b, f, of_infinity=False)
    signed = where(negative(a, f), -size, size)
    moved = where(negative(a, f) ^ negative(b, f), signed + b, signed)
    return where(is_zero, abs(size), moved)


def slow_rem(a: Num, b: Num, f: FloatFormat) -> Num:
    """`rem` for all operands."""
    size, _ = remainder(a, b, f, of_infinity=True)
    return where(negative(a, f), -size, size)


def format_of(x: Num) -> FloatFormat:
    t = x.v.type
    return FORMATS[t if isinstance(t, Scalar) else t.elem]  # type: ignore[attr-defined]


# --- f32 with quotients below 2**21 --------------------------------------------------------------


class QuotientEstimate(NamedTuple):
    """An integer near the quotient (0 for quotients between -1 and 1), and its remainder.

    `is_good`: the remainder is exact and smaller than the divisor, in absolute value.
    """

    whole: Num
    rest: Num
    is_good: Num


def guess(a: Num, b: Num) -> QuotientEstimate:
    """Estimate a quotient and its remainder.

    For |a| < |b| they are a zero with the quotient's sign, and a. Otherwise the quotient is a / b,
    rounded. Below 2**21 the division is off by at most 2.5 * 2**-3, and rounding adds 1/2; so
    |rest| is at most 0.82 |b|. From 2**21 on, `is_good` is False.
    """
    quotient, size = a / b, abs(b)
    is_small = abs(a) < size
    whole = quotient.op("round")
    zero = ((a.bits(i32) ^ b.bits(i32)) & least(FORMATS[f32])).bits(f32)
    is_good = (abs(whole) < 2.0**21) & (size > 2.0**-100) & (size < 2.0**100)
    rest = where(is_small, a, exact_remainder(a, whole, b))
    return QuotientEstimate(where(is_small, zero, whole), rest, is_good)


def is_below(g: QuotientEstimate, b: Num) -> Num:
    """True if the estimate exceeds the floored quotient by one."""
    f = FORMATS[f32]
    return (negative(g.rest, f) ^ negative(b, f)) & ~g.rest.equals(0.0)


def fast_floordiv(a: Num, b: Num, g: QuotientEstimate) -> Num:
    """`floordiv` for a good estimate."""
    return where(is_below(g, b), g.whole - 1.0, g.whole)


def fast_mod(a: Num, b: Num, g: QuotientEstimate) -> Num:
    """`mod` for a good estimate."""
    return where(g.rest.equals(0.0), 0.0, where(is_below(g, b), g.rest + b, g.rest))


def fast_rem(a: Num, b: Num, g: QuotientEstimate) -> Num:
    """`rem` for a good estimate."""
    is_less = negative(a, FORMATS[f32])
    rest = where(is_less, -g.rest, g.rest)
    size = where(rest < 0.0, rest + abs(b), abs(rest))
    return where(is_less, -size, size)


Slow = Callable[[Num, Num, FloatFormat], Num]
Fast = Callable[[Num, Num, QuotientEstimate], Num]


def by_cases(a: Num, b: Num, fast: Fast, slow: Slow) -> Num:
    """Emit a branch: the fast path if the estimate is good for all components, else the slow path.

    f64 has the slow path only.
    """
    f = format_of(a)
    if f.elem is not f32:
        return slow(a, b, f)
    g, made = guess(a, b), a.b
    with made.region() as then:
        made.emit("yield", fast(a, b, g).v)
    with made.region() as orelse:
        made.emit("yield", slow(a, b, f).v)
    is_good = any_component(~g.is_good).equals(False)
    return Num(made, made.if_(is_good.v, then, orelse).results[0])


def floordiv(a: Num, b: Num) -> Num:
    """The quotient rounded down.

    For zero divisors and non-finite operands it is the floor of `/`. Quotients beyond the
    exactly represented integers have the precision of `/`.
    """
    if is_power_of_two(b):
        return over_power(a, b)
    return by_cases(a, b, fast_floordiv, slow_floordiv)


def mod(a: Num, b: Num) -> Num:
    """The remainder with the divisor's sign."""
    return modulo_power(a, b) if is_power_of_two(b) else by_cases(a, b, fast_mod, slow_mod)


def rem(a: Num, b: Num) -> Num:
    """The remainder with the dividend's sign."""
    return by_cases(a, b, fast_rem, slow_rem)


# --- division by constant powers of two ----------------------------------------------------------

EXPONENTS = range(-30, 64)  # powers and reciprocals far from f32's limits


def is_power_of_two(b: Num) -> bool:
    """True if every component is a constant power of two with an exponent in EXPONENTS."""
    if not isinstance(b.v, Op) or b.v.kind != "const":
        return False
    parts = [math.frexp(float(x)) for x in constant_array(b.v).reshape(-1)]
    return all(m == 0.5 and e - 1 in EXPONENTS for m, e in parts)


def over_power(a: Num, b: Num) -> Num:
    """a // b for powers of two b.

    The product with 1 / b is exact unless it is subnormal; a device may flush that to zero.
    """
    assert isinstance(b.v, Op)
    powers = constant_array(b.v)
    if (powers == 1).all():
        return a.op("floor")
    assert isinstance(b.v.type, Scalar | Tensor)
    whole = (a * Num(b.b, b.b.const(1 / powers, b.v.type))).op("floor")
    return where(a < 0.0, whole.op("min", -1.0), whole) if (powers > 1).any() else whole


def modulo_power(a: Num, b: Num) -> Num:
    """a % b for powers of two b.

    A large `a` is a multiple of b and has remainder zero, although its quotient may be infinite.
    """
    left = a - b * over_power(a, b)
    assert isinstance(b.v, Op) and isinstance(b.v.type, Scalar | Tensor)
    powers = constant_array(b.v)
    if (powers >= 1).all():
        return left
    bound = Num(b.b, b.b.const(powers * (2 << format_of(a).digits), b.v.type))
    return where(abs(a) >= bound, a - a, left)


FUNCTIONS: dict[str, Callable[..., Num]] = {"floordiv": floordiv, "mod": mod, "rem": rem}
