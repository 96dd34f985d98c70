"""Operands, regions and carried values of control ops, as their rows say.

Owns: reading a `Control` row off an op, the axes of loops. Must not know: which control ops there
are.

    %r = for %b, %e, %x {^(%i, %y) ... yield %z}
    control_of(op).fixed == 2; first_values(op) == (%x,); carried_params(op) == (%y,)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.ir.core import Op, Param, Region, Value
from vkchi.ir.ops import TABLE
from vkchi.ir.table import ALL, Control
from vkchi.tuples import NamedTuple


def control_of(op: Op) -> Control:
    """How operands and regions of a control op go together."""
    control = TABLE[op.kind].control
    assert control is not None, op.kind
    if control.fixed != ALL:
        return control
    return control._replace(fixed=len(op.args), index_params=len(op.regions[-1].params))


class Axis(NamedTuple):
    """An index of a loop, and what it runs over."""

    param: Param
    begin: Value
    end: Value


def axes_of(op: Op) -> list[Axis]:
    """The axes of a `for` (one) or a `parallel`, the slowest first."""
    params, count = op.regions[-1].params, control_of(op).index_params
    return [Axis(params[k], op.args[2 * k], op.args[2 * k + 1]) for k in range(count)]


def is_loop(op: Op) -> bool:
    """Whether the op's regions may run more than once."""
    control = TABLE[op.kind].control
    return control is not None and control.order != "once"


def bodies_of(op: Op) -> Sequence[Region]:
    """The regions that yield the results, or the next carried values: all but a condition."""
    return op.regions[1:] if control_of(op).tests else op.regions


def deciding_values(op: Op) -> Sequence[Value]:
    """What decides the way that control takes: operands, or what a condition yields."""
    control = control_of(op)
    return op.regions[0].yielded if control.tests else op.args[: control.fixed]


def first_values(op: Op) -> Sequence[Value]:
    """The operands that a loop's first iteration begins with."""
    return op.args[control_of(op).fixed :]


def carried_params(op: Op) -> Sequence[Param]:
    """The parameters of a loop's body that stand for carried values."""
    return op.regions[-1].params[control_of(op).index_params :]
