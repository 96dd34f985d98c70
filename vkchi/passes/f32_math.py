"""Functions of f32 that devices may compute with errors that users see, from arithmetic.

Vulkan allows the arc functions 4096 units in the last place, and lavapipe's arc sine is off by
4e-4; of the hyperbolic ones it allows a relative error that grows without bound near 0. These end
within a few units everywhere; numbers that devices take for 0 aside. Quotients and square roots are
the device's, but exact where they are whole numbers.
Must not know: when they are used (legalize.py).

Polynomials are weighted least-squares fits made near-minimax by Lawson's iteration.

    asin(Num(b, v)).v
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vkchi.ir.constants import is_constant
from vkchi.ir.num import Num
from vkchi.passes.formula import polynomial, rest_of, short, where
from vkchi.types import f32, i32

# (f(x) - x) / x**3 by x**2: |x| <= 1/2, tan(pi/8), 1, 5/8
ASIN = (0.166667539, 0.0749524177, 0.0454770989, 0.0241476011, 0.0422185665)
ATAN = (-0.333329553, 0.19977926, -0.138798496, 0.0806030789)
SINH = (0.166667182, 0.00833021142, 0.000203774044)
TANH = (-0.333332839, 0.133314913, -0.0537434979, 0.0206505868, -0.00571704451)
TAN_PI_8 = math.tan(math.pi / 8)


def odd(x: Num, coefficients: tuple[float, ...]) -> Num:
    """x + x**3 * (c0 + c1 x**2 + ...)."""
    z = x * x
    return x + x * z * polynomial(z, coefficients)


def copy_sign(x: Num, sign: Num) -> Num:
    """|x| with the sign of `sign`."""
    top = -(2**31)
    return ((x.bits(i32) & ~top) | (sign.bits(i32) & top)).bits(f32)


def div(x: Num, y: Num) -> Num:
    """Quotient: where it is, rounded as IEEE says, a whole number below 2**21, that number, so that
    `int(6.0 / 3.0)` is 2; elsewhere the device's, which Vulkan lets be off by 2.5 units.

    The nearest whole number is it if the remainder, `x - whole * y`, is less than half a unit of
    the whole number times y. (It never is as much, but where whole * y is a power of two and x next
    below it; that quotient is no whole number.)
    """
    quotient = x / y
    whole = quotient.op("round")
    rest = rest_of(x, whole, y)
    power = (whole.bits(i32) & (255 << 23)).bits(f32)  # not above |whole|
    is_whole = abs(rest) * float(1 << 24) < power * abs(y)
    return where(is_whole, whole, quotient)


def sqrt(x: Num) -> Num:
    """Square root: exact where it has few digits, so that `int(49.0 ** 0.5)` is 7. Vulkan lets it
    be off by some 5 units. A square of at most 24 bits has a root of at most 12, whose square is
    not rounded; the nearest such number is it, or the root is another."""
    root = x.op("sqrt")
    near = short(root)
    return where((near * near).equals(x), near, root)


def asin_parts(x: Num) -> tuple[Num, Num]:
    """(small, y): whether |x| <= 1/2; then y = asin |x|, else asin |x| = pi/2 - 2 y."""
    a = abs(x)
    small = a <= 0.5
    return small, odd(where(small, a, (0.5 * (1.0 - a)).op("sqrt")), ASIN)


def asin(x: Num) -> Num:
    """Arc sine; nan outside [-1, 1]."""
    small, y = asin_parts(x)
    return copy_sign(where(small, y, math.pi / 2 - 2.0 * y), x)


def acos(x: Num) -> Num:
    """Arc cosine; nan outside [-1, 1]."""
    small, y = asin_parts(x)
    twice = 2.0 * y
    far = where(x < 0.0, math.pi - twice, twice)
    return where(small, math.pi / 2 - copy_sign(y, x), far)


def atan_of_part(t: Num) -> Num:
    """Arc tangent of t from 0 to 1."""
    large = t > TAN_PI_8
    y = odd(where(large, (t - 1.0) / (t + 1.0), t), ATAN)
    return where(large, math.pi / 4 + y, y)


def atan(x: Num) -> Num:
    """Arc tangent."""
    a = abs(x)
    large = a > 1.0
    y = atan_of_part(where(large, 1.0 / a, a))
    return copy_sign(where(large, math.pi / 2 - y, y), x)


def atan2(y: Num, x: Num) -> Num:
    """The angle of the point (x, y)."""
    ax, ay = abs(x), abs(y)
    steep = ay > ax
    big, small = where(steep, ay, ax), where(steep, ax, ay)
    # Of equal numbers the quotient need not be 1 (infinities), nor a number (zeros).
    ratio = where(small.equals(big), where(big.equals(0.0), big, 1.0), small / big)
    angle = atan_of_part(ratio)
    angle = where(steep, math.pi / 2 - angle, angle)
    angle = copy_sign(where(x.bits(i32) < 0, math.pi - angle, angle), y)
    # Drivers fold a quotient of 0, and the NaN of its divisor is gone.
    return where(x.op("isnan"), x, angle) if is_constant(y.v) else angle


def sinh(x: Num) -> Num:
    """Hyperbolic sine."""
    half = (abs(x) - math.log(2.0)).op("exp")  # overflows with the result, not before
    far = copy_sign(half - 0.25 / half, x)
    return where(abs(x) < 1.0, odd(x, SINH), far)


def tanh(x: Num) -> Num:
    """Hyperbolic tangent."""
    far = 1.0 - 2.0 / ((2.0 * abs(x)).op("exp") + 1.0)
    return where(abs(x) < 0.625, odd(x, TANH), copy_sign(far, x))


FUNCTIONS: dict[str, Callable[..., Num]] = {
    "div": div, "sqrt": sqrt,
    "asin": asin, "acos": acos, "atan": atan, "atan2": atan2, "sinh": sinh, "tanh": tanh,
}  # fmt: skip
