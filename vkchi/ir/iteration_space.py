"""Linearization of the iteration space of a `parallel`: mixed-radix digits of an iteration number.

By default each axis is one digit and the last axis varies fastest. An `Order` may cut an axis into
several digits and reorder them. Precondition: indices are i32.

    >>> space = space_of(b, op.args)
    >>> space.indices(b, space.split(b, t))     # t // n, t % n
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.core import Value, constant_int
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, i32, u32

INT_MAX = (1 << 31) - 1


class IterationDigit(NamedTuple):
    """One mixed-radix digit of an axis's index: the index from its begin is the sum of weight *
    digit.

    A digit is in [0, extent); `extent` is a non-negative i32, or a u32.
    """

    axis: int
    extent: Value
    weight: int = 1


class IterationSpace(NamedTuple):
    """An iteration space: the begin of each axis, and the digits of an iteration number, slowest
    first."""

    begins: tuple[Value, ...]
    digits: tuple[IterationDigit, ...]

    def indices(self, b: Builder, values: Sequence[Value]) -> list[Value]:
        """Append ops that compute the i32 index of each axis from digit values; return the
        indices."""
        found: dict[int, Value] = {}
        for digit, v in zip(self.digits, values, strict=True):
            v = as_i32(b, v)
            if digit.weight != 1:
                v = b.emit("mul", v, b.const(digit.weight, i32))
            found[digit.axis] = b.emit("add", found[digit.axis], v) if digit.axis in found else v
        return [add_begin(b, found[axis], begin) for axis, begin in enumerate(self.begins)]

    def number(self, b: Builder, values: Sequence[Value]) -> Value:
        """Append ops that compute the linear iteration number of digit values: an i32, modulo
        2**32."""
        total = as_i32(b, values[0])
        for digit, v in zip(self.digits[1:], values[1:], strict=True):
            product = b.emit("mul", total, as_i32(b, digit.extent))
            total = b.emit("add", product, as_i32(b, v))
        return total

    def split(self, b: Builder, number: Value) -> list[Value]:
        """Append ops that split a linear iteration number into its digits, of the same type."""
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
        """True if all extents but the slowest are constant powers of two, by which `split` divides
        cheaply."""
        extents = [constant_int(digit.extent) for digit in self.digits[1:]]
        return all(n is not None and n > 0 and n & (n - 1) == 0 for n in extents)


def add_begin(b: Builder, index: Value, begin: Value) -> Value:
    """Return `index + begin`; appends nothing if `begin` is the constant 0."""
    return index if constant_int(begin) == 0 else b.emit("add", index, begin)


def as_i32(b: Builder, v: Value) -> Value:
    return as_type(b, v, i32)


def as_type(b: Builder, v: Value, t: Scalar) -> Value:
    """Return a 32-bit integer as type `t`, i32 or u32, with the same bits.

    Appends a bitcast, or a constant for a constant; nothing if the type fits.
    """
    if v.type is t:
        return v
    n = constant_int(v)
    return b.emit("bitcast", v, type=t) if n is None or n < 0 else b.const(n, t)


# --- iteration spaces of loops -------------------------------------------------------------------

# (axis, extent, weight) of each digit, slowest first; extent 0 stands for the whole axis.
Order = tuple[tuple[int, int, int], ...]


def space_of(b: Builder, args: Sequence[Value], order: Order = ()) -> IterationSpace:
    """Return the iteration space of a `parallel` with bounds `args`: one digit per axis, or
    `order`."""
    begins = tuple(args[::2])
    order = order or tuple([(axis, 0, 1) for axis in range(len(begins))])
    digits = [
        IterationDigit(
            k, b.const(n, i32) if n else axis_trip_count(b, *args[2 * k : 2 * k + 2]), weight
        )
        for k, n, weight in order
    ]
    return IterationSpace(begins, tuple(digits))


def axis_trip_count(b: Builder, begin: Value, end: Value) -> Value:
    """Return the length of an axis, at least 0: an i32, or a u32 if it may exceed i32.

    Constant bounds give a constant, others append ops.
    """
    first, last = constant_int(begin), constant_int(end)
    if first is not None and last is not None:
        n = max(0, last - first)
        return b.const(n, i32 if n <= INT_MAX else u32)
    if first is None or first < 0:
        return b.emit("trip_count", begin, end, b.const(1, i32))
    end = b.emit("max", end, begin)
    return b.emit("sub", end, begin) if first else end


def iteration_count(b: Builder, space: IterationSpace) -> Value:
    """Append ops that compute the iteration count; return it as an i32. Precondition: it fits."""
    total = as_i32(b, space.digits[0].extent)
    for digit in space.digits[1:]:
        total = b.emit("mul", total, as_i32(b, digit.extent))
    return total


def iteration_count_or_zero(b: Builder, space: IterationSpace) -> Value:
    """Append ops that compute the iteration count; return it as an i32, or 0 if it does not fit."""
    fits, total = checked_iteration_count(b, space, INT_MAX)
    return as_i32(b, b.emit("select", fits, total, b.const(0, u32)))


def checked_iteration_count(b: Builder, space: IterationSpace, limit: int) -> tuple[Value, Value]:
    """Return (count <= limit, count) as a u1 and a u32, computed by appended ops.

    The count is valid only if the first is true.
    """
    most, one = b.const(limit, u32), b.const(1, u32)
    total = least = as_type(b, space.digits[0].extent, u32)
    fits = b.emit("le", total, most)
    for digit in space.digits[1:]:
        extent = as_type(b, digit.extent, u32)
        room = b.emit("floordiv", most, b.emit("max", extent, one))
        fits = b.emit("and", fits, b.emit("le", total, room))
        total, least = b.emit("mul", total, extent), b.emit("min", least, extent)
    is_empty = b.emit("eq", least, b.const(0, u32))  # for any other axes
    return b.emit("or", fits, is_empty), total


def linear_iteration(b: Builder, args: Sequence[Value], indices: Sequence[Value]) -> Value:
    """Return the linear iteration number, an i32, of the indices of a `parallel` with bounds
    `args`."""
    from_0 = [b.emit("sub", i, begin) for i, begin in zip(indices, args[::2], strict=True)]
    return space_of(b, args).number(b, from_0) if len(from_0) > 1 else from_0[0]
