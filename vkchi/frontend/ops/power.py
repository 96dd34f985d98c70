"""Lowering of `x ** y` to multiplications, to a loop (integers) or to `pow` (floats).

A scalar constant exponent that is integral gives multiplications by squaring. A negative one gives
a division too, and an error for integers. A float's power beyond LARGEST_FLOAT_EXPONENT is a `pow`,
and an exponent 0.5 a `sqrt`.

    z ** 2                      # one multiplication
"""

from __future__ import annotations

from vkchi.errors import KernelTypeError
from vkchi.frontend.ops.debug_checks import guard_exponent
from vkchi.frontend.values.kinds import describe
from vkchi.frontend.values.operands import (
    Operand,
    WeakNumbers,
    as_type,
    common_scalar,
    constant,
    operand_shape,
    own_type,
)
from vkchi.frontend.values.references import Context
from vkchi.ir.core import Param, Value, numeric_type_of
from vkchi.types import Scalar, i32, scalar_of, shape_of, u1, with_scalar, with_shape

# Beyond it, `pow` is as accurate as 20 rounded multiplications.
LARGEST_FLOAT_EXPONENT = 1024


def power(cx: Context, a: Operand, b: Operand) -> Value:
    """Return a to the power b in the type of `result_scalar`. Raises KernelTypeError."""
    elem = result_scalar(cx, a, b)
    exponent = constant_exponent(b, elem)
    shape = _joint_shape(cx, a, b)
    t = with_shape(elem, shape)
    x = as_type(cx, a, t)
    if exponent is not None:
        return constant_power(cx, x, exponent)
    if elem.kind == "f" and isinstance(b, WeakNumbers) and not b.shape and b.numbers == 0.5:
        return cx.b.emit("sqrt", x)  # only `sqrt` is exact: `int(49 ** 0.5)` must be 7
    if elem.kind == "f":
        return cx.b.emit("pow", x, as_type(cx, b, t))
    its = scalar_of(own_type(cx, b))
    y = as_type(cx, b, with_shape(elem if its is u1 else its, shape))
    return integer_power(cx, x, y)


def result_scalar(cx: Context, a: Operand, b: Operand) -> Scalar:
    """Return the common type of base and exponent; if that is an integer type and the base is a
    kernel value, the base's type. default_ip in place of a bool.

    Source: Taichi's documentation of `pow`.
    """
    elem = common_scalar(cx, [a, b])
    if elem.kind in "iu" and isinstance(a, Value):
        elem = scalar_of(a.type)
    return cx.options.default_ip if elem is u1 else elem


def constant_exponent(b: Operand, elem: Scalar) -> int | None:
    """Return a scalar constant exponent that is integral, or None.

    For floats its magnitude is at most LARGEST_FLOAT_EXPONENT, where multiplications are accurate.
    """
    if not isinstance(b, WeakNumbers) or b.shape or b.numbers != b.numbers:
        return None
    if isinstance(b.numbers, float) and not b.numbers.is_integer():
        return None
    exponent = int(b.numbers)
    is_small = abs(exponent) <= LARGEST_FLOAT_EXPONENT
    return exponent if is_small or elem.kind in "iu" else None


def _joint_shape(cx: Context, a: Operand, b: Operand) -> tuple[int, ...]:
    left, right = (operand_shape(x) for x in (a, b))
    if left and right and left != right:
        text = f"{describe(own_type(cx, a))} and {describe(own_type(cx, b))}"
        raise cx.fail("operands of `**` have different shapes", kind=KernelTypeError, label=text)
    return left or right


def constant_power(cx: Context, x: Value, exponent: int) -> Value:
    """Emit a constant power by squaring: `x ** 2` is one `mul`, `x ** -1` one `div`.

    Raises KernelTypeError for a negative power of an integer.
    """
    t = numeric_type_of(x)
    if exponent < 0:
        if scalar_of(t).kind != "f":
            raise cx.fail(
                "an integer to a negative power is no integer",
                kind=KernelTypeError,
                label=f"{describe(t)} to the power {exponent}",
                help="convert the base first: ti.cast(x, ti.f32)",
            )
        return cx.b.emit("div", constant(cx, 1, t), constant_power(cx, x, -exponent))
    if exponent == 0:
        return constant(cx, 1, t)
    result: Value | None = None
    square = x
    while True:
        if exponent & 1:
            result = square if result is None else cx.b.emit("mul", result, square)
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        square = cx.b.emit("mul", square, square)


def integer_power(cx: Context, x: Value, y: Value) -> Value:
    """Emit x to the integer power y, wrapping.

    A negative power is truncated to an integer as in Python's `int(x ** y)`: 0, except for bases 1
    and -1. The undefined negative powers of 0 are 0 too. In debug mode the kernel reports negative
    powers.
    """
    its = numeric_type_of(y)
    if scalar_of(its).kind == "u":
        return natural_power(cx, x, y)
    zero = constant(cx, 0, its)
    if cx.options.debug:
        guard_exponent(cx, x, y)
    negative = cx.b.emit("lt", y, zero)
    odd = cx.b.emit("and", y, constant(cx, 1, its))  # 1 and -1 keep their value at y's parity
    raised = natural_power(cx, x, cx.b.emit("select", negative, odd, y))
    t = numeric_type_of(x)
    unit = cx.b.emit("eq", x, constant(cx, 1, t))
    if scalar_of(t).kind == "i":
        unit = cx.b.emit("or", unit, cx.b.emit("eq", x, constant(cx, -1, t)))
    lost = cx.b.emit("and", negative, cx.b.emit("not", unit))
    return cx.b.emit("select", lost, constant(cx, 0, t), raised)


def natural_power(cx: Context, x: Value, y: Value) -> Value:
    """Emit x to a non-negative power, wrapping, by squaring in a loop."""
    b, t, its = cx.b, numeric_type_of(x), numeric_type_of(y)
    zero, one = constant(cx, 0, its), constant(cx, 1, its)
    columns = (("result", t), ("square", t), ("left", its))
    seen = tuple(Param(type, name) for name, type in columns)
    with b.region(*seen) as cond:
        more = b.emit("gt", seen[2], zero)
        b.emit("yield", any_of(cx, more))
    carried = tuple(Param(type, name) for name, type in columns)
    with b.region(*carried) as body:
        result, square, left = carried
        is_odd = b.emit("ne", b.emit("and", left, one), zero)
        multiplied = b.emit("mul", result, square)
        b.emit(
            "yield",
            b.emit("select", is_odd, multiplied, result),
            b.emit("mul", square, square),
            b.emit("shr", left, one),
        )
    return b.while_((constant(cx, 1, t), x, y), cond, body).results[0]


def any_of(cx: Context, v: Value) -> Value:
    """Return a scalar u1: True if some component of a u1 value is true."""
    if not shape_of(v.type):
        return v
    count = cx.b.emit("sum", cx.b.emit("cast", v, type=with_scalar(v.type, i32)))
    return cx.b.emit("ne", count, constant(cx, 0, i32))
