"""Fewer invocations than iterations: each one loops.

    parallel begin, end { (i) body }    becomes    parallel 0, T { (t) for k in 0..n { body } }

where n, the iterations of invocation t, is exact, so that the body needs no guard. This happens
- where the host cannot count the range: T is then a constant;
- on processors (devices with narrow subgroups), where an invocation costs as much as a few
  operations and a loop much less: T is what keeps the device busy, or the count if that is less.

Subgroups take contiguous pieces of the range, and step through them side by side: with W
invocations in a subgroup and at most P iterations for each,

    i = begin + (t // W) * (W * P) + t % W + k * W

which a processor reads as one stream, and a graphics card in whole lines. (Steps of T, the usual
form, are three times slower on lavapipe: all of them fall into the same set of its cache.) With a
demanded workgroup size, W is that size, so that workgroups stay consecutive iterations.
`thread_index` keeps meaning the iteration's number in the range, and with a demanded size
`group_index` the workgroup it would be in. Numbers of iterations are counted as u32, which holds
that of every range of i32.

Owns: how T invocations share a range (pass `reduce` asks here too). Must not know: why the host
wants to know a count.

    >>> stride(fn, caps)      # parallel 0, load n
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vkchi.analysis.host_numbers import host_length
from vkchi.ir.builder import Builder
from vkchi.ir.constants import constant_int
from vkchi.ir.core import Func, Op, Param, Value, walk
from vkchi.ir.ops import PER_INVOCATION, Effect, effect_of
from vkchi.ir.rebuild import Rebuilder, rebuild
from vkchi.passes.grid import DEFAULT_BLOCK
from vkchi.target.caps import SMALLEST, Caps
from vkchi.types import i32, u32

GROUPS_SOFTWARE = 64  # workgroups of a device with narrow subgroups: a processor's
GROUPS_HARDWARE = 512
WIDEST_SOFTWARE = 16  # invocations of a processor's subgroup at most
HINDRANCES = PER_INVOCATION - {"thread_index"} | {"shared"}
WORTH_A_LOOP = 4  # iterations per invocation


def is_processor(caps: Caps) -> bool:
    """Whether the device is a processor, as far as that can be told."""
    return caps.subgroup_size <= WIDEST_SOFTWARE


def subgroup_width(caps: Caps) -> int:
    """The invocations that run side by side: the largest power of two in a subgroup's size."""
    return 1 << (min(max(1, caps.subgroup_size), DEFAULT_BLOCK).bit_length() - 1)


def most_threads(caps: Caps, block: int = DEFAULT_BLOCK) -> int:
    """The invocations that keep the device busy, in whole workgroups; more only cost."""
    return block * (GROUPS_SOFTWARE if is_processor(caps) else GROUPS_HARDWARE)


def stride(fn: Func, caps: Caps = SMALLEST) -> Func:
    """The Func with fewer invocations, where the host cannot know the count or they are cheaper."""
    wanted = {op for op in fn.body.ops if op.kind == "parallel" and wants_stride(op, caps)}
    if not wanted:
        return fn

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op not in wanted:
            return None
        build_strided(b, op, args, caps)
        return ()

    return rebuild(fn, visit)


def wants_stride(op: Op, caps: Caps) -> bool:
    """Whether a `parallel` should loop: it must, or it is worth it and nothing hinders it."""
    length = host_length(op)
    if length is None:
        return True
    if not is_processor(caps) or op.attr is not None:
        return False
    if length.hi < WORTH_A_LOOP * most_threads(caps):
        return False
    return not any(
        inner.kind in HINDRANCES or effect_of(inner.kind) is Effect.SYNC
        for inner in walk(op.regions[0])
    )


def build_strided(b: Builder, op: Op, args: tuple[Value, ...], caps: Caps) -> None:
    """Append the strided form of a `parallel` with these bounds."""
    most = most_threads(caps, op.attr or DEFAULT_BLOCK)
    share = share_out(b, op, args, most, op.attr or subgroup_width(caps))
    t, k = Param(i32, "t"), Param(i32, "k")
    with b.region(t) as outer:
        first = first_offset(b, share, t)
        n = count_trips(b, share, first)
        zero = b.const(0, i32)
        with b.region(k) as inner:
            insert_body(b, op, iteration(b, share, first, k), args[0])
            b.emit("yield")
        b.for_(zero, n, (), inner)
        b.emit("yield")
    b.parallel(b.const(0, i32), share.threads, outer, op.attr)


def insert_body(b: Builder, op: Op, i: Value, begin: Value) -> None:
    """Append the body of a `parallel` that began at `begin`, with i as its index."""

    def visit(b: Builder, inner: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if inner.kind == "thread_index":
            return [b.emit("sub", i, begin)]
        if inner.kind == "group_index" and op.attr:
            return [b.emit("floordiv", b.emit("sub", i, begin), b.const(op.attr, i32))]
        return None

    (body,) = op.regions
    rebuilder = Rebuilder(visit)
    rebuilder.b = b
    rebuilder.map[body.params[0]] = i
    rebuilder.ops(body.ops[:-1])


# --- sharing a range -----------------------------------------------------------------------------


class Share(NamedTuple):
    """How `threads` (an i32) invocations share the iterations from `begin` on: `width` side by
    side, at most `most` (an i32) each; `total` is the number of all iterations, a u32, or None if
    each invocation has `most`. With `may_wrap`, offsets may go beyond 32 bits."""

    begin: Value
    threads: Value
    width: int
    most: Value
    total: Value | None
    may_wrap: bool = False


def share_out(b: Builder, op: Op, args: Sequence[Value], limit: int, width: int) -> Share:
    """Share out the range of a `parallel` with these bounds among `limit` invocations, or one for
    each iteration if the host finds that there are fewer. `width` must divide `limit`."""
    begin, end = args
    first, last = constant_int(begin), constant_int(end)
    if first is not None and last is not None:
        n = max(0, last - first)
        most = -(-n // limit)
        exact = most * limit == n
        total = None if exact else b.const(n, u32)
        return Share(begin, b.const(limit, i32), width, b.const(most, i32), total)
    known = host_length(op) is not None  # a launch checks then that i32 holds it
    if known and first == 0:
        count = b.emit("bitcast", end, type=u32)  # what runs at all has a positive length
    else:
        count = b.emit("trip_count", begin, end, b.const(1, i32))
    threads: Value = b.const(limit, i32)
    if known:
        threads = b.emit("min", end if first == 0 else as_i32(b, count), threads)
    step = b.emit("bitcast", threads, type=u32)
    left = b.emit("ne", b.emit("mod", count, step), b.const(0, u32))
    most_u = b.emit("add", b.emit("floordiv", count, step), b.emit("cast", left, type=u32))
    may_wrap = not known and limit & (limit - 1) != 0  # else limit * most is 2**32 at most
    return Share(begin, threads, width, as_i32(b, most_u), count, may_wrap)


def as_i32(b: Builder, v: Value) -> Value:
    """A u32 as the i32 of the same bits."""
    return b.emit("bitcast", v, type=i32)


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
