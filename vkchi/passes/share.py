"""How a fixed number of invocations shares the iterations of a `parallel`.

Subgroups take contiguous pieces of the iterations, and step through them side by side: with W
invocations in a subgroup and at most P iterations for each, the k-th of invocation t is number

    (t // W) * (W * P) + t % W + k * W

which a processor reads as one stream, and a graphics card in whole lines. (Steps of T, the usual
form, are three times slower on lavapipe: all of them fall into the same set of its cache.) With a
demanded workgroup size, W is that size, so that workgroups stay consecutive iterations. Numbers of
iterations are counted as u32, which holds that of every range of i32.

Several axes are digits of that number, the last one the fastest. They are found by division where
an invocation begins; from there on W is added digit by digit, with carries. Where all extents but
the slowest are constant powers of two, division is cheaper.

Where all extents are constants and the fastest is long, a processor's subgroups take whole rows, or
strips of one: what belongs to the row is found once for it, and digits need no carries.

    for u in units of my subgroup { row, strip of u; for k { column = strip + lane + k * W; ... } }

Where nobody knows before the loop runs that i32 counts all axes together, as many of the fast ones
as it does count are partitioned so, and every invocation goes through the others in loops around:

    for o in 0..outer { for k in 0..n { ... } }

Owns: this form. Must not know: which loops want it, how many invocations.

    >>> shared = partition(b, op, args, Crowd(8192, 8, is_cpu=True))
    >>> shared.emit(b, t, body)       # in a `parallel` over shared.threads
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from vkchi.analysis.host_numbers import host_length
from vkchi.ir.axes import INT_MAX, Order, Space, as_i32, as_type, space_of, total_of
from vkchi.ir.builder import Builder
from vkchi.ir.constants import constant_int, is_constant
from vkchi.ir.core import Op, Param, Value
from vkchi.ir.ops import ROLLED
from vkchi.passes.cost_model import FEW_ROUNDS, SPARE
from vkchi.tuples import NamedTuple
from vkchi.types import i32, u32

LONG_ROW = 8  # iterations of each invocation in a row, from which on rows are partitioned
SHORT_STRIP = 4  # and in a strip of one, at least

Body = Callable[[Sequence[Value], Value], None]
Step = Callable[[Value, Sequence[Value]], Sequence[Value]]


class Crowd(NamedTuple):
    """How many invocations there are at most, and how many of them run side by side, which divides
    that. `is_cpu` if those are a subgroup of a CPU. With `least`, there are as many whatever the
    host finds, and some of them go through no iterations where others would have fewer than
    that."""

    most: int
    width: int
    is_cpu: bool
    least: int = 0


class Rows(NamedTuple):
    """How groups of `width` invocations share constant extents whose fastest is `length`: each goes
    through `each` of `units`, which are `strips` of a row, of `long` iterations."""

    width: int
    length: int
    strips: int
    long: int
    units: int
    each: int

    @property
    def groups(self) -> int:
        """How many there are."""
        return -(-self.units // self.each)

    @property
    def is_exact(self) -> bool:
        """Whether all invocations go through as many iterations in each unit."""
        return self.long % self.width == 0 and self.strips * self.long == self.length


class Share(NamedTuple):
    """How `threads` (an i32) invocations share the iterations from `begin` on: `width` side by
    side, at most `most` (an i32) each; `total` is the number of all iterations, a u32, or None if
    each invocation has `most`. With `may_wrap`, offsets may go beyond 32 bits; `is_cpu` as that of
    the crowd."""

    begin: Value
    threads: Value
    width: int
    most: Value
    total: Value | None
    is_cpu: bool
    may_wrap: bool = False


class Shared(NamedTuple):
    """A `parallel` that is partitioned: one axis where there is no `space`, else its digits. Where
    there is `cut`, these are what is partitioned, and each invocation goes through the extents
    `outer` around them."""

    share: Share
    space: Space | None = None
    cut: Space | None = None
    outer: tuple[Value, ...] = ()
    rows: Rows | None = None

    @property
    def threads(self) -> Value:
        """The invocations, an i32."""
        return self.share.threads

    def emit(self, b: Builder, t: Value, body: Body) -> None:
        """Append what invocation t does: `body` with the indices of every iteration, and its
        number."""
        if self.rows is not None:
            self._in_rows(b, t, self.rows, body)
            return
        first = first_offset(b, self.share, t)
        trips = count_trips(b, self.share, first)
        if self.space is None:
            self._rounds(b, trips, (), lambda k, _: self._plain(b, first, k, body))
        elif self.space.is_cheap and not self.outer:
            self._rounds(b, trips, (), lambda k, _: self._divided(b, first, k, body))
        else:
            start = self.inner.split(b, as_type(b, first, u32))
            self._around(b, trips, start, [], body)

    def has_any(self, b: Builder, t: Value) -> Value | None:
        """Append whether any of the invocations beside invocation t has iterations; None where
        there is a constant number of them, of which nearly all have."""
        share = self.share
        if self.rows is not None or share.total is None or is_constant(share.total):
            return None
        group = b.emit("sub", t, b.emit("mod", t, b.const(share.width, i32)))
        at = b.emit("bitcast", first_offset(b, share, group), type=u32)
        return b.emit("lt", at, share.total)

    @property
    def inner(self) -> Space:
        """The digits that are partitioned."""
        return self.cut or self.whole

    @property
    def whole(self) -> Space:
        """All digits."""
        assert self.space is not None
        return self.space

    def _plain(self, b: Builder, first: Value, k: Value, body: Body) -> Sequence[Value]:
        i = iteration(b, self.share, first, k)
        body([i], i if constant_int(self.share.begin) == 0 else b.emit("sub", i, self.share.begin))
        return ()

    def _divided(self, b: Builder, first: Value, k: Value, body: Body) -> Sequence[Value]:
        i = iteration(b, self.share, first, k)
        body(self.inner.indices(b, self.inner.split(b, i)), i)
        return ()

    def _in_rows(self, b: Builder, t: Value, rows: Rows, body: Body) -> None:
        """What an invocation does of each unit of its group."""
        width = b.const(rows.width, i32)
        group, lane = b.emit("floordiv", t, width), b.emit("mod", t, width)
        if rows.each == 1:
            self._unit(b, group, lane, rows, body)
            return
        first = b.emit("mul", group, b.const(rows.each, i32))
        last = b.emit("add", first, b.const(rows.each, i32))
        if rows.groups * rows.each != rows.units:
            last = b.emit("min", last, b.const(rows.units, i32))
        u = Param(i32, "u")
        with b.region(u) as region:
            self._unit(b, u, lane, rows, body)
            b.span = None
            b.emit("yield")
        b.for_(first, last, (), region)

    def _unit(self, b: Builder, u: Value, lane: Value, rows: Rows, body: Body) -> None:
        """What an invocation does of one unit: the iterations of a row that are its own."""
        row, start, end = u, lane, b.const(rows.length, i32)
        if rows.strips > 1:
            strips, long = b.const(rows.strips, i32), b.const(rows.long, i32)
            row, strip = b.emit("floordiv", u, strips), b.emit("mod", u, strips)
            begin = b.emit("mul", strip, long)
            start, end = b.emit("add", begin, lane), b.emit("min", b.emit("add", begin, long), end)
        slow = self.whole.digits[:-1]
        outer = self.whole._replace(digits=slow).split(b, row)
        trips: Value = b.const(rows.long // rows.width, i32)
        if not rows.is_exact:
            trips = as_i32(b, b.emit("trip_count", start, end, b.const(rows.width, i32)))

        def step(k: Value, _: Sequence[Value]) -> Sequence[Value]:
            column = b.emit("add", start, b.emit("mul", k, b.const(rows.width, i32)), name="i")
            digits = [*outer, column]
            body(self.whole.indices(b, digits), self.whole.number(b, digits))
            return ()

        self._rounds(b, trips, (), step)

    def _around(
        self, b: Builder, trips: Value, start: list[Value], rounds: list[Value], body: Body
    ) -> None:
        """The loops through the outer extents, and what they are around."""
        if len(rounds) < len(self.outer):
            k = Param(u32, "o")
            with b.region(k) as region:
                self._around(b, trips, start, [*rounds, k], body)
                b.emit("yield")
            b.for_(b.const(0, u32), self.outer[len(rounds)], (), region)
            return
        steps = self.inner.split(b, b.const(self.share.width, u32))

        def step(_: Value, digits: Sequence[Value]) -> Sequence[Value]:
            values = list(digits)
            for at, o in enumerate(rounds):
                values[at] = b.emit("add", values[at], o)
            body(self.whole.indices(b, values), self.whole.number(b, values))
            return self._following(b, digits, steps)

        self._rounds(b, trips, start, step)

    def _rounds(self, b: Builder, trips: Value, first: Sequence[Value], step: Step) -> None:
        """A `for` that runs `trips` times, from 0, and carries what `step` gives. Where a driver
        sees how many that are at most, a CPU's should not write them one after the other."""
        k, carried = Param(i32, "k"), [Param(v.type, "d") for v in first]
        with b.region(k, *carried) as region:
            following = step(k, carried)
            b.span = None
            b.emit("yield", *following)
        most = constant_int(trips if self.rows is not None else self.share.most)
        is_rolled = most is not None and most > FEW_ROUNDS and self.share.is_cpu
        b.for_(b.const(0, i32), trips, first, region, ROLLED if is_rolled else None)

    def _following(
        self, b: Builder, digits: Sequence[Value], steps: Sequence[Value]
    ) -> list[Value]:
        """The digits of the number that is `steps` more.

        No sum that is used wraps: where there are two extents above 1, i32 counts them together
        (`cut_space`, or the host), so that a digit and a step are below 2**31 each; a single one is
        the number itself, and one beyond the last iteration's is not used.
        """
        found: list[Value] = []
        carry: Value | None = None
        for at in reversed(range(len(digits))):
            v: Value = b.emit("add", digits[at], steps[at])
            v = b.emit("add", v, carry) if carry is not None else v
            if at:
                extent = as_type(b, self.inner.digits[at].extent, u32)
                goes_round = b.emit("ge", v, extent)
                carry = b.emit("cast", goes_round, type=u32)
                v = b.emit("select", goes_round, b.emit("sub", v, extent), v)
            found.append(v)
        return found[::-1]


def partition(b: Builder, op: Op, args: Sequence[Value], crowd: Crowd, order: Order = ()) -> Shared:
    """Partition the iterations of a `parallel` with these bounds, of which there may be too many
    for i32 only where the host does not see it. There is one invocation for each iteration at most
    if the host finds how many there are."""
    if len(args) == 2 and not order:
        return Shared(share_range(b, op, args, crowd))
    space = space_of(b, args, order)
    zero = b.const(0, i32)
    if host_length(op) is not None:
        rows = plan_rows(space, crowd) if op.attr is None else None
        if rows is not None:
            threads = b.const(rows.groups * rows.width, i32)
            whole = Share(zero, threads, rows.width, b.const(rows.each, i32), None, crowd.is_cpu)
            return Shared(whole, space, rows=rows)
        total = total_of(b, space)
        return Shared(share_range(b, op, (zero, total), crowd), space)
    inner, outer, count = cut_space(b, space)
    pieces = share_count(b, zero, count, b.const(crowd.most, i32), crowd)
    return Shared(pieces, space, inner, outer)


def plan_rows(space: Space, crowd: Crowd) -> Rows | None:
    """The partition of rows among a CPU's subgroups; None for rows that are short or unknown."""
    extents = [constant_int(digit.extent) for digit in space.digits]
    known = [n for n in extents if n is not None]
    if not crowd.is_cpu or len(known) < len(extents) or min(known) < 1:
        return None
    count, length, groups = prod(known[:-1]), known[-1], crowd.most // crowd.width
    if length < LONG_ROW * crowd.width:
        return None
    wanted = -(-max(1, groups // SPARE) // count)
    strips = max(1, min(wanted, length // (SHORT_STRIP * crowd.width)))
    long = -(-length // (strips * crowd.width)) * crowd.width if strips > 1 else length
    strips = -(-length // long)
    each = -(-count * strips // groups)
    return Rows(crowd.width, length, strips, long, count * strips, each)


def cut_space(b: Builder, space: Space) -> tuple[Space, tuple[Value, ...], Value]:
    """The space with extents of 1 where i32 would not count it, the extents that are missing there,
    of all but the fastest, and the number of iterations that are left in it."""
    most, one = b.const(INT_MAX, u32), b.const(1, u32)
    extents = [as_type(b, digit.extent, u32) for digit in space.digits]
    count, inner, outer = extents[-1], [extents[-1]], []
    for extent in extents[-2::-1]:
        room = b.emit("floordiv", most, b.emit("max", count, one))
        fits = b.emit("le", extent, room)
        inner.append(b.emit("select", fits, extent, one))
        outer.append(b.emit("select", fits, one, extent))
        count = b.emit("mul", count, inner[-1])
    digits = [d._replace(extent=e) for d, e in zip(space.digits, inner[::-1], strict=True)]
    none = b.emit("eq", count, b.const(0, u32))  # nor a round around nothing
    outer = [b.emit("select", none, b.const(0, u32), extent) for extent in outer]
    return space._replace(digits=tuple(digits)), tuple(outer[::-1]), count


def share_range(b: Builder, op: Op, args: Sequence[Value], crowd: Crowd) -> Share:
    """Share out the numbers from a begin to an end, the iterations of `op`."""
    begin, end = args
    first, last = constant_int(begin), constant_int(end)
    limit = crowd.most
    if first is not None and last is not None:
        n = max(0, last - first)
        most = -(-n // limit)
        exact = most * limit == n
        total = None if exact else b.const(n, u32)
        return Share(
            begin, b.const(limit, i32), crowd.width, b.const(most, i32), total, crowd.is_cpu
        )
    known = host_length(op) is not None  # a launch checks then that i32 holds it
    if known and first == 0:
        count = b.emit("bitcast", end, type=u32)  # what runs at all has a positive length
    else:
        count = b.emit("trip_count", begin, end, b.const(1, i32))
    threads: Value = b.const(limit, i32)
    if known and not crowd.least:
        threads = b.emit("min", end if first == 0 else as_i32(b, count), threads)
    shared = share_count(b, begin, count, threads, crowd)
    return shared._replace(may_wrap=False) if known and not crowd.least else shared


def share_count(b: Builder, begin: Value, count: Value, threads: Value, crowd: Crowd) -> Share:
    """Share out so many iterations, a u32."""
    step = as_type(b, threads, u32)
    left = b.emit("ne", b.emit("mod", count, step), b.const(0, u32))
    most = b.emit("add", b.emit("floordiv", count, step), b.emit("cast", left, type=u32))
    if crowd.least:
        most = b.emit("max", most, b.const(crowd.least, u32))
    # else limit * most is 2**32 at most
    may_wrap = crowd.most & (crowd.most - 1) != 0 or crowd.least > 1
    return Share(begin, threads, crowd.width, as_i32(b, most), count, crowd.is_cpu, may_wrap)


def first_offset(b: Builder, share: Share, t: Value) -> Value:
    """The number of the first iteration of invocation t, counted from begin, an i32."""
    width = b.const(share.width, i32)
    piece = b.emit("mul", share.most, width)
    lane, group = b.emit("mod", t, width), b.emit("floordiv", t, width)
    first = b.emit("add", b.emit("mul", group, piece), lane)
    if not share.may_wrap or share.total is None:
        return first
    above = b.emit("sub", b.const(-1, i32), lane)  # the last offset, less that within the piece
    pieces = b.emit("floordiv", *[b.emit("bitcast", v, type=u32) for v in (above, piece)])
    fits = b.emit("le", b.emit("bitcast", group, type=u32), pieces)
    return b.emit("select", fits, first, as_i32(b, share.total))


def count_trips(b: Builder, share: Share, first: Value) -> Value:
    """The number of iterations of the invocation that begins at `first`, an i32."""
    if share.total is None:
        return share.most
    at = b.emit("bitcast", first, type=u32)
    trips = as_i32(b, b.emit("trip_count", at, share.total, b.const(share.width, u32)))
    return b.emit("min", trips, share.most)


def iteration(b: Builder, share: Share, first: Value, k: Value) -> Value:
    """The k-th iteration of the invocation that begins at `first`, an i32."""
    here = first if constant_int(share.begin) == 0 else b.emit("add", share.begin, first)
    return b.emit("add", here, b.emit("mul", k, b.const(share.width, i32)), name="i")
