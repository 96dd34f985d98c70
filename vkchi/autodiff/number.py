"""IR values with arithmetic, so that derivatives are written as formulas.

Owns: `Number`. Python numbers become constants of the other operand's type. Must not know: rules.

    (1 - x * x).call("rsqrt")       # emits const, mul, sub, rsqrt
"""

from __future__ import annotations

from typing import Union

from vkchi.ir.builder import Builder
from vkchi.ir.core import Value
from vkchi.types import Scalar, Tensor, Type, with_scalar

Operand = Union["Number", float]


class Number:
    """A value and the builder that it is computed with."""

    __slots__ = ("b", "v")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, b: Builder, v: Value) -> None:
        self.b, self.v = b, v

    @property
    def type(self) -> Scalar | Tensor:
        """The type of the value."""
        assert isinstance(self.v.type, Scalar | Tensor)
        return self.v.type

    def call(self, kind: str) -> Number:
        """The op `kind` of it."""
        return Number(self.b, self.b.emit(kind, self.v))

    def of(self, x: Operand, t: Scalar | Tensor | None = None) -> Number:
        """x as a Number of this one's type, or of t."""
        return x if isinstance(x, Number) else Number(self.b, self.b.const(x, t or self.type))

    def _with(self, kind: str, other: Operand) -> Number:
        return Number(self.b, self.b.emit(kind, self.v, self.of(other).v))

    def _behind(self, kind: str, other: Operand) -> Number:
        return self.of(other)._with(kind, self)

    def __add__(self, other: Operand) -> Number:
        return self._with("add", other)

    def __sub__(self, other: Operand) -> Number:
        return self._with("sub", other)

    def __mul__(self, other: Operand) -> Number:
        return self._with("mul", other)

    def __truediv__(self, other: Operand) -> Number:
        return self._with("div", other)

    def __radd__(self, other: Operand) -> Number:
        return self._behind("add", other)

    def __rsub__(self, other: Operand) -> Number:
        return self._behind("sub", other)

    def __rmul__(self, other: Operand) -> Number:
        return self._behind("mul", other)

    def __rtruediv__(self, other: Operand) -> Number:
        return self._behind("div", other)

    def __neg__(self) -> Number:
        return self.call("neg")

    def __and__(self, other: Number) -> Number:
        return self._with("and", other)

    def __or__(self, other: Number) -> Number:
        return self._with("or", other)

    def __le__(self, other: Operand) -> Number:
        return self._with("le", other)

    def __ge__(self, other: Operand) -> Number:
        return self._with("ge", other)

    def __eq__(self, other: Operand) -> Number:  # type: ignore[override]
        return self._with("eq", other)

    def __ne__(self, other: Operand) -> Number:  # type: ignore[override]
        return self._with("ne", other)

    def floordiv(self, other: Operand) -> Number:
        """The quotient rounded down."""
        return self._with("floordiv", other)

    def pow(self, other: Operand) -> Number:
        """Power of floats."""
        return self._with("pow", other)

    def at_least(self, other: Operand) -> Number:
        """The larger of both."""
        return self._with("max", other)

    def at_most(self, other: Operand) -> Number:
        """The smaller of both."""
        return self._with("min", other)

    def where(self, yes: Operand, no: Operand) -> Number:
        """Of truth values: `yes` where true, else `no`; one of them is a Number."""
        t = next(x.type for x in (yes, no) if isinstance(x, Number))
        a, b = self.of(yes, t), self.of(no, t)
        return Number(self.b, self.b.emit("select", self.v, a.v, b.v))

    def cast(self, elem: Scalar) -> Number:
        """The same with another scalar."""
        t = with_scalar(self.type, elem)
        return self if t is self.type else Number(self.b, self.b.emit("cast", self.v, type=t))

    # --- tensors

    def zero(self, t: Type | None = None) -> Number:
        """Zero of this one's type, or of t."""
        assert t is None or isinstance(t, Scalar | Tensor)
        return self.of(0, t)

    def splat(self, t: Type) -> Number:
        """A tensor of type t filled with it."""
        return Number(self.b, self.b.emit("splat", self.v, type=t))

    def part(self, k: int) -> Number:
        """Component k."""
        return Number(self.b, self.b.emit("extract", self.v, attr=k))

    def part_at(self, k: Number) -> Number:
        """The component at a computed place, clamped."""
        return Number(self.b, self.b.emit("extract_at", self.v, k.v))

    def with_part(self, k: int, x: Number) -> Number:
        """It, with component k replaced."""
        return Number(self.b, self.b.emit("insert", self.v, x.v, attr=k))

    def with_part_at(self, k: Number, x: Number) -> Number:
        """It, with the component at a computed place replaced; none if that is outside."""
        return Number(self.b, self.b.emit("insert_at", self.v, x.v, k.v))

    def matmul(self, other: Number) -> Number:
        """Matrix times matrix or vector."""
        return self._with("matmul", other)

    def outer(self, other: Number) -> Number:
        """Outer product of vectors."""
        return self._with("outer", other)
