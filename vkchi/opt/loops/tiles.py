"""Strip-mining of serial loops: split a range into whole tiles and a remainder.

>>> split_into_tiles(b, begin, end, 4)       # of 0..n: n / 4 tiles, and a remainder from n / 4 * 4
"""

from __future__ import annotations

from vkchi.ir.builder import Builder
from vkchi.ir.core import Value, constant_int
from vkchi.ir.iteration_space import as_type
from vkchi.tuples import NamedTuple
from vkchi.types import scalar_named, scalar_of


class Tiles(NamedTuple):
    """Number of whole tiles, and the first iteration of the remainder; None if proved empty."""

    number: Value
    rest: Value | None


def begin_of_tile(b: Builder, begin: Value, tile: Value, size: Value) -> Value:
    """Append code for the first iteration of a tile, and return it."""
    start = b.emit("mul", tile, size)
    return start if constant_int(begin) == 0 else b.emit("add", begin, start)


def split_into_tiles(b: Builder, begin: Value, end: Value, size: int) -> Tiles:
    """Append code that splits the range `begin` to `end` into tiles of `size` iterations, at least
    two. Returns their number and the begin of the remainder.

    The length is computed unsigned, so that it fits for every range.
    """
    t = scalar_of(begin.type)
    first, last = constant_int(begin), constant_int(end)
    if first is not None and last is not None:
        number, left = divmod(max(last - first, 0), size)
        rest = b.const(first + number * size, t) if left else None
        return Tiles(b.const(number, t), rest)
    u = scalar_named(f"u{t.bits}")
    length = b.emit("select", b.emit("lt", begin, end), as_type(b, b.emit("sub", end, begin), u),
                    b.const(0, u))  # fmt: skip
    counted = as_type(b, b.emit("floordiv", length, b.const(size, u)), t)
    return Tiles(counted, b.emit("add", begin, b.emit("mul", counted, b.const(size, t))))
