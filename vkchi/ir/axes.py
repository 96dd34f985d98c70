"""The axes of a `parallel` as digits of one number: that of an iteration.

The last axis is the fastest; or, in another order, axes may be cut into several digits. Indices are
of i32 here.

Owns: numbers from indices and back, numbers of iterations, as IR. Must not know: who counts.

    >>> space = space_of(b, op.args)
    >>> space.indices(b, space.split(b, t))     # t // n, t % n
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.constants import constant_int
from vkchi.ir.core import Value
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, i32, u32

INT_MAX = (1 << 31) - 1


class Digit(NamedTuple):
    """A part of an axis's index, counted from its begin: `weight` times a number below `extent`, an
    i32 or u32 that is not negative."""

    axis: int
    extent: Value
    weight: int = 1


class Space(NamedTuple):
    """The axes of a `parallel` with these begins, as digits, the slowest first."""

    begins: tuple[Value, ...]
    digits: tuple[Digit, ...]

    def indices(self, b: Builder, values: Sequence[Value]) -> list[Value]:
        """The index of each axis, as an i32, of digits with these values."""
        found: dict[int, Value] = {}
        for digit, v in zip(self.digits, values, strict=True):
            v = as_i32(b, v)
            if digit.weight != 1:
                v = b.emit("mul", v, b.const(digit.weight, i32))
            found[digit.axis] = b.emit("add", found[digit.axis], v) if digit.axis in found else v
        return [moved(b, found[axis], begin) for axis, begin in enumerate(self.begins)]

    def number(self, b: Builder, values: Sequence[Value]) -> Value:
        """The number of the iteration whose digits have these values, modulo 2**32, an i32."""
        total = as_i32(b, values[0])
        for digit, v in zip(self.digits[1:], values[1:], strict=True):
            product = b.emit("mul", total, as_i32(b, digit.extent))
            total = b.emit("add", product, as_i32(b, v))
        return total

    def split(self, b: Builder, number: Value) -> list[Value]:
        """The digits of an iteration's number, of its type."""
        t = number.type
        assert isinstance(t, Scalar)
        quotient, rest = ("truncdiv", "rem") if t is i32 else ("floordiv", "mod")
        found: list[Value] = []
        for digit in self.digits[:0:-1]:
            extent = as_type(b, digit.extent, t)
            found.append(b.emit(rest, number, extent))
            number = b.emit(quotient, number, extent)
        return [number, *found[::-1]]

    @property
    def is_cheap(self) -> bool:
        """Whether dividing by the extents costs next to nothing."""
        extents = [constant_int(digit.extent) for digit in self.digits[1:]]
        return all(n is not None and n > 0 and n & (n - 1) == 0 for n in extents)


def moved(b: Builder, index: Value, begin: Value) -> Value:
    """An index counted from 0, counted from `begin`."""
    return index if constant_int(begin) == 0 else b.emit("add", index, begin)


def as_i32(b: Builder, v: Value) -> Value:
    """A u32 as the i32 of the same bits."""
    return as_type(b, v, i32)


def as_type(b: Builder, v: Value, t: Scalar) -> Value:
    """An integer of 32 bits as the other of the same bits."""
    if v.type is t:
        return v
    n = constant_int(v)
    return b.emit("bitcast", v, type=t) if n is None or n < 0 else b.const(n, t)


# --- axes ----------------------------------------------------------------------------------------

# Axis, values and weight of each digit, the slowest first; as many values as the axis has if 0.
Order = tuple[tuple[int, int, int], ...]


def space_of(b: Builder, args: Sequence[Value], order: Order = ()) -> Space:
    """The axes with these bounds: one digit each, or such as `order` says."""
    begins = tuple(args[::2])
    order = order or tuple([(axis, 0, 1) for axis in range(len(begins))])
    digits = [
        Digit(k, b.const(n, i32) if n else extent_of(b, *args[2 * k : 2 * k + 2]), weight)
        for k, n, weight in order
    ]
    return Space(begins, tuple(digits))


def extent_of(b: Builder, begin: Value, end: Value) -> Value:
    """How long an axis is, 0 at least: an i32, or a u32 where i32 may not hold it."""
    first, last = constant_int(begin), constant_int(end)
    if first is not None and last is not None:
        n = max(0, last - first)
        return b.const(n, i32 if n <= INT_MAX else u32)
    if first is None or first < 0:
        return b.emit("trip_count", begin, end, b.const(1, i32))
    end = b.emit("max", end, begin)
    return b.emit("sub", end, begin) if first else end


def total_of(b: Builder, space: Space) -> Value:
    """The number of iterations, an i32, which holds it."""
    total = as_i32(b, space.digits[0].extent)
    for digit in space.digits[1:]:
        total = b.emit("mul", total, as_i32(b, digit.extent))
    return total


def guarded_total(b: Builder, space: Space) -> Value:
    """The same, or 0 where i32 does not hold it."""
    fits, total = checked_total(b, space, INT_MAX)
    return as_i32(b, b.emit("select", fits, total, b.const(0, u32)))


def checked_total(b: Builder, space: Space, limit: int) -> tuple[Value, Value]:
    """Whether there are no more iterations than that, and their number, a u32, if so."""
    most, one = b.const(limit, u32), b.const(1, u32)
    total = least = as_type(b, space.digits[0].extent, u32)
    fits = b.emit("le", total, most)
    for digit in space.digits[1:]:
        extent = as_type(b, digit.extent, u32)
        room = b.emit("floordiv", most, b.emit("max", extent, one))
        fits = b.emit("and", fits, b.emit("le", total, room))
        total, least = b.emit("mul", total, extent), b.emit("min", least, extent)
    is_empty = b.emit("eq", least, b.const(0, u32))  # however long the other axes
    return b.emit("or", fits, is_empty), total


def number_of(b: Builder, args: Sequence[Value], indices: Sequence[Value]) -> Value:
    """The number of the iteration with these indices, of a `parallel` with these bounds, an i32."""
    from_0 = [b.emit("sub", i, begin) for i, begin in zip(indices, args[::2], strict=True)]
    return space_of(b, args).number(b, from_0) if len(from_0) > 1 else from_0[0]
