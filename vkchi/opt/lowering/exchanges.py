"""Subgroup exchanges with a lane index, distance or mask that is not below the subgroup size.

`out_of_range_exchanges` yields exchanges that are certainly out of range: in every execution, or in
the first iteration of loops that certainly run. Exchanges inside an `if` or loop whose condition or
bounds depend on `subgroup_size` are skipped.

    %c16 = const 16 : u32
    %r = subgroup_shuffle_down %v, %c16      ; out of range for subgroups of 8 or 16
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vkchi.analysis.dataflow import Dependence, slot_params
from vkchi.analysis.values.interval_analysis import Intervals, axes_in, may_hold
from vkchi.ir.core import Func, Op, Region, Value, walk
from vkchi.ir.op_table.interval_rules import Interval
from vkchi.ir.op_table.invocation_ops import EXCHANGING
from vkchi.ir.ops import COUNTED, LOOPS, axes_of, control_operands, initial_values

First = Mapping[Value, Interval | None]  # parameters of enclosing loops in their first iteration


def out_of_range_exchanges(fn: Func, size: int) -> Iterator[tuple[Op, Interval]]:
    """Yield exchanges that are certainly out of range for subgroups of `size` invocations.

    Each comes with the interval of its lane index, distance or mask.
    """
    sizes = [op for op in walk(fn.body) if op.kind == "subgroup_size"]
    asked = Dependence(fn.body, sizes).decided if sizes else set()
    axes = axes_in(fn.body)

    def visit(region: Region, first: First) -> Iterator[tuple[Op, Interval]]:
        ranges = Intervals(axes, found=first)
        for op in region.ops:
            if op.kind in EXCHANGING and op not in asked:
                found = ranges.bound(op.args[1])
                if found is not None and size <= found[0] <= found[1]:
                    yield op, found
            for inner in op.regions:
                yield from visit(inner, round_of(op, ranges, first))

    yield from visit(fn.body, {})


def round_of(op: Op, ranges: Intervals, first: First) -> First:
    """Intervals of parameters in the first iteration of a control op and of the loops around it.

    Empty for an `if`, and for a loop that may have no iteration. A `parallel` adds no interval.
    """
    if op.kind not in LOOPS:
        return first if op.kind == "parallel" else {}
    inits = [ranges.of(v) for v in initial_values(op)]
    given = {p: x for k, x in enumerate(inits) for p in slot_params(op, k)}
    if op.kind in COUNTED:
        axis = axes_of(op)[0]
        begin, end = ranges.of(axis.begin), ranges.of(axis.end)
        is_sure = begin is not None and end is not None and begin[1] < end[0]
        return {**first, **given, axis.param: begin} if is_sure else {}
    found = {**first, **given}
    condition = control_operands(op)[0]
    return found if not may_hold(condition, False, Intervals(ranges.axes, found=found)) else {}
