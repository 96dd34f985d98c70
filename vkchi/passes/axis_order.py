"""In which order the iterations of a loop over several axes step through memory.

Neighbouring invocations should reach neighbouring elements. So the fastest axis is the one by which
most accesses of the body step through memory one element at a time, the last one if none has more;
fields that lie in blocks are gone through in blocks. The order stays where the body asks for the
number of its invocation. A rival is another axis that some access steps along: a transpose reads
along one and writes along the other.

It is no attribute of `parallel`: it follows from the accesses, and what changes these (layouts,
gradients, fission) would have to keep it true.

Owns: this reading of accesses. Must not know: devices.

    >>> find_order(op)      # x[i, j] where x lies column by column
    ((1, 0, 1), (0, 0, 1))
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from vkchi.analysis.alias import place_of
from vkchi.analysis.mixing import is_numbered
from vkchi.ir.axes import Order
from vkchi.ir.constants import constant_int
from vkchi.ir.control import Axis, axes_of
from vkchi.ir.core import Op, Param, Value, walk
from vkchi.types import Array, Type


def find_order(op: Op) -> Order:
    """The digits in which a loop's iterations are best counted, the slowest first; () where that is
    one for each axis, in their order."""
    if len(op.args) == 2 or is_numbered(op):
        return ()
    plain = plain_order(op)
    best = best_of(votes_of(op), plain)
    return () if best == plain else best


def digits_of(op: Op) -> tuple[Order, bool]:
    """The same, never empty, with a rival to the fastest axis, if there is one, beside it; and
    whether there is one."""
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
    """One digit for each axis, in their order."""
    return tuple([(k, 0, 1) for k in range(len(op.args) // 2)])


def votes_of(op: Op) -> Counter[Order]:
    """How many accesses of a loop's body step through memory in which order."""
    return Counter(orders_of(op, axes_of(op)))


def best_of(votes: Counter[Order], plain: Order) -> Order:
    """The order that most have, the plain one where no other has more."""
    best = max(votes, key=lambda order: votes[order], default=plain)
    return best if votes[best] > votes[plain] else plain


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
    """The order of an array's elements, where its axes go with these of the loop; none where they
    lie in no order of digits, or the loop does not begin and end where the array's blocks do."""
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
