"""Loops over axes become what a device runs: invocations in one row, of one or several iterations.

    parallel %b, %e, %c, %f {^(%i, %j) body}    becomes    parallel 0, T {^(%t) ... body ...}

This is where it is decided what suits a device. What is known of devices:
- Neighbouring invocations should reach neighbouring elements. So the fastest axis is the one by
  which most accesses of the body step through memory one element at a time (`find_order`), the
  last one if none has more; fields that lie in blocks are gone through in blocks. The order stays
  where the body asks for the number of its invocation.
- On processors (devices with narrow subgroups), an invocation costs as much as a few operations,
  and a loop much less. So from WORTH_A_LOOP iterations for each on, as many invocations as keep
  the device busy share them out (`share`). Other devices run an invocation per iteration.
- Where the host cannot count the iterations, a fixed number of invocations shares them out.

A body keeps its meaning: `thread_index` is the number of the iteration, the last axis being the
fastest, and with a demanded workgroup size `group_index` the workgroup it would be in.

Owns: these decisions. Must not know: how iterations are shared out, why the host wants a count.

    >>> map_grid(fn, caps)      # parallel 0, load n
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterator, Sequence

from vkchi.analysis.alias import place_of
from vkchi.analysis.host_numbers import host_length
from vkchi.ir.axes import Order, guarded_total, space_of, total_of
from vkchi.ir.builder import Builder
from vkchi.ir.constants import constant_int
from vkchi.ir.control import Axis, axes_of
from vkchi.ir.core import Func, Op, Param, Value, walk
from vkchi.ir.ops import PER_INVOCATION, Effect, effect_of
from vkchi.ir.rebuild import Rebuilder, rebuild
from vkchi.passes.grid import DEFAULT_BLOCK
from vkchi.passes.share import Crowd, share_out
from vkchi.target.caps import SMALLEST, Caps
from vkchi.types import Array, Type, i32

GROUPS_SOFTWARE = 64  # workgroups of a device with narrow subgroups: a processor's
GROUPS_HARDWARE = 512
WIDEST_SOFTWARE = 16  # invocations of a processor's subgroup at most
HINDRANCES = PER_INVOCATION - {"thread_index"} | {"shared"}
NUMBERED = PER_INVOCATION | {"shared", "random"}  # to what the order of iterations matters
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


def map_grid(fn: Func, caps: Caps = SMALLEST) -> Func:
    """The Func with loops of one axis, whose iterations the host can count."""

    fn = put_in_rows(fn, {op for op in fn.body.ops if op.kind == "parallel" and not can_cut(op)})

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op.kind != "parallel":
            return None
        if wants_stride(op, caps):
            build_strided(b, op, args, caps)
        elif is_one_row(op):
            return None
        else:
            build_row(b, op, args)
        return ()

    return rebuild(fn, visit)


def put_in_rows(fn: Func, wanted: Container[Op]) -> Func:
    """The Func with these loops over one axis."""

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op not in wanted or is_one_row(op):
            return None
        build_row(b, op, args)
        return ()

    return rebuild(fn, visit)


def is_one_row(op: Op) -> bool:
    """Whether a loop has one axis, in one piece."""
    return len(op.args) == 2 and not find_order(op)


def can_cut(op: Op) -> bool:
    """Whether nothing hinders that invocations go through some axes where nobody knows whether i32
    counts all together."""
    return len(op.args) == 2 or host_length(op) is not None or not is_tied(op)


def is_tied(op: Op) -> bool:
    """Whether it matters to a loop's body which invocation runs it."""
    return op.attr is not None or any(
        inner.kind in HINDRANCES or effect_of(inner.kind) is Effect.SYNC
        for inner in walk(op.regions[0])
    )


def wants_stride(op: Op, caps: Caps) -> bool:
    """Whether a `parallel` should loop: it must, or it is worth it and nothing hinders it."""
    length = host_length(op)
    if length is None:
        return True
    if not is_processor(caps) or op.attr is not None:
        return False
    return length.hi >= WORTH_A_LOOP * most_threads(caps) and not is_tied(op)


# --- forms ---------------------------------------------------------------------------------------


def build_strided(b: Builder, op: Op, args: tuple[Value, ...], caps: Caps) -> None:
    """Append the strided form of a `parallel` with these bounds."""
    most = most_threads(caps, op.attr or DEFAULT_BLOCK)
    crowd = Crowd(most, op.attr or subgroup_width(caps))
    shared = share_out(b, op, args, crowd, find_order(op))
    t = Param(i32, "t")
    with b.region(t) as outer:
        shared.emit(b, t, lambda indices, number: copy_body(b, op, indices, number))
        b.emit("yield")
    b.parallel((b.const(0, i32), shared.threads), outer, op.attr)


def build_row(b: Builder, op: Op, args: tuple[Value, ...]) -> None:
    """Append a `parallel` with these bounds as one over one axis. Where nobody sees that i32 does
    not count its iterations, there are none."""
    space = space_of(b, args, find_order(op))
    is_known = host_length(op) is not None
    total = total_of(b, space) if is_known else guarded_total(b, space)
    t = Param(i32, "t")
    with b.region(t) as row:
        copy_body(b, op, space.indices(b, space.split(b, t)), t)
        b.emit("yield")
    b.parallel((b.const(0, i32), total), row, op.attr)


def copy_body(b: Builder, op: Op, indices: Sequence[Value], number: Value) -> None:
    """Append the body of a `parallel`, with these indices, of the iteration with this number."""

    def visit(b: Builder, inner: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if inner.kind == "thread_index":
            return [number]
        if inner.kind == "group_index" and op.attr:
            return [b.emit("floordiv", number, b.const(op.attr, i32))]
        return None

    (body,) = op.regions
    rebuilder = Rebuilder(visit)
    rebuilder.b = b
    rebuilder.map.update(zip(body.params, indices, strict=True))
    rebuilder.ops(body.ops[:-1])


# --- order ---------------------------------------------------------------------------------------


def find_order(op: Op) -> Order:
    """The digits in which a loop's iterations are best counted, the slowest first; () where that is
    one for each axis, in their order."""
    axes = axes_of(op)
    if len(axes) < 2 or any(inner.kind in NUMBERED for inner in walk(op.regions[0])):
        return ()
    votes = Counter(order for order in orders_of(op, axes))
    plain = tuple([(k, 0, 1) for k in range(len(axes))])
    best = max(votes, key=lambda order: votes[order], default=plain)
    return () if best == plain or votes[best] <= votes[plain] else best


def orders_of(op: Op, axes: Sequence[Axis]) -> Iterator[Order]:
    """The order in which each access of the body that goes with all axes steps through memory."""
    numbers: dict[Value, int] = {axis.param: k for k, axis in enumerate(axes)}
    for inner in walk(op.regions[0]):
        if inner.kind == "elem" and isinstance(inner.args[0], Param):
            indices = place_of(inner).indices
            found = [numbers.get(i.root) for i in indices if i.root is not None]
            if len(found) == len(indices) and set(found) == set(range(len(axes))):
                offsets = [i.offset for i in indices]
                yield from order_in(inner.args[0].type, found, offsets, axes)


def order_in(
    t: Type, found: Sequence[int | None], offsets: Sequence[int], axes: Sequence[Axis]
) -> Iterator[Order]:
    """The order of an array's elements, where its axes go with these of the loop; none where the
    loop does not begin and end where the array's blocks do."""
    assert isinstance(t, Array)
    if t.layout is None or t.shape is None or len(found) != len(axes):
        if len(found) == len(axes):
            yield tuple([(k, 0, 1) for k in found if k is not None])
        return
    origin = t.layout.origin or (0,) * t.ndim
    digits: list[tuple[int, tuple[int, int, int]]] = []
    for axis, terms in enumerate(t.layout.axes):
        k = found[axis]
        assert k is not None
        if len(terms) == 1:
            digits.append((terms[0].stride, (k, 0, 1)))
            continue
        begin, end = constant_int(axes[k].begin), constant_int(axes[k].end)
        extent = t.shape[axis]
        values = [term.modulus or -(-extent // term.divisor) for term in terms]
        if begin is None or end is None or begin + offsets[axis] != origin[axis]:
            return
        if end - begin != extent or math.prod(values) != extent:
            return
        digits += [(s.stride, (k, n, s.divisor)) for s, n in zip(terms, values, strict=True)]
    yield tuple([digit for _, digit in sorted(digits, key=lambda pair: -pair[0])])
