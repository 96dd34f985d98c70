"""A fixed number of invocations for a range that the host cannot count.

    parallel begin, end { (i) body }    becomes    parallel 0, T { (t) for k in 0..n { body } }
                                                   with i = begin + t + k * T

where n, the iterations of invocation t, is exact, so that the body needs no guard. The range is
shared out once per invocation, ahead of the loop. Neighbouring invocations get neighbouring
iterations. `thread_index` keeps meaning the iteration's number in the range, and with a demanded
workgroup size `group_index` the workgroup it would be in.

Owns: how T invocations share a range (pass `reduce` asks here too). Must not know: why the host
wants to know a count.

    >>> stride(fn, caps)      # parallel 0, load n
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vkchi.caps import SMALLEST, Caps
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value
from vkchi.ir.rebuild import Rebuilder, rebuild
from vkchi.passes.grid import DEFAULT_BLOCK, host_count
from vkchi.passes.match import constant_int
from vkchi.types import i32, u32

GROUPS_SOFTWARE = 64  # workgroups of a device with narrow subgroups: a processor's
GROUPS_HARDWARE = 512
WIDEST_SOFTWARE = 16  # invocations of a processor's subgroup at most


def most_threads(caps: Caps, block: int = DEFAULT_BLOCK) -> int:
    """The invocations that keep the device busy, in whole workgroups; more only cost."""
    software = caps.subgroup_size <= WIDEST_SOFTWARE
    return block * (GROUPS_SOFTWARE if software else GROUPS_HARDWARE)


def stride(fn: Func, caps: Caps = SMALLEST) -> Func:
    """The Func with a constant number of invocations, if the host cannot know its count."""

    if all(op.kind != "parallel" or host_count(op) is not None for op in fn.body.ops):
        return fn

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op.kind != "parallel" or host_count(op) is not None:
            return None
        build_strided(b, op, args, most_threads(caps, op.attr or DEFAULT_BLOCK))
        return ()

    return rebuild(fn, visit)


def build_strided(b: Builder, op: Op, args: tuple[Value, ...], threads: int) -> None:
    """Append the strided form of a `parallel` with these bounds."""
    share = share_out(b, args[0], args[1], threads)
    zero, total = b.const(0, i32), b.const(threads, i32)
    t, k = Param(i32, "t"), Param(i32, "k")
    with b.region(t) as outer:
        n = count_trips(b, share, t)
        with b.region(k) as inner:
            insert_body(b, op, iteration(b, share, t, k), args[0])
            b.emit("yield")
        b.for_(zero, n, (), inner)
        b.emit("yield")
    b.parallel(zero, total, outer, op.attr)


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
    """How `threads` invocations share the iterations from `begin` on: `whole` each, and one more
    for the first `rest` ones. Both are i32 values; `rest` is None for none."""

    begin: Value
    threads: int
    whole: Value
    rest: Value | None


def share_out(b: Builder, begin: Value, end: Value, threads: int) -> Share:
    """Share out the range of i32 from begin to end, also one that is longer than i32 counts."""
    first, last = constant_int(begin), constant_int(end)
    if first is not None and last is not None:
        whole, rest = divmod(max(0, last - first), threads)
        return Share(begin, threads, b.const(whole, i32), b.const(rest, i32) if rest else None)
    length = b.emit("bitcast", b.emit("sub", end, begin), type=u32)
    some = b.emit("lt", begin, end)
    count = b.emit("select", some, length, b.const(0, u32))
    step = b.const(threads, u32)
    whole_u, rest_u = b.emit("floordiv", count, step), b.emit("mod", count, step)
    return Share(begin, threads, *(b.emit("cast", v, type=i32) for v in (whole_u, rest_u)))


def count_trips(b: Builder, share: Share, t: Value) -> Value:
    """The number of iterations of invocation t, an i32."""
    if share.rest is None:
        return share.whole
    more = b.emit("lt", t, share.rest)
    return b.emit("add", share.whole, b.emit("cast", more, type=i32))


def iteration(b: Builder, share: Share, t: Value, k: Value) -> Value:
    """The k-th iteration of invocation t, an i32."""
    here = t if constant_int(share.begin) == 0 else b.emit("add", share.begin, t)
    return b.emit("add", here, b.emit("mul", k, b.const(share.threads, i32)), name="i")
