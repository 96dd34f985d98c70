"""Quotients of integers that are floats, and then rounded: `ti.floor(i / n)`, `int(i / n)`.

What IEEE division gives, rounded, is the quotient of the integers themselves where |a| < 2**p, p
the digits of the float, and the divisor is positive. For let k > 0 be a whole number and
a = k * b - 1: a / b is as near below k as it can be. Where 2**e < k <= 2**(e+1), floats just below
k are 2**(e+1-p) apart, so what rounds to k is no farther than 2**(e-p) < k * 2**-p; but a / b is
1 / b = k / (k * b) away, and k * b = a + 1 <= 2**p. Above k (negative quotients) k * b = a - 1, and
what rounds to k is no farther than k * 2**-p, too. A divisor of more digits is rounded itself, to
no less than 2**p, and the quotient lies between -1 and 1 all the same.

A device may divide less exactly, by 2.5 units in the last place. With dividends below 2**DEVICE
that is still less than the distance, 2.5 * 2**-23 < 2**-20, so that such a quotient rounds rightly
if it is corrected where it is whole, as `legalize` does.

Owns: what such an op looks like. Must not know: what is known of its operands.

    >>> find_quotient("floor", op.args[0], f32)     # floor(cast i / 3.0)
    Quotient(kind="floordiv", a=i, b=3, form=f32, ...)
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vkchi.analysis.lattice import Fact
from vkchi.ir.constants import is_constant
from vkchi.ir.core import Op, Value, value_of
from vkchi.ir.intervals import floordiv, truncdiv
from vkchi.ir.ops import DIVISION_OF
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Type, f16, f32, i64

DIGITS = {f16: 11, f32: 24}  # of the form
DEVICE = {f16: 11, f32: 20}  # f16 is divided as f32


class Quotient(NamedTuple):
    """`kind`: floordiv or truncdiv; `a`, `b`: integers, of any type or known while compiling;
    `form`: the type of the float quotient, `quotient`."""

    kind: str
    a: Value | int
    b: Value | int
    form: Scalar
    quotient: Op

    def operands(self, of: Callable[[Value], Fact]) -> tuple[Fact, Fact]:
        """What is known of a and b, by what is known of integers."""
        a, b = (Fact(v, v) if isinstance(v, int) else of(v) for v in (self.a, self.b))
        return a, b

    def fact(self, of: Callable[[Value], Fact]) -> Fact | None:
        """What is known of the rounded quotient, however inexactly a device divides."""
        a, b = self.operands(of)
        if b.lo < 1 or max(-a.lo, a.hi) >= 1 << DEVICE[self.form]:
            return None
        divide = floordiv if self.kind == "floordiv" else truncdiv
        found = divide(i64, (a.lo, a.hi), (b.lo, b.hi))
        return None if found is None else Fact(*found)


def find_quotient(kind: str, arg: Value, t: Type) -> Quotient | None:
    """The quotient that an op of this kind with this argument gives as a whole number of type t."""
    if not isinstance(t, Scalar) or not isinstance(arg, Op):
        return None
    if kind == "cast":
        if t.kind not in "iu":
            return None
        kind = "trunc"
        if arg.kind in DIVISION_OF and isinstance(arg.args[0], Op):
            kind, arg = arg.kind, arg.args[0]
    if kind not in DIVISION_OF or arg.kind not in ("div", "mul") or arg.type not in DIGITS:
        return None
    a, b = whole(arg.args[0]), divisor(arg)
    assert isinstance(arg.type, Scalar)
    return None if a is None or b is None else Quotient(DIVISION_OF[kind], a, b, arg.type, arg)


def divisor(op: Op) -> Value | int | None:
    """The whole number that an op divides by, or multiplies with the reciprocal of."""
    if op.kind == "div":
        return whole(op.args[1])
    factor = constant_float(op.args[1])
    by = 1 / factor if factor else 0.0
    return int(by) if 1 <= by <= 1 << 30 and math.frexp(by)[0] == 0.5 else None


def whole(v: Value) -> Value | int | None:
    """The integer that a float was, or is while compiling."""
    number = constant_float(v)
    if number is not None:
        return int(number) if number.is_integer() else None
    if not isinstance(v, Op) or v.kind != "cast":
        return None
    t = v.args[0].type
    return v.args[0] if isinstance(t, Scalar) and t.kind in "iu" else None


def constant_float(v: Value) -> float | None:
    """The number that a float constant is."""
    if not is_constant(v) or not isinstance(v.type, Scalar) or v.type.kind != "f":
        return None
    return float(value_of(v.attr, v.type))
