"""Interval analysis of integers and bools from constants, loop bounds and launch arguments.

`Intervals` evaluates column `interval` of the op table, once per value. It is flow-insensitive:
enclosing conditions are ignored. See also: `ranges` uses the same column and considers conditions.

    >>> Intervals(axes_in(fn.body), {n: 4}).of(i_times_2)       # for i in range(n)
    (0, 6)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from vkchi.ir.core import Op, Region, Result, Value, constant_int, walk
from vkchi.ir.op_table.interval_rules import Interval, type_range, within_type
from vkchi.ir.ops import COUNTED, TABLE, LoopAxis, axes_of
from vkchi.types import Array, Scalar

Extents = Mapping[tuple[str, int], int]  # by array and axis
DEEPEST = 100  # levels of operands that are followed; beyond, the interval is unknown


class Intervals:
    """Intervals of integers and bools, memoized.

    `axes` maps loop indices to their bounds. `numbers` are known scalars, `extents` known array
    extents.
    """

    def __init__(
        self,
        axes: Mapping[Value, LoopAxis],
        numbers: Mapping[Value, int] = MappingProxyType({}),
        extents: Extents = MappingProxyType({}),
        found: Mapping[Value, Interval | None] = MappingProxyType({}),
    ) -> None:
        self.axes, self.numbers, self.extents = axes, numbers, extents
        self.found: dict[Value, Interval | None] = dict(found)
        self._depth = 0

    def of(self, v: Value) -> Interval | None:
        """The interval of v; None if it is unknown or v may have wrapped.

        In a loop without iterations the lower end may exceed the upper end.
        """
        if v not in self.found:
            t = v.type
            if not isinstance(t, Scalar) or t.kind == "f" or self._depth > DEEPEST:
                return None
            self._depth += 1
            found = self._op(v, t) if isinstance(v, Op) else self._param(v)
            self._depth -= 1
            self.found[v] = within_type(found, t)
        return self.found[v]

    def bound(self, v: Value) -> Interval | None:
        """The interval of v, or its type's range if unknown; None if v is no integer or bool."""
        found, t = self.of(v), v.type
        if found is None and isinstance(t, Scalar) and t.kind != "f":
            return type_range(t)
        return found

    def _param(self, v: Value) -> Interval | None:
        number = self.numbers.get(v)
        if number is not None:
            return number, number
        axis = self.axes.get(v)
        if axis is None:
            return None
        begin, end = self.bound(axis.begin), self.bound(axis.end)
        return (begin[0], end[1] - 1) if begin is not None and end is not None else None

    def _op(self, op: Op, t: Scalar) -> Interval | None:
        number = constant_int(op) if op.kind == "const" else self._extent(op)
        if number is not None:
            return number, number
        rule = TABLE[op.kind].interval
        if rule is None:
            return None
        args = () if op.kind == "shape" else tuple(map(self.bound, op.args))
        known = [a for a in args if a is not None]
        empty = next((a for a in known if a[0] > a[1]), None)  # in a loop without iterations
        if empty is not None or len(known) < len(args):
            return empty
        return rule(t, *known)

    def _extent(self, op: Op) -> int | None:
        """The extent that a `shape` op returns, if known; None for other ops."""
        if op.kind != "shape":
            return None
        array = op.args[0]
        assert isinstance(array.type, Array)
        if array.type.shape is not None:
            extent: int = array.type.shape[op.attr]
            return extent
        return self.extents.get((array.name, op.attr))


def axes_in(region: Region) -> dict[Value, LoopAxis]:
    """Map the index parameters of every `for` and `parallel` to their axes."""
    ops = [op for op in walk(region) if op.kind in COUNTED]
    return {axis.param: axis for op in ops for axis in axes_of(op)}


# --- conditions ----------------------------------------------------------------------------------
#
# Condition analysis: the conjuncts of a condition, and their refutation by intervals.
#
# where `a and not b` is true, a is true and b is false
# where `r = if c { yield x } else { yield false }` is true, c and x are

Conjunct = tuple[Value, bool]


def conjuncts(condition: Value, truth: bool, deepest: int) -> Iterator[Conjunct]:
    """Pairs (value, bool) that hold if `condition` equals `truth`.

    A `not`, an `and` that is true, an `or` that is false, `select` and `if` are decomposed, up to
    `deepest` nested ones. Other values are yielded themselves. A `select` or `if` yields nothing
    unless one of its two values is a constant. Tensors and parts below `deepest` are omitted.
    """
    todo = [(condition, truth, 0)]
    while todo:
        v, is_true, depth = todo.pop()
        if depth > deepest or not isinstance(v.type, Scalar):
            continue
        parts = implications(v, is_true)
        if parts is None:
            yield v, is_true
        else:
            todo += [(part, value, depth + 1) for part, value in reversed(parts)]


def implications(v: Value, truth: bool) -> list[Conjunct] | None:
    """Implications of `v == truth` for the operands of v's op, a list of (value, bool).

    None for an `and` that is false, for an `or` that is true, and for values that no `not`, `and`,
    `or`, `select` or `if` defines.
    """
    if isinstance(v, Result):
        if v.op.kind != "if":
            return None
        return branch_implications(
            (v.op.args[0], *(r.yielded[v.index] for r in v.op.regions)), truth
        )
    if not isinstance(v, Op):
        return None
    if v.kind == "not":
        return [(v.args[0], not truth)]
    if v.kind == ("and" if truth else "or"):
        return [(x, truth) for x in v.args]
    return branch_implications(v.args, truth) if v.kind == "select" else None


def branch_implications(parts: tuple[Value, ...], truth: bool) -> list[Conjunct]:
    """Implications of `parts[1] if parts[0] else parts[2]` being equal to `truth`.

    Empty unless `parts[1]` or `parts[2]` is the constant `not truth`.
    """
    condition, then, orelse = parts
    found: list[Conjunct] = []
    for side, other, taken in ((then, orelse, True), (orelse, then, False)):
        if isinstance(other, Op) and other.kind == "const" and bool(other.attr) != truth:
            found += [(condition, taken), (side, truth)]
    return found


# --- refutation by intervals ---------------------------------------------------------------------

DEEPEST_CONDITION = 8  # nested logical ops that are decomposed
Test = Callable[[Interval, Interval], bool]
NEVER: dict[str, tuple[Test, Test]] = {  # tests: certainly false, certainly true
    "lt": (lambda a, b: a[0] >= b[1], lambda a, b: a[1] < b[0]),
    "le": (lambda a, b: a[0] > b[1], lambda a, b: a[1] <= b[0]),
    "gt": (lambda a, b: a[1] <= b[0], lambda a, b: a[0] > b[1]),
    "ge": (lambda a, b: a[1] < b[0], lambda a, b: a[0] >= b[1]),
    "eq": (lambda a, b: a[1] < b[0] or b[1] < a[0], lambda a, b: a == b and a[0] == a[1]),
    "ne": (lambda a, b: a == b and a[0] == a[1], lambda a, b: a[1] < b[0] or b[1] < a[0]),
}


def may_hold(condition: Value, truth: bool, ranges: Intervals) -> bool:
    """True unless the intervals prove that `condition` never equals `truth`."""
    return not any(
        is_refuted(v, t, ranges) for v, t in conjuncts(condition, truth, DEEPEST_CONDITION)
    )


def is_refuted(v: Value, truth: bool, ranges: Intervals) -> bool:
    if isinstance(v, Op) and v.kind in NEVER:
        a, b = (ranges.of(x) for x in v.args)
        return a is not None and b is not None and NEVER[v.kind][0 if truth else 1](a, b)
    found = ranges.of(v)
    return found is not None and (found == (0, 0) if truth else found[0] > 0)


def guards_of(region: Region, around: tuple[Conjunct, ...] = ()) -> Iterator[tuple[Op, Guards]]:
    """Ops without regions inside an `if`, with (condition, bool) pairs of all `if`s around.

    The outermost condition is first.
    """
    for op in region.ops:
        if not op.regions and around:
            yield op, around
        for k, inner in enumerate(op.regions):
            more = ((op.args[0], k == 0),) if op.kind == "if" else ()
            yield from guards_of(inner, (*around, *more))


Guards = tuple[Conjunct, ...]
