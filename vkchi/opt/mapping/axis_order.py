"""Iteration order of multi-axis loops: choose the fastest axis so that memory accesses coalesce.

Adjacent invocations should access adjacent elements. So each `elem` op of an array parameter whose
indices are all the axes, plus constants, votes for the order in which it traverses memory. The
order with most votes is used, the source order if no other has more. Fields with a blocked layout
vote for an order block by block, if the loop covers their axis. The source order is kept if the
body has ops that depend on the invocation.

The order is derived from the accesses, and is no attribute of `parallel`: layout changes, gradients
and fission would otherwise have to maintain it.

    >>> find_order(op)      # x[i, j] with a column-major x
    ((1, 0, 1), (0, 0, 1))
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from vkchi.analysis.memory.alias import location_of
from vkchi.analysis.parallel_loops import is_numbered
from vkchi.analysis.values.host_numbers import list_length
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value, constant_int, walk
from vkchi.ir.iteration_space import Order
from vkchi.ir.ops import LoopAxis, axes_of
from vkchi.ir.rebuild import rebuild_loops
from vkchi.types import Array, Type


def interchange_axes(fn: Func) -> Func:
    """Loop interchange: bring the axes of each loop into their best order.

    Later passes take the last axis for that of the lanes. Loops with a demanded workgroup size or
    an active list stay, and those whose best order divides an axis (`find_order`).
    """

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        order = () if op.attr is not None or list_length(op.args[1]) else find_order(op)
        if not order or any(n for _, n, _ in order):
            return None
        axes, body = [k for k, _, _ in order], op.regions[0]
        bounds = [v for k in axes for v in args[2 * k : 2 * k + 2]]
        b.parallel(bounds, Region(tuple([body.params[k] for k in axes]), body.ops), name=op.name)
        return ()

    return rebuild_loops(fn, visit)


def find_order(op: Op) -> Order:
    """Return the mixed-radix digits in which to count a loop's iterations, slowest first. Returns
    () for the source order: for one axis, for bodies that depend on the invocation, and if no other
    order has more votes."""
    if len(op.args) == 2 or is_numbered(op):
        return ()
    plain = plain_order(op)
    best = best_of(votes_of(op), plain)
    return () if best == plain else best


def iteration_digits(op: Op) -> tuple[Order, bool]:
    """Return the digits of the best order (never empty), and True if a rival axis is next to the
    fastest one.

    A rival is another axis along which some access is contiguous, as in a transpose. It is moved
    next to the fastest axis where possible.
    """
    plain = plain_order(op)
    votes = votes_of(op)
    best = plain if is_numbered(op) else best_of(votes, plain)
    fastest = best[-1][0]
    rivals = [order[-1][0] for order, _ in votes.most_common() if order[-1][0] != fastest]
    if not rivals:
        return best, False
    at = [k for k, digit in enumerate(best[:-1]) if digit[0] == rivals[0]]
    if at and at[-1] == len(best) - 2:
        return best, True
    if is_numbered(op) or len(at) != 1 or len(best) != len(plain):
        return best, False
    moved = best[at[0]]
    return (*[digit for digit in best[:-1] if digit != moved], moved, best[-1]), True


def plain_order(op: Op) -> Order:
    return tuple([(k, 0, 1) for k in range(len(op.args) // 2)])


def votes_of(op: Op) -> Counter[Order]:
    return Counter(orders_of(op, axes_of(op)))


def best_of(votes: Counter[Order], plain: Order) -> Order:
    best = max(votes, key=lambda order: votes[order], default=plain)
    return best if votes[best] > votes[plain] else plain


def orders_of(op: Op, axes: Sequence[LoopAxis]) -> Iterator[Order]:
    """Yield the result of `order_in` for each `elem` of an array parameter whose indices are the
    axes, each once, plus constants."""
    numbers: dict[Value, int] = {axis.param: k for k, axis in enumerate(axes)}
    for inner in walk(op.regions[0]):
        if inner.kind == "elem" and isinstance(inner.args[0], Param):
            indices = location_of(inner).indices
            found = [numbers.get(i.root) for i in indices if i.root is not None]
            if len(found) == len(indices) and set(found) == set(range(len(axes))):
                offsets = [i.offset for i in indices]
                yield from order_in(inner.args[0].type, found, offsets, axes)


def order_in(
    t: Type, found: Sequence[int | None], offsets: Sequence[int], axes: Sequence[LoopAxis]
) -> Iterator[Order]:
    """Yield the order in which an array's elements are stored, as digits of the loop's axes.
    `found[k]` is the axis of the loop that is the array's index k.

    Yields nothing if `found` does not have one entry per axis of the loop, or if the layout is not
    mixed-radix. The same holds if the loop's bounds do not match the array's blocks.
    """
    assert isinstance(t, Array)
    if t.layout is None or t.shape is None or len(found) != len(axes):
        if len(found) == len(axes):
            yield tuple([(k, 0, 1) for k in found if k is not None])
        return
    origin, layout = t.layout.origin or (0,) * t.ndim, t.layout.digits(t.shape)
    if layout is None:
        return
    digits: list[tuple[int, tuple[int, int, int]]] = []
    for axis, parts in enumerate(layout):
        k = found[axis]
        assert k is not None
        if len(parts) == 1:
            digits.append((parts[0].stride, (k, 0, 1)))
            continue
        begin, end = constant_int(axes[k].begin), constant_int(axes[k].end)
        extent = t.shape[axis]
        if begin is None or end is None or begin + offsets[axis] != origin[axis]:
            return
        if end - begin != extent or math.prod(part.values for part in parts) != extent:
            return
        digits += [(part.stride, (k, part.values, part.divisor)) for part in parts]
    yield tuple([digit for _, digit in sorted(digits, key=lambda pair: -pair[0])])
