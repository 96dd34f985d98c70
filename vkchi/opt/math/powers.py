"""Exact f32 powers with integer exponents, and exp2 and log2 that are exact at powers of two.

Vulkan's `pow` is exp2(y * log2(x)), so 3.0 ** 2 need not be 9. A power with an exponent cast from
an integer is expanded to multiplications by repeated squaring, in f64 if the device has it. With
f64 and exponents up to a million, results that f32 can represent are then exact; others are off by
at most one unit. 2 ** n is assembled from its bits.

See also: `legalize` selects these functions, through `functions`.

    power(Num(b, x), Num(b, y), f64).v
"""

from __future__ import annotations

from vkchi.ir.core import Op, Param, constant_array, is_constant
from vkchi.ir.num import Num
from vkchi.opt.math.formula import where
from vkchi.opt.math.quotient import any_component
from vkchi.types import SCALARS, Scalar, f32, i32, scalar_of, with_scalar

FRACTION, EXPONENT, SIGN = (1 << 23) - 1, 255 << 23, -(1 << 31)  # bit fields of an f32
LARGEST = 127  # largest exponent of a normal f32


def power(x: Num, y: Num, wide: Scalar) -> Num:
    """x ** y of f32: `exp2` for x = 2, native `pow` unless y is cast from integers.

    Otherwise the power is multiplied in the float type `wide`, f32 or f64.
    """
    if is_constant(x.v) and (constant_array(x.v) == 2).all():
        return exp2(y)
    n = integer_of(y)
    return x.op("pow", y) if n is None else integer_power(x, n, wide)


def integer_of(y: Num) -> Num | None:
    """Return the integers that were cast to the floats `y`, converted to i32 if they are narrower;
    None if `y` is not a cast from integers, or a `splat` of one."""
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
    t = scalar_of(n.v.type)
    base = x if wide is f32 else x.cast(wide)
    unsigned = SCALARS[f"u{t.bits}"]
    if t.kind == "u":
        return natural_power(base, n).cast(f32)
    is_negative = n < 0
    raised = natural_power(base, where(is_negative, -n, n).bits(unsigned))
    return where(is_negative, reciprocal(raised), raised).cast(f32)


def reciprocal(x: Num) -> Num:
    """1 / x, refined by two Newton steps; exact for powers of two whose reciprocal is a normal
    number."""
    found = 1.0 / x
    for _ in range(2):
        error = 1.0 - x * found
        found = where(abs(error) < 0.5, found + found * error, found)
    if scalar_of(x.v.type) is not f32:
        return found
    bits = x.bits(i32)  # f32 additions may round toward 0
    exponent = bits & EXPONENT
    is_power = (bits & FRACTION).equals(0) & (exponent > 0) & (exponent < 254 << 23)
    return where(is_power, (((254 << 23) - exponent) | (bits & SIGN)).bits(f32), found)


def natural_power(x: Num, n: Num) -> Num:
    b, columns = x.b, (("result", x.v.type), ("square", x.v.type), ("left", n.v.type))
    seen = [Param(t, name) for name, t in columns]
    with b.region(*seen) as cond:
        b.emit("yield", any_component(Num(b, seen[2]).op("ne", 0)).v)
    carried = [Param(t, name) for name, t in columns]
    with b.region(*carried) as body:
        result, square, left = (Num(b, v) for v in carried)
        multiplied = where((left & 1).op("ne", 0), result * square, result)
        b.emit("yield", multiplied.v, (square * square).v, (left >> 1).v)
    first = (x.number(1.0).v, x.v, n.v)
    return Num(b, b.while_(first, cond, body).results[0])


def exp2(x: Num) -> Num:
    """2 ** x of f32; exact for integral x if the result is a normal number."""
    size = abs(x)
    is_whole = size.op("floor").equals(size) & (size <= LARGEST)
    exponent = where(is_whole, x, 0.0).cast(i32)
    lowest = exponent.equals(-LARGEST)  # 2 ** -127 is subnormal
    made = ((exponent + LARGEST) << 23).bits(f32)
    return where(is_whole & ~lowest, made, x.op("exp2"))


def log2(x: Num) -> Num:
    """Base-2 logarithm of f32; exact for normal powers of two."""
    bits = x.bits(i32)  # the sign bit is kept, so negative numbers compare as negative
    exponent = bits & EXPONENT
    is_power = bits.equals(exponent) & (bits > 0) & (bits < EXPONENT)
    return where(is_power, ((exponent >> 23) - LARGEST).cast(f32), x.op("log2"))
