"""Numpy arrays with the operators in which number encodings are written.

`NumpyLanes` implements `quant_encoding.Lane` for numpy; `ir.num.Num` does for values of kernels.

    >>> (NumpyLanes(np.float32([1.5])).cast(i32) << 2).v
    array([4], dtype=int32)
"""

from __future__ import annotations

from typing import Any

from vkchi.types.core import Scalar
from vkchi.types.lazy_numpy import np


class NumpyLanes:
    """A numpy array `v` with operators. Python scalars as other operands are converted to its
    dtype."""

    __slots__ = ("v",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, v: Any) -> None:
        self.v = np.asarray(v)

    def like(self, x: NumpyLanes | float) -> Any:
        """The numpy array of x; a Python scalar becomes an array of this object's dtype."""
        return x.v if isinstance(x, NumpyLanes) else np.asarray(x, self.v.dtype)

    def apply(self, f: Any, *others: NumpyLanes | float) -> NumpyLanes:
        """Apply a numpy function to this and others, without warnings about overflow."""
        with np.errstate(all="ignore"):
            return NumpyLanes(f(self.v, *[self.like(x) for x in others]))

    def number(self, x: float) -> NumpyLanes:
        """A scalar of the same type."""
        return NumpyLanes(self.like(x))

    def cast(self, elem: Scalar) -> NumpyLanes:
        """Convert to another type; integers wrap."""
        return self.apply(lambda v: v.astype(elem.dtype))

    def bits(self, elem: Scalar) -> NumpyLanes:
        """Reinterpret as another type of the same width."""
        return NumpyLanes(self.v.view(elem.dtype))

    def where(self, yes: NumpyLanes | float, no: NumpyLanes | float) -> NumpyLanes:
        """Select `yes` where this mask is true, else `no`; one of them at least must be a
        NumpyLanes."""
        typed = yes if isinstance(yes, NumpyLanes) else no
        assert isinstance(typed, NumpyLanes)
        return NumpyLanes(np.where(self.v, typed.like(yes), typed.like(no)))

    def equals(self, x: NumpyLanes | float) -> NumpyLanes:
        """Elementwise equality."""
        return self.apply(np.equal, x)

    def at_least(self, other: NumpyLanes | float) -> NumpyLanes:
        """Elementwise maximum."""
        return self.apply(np.maximum, other)

    def at_most(self, other: NumpyLanes | float) -> NumpyLanes:
        """Elementwise minimum."""
        return self.apply(np.minimum, other)

    def __lt__(self, x: NumpyLanes | float) -> NumpyLanes:
        return self.apply(np.less, x)

    def __abs__(self) -> NumpyLanes:
        return self.apply(np.abs)

    def __invert__(self) -> NumpyLanes:
        return self.apply(np.invert)

    def __xor__(self, x: NumpyLanes | int) -> NumpyLanes:
        return self.apply(np.bitwise_xor, x)

    def __add__(self, x: NumpyLanes | float) -> NumpyLanes:
        return self.apply(np.add, x)

    def __sub__(self, x: NumpyLanes | float) -> NumpyLanes:
        return self.apply(np.subtract, x)

    def __mul__(self, x: NumpyLanes | float) -> NumpyLanes:
        return self.apply(np.multiply, x)

    def __and__(self, x: NumpyLanes | int) -> NumpyLanes:
        return self.apply(np.bitwise_and, x)

    def __or__(self, x: NumpyLanes | int) -> NumpyLanes:
        return self.apply(np.bitwise_or, x)

    def __lshift__(self, x: NumpyLanes | int) -> NumpyLanes:
        return self.apply(np.left_shift, x)

    def __rshift__(self, x: NumpyLanes | int) -> NumpyLanes:
        return self.apply(np.right_shift, x)
