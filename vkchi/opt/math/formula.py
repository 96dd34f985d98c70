"""Numeric building blocks for `Num` formulas: select, polynomials, error-free transformations."""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.ir.num import Num
from vkchi.tuples import NamedTuple
from vkchi.types import f32, i32


def where(condition: Num, a: Num | float, b: Num | float) -> Num:
    """Select a where the condition is true, else b; one of them must be a Num."""
    example = a if isinstance(a, Num) else b
    assert isinstance(example, Num)
    made = condition.b.emit("select", condition.v, example.like(a), example.like(b))
    return Num(condition.b, made)


def polynomial(x: Num, coefficients: Sequence[float]) -> Num:
    """Evaluate c0 + c1 x + c2 x^2 + ... by Horner's rule."""
    total = x.number(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


# --- sums and products without error -------------------------------------------------------------


class Pair(NamedTuple):
    """An unevaluated sum of two floats: `lo` is the rounding error of `hi`."""

    hi: Num
    lo: Num


def two_sum(a: Num, b: Num) -> Pair:
    """Exact a + b, as an unevaluated sum. Source: Knuth, The Art of Computer Programming 2, 4.2.2,
    theorem B."""
    s = a + b
    t = s - a
    return Pair(s, (a - (s - t)) + (b - t))


def fast_two_sum(a: Num, b: Num) -> Pair:
    """Exact a + b for |a| >= |b|, as an unevaluated sum. Source: Dekker 1971."""
    s = a + b
    return Pair(s, b - (s - a))


def halves(a: Num) -> Pair:
    """Split an f64 into two floats of 26 bits. Source: Dekker 1971."""
    t = a * 134217729.0  # 2**27 + 1
    hi = t - (t - a)
    return Pair(hi, a - hi)


def two_product(a: Num, b: Num) -> Pair:
    """Exact a * b, as an unevaluated sum, for f64 below 1e292 if nothing underflows. Source: Dekker
    1971."""
    p = a * b
    x, y = halves(a), halves(b)
    error = ((x.hi * y.hi - p) + x.hi * y.lo + x.lo * y.hi) + x.lo * y.lo
    return Pair(p, error)


def round_to_12_bits(x: Num) -> Num:
    """Round an f32 to 12 bits; values from 2**127 may become infinity."""
    return ((x.bits(i32) + (1 << 11)) & -(1 << 12)).bits(f32)


def exact_remainder(x: Num, whole: Num, y: Num) -> Num:
    """x - whole * y in f32, without rounding error under the following conditions.

    `whole` is an integer below 2**21, the result is at most 0.82 |y|, and |x| >= |y| >= 2**-100.

    Proof. Let e be the exponent of y, and 2**k <= |whole|. The factors are split into halves of 12
    bits, so products are exact; `whole` has a second half if k >= 12. The remainder of x is a
    multiple of 2**(e - 23), and before the last step of 2**(k + e - 34). After the steps it is less
    than 2**(max(1, k - 9) + e), 2**(max(1, k - 10) + e), 2**(e + 1) and |y|. So it never has more
    than 24 bits.
    """
    a, b = round_to_12_bits(whole), round_to_12_bits(y)
    c, d = whole - a, y - b
    return (((x - a * b) - a * d) - c * b) - c * d
