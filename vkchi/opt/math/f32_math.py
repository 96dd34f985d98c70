"""Arithmetic implementations of f32 functions that devices may compute with visible errors.

Vulkan allows arc functions 4096 units in the last place. For hyperbolic functions it allows a
relative error that grows without bound near 0. The arc and hyperbolic functions here are accurate
to a few units everywhere, except for denormals that the device flushes to 0. Quotients and square
roots are the device's, but exact if they are small integers (`div`, `sqrt`). `pow`, `exp2` and
`log2` are in `powers`.

Polynomials are weighted least-squares fits, made near-minimax by Lawson's iteration.

See also: `legalize` decides where they are used.

    asin(Num(b, v)).v
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vkchi.ir.core import is_constant
from vkchi.ir.num import Num
from vkchi.ir.ops import Trait, kinds_with
from vkchi.opt.math import powers
from vkchi.opt.math.formula import exact_remainder, polynomial, round_to_12_bits, where
from vkchi.types import f32, i32

# (f(x) - x) / x**3 by x**2: |x| <= 1/2, tan(pi/8), 1, 5/8
ASIN = (0.166667539, 0.0749524177, 0.0454770989, 0.0241476011, 0.0422185665)
ATAN = (-0.333329553, 0.19977926, -0.138798496, 0.0806030789)
SINH = (0.166667182, 0.00833021142, 0.000203774044)
TANH = (-0.333332839, 0.133314913, -0.0537434979, 0.0206505868, -0.00571704451)
TAN_PI_8 = math.tan(math.pi / 8)


def odd(x: Num, coefficients: tuple[float, ...]) -> Num:
    """Evaluate the odd polynomial x + x**3 * (c0 + c1 x**2 + ...)."""
    z = x * x
    return x + x * z * polynomial(z, coefficients)


def copy_sign(x: Num, sign: Num) -> Num:
    """|x| with the sign of `sign`."""
    top = -(2**31)
    return ((x.bits(i32) & ~top) | (sign.bits(i32) & top)).bits(f32)


def div(x: Num, y: Num) -> Num:
    """Quotient, corrected to the integer if the IEEE result is an integer below 2**21.

    So `int(6.0 / 3.0)` is 2. Elsewhere it is the device's quotient, which Vulkan allows to be off
    by 2.5 units. The correction is certain for 2**-100 <= |y| < 2**127.

    The nearest integer is the IEEE result if the remainder, `x - whole * y`, is less than half a
    unit of the integer times y. The two are equal only if whole * y is a power of two and x is the
    next float below. That quotient is not an integer.
    """
    quotient = x / y
    whole = quotient.op("round")
    rest = exact_remainder(x, whole, y)
    power = (whole.bits(i32) & (255 << 23)).bits(f32)  # not above |whole|
    is_whole = abs(rest) * float(1 << 24) < power * abs(y)
    return where(is_whole, whole, quotient)


def sqrt(x: Num) -> Num:
    """Square root, exact if the root has at most 12 bits, so that `int(49.0 ** 0.5)` is 7.

    Vulkan allows an error of some 5 units. A root of at most 12 bits has a square of at most 24
    bits, which is computed without rounding. So if there is such a root, it is the nearest float of
    12 bits, and its square equals x.
    """
    root = x.op("sqrt")
    near = round_to_12_bits(root)
    return where((near * near).equals(x), near, root)


def asin_parts(x: Num) -> tuple[Num, Num]:
    """Return (small, y), with small = `|x| <= 1/2`.

    If small, y = asin |x|. Otherwise asin |x| = pi/2 - 2 y.
    """
    a = abs(x)
    small = a <= 0.5
    return small, odd(where(small, a, (0.5 * (1.0 - a)).op("sqrt")), ASIN)


def asin(x: Num) -> Num:
    """Arc sine; NaN outside [-1, 1]."""
    small, y = asin_parts(x)
    return copy_sign(where(small, y, math.pi / 2 - 2.0 * y), x)


def acos(x: Num) -> Num:
    """Arc cosine; NaN outside [-1, 1]."""
    small, y = asin_parts(x)
    twice = 2.0 * y
    far = where(x < 0.0, math.pi - twice, twice)
    return where(small, math.pi / 2 - copy_sign(y, x), far)


def atan_of_part(t: Num) -> Num:
    large = t > TAN_PI_8
    y = odd(where(large, (t - 1.0) / (t + 1.0), t), ATAN)
    return where(large, math.pi / 4 + y, y)


def atan(x: Num) -> Num:
    a = abs(x)
    large = a > 1.0
    y = atan_of_part(where(large, 1.0 / a, a))
    return copy_sign(where(large, math.pi / 2 - y, y), x)


def atan2(y: Num, x: Num) -> Num:
    ax, ay = abs(x), abs(y)
    steep = ay > ax
    big, small = where(steep, ay, ax), where(steep, ax, ay)
    # If both are infinite, the quotient is not 1; if both are 0, it is NaN.
    ratio = where(small.equals(big), where(big.equals(0.0), big, 1.0), small / big)
    angle = atan_of_part(ratio)
    angle = where(steep, math.pi / 2 - angle, angle)
    angle = copy_sign(where(x.bits(i32) < 0, math.pi - angle, angle), y)
    # Drivers fold the quotient of a constant 0, which loses a NaN divisor.
    return where(x.op("isnan"), x, angle) if is_constant(y.v) else angle


def sinh(x: Num) -> Num:
    half = (abs(x) - math.log(2.0)).op("exp")  # overflows only if the result does
    far = copy_sign(half - 0.25 / half, x)
    return where(abs(x) < 1.0, odd(x, SINH), far)


def tanh(x: Num) -> Num:
    far = 1.0 - 2.0 / ((2.0 * abs(x)).op("exp") + 1.0)
    return where(abs(x) < 0.625, odd(x, TANH), copy_sign(far, x))


POWERS: dict[str, Callable[..., Num]] = {
    "pow": lambda x, y: powers.power(x, y, f32),
    "exp2": powers.exp2,
    "log2": powers.log2,
}
FUNCTIONS: dict[str, Callable[..., Num]] = {
    kind: POWERS.get(kind) or globals()[kind] for kind in sorted(kinds_with(Trait.FORMULA_F32))
}
