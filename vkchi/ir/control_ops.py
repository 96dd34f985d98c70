"""Accessors for control ops by their `ControlSpec` rows: axes, bodies, carried values.

Example:

    %r = for %b, %e, %x {^(%i, %y) ... yield %z}
    control_of(op).fixed == 2; initial_values(op) == (%x,); carried_params(op) == (%y,)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from vkchi.ir.core import Op, Param, Region, Value, constant_int
from vkchi.ir.op_table.table import ALL, ControlSpec
from vkchi.ir.ops import TABLE
from vkchi.tuples import NamedTuple


def control_of(op: Op) -> ControlSpec:
    """Return the `ControlSpec` of a control op. Counts of `ALL` are replaced by those of this
    op."""
    control = TABLE[op.kind].control
    assert control is not None, op.kind
    if control.fixed != ALL:
        return control
    return control._replace(fixed=len(op.args), index_params=len(op.regions[-1].params))


class LoopAxis(NamedTuple):
    """A loop index and its bounds."""

    param: Param
    begin: Value
    end: Value

    @property
    def ends(self) -> tuple[int, int] | None:
        """Both bounds if they are constants, otherwise None."""
        begin, end = constant_int(self.begin), constant_int(self.end)
        return None if begin is None or end is None else (begin, end)

    @property
    def length(self) -> int | None:
        """The number of iterations if the bounds are constants, otherwise None."""
        ends = self.ends
        return None if ends is None else max(0, ends[1] - ends[0])


def axes_of(op: Op) -> list[LoopAxis]:
    """Return the axes of a `for` (one) or `parallel`, slowest first; empty for `if` and `while`."""
    params, count = op.regions[-1].params, control_of(op).index_params
    return [LoopAxis(params[k], op.args[2 * k], op.args[2 * k + 1]) for k in range(count)]


def constant_trip_count(loop: Op) -> int | None:
    """Return the number of iterations of a `for` or `parallel` with constant bounds; None for other
    loops."""
    lengths = [axis.length for axis in axes_of(loop)]
    return None if None in lengths or not lengths else prod(n or 0 for n in lengths)


def is_loop(op: Op) -> bool:
    """True if the op is a loop: `for`, `while` or `parallel`."""
    control = TABLE[op.kind].control
    return control is not None and control.order != "once"


def bodies_of(op: Op) -> Sequence[Region]:
    """Return all regions but the condition of a `while`."""
    return op.regions[1:] if control_of(op).tests else op.regions


def control_operands(op: Op) -> Sequence[Value]:
    """Return the values that decide which regions run, and how often.

    For a `while` they are the condition's yielded values. For an `if` they are its condition, for
    other loops the bounds.
    """
    control = control_of(op)
    return op.regions[0].yielded if control.tests else op.args[: control.fixed]


def initial_values(op: Op) -> Sequence[Value]:
    """Return the operands of a loop that are initial values of carried values; none for an `if`."""
    return op.args[control_of(op).fixed :]


def carried_params(op: Op) -> Sequence[Param]:
    """Return the body's parameters for carried values."""
    return op.regions[-1].params[control_of(op).index_params :]
