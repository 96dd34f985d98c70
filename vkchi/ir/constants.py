"""Queries of `const` ops.

Example:

    >>> constant_int(op)                    # %c3 = const 3 : i32
    3
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeGuard

from vkchi.ir.core import Op, Value
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, scalar_of

Number = Scalar | Tensor


class Constant(NamedTuple):
    """Type and bit pattern of a `const` op. For a tensor, `attr` is a tuple of bit patterns."""

    type: Number
    attr: Any


def is_constant(v: Value) -> TypeGuard[Op]:
    return type(v) is Op and v.kind == "const"


def numeric_type_of(v: Value) -> Number:
    assert isinstance(v.type, Scalar | Tensor)
    return v.type


def as_constant(v: Value) -> Constant:
    assert isinstance(v, Op)
    return Constant(numeric_type_of(v), v.attr)


def constant_int(v: Value) -> int | None:
    """Return the value of a scalar integer `const`, with its sign, or None for any other value."""
    if not is_constant(v):
        return None
    t = v.type
    if not isinstance(t, Scalar) or t.kind not in "iu":
        return None
    bits: int = v.attr
    return bits - (1 << t.bits) if t.kind == "i" and bits >> (t.bits - 1) else bits


def is_equal_value(a: Value, b: Value) -> bool:
    """True if both are the same Value, or `const` ops of one type and bit pattern."""
    if a is b:
        return True
    if not is_constant(a) or not is_constant(b):
        return False
    return a.type is b.type and bool(a.attr == b.attr)


@lru_cache(maxsize=1024)
def is_power_of_two(c: Constant) -> bool:
    """True if every component of `c` is a power of two by which a division can be strength-reduced.

    - Integers: positive and less than 2**(bits - 1).
    - Floats: of either sign; the value and its reciprocal are normal numbers.
    """
    bits = (c.attr,) if isinstance(c.type, Scalar) else c.attr
    scalar = scalar_of(c.type)
    if scalar.kind != "f":
        return all(b & (b - 1) == 0 < b < 1 << (scalar.bits - 1) for b in bits)
    mantissa = {16: 10, 32: 23, 64: 52}[scalar.bits]
    top = (1 << (scalar.bits - 1 - mantissa)) - 2
    exponents = [(b >> mantissa) & (top + 1) for b in bits]
    exact = all(b & ((1 << mantissa) - 1) == 0 for b in bits)
    return exact and all(0 < e < top for e in exponents)
