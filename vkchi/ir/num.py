"""Operator overloading on IR values: formulas append ops.

A Python number becomes a constant of the other operand's type, also for tensors. Comparisons return
bools (u1), or tensors of them, on which `where` selects.

    >>> x = Num(b, v); y = (x * x + 1.0).op("sqrt")     # ops mul, add, sqrt, and a constant
"""

from __future__ import annotations

from vkchi.ir.builder import Builder
from vkchi.ir.core import Value
from vkchi.types import Scalar, Tensor, Type, with_scalar


class Num:
    """A scalar or tensor value `v` with operators; each appends an op to the builder `b`."""

    __slots__ = ("b", "v")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, b: Builder, v: Value) -> None:
        self.b, self.v = b, v

    def op(self, kind: str, *others: Num | float) -> Num:
        """Append an op of this kind on this value and `others`; return its result.

        Python numbers become constants of this value's type.
        """
        return Num(self.b, self.b.emit(kind, self.v, *[self.like(x) for x in others]))

    def like(self, x: Num | float) -> Value:
        """Return `x` as an IR value; a Python number becomes a constant of this value's type."""
        if isinstance(x, Num):
            return x.v
        t = self.v.type
        assert isinstance(t, Scalar | Tensor)
        return self.b.const(x, t)

    def number(self, x: float) -> Num:
        return Num(self.b, self.like(x))

    def of(self, x: Num | float, t: Scalar | Tensor | None = None) -> Num:
        """Return `x` as a Num; a Python number becomes a constant of type `t`, or of this value's
        type."""
        return x if isinstance(x, Num) else Num(self.b, self.b.const(x, t or self.type))

    @property
    def type(self) -> Scalar | Tensor:
        assert isinstance(self.v.type, Scalar | Tensor)
        return self.v.type

    def cast(self, elem: Scalar) -> Num:
        """Convert to scalar type `elem`; the shape stays. The same type appends nothing."""
        t = with_scalar(self.type, elem)
        return self if t is self.type else Num(self.b, self.b.emit("cast", self.v, type=t))

    def bits(self, elem: Scalar) -> Num:
        """Bitcast to scalar type `elem`; the shape stays. The same type appends nothing."""
        t = with_scalar(self.type, elem)
        return self if t is self.type else Num(self.b, self.b.emit("bitcast", self.v, type=t))

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

    def __eq__(self, x: Num | float) -> Num:  # type: ignore[override]
        return self.op("eq", x)

    def __ne__(self, x: Num | float) -> Num:  # type: ignore[override]
        return self.op("ne", x)

    def equals(self, x: Num | float) -> Num:
        return self.op("eq", x)

    def floordiv(self, other: Num | float) -> Num:
        return self.op("floordiv", other)

    def pow(self, other: Num | float) -> Num:
        return self.op("pow", other)

    def at_least(self, other: Num | float) -> Num:
        return self.op("max", other)

    def at_most(self, other: Num | float) -> Num:
        return self.op("min", other)

    def where(self, yes: Num | float, no: Num | float) -> Num:
        """Select `yes` where this bool is true, else `no`. Precondition: at least one of them is a
        Num."""
        t = next(x.type for x in (yes, no) if isinstance(x, Num))
        a, b = self.of(yes, t), self.of(no, t)
        return Num(self.b, self.b.emit("select", self.v, a.v, b.v))

    # --- tensors

    def zero(self, t: Type | None = None) -> Num:
        assert t is None or isinstance(t, Scalar | Tensor)
        return self.of(0, t)

    def splat(self, t: Type) -> Num:
        return Num(self.b, self.b.emit("splat", self.v, type=t))

    def part(self, k: int) -> Num:
        return Num(self.b, self.b.emit("extract", self.v, attr=k))

    def part_at(self, k: Num) -> Num:
        return Num(self.b, self.b.emit("extract_at", self.v, k.v))

    def with_part(self, k: int, x: Num) -> Num:
        return Num(self.b, self.b.emit("insert", self.v, x.v, attr=k))

    def with_part_at(self, k: Num, x: Num) -> Num:
        """This tensor with the component at index `k` replaced by `x`; unchanged if out of
        range."""
        return Num(self.b, self.b.emit("insert_at", self.v, x.v, k.v))

    def matmul(self, other: Num) -> Num:
        return self.op("matmul", other)

    def outer(self, other: Num) -> Num:
        return self.op("outer", other)
