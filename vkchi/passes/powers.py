"""Powers and logarithms of f32 that are exact: with exponents that were integers, and to base 2.

Vulkan's `pow` is exp2(y * log2(x)), off by so many units in the last place as y * log2(x) has bits
and more; 3.0 ** 2 need not be 9. A power by an integer is multiplied out, by squaring; in f64 where
the device has it, so that a result that f32 holds is that number, and others are off by a unit at
most, for exponents up to some millions. A power of 2 by a whole number is made of its bits.

Must not know: when they are used (legalize.py).

    power(Num(b, x), Num(b, y), f64).v
"""

from __future__ import annotations

from vkchi.ir.constants import is_constant
from vkchi.ir.core import Op, Param, constant_array
from vkchi.ir.num import Num
from vkchi.passes.formula import where
from vkchi.passes.quotient import any_of
from vkchi.types import SCALARS, Scalar, f32, i32, scalar_of, with_scalar

FRACTION, EXPONENT, SIGN = (1 << 23) - 1, 255 << 23, -(1 << 31)  # the bits of an f32
LARGEST = 127  # of the exponents of normal f32; the reciprocals of these are taken for the others


def power(x: Num, y: Num, wide: Scalar) -> Num:
    """x ** y of f32; `wide`: the float type to multiply in."""
    if is_constant(x.v) and (constant_array(x.v) == 2).all():
        return exp2(y)
    n = integer_of(y)
    return x.op("pow", y) if n is None else integer_power(x, n, wide)


def integer_of(y: Num) -> Num | None:
    """The integers that floats were, of 32 bits at least."""
    v = y.v
    if isinstance(v, Op) and v.kind == "splat":
        one = integer_of(Num(y.b, v.args[0]))
        return one and Num(
            y.b, y.b.emit("splat", one.v, type=with_scalar(v.type, scalar_of(one.v.type)))
        )
    if not isinstance(v, Op) or v.kind != "cast":
        return None
    t, n = scalar_of(v.args[0].type), Num(y.b, v.args[0])
    if t.kind not in "iu":
        return None
    return n if t.bits >= i32.bits else n.cast(i32)


def integer_power(x: Num, n: Num, wide: Scalar) -> Num:
    """x ** n for integers n. Of negative ones it is 1 / x ** -n."""
    t = scalar_of(n.v.type)
    base = x if wide is f32 else x.cast(wide)
    unsigned = SCALARS[f"u{t.bits}"]
    if t.kind == "u":
        return natural_power(base, n).cast(f32)
    is_negative = n < 0
    raised = natural_power(base, where(is_negative, -n, n).bits(unsigned))
    return where(is_negative, reciprocal(raised), raised).cast(f32)


def reciprocal(x: Num) -> Num:
    """1 / x, better than the device's quotient by two steps of Newton's; exact of powers of two."""
    found = 1.0 / x
    for _ in range(2):
        error = 1.0 - x * found
        found = where(abs(error) < 0.5, found + found * error, found)
    if scalar_of(x.v.type) is not f32:
        return found
    bits = x.bits(i32)  # sums of f32 may be rounded toward 0
    exponent = bits & EXPONENT
    is_power = (bits & FRACTION).equals(0) & (exponent > 0) & (exponent < 254 << 23)
    return where(is_power, (((254 << 23) - exponent) | (bits & SIGN)).bits(f32), found)


def natural_power(x: Num, n: Num) -> Num:
    """x ** n for unsigned n, by squaring."""
    b, columns = x.b, (("result", x.v.type), ("square", x.v.type), ("left", n.v.type))
    seen = [Param(t, name) for name, t in columns]
    with b.region(*seen) as cond:
        b.emit("yield", any_of(Num(b, seen[2]).op("ne", 0)).v)
    carried = [Param(t, name) for name, t in columns]
    with b.region(*carried) as body:
        result, square, left = (Num(b, v) for v in carried)
        multiplied = where((left & 1).op("ne", 0), result * square, result)
        b.emit("yield", multiplied.v, (square * square).v, (left >> 1).v)
    first = (x.number(1.0).v, x.v, n.v)
    return Num(b, b.while_(first, cond, body).results[0])


def exp2(x: Num) -> Num:
    """2 ** x of f32; of whole numbers exactly, if the result is a normal number."""
    size = abs(x)
    is_whole = size.op("floor").equals(size) & (size <= LARGEST)
    exponent = where(is_whole, x, 0.0).cast(i32)
    lowest = exponent.equals(-LARGEST)  # 2 ** -127 is subnormal
    made = ((exponent + LARGEST) << 23).bits(f32)
    return where(is_whole & ~lowest, made, x.op("exp2"))


def log2(x: Num) -> Num:
    """The logarithm to base 2 of f32; of normal powers of two exactly."""
    bits = x.bits(i32)  # of negative numbers the sign is not masked, so they are below
    exponent = bits & EXPONENT
    is_power = bits.equals(exponent) & (bits > 0) & (bits < EXPONENT)
    return where(is_power, ((exponent >> 23) - LARGEST).cast(f32), x.op("log2"))
