"""Interval analysis of integers and bools from constants, loop bounds and launch arguments.

`Intervals` evaluates column `interval` of the op table, once per value. It is flow-insensitive:
enclosing conditions are ignored. See also: `ranges` uses the same column and considers conditions.

    >>> Intervals(axes_in(fn.body), {n: 4}).of(i_times_2)       # for i in range(n)
    (0, 6)
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from vkchi.ir.control_ops import LoopAxis, axes_of
from vkchi.ir.core import Op, Region, Value, constant_int, walk
from vkchi.ir.op_table.interval_rules import Interval, type_range, within_type
from vkchi.ir.ops import COUNTED, TABLE
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
