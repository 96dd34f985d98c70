"""Arrays of numpy with the operators that encodings of numbers are written in.

Owns: `Lanes`, a `quantised.Lane`: what `ir.num.Num` is for values of kernels. Must not know: what
is computed.

    >>> (Lanes(np.float32([1.5])).cast(i32) << 2).v
    array([4], dtype=int32)
"""

from __future__ import annotations

from typing import Any

from vkchi.types.core import Scalar
from vkchi.types.lazy_numpy import np


class Lanes:
    """Numbers of one type; Python numbers beside them are of that type."""

    __slots__ = ("v",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, v: Any) -> None:
        self.v = np.asarray(v)

    def like(self, x: Lanes | float) -> Any:
        """x as an array of this one's type."""
        return x.v if isinstance(x, Lanes) else np.asarray(x, self.v.dtype)

    def apply(self, f: Any, *others: Lanes | float) -> Lanes:
        """A function of numpy's on this and others; what wraps or is not finite is as in memory."""
        with np.errstate(all="ignore"):
            return Lanes(f(self.v, *[self.like(x) for x in others]))

    def number(self, x: float) -> Lanes:
        """A number of this one's type."""
        return Lanes(self.like(x))

    def cast(self, elem: Scalar) -> Lanes:
        """Converted to another type; integers wrap."""
        return self.apply(lambda v: v.astype(elem.dtype))

    def bits(self, elem: Scalar) -> Lanes:
        """The same bits as another type of that width."""
        return Lanes(self.v.view(elem.dtype))

    def where(self, yes: Lanes | float, no: Lanes | float) -> Lanes:
        """Of truth values: `yes` where true, else `no`; one of them has a type."""
        typed = yes if isinstance(yes, Lanes) else no
        assert isinstance(typed, Lanes)
        return Lanes(np.where(self.v, typed.like(yes), typed.like(no)))

    def equals(self, x: Lanes | float) -> Lanes:
        """Whether equal."""
        return self.apply(np.equal, x)

    def at_least(self, other: Lanes | float) -> Lanes:
        """The larger of both."""
        return self.apply(np.maximum, other)

    def at_most(self, other: Lanes | float) -> Lanes:
        """The smaller of both."""
        return self.apply(np.minimum, other)

    def __lt__(self, x: Lanes | float) -> Lanes:
        return self.apply(np.less, x)

    def __abs__(self) -> Lanes:
        return self.apply(np.abs)

    def __invert__(self) -> Lanes:
        return self.apply(np.invert)

    def __xor__(self, x: Lanes | int) -> Lanes:
        return self.apply(np.bitwise_xor, x)

    def __add__(self, x: Lanes | float) -> Lanes:
        return self.apply(np.add, x)

    def __sub__(self, x: Lanes | float) -> Lanes:
        return self.apply(np.subtract, x)

    def __mul__(self, x: Lanes | float) -> Lanes:
        return self.apply(np.multiply, x)

    def __and__(self, x: Lanes | int) -> Lanes:
        return self.apply(np.bitwise_and, x)

    def __or__(self, x: Lanes | int) -> Lanes:
        return self.apply(np.bitwise_or, x)

    def __lshift__(self, x: Lanes | int) -> Lanes:
        return self.apply(np.left_shift, x)

    def __rshift__(self, x: Lanes | int) -> Lanes:
        return self.apply(np.right_shift, x)
