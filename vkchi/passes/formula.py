"""Arithmetic on values written as formulas: operators of `Num` build ops.

Python numbers become constants of the other operand's type, also for tensors. Comparisons give
truth values, which `where` chooses by. Must not know: what is computed.

    >>> x = Num(b, v); y = (x * x + 1.0).op("sqrt")     # ops mul, add, sqrt, and a constant
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from vkchi.ir.builder import Builder
from vkchi.ir.core import Value
from vkchi.types import Scalar, Tensor, f32, i32, with_scalar

N = TypeVar("N", bound="Num")


class Num:
    """A scalar or tensor value with operators; every one appends an op to `b`."""

    __slots__ = ("b", "v")

    def __init__(self, b: Builder, v: Value) -> None:
        self.b, self.v = b, v

    def op(self, kind: str, *others: Num | float) -> Num:
        """An op of the table on this and other values of the same type."""
        return Num(self.b, self.b.emit(kind, self.v, *[self.like(x) for x in others]))

    def like(self, x: Num | float) -> Value:
        """x as a value; a Python number becomes a constant of this value's type."""
        if isinstance(x, Num):
            return x.v
        t = self.v.type
        assert isinstance(t, Scalar | Tensor)
        return self.b.const(x, t)

    def number(self, x: float) -> Num:
        """A constant of this value's type."""
        return Num(self.b, self.like(x))

    def cast(self, elem: Scalar) -> Num:
        """Converted to another scalar type, shape kept."""
        return Num(self.b, self.b.emit("cast", self.v, type=with_scalar(self.v.type, elem)))

    def bits(self, elem: Scalar) -> Num:
        """The same bits as another scalar type."""
        return Num(self.b, self.b.emit("bitcast", self.v, type=with_scalar(self.v.type, elem)))

    def __add__(self, x: Num | float) -> Num:
        return self.op("add", x)

    def __sub__(self, x: Num | float) -> Num:
        return self.op("sub", x)

    def __mul__(self, x: Num | float) -> Num:
        return self.op("mul", x)

    def __truediv__(self, x: Num | float) -> Num:
        return self.op("div", x)

    def __radd__(self, x: float) -> Num:
        return self.number(x).op("add", self)

    def __rsub__(self, x: float) -> Num:
        return self.number(x).op("sub", self)

    def __rmul__(self, x: float) -> Num:
        return self.number(x).op("mul", self)

    def __rtruediv__(self, x: float) -> Num:
        return self.number(x).op("div", self)

    def __neg__(self) -> Num:
        return self.op("neg")

    def __abs__(self) -> Num:
        return self.op("abs")

    def __lt__(self, x: Num | float) -> Num:
        return self.op("lt", x)

    def __le__(self, x: Num | float) -> Num:
        return self.op("le", x)

    def __gt__(self, x: Num | float) -> Num:
        return self.op("gt", x)

    def __ge__(self, x: Num | float) -> Num:
        return self.op("ge", x)

    def __and__(self, x: Num | int) -> Num:
        return self.op("and", x)

    def __or__(self, x: Num | int) -> Num:
        return self.op("or", x)

    def __xor__(self, x: Num | int) -> Num:
        return self.op("xor", x)

    def __lshift__(self, x: Num | int) -> Num:
        return self.op("shl", x)

    def __rshift__(self, x: Num | int) -> Num:
        return self.op("shr", x)

    def __invert__(self) -> Num:
        return self.op("not")

    def equals(self, x: Num | float) -> Num:
        """Whether equal."""
        return self.op("eq", x)


def where(condition: Num, a: Num | float, b: Num | float) -> Num:
    """a where the condition is true, else b; one of them must be a Num."""
    example = a if isinstance(a, Num) else b
    assert isinstance(example, Num)
    made = condition.b.emit("select", condition.v, example.like(a), example.like(b))
    return Num(condition.b, made)


def polynomial(x: Num, coefficients: Sequence[float]) -> Num:
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule."""
    total = x.number(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


# --- sums and products without error -------------------------------------------------------------


class Pair(NamedTuple):
    """A number as the sum of two: `lo` is what did not fit into `hi`."""

    hi: Num
    lo: Num


def two_sum(a: Num, b: Num) -> Pair:
    """a + b exactly. Source: Knuth, The Art of Computer Programming 2, 4.2.2, theorem B."""
    s = a + b
    t = s - a
    return Pair(s, (a - (s - t)) + (b - t))


def fast_two_sum(a: Num, b: Num) -> Pair:
    """a + b exactly, where |a| >= |b|. Source: Dekker 1971."""
    s = a + b
    return Pair(s, b - (s - a))


def halves(a: Num) -> Pair:
    """An f64 as two of 26 bits. Source: Dekker 1971."""
    t = a * 134217729.0  # 2**27 + 1
    hi = t - (t - a)
    return Pair(hi, a - hi)


def two_product(a: Num, b: Num) -> Pair:
    """a * b exactly, for f64 below 1e292. Source: Dekker 1971."""
    p = a * b
    x, y = halves(a), halves(b)
    error = ((x.hi * y.hi - p) + x.hi * y.lo + x.lo * y.hi) + x.lo * y.lo
    return Pair(p, error)


def short(x: Num) -> Num:
    """The nearest f32 of 12 bits; of 2**127 and more it may be infinity."""
    return ((x.bits(i32) + (1 << 11)) & -(1 << 12)).bits(f32)


def rest_of(x: Num, whole: Num, y: Num) -> Num:
    """x - whole * y of f32, where that is small: without an error if `whole` is a whole number
    below 2**21 and the result is at most 0.82 |y|, and |x| >= |y| >= 2**-100.

    With e the exponent of y, and 2**k <= |whole|: factors are taken apart into halves of 12 bits,
    so products are exact; `whole` has a second half from k = 12 on. What is left of x is a multiple
    of 2**(e - 23), and of 2**(k + e - 34) before the last step, and after the steps less than
    2**(max(1, k - 9) + e), 2**(max(1, k - 10) + e), 2**(e + 1), |y|: never of more than 24 bits."""
    a, b = short(whole), short(y)
    c, d = whole - a, y - b
    return (((x - a * b) - a * d) - c * b) - c * d
