"""Arithmetic implementations of f64 functions; GLSL.std.450 has them for 16 and 32 bits only.

Each takes and returns `Num`s of f64 (scalars or tensors) and emits straight-line code. Argument
reductions and polynomials are our own. The coefficients are near-minimax: Chebyshev fits of the
series, computed with 60 digits. Largest errors, in units in the last place, against mpmath, for
thousands of random arguments and correctly rounded arithmetic:

    exp exp2 pow    0.9      tan          1.8      acos     1.1      sinh    1.5
    log             0.8      atan         1.6      asin     2.0      cosh    1.2
    log2            0.6      atan2        2.1      sin cos  0.8      tanh    2.2

- Angles: these errors for |x| < 2**44, NaN from 2**45 (a reduction would need 1,100 bits of pi).
- Special arguments (zeros, infinities, NaN, negative bases): as in C's Annex F, which numpy
  follows.
- Denormal results may be off by one unit of the smallest denormal.
- 64-bit integers are required.

The errors hold if sums and products of f64 are computed as written (SPIR-V: NoContraction). A
driver that simplifies `(a + b) - a` to b removes the second half of every `Pair`. Then pow is wrong
by up to 40 units, the others by up to 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vkchi.ir.num import Num
from vkchi.ir.ops import Trait, kinds_with
from vkchi.opt.math.formula import Pair, fast_two_sum, polynomial, two_product, two_sum, where
from vkchi.types import f64, i64

# pi/2 as 27 + 27 + 27 + 53 bits; ln 2 as 42 + 53.
HALF_PI = (1.570796325802803, 9.920935739593517e-10, 5.721188709663575e-18, 1.6446256936324258e-26)
LN2 = (0.6931471805598903, 5.497923018708371e-14)
PI_PAIR = (3.141592653589793, 1.2246467991473532e-16)
HALF_PI_PAIR = (1.5707963267948966, 6.123233995736766e-17)
QUARTER_PI_PAIR = (0.7853981633974483, 3.061616997868383e-17)
TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
INV_LN2 = 1.4426950408889634
TWO_OVER_PI = 0.6366197723675814
LARGEST_ANGLE = 2.0**45

# (exp(r) - 1 - r) / r**2, |r| <= ln 2 / 2
EXP = (
    0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326136,
    0.0013888888888883748, 0.00019841269874820627, 2.4801587325547743e-05, 2.7557255400206422e-06,
    2.75572736431103e-07, 2.5105217004720745e-08, 2.0914686968086876e-09,
)  # fmt: skip
# with s = f / (2 + f), z = s**2: (log(1 + f) / s - 2) / z
LOG = (
    0.6666666666666666, 0.4000000000000088, 0.2857142857080323, 0.2222222239180047,
    0.18181795630884753, 0.15386240205813478, 0.13268759668560612, 0.13086767009948175,
)  # fmt: skip
# the same without its first term: ((log(1 + f) / s - 2) / z - 2/3) / z
LOG_TAIL = (
    0.40000000000000024, 0.2857142857133851, 0.2222222227110234, 0.18181808247544543,
    0.15385574796462032, 0.13285957435193352, 0.1291361767218225,
)  # fmt: skip
# (sin(r) - r) / r**3 and (cos(r) - 1 + r**2/2) / r**4 by r**2, |r| <= pi/4
SIN = (
    -0.16666666666666666, 0.0083333333333307, -0.00019841269836387345, 2.755731591191116e-06,
    -2.5051092507061385e-08, 1.59153232122714e-10,
)  # fmt: skip
COS = (
    0.041666666666666664, -0.0013888888888887241, 2.4801587298533456e-05, -2.755731715246704e-07,
    2.087612165887116e-09, -1.1380876948169717e-11,
)  # fmt: skip
# (asin(x) - x) / x**3 by x**2, |x| <= 1/2; (atan(t) - t) / t**3 by t**2, |t| <= tan(pi/8)
ASIN = (
    0.16666666666666669, 0.07499999999998433, 0.04464285714635543, 0.030381944138531247,
    0.02237217294214989, 0.017352392720869973, 0.013971212973552933, 0.011479177415184906,
    0.01032281435018578, 0.005457506718640358, 0.01740087944269402, -0.014851887071247204,
    0.028757851367421566,
)  # fmt: skip
ATAN = (
    -0.3333333333333333, 0.19999999999995516, -0.14285714284665682, 0.11111111015187018,
    -0.0909090457530649, 0.07692183125376892, -0.06664510525508936, 0.05858140904866328,
    -0.050854078345894844, 0.03923044778479309, -0.019175404711104935,
)  # fmt: skip
# (sinh(x) - x) / x**3 by x**2, |x| <= 1
SINH = (
    0.16666666666666666, 0.008333333333333299, 0.00019841269841324198, 2.7557319191381816e-06,
    2.5052117695907823e-08, 1.6057679623801638e-10, 7.746178593018827e-13,
)  # fmt: skip


def copy_sign(x: Num, sign: Num) -> Num:
    top = -(2**63)
    return ((x.bits(i64) & ~top) | (sign.bits(i64) & top)).bits(f64)


def keep_nan(result: Num, *args: Num) -> Num:
    for x in args:
        result = where(x.op("isnan"), x, result)
    return result


# --- rounding ------------------------------------------------------------------------------------


def nearest(x: Num) -> Num:
    """Round to the nearest integer, halves up, for |x| < 2**52. The addition of 0.5 may round."""
    return (x + 0.5).op("floor")


def trunc(x: Num) -> Num:
    """Integer part of x.

    The `trunc` and `round` of GLSL.std.450 are avoided. On CPUs without AVX-512, lavapipe's are
    correct only below 2**31, and round 1.5 to 1.
    """
    return where(x < 0.0, x.op("ceil"), x.op("floor"))


def round(x: Num) -> Num:
    """Round to the nearest integer, halves to even."""
    whole = trunc(x)
    rest = abs(x - whole)
    half = whole * 0.5
    is_odd = ~half.op("floor").equals(half)
    is_far = (rest > 0.5) | (rest.equals(0.5) & is_odd)
    return where(is_far, whole + x.op("sign"), whole)


# --- exponentials and logarithms -----------------------------------------------------------------


def scale(x: Num, n: Num) -> Num:
    """Return x * 2**n for an integer-valued n in [-2044, 2046]. It multiplies in two steps, so that
    only the result overflows or is rounded to a denormal."""
    k = n.cast(i64)
    first = k >> 1
    for part in (first, k - first):
        x = x * ((part + 1023) << 52).bits(f64)
    return x


def exp_reduced(r: Num, low: Num | float = 0.0) -> Num:
    """exp(r + low) for |r| <= ln 2 / 2 and a much smaller low."""
    return 1.0 + (r + (r * r * polynomial(r, EXP) + low))


def exp_scaled(x: Num, shift: int) -> Num:
    """exp(x) * 2**shift."""
    bounded = x.op("max", -1100.0).op("min", 1100.0)
    n = nearest(bounded * INV_LN2)
    hi = bounded - n * LN2[0]
    lo = n * LN2[1]
    r = hi - lo
    value = exp_reduced(r, (hi - r) - lo)
    return keep_nan(scale(value, n + float(shift) if shift else n), x)


def exp(x: Num) -> Num:
    return exp_scaled(x, 0)


def exp2(x: Num) -> Num:
    """2 to the power x."""
    bounded = x.op("max", -1600.0).op("min", 1600.0)
    n = nearest(bounded)
    rest = bounded - n
    product = two_product(rest, rest.number(math.log(2)))
    low = product.lo + rest * 2.3190468138462996e-17
    return keep_nan(scale(exp_reduced(product.hi, low), n), x)


def split_exponent(x: Num) -> tuple[Num, Num]:
    """Return (m, e) with x = m * 2**e, for a positive finite x, with m in [sqrt(1/2), sqrt(2)].
    Both are f64."""
    tiny = x < 2.2250738585072014e-308
    scaled = where(tiny, x * 2.0**54, x)
    bits = scaled.bits(i64)
    # Relative to the bits of sqrt(1/2), the exponent changes at the ends of m's range.
    offset = bits - 0x3FE6A09E667F3BCD
    e = offset >> 52
    m = (bits - (e << 52)).bits(f64)
    return m, e.cast(f64) - where(tiny, x.number(54.0), 0.0)


def finish_log(x: Num, result: Num) -> Num:
    """Return a logarithm of x, corrected for special values of x: 0, negative, infinite, NaN."""
    result = where(x.equals(math.inf), x, result)
    result = where(x.equals(0.0), -math.inf, result)
    return keep_nan(where(x < 0.0, math.nan, result), x)


def log(x: Num) -> Num:
    m, e = split_exponent(x)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    half = 0.5 * f * f
    # log(1 + f) = f - f**2/2 + s * (f**2/2 + z * P(z)): the first terms are nearly exact
    tail = s * (half + z * polynomial(z, LOG)) + e * LN2[1]
    return finish_log(x, e * LN2[0] - ((half - tail) - f))


def log_pair(m: Num) -> Pair:
    """log(m) to twice the precision, for m in [sqrt(1/2), sqrt(2)]."""
    f = m - 1.0
    den = two_sum(m, m.number(1.0))
    s = f / den.hi
    p = two_product(s, den.hi)
    s_lo = (((f - p.hi) - p.lo) - s * den.lo) / den.hi
    z = two_product(s, s)
    z_lo = z.lo + 2.0 * s * s_lo
    u = two_product(z.hi, m.number(TWO_THIRDS[0]))
    u_lo = u.lo + z.hi * TWO_THIRDS[1] + z_lo * TWO_THIRDS[0]
    v = two_product(s, u.hi)
    v_lo = v.lo + s * u_lo + s_lo * u.hi
    tail = s * z.hi * z.hi * polynomial(z.hi, LOG_TAIL)
    total = fast_two_sum(2.0 * s, v.hi)
    return fast_two_sum(total.hi, total.lo + (2.0 * s_lo + (v_lo + tail)))


def log2(x: Num) -> Num:
    """Logarithm to base 2; exact for powers of 2."""
    m, e = split_exponent(x)
    logarithm = log_pair(m)
    p = two_product(logarithm.hi, m.number(INV_LN2))
    low = p.lo + (logarithm.hi * 2.0355273740931033e-17 + logarithm.lo * INV_LN2)
    total = fast_two_sum(e, p.hi)
    near_one = e.equals(0.0)
    return finish_log(x, where(near_one, p.hi + low, total.hi + (total.lo + low)))


def pow(x: Num, y: Num) -> Num:
    m, e = split_exponent(abs(x))
    part = log_pair(m)
    whole = two_sum(e * LN2[0], part.hi)
    low = whole.lo + (e * LN2[1] + part.lo)
    bounded = y.op("max", -(2.0**100)).op("min", 2.0**100)
    p = two_product(bounded, whole.hi)
    hi = p.hi.op("max", -1100.0).op("min", 1100.0)
    n = nearest(hi * INV_LN2)
    rest = n * LN2[1] - (p.lo + bounded * low).op("max", -1.0).op("min", 1.0)
    first = hi - n * LN2[0]
    r = first - rest
    value = scale(exp_reduced(r, (first - r) - rest), n)
    return finish_power(x, y, value)


def finish_power(x: Num, y: Num, value: Num) -> Num:
    """Return x**y from `value` = |x|**y: apply the sign and the rules for special operands."""
    inf = math.inf
    grows = y > 0.0
    value = where(x.equals(0.0), where(grows, x.number(0.0), inf), value)
    value = where(abs(x).equals(inf), where(grows, x.number(inf), 0.0), value)
    whole = y.op("floor").equals(y)
    half = y * 0.5
    odd = whole & ~half.op("floor").equals(half)
    value = where(odd, copy_sign(value, x), value)
    finite = abs(x) < inf
    value = where((x < 0.0) & finite & ~whole, math.nan, value)
    value = keep_nan(value, x, y)
    return where(x.equals(1.0) | y.equals(0.0), 1.0, value)


# --- trigonometric functions ---------------------------------------------------------------------


def reduce_angle(x: Num) -> tuple[Pair, Num]:
    """Return x - n * pi/2 for the nearest integer n, as a pair (NaN from LARGEST_ANGLE), and n
    modulo 4, as i64."""
    n = nearest(x * TWO_OVER_PI)
    n_hi = trunc(n * 2.0**-26) * 2.0**26
    n_lo = n - n_hi
    p1, p2, p3, p4 = HALF_PI  # the products with the first three are exact
    r = x - n_hi * p1 - n_lo * p1 - n_hi * p2
    a = two_sum(r, -(n_lo * p2))
    b = two_sum(a.hi, -(n_hi * p3))
    c = two_sum(b.hi, -(n_lo * p3))
    low = (a.lo + b.lo + c.lo) - n * p4
    total = fast_two_sum(c.hi, low)
    near = abs(x) < LARGEST_ANGLE
    return Pair(where(near, total.hi, math.nan), total.lo), n.cast(i64) & 3


def sin_reduced(r: Pair) -> Num:
    z = r.hi * r.hi
    return r.hi + (r.hi * z * polynomial(z, SIN) + r.lo * (1.0 - 0.5 * z))


def cos_reduced(r: Pair) -> Num:
    z = r.hi * r.hi
    half = 0.5 * z
    near = 1.0 - half
    return near + (((1.0 - near) - half) + (z * z * polynomial(z, COS) - r.hi * r.lo))


def sin(x: Num) -> Num:
    r, quadrant = reduce_angle(x)
    value = where((quadrant & 1).equals(0), sin_reduced(r), cos_reduced(r))
    value = where((quadrant & 2).equals(0), value, -value)
    return where(x.equals(0.0), x, value)


def cos(x: Num) -> Num:
    r, quadrant = reduce_angle(x)
    value = where((quadrant & 1).equals(0), cos_reduced(r), sin_reduced(r))
    return where(((quadrant + 1) & 2).equals(0), value, -value)


def tan(x: Num) -> Num:
    r, quadrant = reduce_angle(x)
    s, c = sin_reduced(r), cos_reduced(r)
    even = (quadrant & 1).equals(0)
    value = where(even, s, -c) / where(even, c, s)
    return where(x.equals(0.0), x, value)


# --- inverse trigonometric functions -------------------------------------------------------------


def asin_parts(x: Num) -> tuple[Num, Num, Num]:
    """Return (small, w, r), with small = `|x| <= 1/2` and w + r = asin(w).

    If small, w = |x|. Otherwise w = sqrt((1 - |x|) / 2), and asin |x| = pi/2 - 2 asin(w).
    """
    a = abs(x)
    small = a <= 0.5
    z = where(small, a * a, 0.5 * (1.0 - a))
    w = where(small, a, z.op("sqrt"))
    return small, w, w * z * polynomial(z, ASIN)


def asin(x: Num) -> Num:
    small, w, r = asin_parts(x)
    far = HALF_PI_PAIR[0] - (2.0 * (w + r) - HALF_PI_PAIR[1])
    return copy_sign(where(small, w + r, far), x)


def acos(x: Num) -> Num:
    small, w, r = asin_parts(x)
    signed = copy_sign(r, x)
    middle = HALF_PI_PAIR[0] - (x - (HALF_PI_PAIR[1] - signed))
    twice = 2.0 * (w + r)
    far = where(x < 0.0, PI_PAIR[0] - (twice - PI_PAIR[1]), twice)
    return where(small, middle, far)


def atan_pair(t: Num) -> Pair:
    """atan(t) for t in [0, 1], as an unevaluated sum."""
    large = t > 0.4142135623730951
    u = where(large, (t - 1.0) / (t + 1.0), t)
    z = u * u
    r = u * z * polynomial(z, ATAN)
    low = where(large, r + QUARTER_PI_PAIR[1], r)
    sum_ = fast_two_sum(where(large, t.number(QUARTER_PI_PAIR[0]), 0.0), u)
    return Pair(sum_.hi, sum_.lo + low)


def atan(x: Num) -> Num:
    a = abs(x)
    large = a > 1.0
    r = atan_pair(where(large, 1.0 / a, a))
    far = (HALF_PI_PAIR[0] - r.hi) + (HALF_PI_PAIR[1] - r.lo)
    return keep_nan(copy_sign(where(large, far, r.hi + r.lo), x), x)


def atan2(y: Num, x: Num) -> Num:
    ax, ay = abs(x), abs(y)
    steep = ay > ax
    big, small = where(steep, ay, ax), where(steep, ax, ay)
    ratio = where(big.equals(small), 1.0, small / big)
    r = atan_pair(where(big.equals(0.0), 0.0, ratio))
    hi, lo = r
    hi, lo = where(steep, HALF_PI_PAIR[0] - hi, hi), where(steep, HALF_PI_PAIR[1] - lo, lo)
    left = x.bits(i64) < 0
    hi, lo = where(left, PI_PAIR[0] - hi, hi), where(left, PI_PAIR[1] - lo, lo)
    return keep_nan(copy_sign(hi + lo, y), x, y)


# --- hyperbolic functions ------------------------------------------------------------------------


def sinh(x: Num) -> Num:
    a = abs(x)
    z = a * a
    near = a + a * z * polynomial(z, SINH)
    half = exp_scaled(a, -1)  # overflows only if the result does
    return copy_sign(where(a < 1.0, near, half - 0.25 / half), x)


def cosh(x: Num) -> Num:
    half = exp_scaled(abs(x), -1)
    return half + 0.25 / half


def tanh(x: Num) -> Num:
    a = abs(x)
    z = a * a
    half = exp_scaled(a, -1)
    near = (a + a * z * polynomial(z, SINH)) / (half + 0.25 / half)
    far = 1.0 - 2.0 / (4.0 * half * half + 1.0)
    return copy_sign(where(a < 1.0, near, far), x)


FUNCTIONS: dict[str, Callable[..., Num]] = {
    kind: globals()[kind] for kind in sorted(kinds_with(Trait.FORMULA_F64))
}
