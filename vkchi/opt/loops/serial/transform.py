"""Transformations of serial loops that passes share: strip-mining, full and partial unrolling.

split(b, begin, end, 4)             # of 0..n: n / 4 tiles, and a remainder from n / 4 * 4
Unroller(b, known, chosen).unroll(loop)
unroll_by(Cloner(b), loop, args, 4)
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.core import Op, Param, Value, constant_int
from vkchi.ir.iteration_space import as_type
from vkchi.ir.ops import NOUNROLL, constant_trip_count
from vkchi.ir.rebuild import Cloner
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, i32, scalar_named, scalar_of


class Tiles(NamedTuple):
    """Number of whole tiles, and the first iteration of the remainder; None if proved empty."""

    number: Value
    rest: Value | None


def begin_of_tile(b: Builder, begin: Value, tile: Value, size: Value) -> Value:
    """Append code for the first iteration of a tile, and return it."""
    start = b.emit("mul", tile, size)
    return start if constant_int(begin) == 0 else b.emit("add", begin, start)


def split(b: Builder, begin: Value, end: Value, size: int) -> Tiles:
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


def unroll_by(
    copy: Cloner,
    loop: Op,
    args: Sequence[Value],
    factor: int,
    skipped: int = 0,
    most: int | None = None,
) -> Sequence[Value]:
    """Append `skipped` peeled iterations, the loop unrolled by `factor`, and a loop over the
    remainder. Returns the results.

    If there are more than `most` groups, a known number, drivers must not unroll the loop further.
    Precondition: the index is an i32; the begin is a constant if iterations are peeled.
    """
    b, body, (begin, end, *values) = copy.b, loop.regions[0], args
    for _ in range(skipped):
        values = copy.inline(body, (begin, *values))
        begin = b.const((constant_int(begin) or 0) + 1, i32)
    tiles, rest = split(b, begin, end, factor)
    index, *carried = [Param(p.type, p.name) for p in body.params]
    with b.region(index, *carried) as region:
        start = begin_of_tile(b, begin, index, b.const(factor, i32))
        following: list[Value] = [*carried]
        for k in range(factor):
            at = b.emit("add", start, b.const(k, i32), name=index.name) if k else start
            following = copy.inline(body, (at, *following))
        b.emit("yield", *following)
    count = constant_int(tiles)
    is_rolled = most is not None and count is not None and count > most
    hint = NOUNROLL if is_rolled else None
    found = b.for_(b.const(0, i32), tiles, values, region, hint).results
    if rest is None:
        return found
    return b.for_(rest, end, found, copy.region(loop, body)).results


def unrolled_size(ops: Sequence[Op], chosen: Collection[Op]) -> int:
    """Return the number of ops after full unrolling of the `chosen` loops, including nested ones
    and each `yield`."""
    total = 0
    for op in ops:
        inside = sum(unrolled_size(region.ops, chosen) for region in op.regions)
        total += inside * (constant_trip_count(op) or 0) if op in chosen else 1 + inside
    return total


class Unroller(Cloner):
    """Copies ops, and fully unrolls the `chosen` loops among them, whose trip count is constant.
    The `elem` ops `unproved` lose the proof of being in range."""

    def __init__(
        self, b: Builder, known: dict[Value, Value], chosen: set[Op], unproved: Container[Op] = ()
    ) -> None:
        super().__init__(b, known)
        self.chosen, self.unproved = chosen, unproved

    def visit(self, op: Op) -> None:
        if op in self.chosen:
            self.unroll(op)
        else:
            super().visit(op)

    def copy(self, op: Op, *args: Value) -> Op:
        if op not in self.unproved:
            return super().copy(op, *args)
        new = self.map[op] = self.b.emit("elem", *map(self.get, op.args), name=op.name)
        return new

    def unroll(self, op: Op) -> Sequence[Value]:
        """Append all iterations of a loop, map its results, and return them."""
        body, begin = op.regions[0], constant_int(op.args[0])
        t = body.params[0].type
        assert begin is not None and isinstance(t, Scalar)
        values = [self.get(v) for v in op.args[2:]]
        for k in range(constant_trip_count(op) or 0):
            self.b.span = op.span
            values = self.inline(body, (self.b.const(begin + k, t), *values))
        self.map.update(zip(op.results, values, strict=True))
        return values
