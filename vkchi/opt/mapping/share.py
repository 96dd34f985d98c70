"""Work distribution: partition a `parallel`'s iterations among a fixed number of invocations.

Each subgroup takes a contiguous chunk of the iterations, and its lanes step through it side by
side. With W invocations in a subgroup and at most P iterations each, the k-th iteration of
invocation t is

    (t // W) * (W * P) + t % W + k * W

A CPU reads this as one stream, a GPU as whole cache lines. If a workgroup size is demanded, W is
that size. Workgroups then remain consecutive iterations. Iteration counts are u32, which holds the
length of every i32 range.

With several axes, the indices are the mixed-radix digits of that number, the last axis fastest.
Divisions find them at an invocation's first iteration; later ones add W digit by digit with carry.
If all extents but the slowest are constant powers of two, division is cheaper and used throughout.

If all extents are constants and the fastest is long, the subgroups of a CPU take whole rows, or
strips of a row. Row-invariant values are then computed once per row, without carries.

    for u in units of my subgroup { row, strip of u; for k { column = strip + lane + k * W; ... } }

If the product of all extents may exceed i32, only as many of the fast axes as fit are partitioned.
Every invocation iterates over the other axes in outer loops:

    for o in 0..outer { for k in 0..n { ... } }

    >>> shared = partition_iterations(b, op, args, ThreadBudget(8192, 8, has_subgroups=True))
    >>> shared.emit(b, t, body)       # in a `parallel` over shared.threads
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from vkchi.analysis.values.host_numbers import host_length
from vkchi.ir.builder import Builder
from vkchi.ir.core import Op, Param, Value, constant_int, is_constant
from vkchi.ir.iteration_space import (
    INT_MAX,
    IterationSpace,
    Order,
    as_i32,
    as_type,
    iteration_count,
    space_of,
)
from vkchi.ir.ops import NOUNROLL
from vkchi.target import tuning
from vkchi.tuples import NamedTuple
from vkchi.types import i32, u32

Body = Callable[[Sequence[Value], Value], None]
Step = Callable[[Value, Sequence[Value]], Sequence[Value]]


class ThreadBudget(NamedTuple):
    """Limits of a work distribution.

    - `most`: maximum number of invocations, a multiple of `width`.
    - `width`: invocations that run side by side; `has_subgroups` if these are a subgroup of a CPU.
    - `least`: if nonzero, minimum of iterations per invocation, unless their number is a constant.
      The number of invocations is then always `most`, and some may have no iterations.
    - `grain`: otherwise, iterations per invocation from which another subgroup is used, unless
      their number is a constant.
    """

    most: int
    width: int
    has_subgroups: bool
    least: int = 0
    grain: int = 1


class RowPartition(NamedTuple):
    """Partition of constant extents by rows of `length` iterations.

    A row has `strips` of `long` iterations, the last possibly shorter; a strip is a unit. Each
    group of `width` invocations takes `each` of the `units`.
    """

    width: int
    length: int
    strips: int
    long: int
    units: int
    each: int

    @property
    def groups(self) -> int:
        return -(-self.units // self.each)

    @property
    def is_exact(self) -> bool:
        """True if all invocations execute the same number of iterations in each unit."""
        return self.long % self.width == 0 and self.strips * self.long == self.length


class RangePartition(NamedTuple):
    """Partition of a range of iterations that starts at `begin`.

    - `threads`: number of invocations, an i32; `width` of them run side by side.
    - `most`: maximum of iterations per invocation, an i32.
    - `total`: number of all iterations, a u32; None if each invocation has `most`.
    - `has_subgroups`: as in `ThreadBudget`.
    - `may_wrap`: offsets may exceed 32 bits.
    """

    begin: Value
    threads: Value
    width: int
    most: Value
    total: Value | None
    has_subgroups: bool
    may_wrap: bool = False


class WorkDistribution(NamedTuple):
    """A partitioned `parallel`.

    `space` holds its digits, or is None for a single axis. With `cut`, only those digits are
    partitioned, and each invocation iterates over the extents `outer` around them. `rows` is set if
    rows are partitioned.
    """

    share: RangePartition
    space: IterationSpace | None = None
    cut: IterationSpace | None = None
    outer: tuple[Value, ...] = ()
    rows: RowPartition | None = None

    @property
    def threads(self) -> Value:
        return self.share.threads

    def emit(self, b: Builder, t: Value, body: Body) -> None:
        """Append the work of invocation t.

        `body` is called with the indices of an iteration and its linear index.
        """
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
        """Append a test that the subgroup of invocation t has iterations.

        None if the total is constant or rows are partitioned; nearly all invocations then have
        some.
        """
        share = self.share
        if self.rows is not None or share.total is None or is_constant(share.total):
            return None
        group = b.emit("sub", t, b.emit("mod", t, b.const(share.width, i32)))
        at = b.emit("bitcast", first_offset(b, share, group), type=u32)
        return b.emit("lt", at, share.total)

    @property
    def inner(self) -> IterationSpace:
        return self.cut or self.whole

    @property
    def whole(self) -> IterationSpace:
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

    def _in_rows(self, b: Builder, t: Value, rows: RowPartition, body: Body) -> None:
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

    def _unit(self, b: Builder, u: Value, lane: Value, rows: RowPartition, body: Body) -> None:
        """Append an invocation's iterations in one unit."""
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
        """Append a `for` of `trips` iterations that carries the results of `step`.

        On CPUs it is marked as not to be unrolled if its constant maximum trip count exceeds
        CPUS_UNROLL.
        """
        k, carried = Param(i32, "k"), [Param(v.type, "d") for v in first]
        with b.region(k, *carried) as region:
            following = step(k, carried)
            b.span = None
            b.emit("yield", *following)
        most = constant_int(trips if self.rows is not None else self.share.most)
        is_rolled = most is not None and most > tuning.CPUS_UNROLL and self.share.has_subgroups
        b.for_(b.const(0, i32), trips, first, region, NOUNROLL if is_rolled else None)

    def _following(
        self, b: Builder, digits: Sequence[Value], steps: Sequence[Value]
    ) -> list[Value]:
        """Add `steps` to a mixed-radix number, digit by digit with carry.

        No used sum wraps. With two extents above 1, their product fits i32 (`cut_space`, or the
        host), so digits and steps are below 2**31. A single extent is the number itself; a value
        beyond the last iteration is not used.
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


def partition_iterations(
    b: Builder, op: Op, args: Sequence[Value], crowd: ThreadBudget, order: Order = ()
) -> WorkDistribution:
    """Partition the iterations of a `parallel` with these bounds.

    If the host computes the number of iterations, it fits i32. If that number is dynamic and
    `crowd.least` is zero, there is at most one invocation per iteration.
    """
    if len(args) == 2 and not order:
        return WorkDistribution(share_range(b, op, args, crowd))
    space = space_of(b, args, order)
    zero = b.const(0, i32)
    if host_length(op) is not None:
        rows = plan_rows(space, crowd) if op.attr is None else None
        if rows is not None:
            threads = b.const(rows.groups * rows.width, i32)
            whole = RangePartition(
                zero, threads, rows.width, b.const(rows.each, i32), None, crowd.has_subgroups
            )
            return WorkDistribution(whole, space, rows=rows)
        total = iteration_count(b, space)
        return WorkDistribution(share_range(b, op, (zero, total), crowd), space)
    inner, outer, count = cut_space(b, space)
    pieces = share_count(b, zero, count, b.const(crowd.most, i32), crowd)
    return WorkDistribution(pieces, space, inner, outer)


def plan_rows(space: IterationSpace, crowd: ThreadBudget) -> RowPartition | None:
    """Return a partition of rows among a CPU's subgroups.

    None for GPUs, for rows of fewer than SHARE_ROW iterations per lane, and for extents that are
    not positive constants.
    """
    extents = [constant_int(digit.extent) for digit in space.digits]
    known = [n for n in extents if n is not None]
    if not crowd.has_subgroups or len(known) < len(extents) or min(known) < 1:
        return None
    count, length, groups = prod(known[:-1]), known[-1], crowd.most // crowd.width
    if length < tuning.SHARE_ROW * crowd.width:
        return None
    wanted = -(-max(1, groups // tuning.SPARE) // count)
    strips = max(1, min(wanted, length // (tuning.SHARE_STRIP * crowd.width)))
    long = -(-length // (strips * crowd.width)) * crowd.width if strips > 1 else length
    strips = -(-length // long)
    each = -(-count * strips // groups)
    return RowPartition(crowd.width, length, strips, long, count * strips, each)


def cut_space(b: Builder, space: IterationSpace) -> tuple[IterationSpace, tuple[Value, ...], Value]:
    """Split a space into a part that i32 can count and outer extents.

    Returns the space with oversized extents replaced by 1, the outer extents, and the number of
    iterations of that space. Each digit but the fastest has an outer extent: the replaced one, else
    1; all are 0 if the part is empty.
    """
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
    none = b.emit("eq", count, b.const(0, u32))  # no outer iterations around an empty loop
    outer = [b.emit("select", none, b.const(0, u32), extent) for extent in outer]
    return space._replace(digits=tuple(digits)), tuple(outer[::-1]), count


def share_range(b: Builder, op: Op, args: Sequence[Value], crowd: ThreadBudget) -> RangePartition:
    """Partition a range of iterations with the bounds `args`: the only axis of `op`, or the linear
    indices of all its axes."""
    begin, end = args
    first, last = constant_int(begin), constant_int(end)
    limit = crowd.most
    if first is not None and last is not None:
        n = max(0, last - first)
        most = -(-n // limit)
        exact = most * limit == n
        total = None if exact else b.const(n, u32)
        return RangePartition(
            begin, b.const(limit, i32), crowd.width, b.const(most, i32), total, crowd.has_subgroups
        )
    known = host_length(op) is not None  # the launch checks that it fits i32
    if known and first == 0 and not crowd.least:
        count = b.emit("bitcast", end, type=u32)  # without iterations there are no invocations
    else:
        count = b.emit("trip_count", begin, end, b.const(1, i32))
    threads: Value = b.const(limit, i32)
    if known and not crowd.least:
        wanted = most_useful(b, end if first == 0 else as_i32(b, count), crowd)
        threads = b.emit("min", wanted, threads)
    shared = share_count(b, begin, count, threads, crowd)
    return shared._replace(may_wrap=False) if known and not crowd.least else shared


def most_useful(b: Builder, count: Value, crowd: ThreadBudget) -> Value:
    """Append the number of invocations for `count` iterations, an i32: one each, or whole subgroups
    with at most `crowd.grain` each."""
    if crowd.grain == 1:
        return count
    zero, piece = b.const(0, i32), b.const(crowd.grain * crowd.width, i32)
    subgroups = as_i32(b, b.emit("trip_count", zero, count, piece))
    return b.emit("min", count, b.emit("mul", subgroups, b.const(crowd.width, i32)))


def share_count(
    b: Builder, begin: Value, count: Value, threads: Value, crowd: ThreadBudget
) -> RangePartition:
    """Partition `count` iterations, a u32, among `threads` invocations."""
    step = as_type(b, threads, u32)
    left = b.emit("ne", b.emit("mod", count, step), b.const(0, u32))
    most = b.emit("add", b.emit("floordiv", count, step), b.emit("cast", left, type=u32))
    if crowd.least:
        most = b.emit("max", most, b.const(crowd.least, u32))
    # otherwise limit * most is at most 2**32
    may_wrap = crowd.most & (crowd.most - 1) != 0 or crowd.least > 1
    return RangePartition(
        begin, threads, crowd.width, as_i32(b, most), count, crowd.has_subgroups, may_wrap
    )


def first_offset(b: Builder, share: RangePartition, t: Value) -> Value:
    """Append the offset of invocation t's first iteration from `begin`, an i32. If the offset would
    wrap, it is the total, so that there are no iterations."""
    width = b.const(share.width, i32)
    piece = b.emit("mul", share.most, width)
    lane, group = b.emit("mod", t, width), b.emit("floordiv", t, width)
    first = b.emit("add", b.emit("mul", group, piece), lane)
    if not share.may_wrap or share.total is None:
        return first
    above = b.emit("sub", b.const(-1, i32), lane)  # largest offset of the chunk's first iteration
    pieces = b.emit("floordiv", *[b.emit("bitcast", v, type=u32) for v in (above, piece)])
    fits = b.emit("le", b.emit("bitcast", group, type=u32), pieces)
    return b.emit("select", fits, first, as_i32(b, share.total))


def count_trips(b: Builder, share: RangePartition, first: Value) -> Value:
    if share.total is None:
        return share.most
    at = b.emit("bitcast", first, type=u32)
    trips = as_i32(b, b.emit("trip_count", at, share.total, b.const(share.width, u32)))
    return b.emit("min", trips, share.most)


def iteration(b: Builder, share: RangePartition, first: Value, k: Value) -> Value:
    """Append the index of the k-th iteration of the invocation whose first offset is `first`, an
    i32."""
    here = first if constant_int(share.begin) == 0 else b.emit("add", share.begin, first)
    return b.emit("add", here, b.emit("mul", k, b.const(share.width, i32)), name="i")
