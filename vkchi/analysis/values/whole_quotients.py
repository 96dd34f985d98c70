"""Integer quotients computed by rounded float division: `ti.floor(i / n)`, `int(i / n)`.

With IEEE division the rounded result equals the integer quotient if b > 0 and |a| < 2**p, where p
is the float's number of significant bits.

Proof. Consider a = k * b - 1 with an integer k > 0: a / b is as close below k as possible. Let 2**e
< k <= 2**(e+1). Floats just below k are 2**(e+1-p) apart, so a value that rounds to k is within
2**(e-p) < k * 2**-p of it. But the distance of a / b is 1 / b = k / (k * b), and k * b = a + 1 <=
2**p. Above k (negative quotients), k * b = a - 1, and the rounding distance is at most k * 2**-p as
well. A divisor of more bits is itself rounded, to at least 2**p; the quotient is still in (-1, 1).

Devices may divide with an error of 2.5 ulp. For dividends below 2**DEVICE that is less than the
distance: 2.5 * 2**-23 < 2**-20. Such a quotient rounds correctly once `legalize` has corrected
quotients that are whole numbers.

    >>> find_quotient("floor", op.args[0], f32)     # floor(cast i / 3.0)
    RoundedQuotient(kind="floordiv", a=i, b=3, form=f32, ...)
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vkchi.analysis.values.lattice import ValueFact
from vkchi.ir.constants import is_constant
from vkchi.ir.core import Op, Value, value_of
from vkchi.ir.op_table.interval_rules import floordiv, truncdiv
from vkchi.ir.ops import DIVISION_OF
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Type, f16, f32, i64

DIGITS = {f16: 11, f32: 24}  # significant bits of the type
DEVICE = {f16: 11, f32: 20}  # f16 is divided as f32


class RoundedQuotient(NamedTuple):
    """An integer division written in floats.

    `kind`: floordiv or truncdiv. `a`, `b`: integer values of any type, or constants. `quotient`:
    the float division, or the product with 1 / b for b = 2**k; `form`: its type.
    """

    kind: str
    a: Value | int
    b: Value | int
    form: Scalar
    quotient: Op

    def operands(self, of: Callable[[Value], ValueFact]) -> tuple[ValueFact, ValueFact]:
        """Facts about a and b; `of` returns the fact of a value."""
        a, b = (ValueFact(v, v) if isinstance(v, int) else of(v) for v in (self.a, self.b))
        return a, b

    def fact(self, of: Callable[[Value], ValueFact]) -> ValueFact | None:
        """The fact about the rounded quotient, valid for inexact device division.

        `of` returns the fact of a value. None if b may be less than 1, or a exceeds the limit of
        DEVICE.
        """
        a, b = self.operands(of)
        if b.lo < 1 or max(-a.lo, a.hi) >= 1 << DEVICE[self.form]:
            return None
        divide = floordiv if self.kind == "floordiv" else truncdiv
        found = divide(i64, (a.lo, a.hi), (b.lo, b.hi))
        return None if found is None else ValueFact(*found)


def find_quotient(kind: str, arg: Value, t: Type) -> RoundedQuotient | None:
    """Match an op of kind `floor`, `trunc` or `cast`, argument `arg` and result type t.

    The argument must be an f16 or f32 division of converted integers, or a product with a power of
    two. A `cast` to an integer may have a `floor` or `trunc` inside. None if it is no such op.
    """
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
    return (
        None if a is None or b is None else RoundedQuotient(DIVISION_OF[kind], a, b, arg.type, arg)
    )


def divisor(op: Op) -> Value | int | None:
    """The integer divisor of a float division; 2**k for a product with the constant 1 / 2**k.

    None for other ops.
    """
    if op.kind == "div":
        return whole(op.args[1])
    factor = constant_float(op.args[1])
    by = 1 / factor if factor else 0.0
    return int(by) if 1 <= by <= 1 << 30 and math.frexp(by)[0] == 0.5 else None


def whole(v: Value) -> Value | int | None:
    """The integer that a float was converted from; an int for a whole constant; otherwise None."""
    number = constant_float(v)
    if number is not None:
        return int(number) if number.is_integer() else None
    if not isinstance(v, Op) or v.kind != "cast":
        return None
    t = v.args[0].type
    return v.args[0] if isinstance(t, Scalar) and t.kind in "iu" else None


def constant_float(v: Value) -> float | None:
    if not is_constant(v) or not isinstance(v.type, Scalar) or v.type.kind != "f":
        return None
    return float(value_of(v.attr, v.type))
