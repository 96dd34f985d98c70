"""Element offsets as IR, with local common-subexpression elimination.

An offset is a value plus a constant, counted in scalars. It stays split until an `address` is
formed, so components, constant indices and neighbours (`x[i, j + 1]` beside `x[i, j]`) are free.
Arithmetic wraps at the offset's width, u32 or u64. Constants may therefore be moved out of a sum,
and a negative offset becomes a large one.

    >>> w.whole(Offset(v, 3), u32)      # add %v, 3
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from vkchi.analysis.values.polynomials import split_offset
from vkchi.ir.core import Op, Value, bits_of, is_constant
from vkchi.ir.ops import COMMUTATIVE
from vkchi.opt.rewrite.cse import ScopedRebuilder
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Type, scalar_of


class Offset(NamedTuple):
    """`value + constant` in scalars; a value of None is zero."""

    value: Value | None
    constant: int


NOTHING = Offset(None, 0)


class ArithmeticBuilder(ScopedRebuilder):
    """A Rebuilder that emits integer arithmetic and reuses available ops."""

    def op(self, kind: str, *args: Value, type: Type, attr: Any = None) -> Value:
        """Return a pure op of this type, new or available."""
        available, key = self.available, (kind, args, attr, type)
        found = available.values.get(key)
        if found is None and kind in COMMUTATIVE:
            found = available.swapped(*key)
        if found is None:
            found = self.b.insert(Op(kind, args, attr, type, self.b.span))
            available.enter(key, found)
        return found

    def number(self, k: int, t: Scalar) -> Value:
        return self.op("const", attr=bits_of(k, t), type=t)

    def bits(self, v: Value, t: Scalar) -> Value:
        """Bitcast a scalar to a type of the same width; a no-op if the type is equal."""
        if isinstance(v, Op) and v.kind == "bitcast" and v.args[0].type is t:
            return v.args[0]
        if v.type is t:
            return v
        return self.op("const", attr=v.attr, type=t) if is_constant(v) else self.op(
            "bitcast", v, type=t
        )  # fmt: skip

    def index(self, v: Value, t: Scalar) -> Offset:
        """Convert an index value to an offset of type t."""
        old = scalar_of(v.type)
        root, constant = split_offset(v)
        half = 1 << (old.bits - 1)
        if root is None:
            return Offset(None, constant)
        if old.bits != t.bits:  # a sum may wrap in one width only
            return Offset(self.op("cast", v, type=t), 0)
        return Offset(self.bits(root, t), (constant + half) % (2 * half) - half)

    def plus(self, a: Offset, b: Offset, t: Scalar) -> Offset:
        constant = a.constant + b.constant
        if a.value is None or b.value is None:
            return Offset(a.value or b.value, constant)
        return Offset(self.op("add", a.value, b.value, type=t), constant)

    def times(self, a: Offset, k: int, t: Scalar) -> Offset:
        if a.value is None or k == 1:
            return Offset(a.value, a.constant * k)
        return Offset(self.op("mul", a.value, self.number(k, t), type=t), a.constant * k)

    def whole(self, a: Offset, t: Scalar) -> Value:
        """Emit the offset as one value."""
        if a.value is None:
            return self.number(a.constant, t)
        if not a.constant:
            return a.value
        return self.op("add", a.value, self.number(a.constant, t), type=t)


class OffsetExpr:
    """An offset with Python operators that emit ops.

    Layout code computes with it as with an index. The other operand is an int or another
    `OffsetExpr`. Differences wrap.
    """

    __slots__ = ("offset", "type", "w")

    def __init__(self, w: ArithmeticBuilder, offset: Offset, t: Scalar) -> None:
        self.w, self.offset, self.type = w, offset, t

    def __add__(self, other: OffsetExpr | int) -> OffsetExpr:
        w, t = self.w, self.type
        return OffsetExpr(w, w.plus(self.offset, as_offset(other), t), t)

    def __radd__(self, other: int) -> OffsetExpr:
        w, t = self.w, self.type
        return OffsetExpr(w, w.plus(Offset(None, other), self.offset, t), t)

    def __sub__(self, other: OffsetExpr | int) -> OffsetExpr:
        return self + other * -1

    def __rsub__(self, other: int) -> OffsetExpr:
        return other + self * -1

    def __mul__(self, other: OffsetExpr | int) -> OffsetExpr:
        if isinstance(other, int):
            return OffsetExpr(self.w, self.w.times(self.offset, other, self.type), self.type)
        return self._apply("mul", operator.mul, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: OffsetExpr | int) -> OffsetExpr:
        return self._apply("floordiv", operator.floordiv, other)

    def __mod__(self, other: OffsetExpr | int) -> OffsetExpr:
        return self._apply("mod", operator.mod, other)

    def __xor__(self, other: OffsetExpr | int) -> OffsetExpr:
        return self._apply("xor", operator.xor, other)

    def _apply(
        self, kind: str, f: Callable[[int, int], int], other: OffsetExpr | int
    ) -> OffsetExpr:
        a, b = self.offset, as_offset(other)
        w, t = self.w, self.type
        if a.value is None and b.value is None:
            return OffsetExpr(w, Offset(None, f(a.constant, b.constant)), t)
        found = w.op(kind, w.whole(a, t), w.whole(b, t), type=t)
        return OffsetExpr(w, Offset(found, 0), t)


def as_offset(x: OffsetExpr | int) -> Offset:
    return x.offset if isinstance(x, OffsetExpr) else Offset(None, x)
