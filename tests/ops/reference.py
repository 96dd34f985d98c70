"""A second definition of the rows of the op table, in Python's integers and `math`, to check it.

Integer rows are exact and wrap; float rows are compared in units in the last place.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from vkchi.ir.ops import Trait, kinds_with
from vkchi.types import Scalar


def _truncdiv(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


# (a, b, width in bits) -> a number, to be wrapped; b is 0 for unary rows.
INTEGER: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, w: a + b,
    "sub": lambda a, b, w: a - b,
    "mul": lambda a, b, w: a * b,
    "floordiv": lambda a, b, w: a // b,
    "mod": lambda a, b, w: a % b,
    "truncdiv": lambda a, b, w: _truncdiv(a, b),
    "rem": lambda a, b, w: a - b * _truncdiv(a, b),
    "neg": lambda a, b, w: -a,
    "abs": lambda a, b, w: abs(a),
    "sign": lambda a, b, w: (a > 0) - (a < 0),
    "min": lambda a, b, w: min(a, b),
    "max": lambda a, b, w: max(a, b),
    "and": lambda a, b, w: a & b,
    "or": lambda a, b, w: a | b,
    "xor": lambda a, b, w: a ^ b,
    "not": lambda a, b, w: ~a,
    "shl": lambda a, b, w: a << b if 0 <= b < w else 0,
    "shr": lambda a, b, w: a >> (b if 0 <= b < w else w),
    "popcnt": lambda a, b, w: (a & ((1 << w) - 1)).bit_count(),
    "clz": lambda a, b, w: w - (a & ((1 << w) - 1)).bit_length(),
}
COMPARISON: dict[str, Callable[[Any, Any], bool]] = {
    kind: getattr(operator, kind) for kind in ("lt", "le", "gt", "ge", "eq", "ne")
}


def _sign(a: float) -> float:
    return 0.0 if math.isnan(a) else float((a > 0) - (a < 0))


def _round(a: float) -> float:
    return math.copysign(float(round(a)), a)


# Doubles in, doubles out; ValueError, OverflowError and ZeroDivisionError mean: not judged here.
FLOAT: dict[str, Callable[..., float]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "neg": operator.neg, "abs": abs, "sign": _sign, "pow": math.pow, "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a), "exp": math.exp, "exp2": lambda a: math.pow(2.0, a),
    "log": math.log, "log2": math.log2, "sin": math.sin, "cos": math.cos, "tan": math.tan,
    "asin": math.asin, "acos": math.acos, "atan": math.atan, "atan2": math.atan2,
    "sinh": math.sinh, "cosh": math.cosh, "tanh": math.tanh,
    "floor": lambda a: math.copysign(float(math.floor(a)), a),
    "ceil": lambda a: math.copysign(float(math.ceil(a)), a),
    "trunc": lambda a: math.copysign(float(math.trunc(a)), a),
    "round": _round,
    "rem": math.fmod,
}  # fmt: skip
FLOAT.update({k: getattr(math, k) for k in kinds_with(Trait.FORMULA_F64) - FLOAT.keys()})
ULPS = 4  # numpy's own bound for its vectorised functions, whichever the processor chooses
CORRECTLY_ROUNDED = frozenset(
    ["add", "sub", "mul", "div", "neg", "abs", "sign", "sqrt"]
    + ["floor", "ceil", "trunc", "round", "rem"]
)


def wrap(value: int, t: Scalar) -> int:
    """Wrap an integer to the range of the integer type t."""
    value &= (1 << t.bits) - 1
    return value - (1 << t.bits) if t.kind == "i" and value >> (t.bits - 1) else value
