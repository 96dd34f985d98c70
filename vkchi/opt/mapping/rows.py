"""Loop collapsing: `parallel` loops over several axes become loops over one.

    parallel %b, %e, %c, %f {^(%i, %j) body}
    becomes    parallel 0, %total {^(%t) body of t // n, t % n}

Divisions recover the indices.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from vkchi.analysis.values.host_numbers import host_length
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value
from vkchi.ir.iteration_space import iteration_count, iteration_count_or_zero, space_of
from vkchi.ir.rebuild import inline, rebuild_loops
from vkchi.opt.mapping.axis_order import find_order
from vkchi.types import i32


def is_one_row(op: Op) -> bool:
    return len(op.args) == 2 and not find_order(op)


def collapse_loops(fn: Func, wanted: Container[Op]) -> Func:
    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op not in wanted or is_one_row(op):
            return None
        build_collapsed(b, op, args)
        return ()

    return rebuild_loops(fn, visit)


def build_collapsed(b: Builder, op: Op, args: tuple[Value, ...]) -> None:
    """Append a `parallel` loop, collapsed to one axis.

    If the number of iterations may exceed i32, it is checked at run time. If it does, the loop has
    no iterations.
    """
    space = space_of(b, args, find_order(op))
    is_known = host_length(op) is not None
    total = iteration_count(b, space) if is_known else iteration_count_or_zero(b, space)
    t = Param(i32, "t")
    with b.region(t) as row:
        copy_body(b, op, space.indices(b, space.split(b, t)), t)
        b.emit("yield")
    b.parallel((b.const(0, i32), total), row, op.attr)


def copy_body(b: Builder, op: Op, indices: Sequence[Value], number: Value | None) -> None:
    """Append the body of a `parallel` with these indices.

    `number`, the linear index of the iteration, replaces `thread_index`; divided by a demanded
    workgroup size, it replaces `group_index`. None keeps both: the invocation has the same number.
    """

    def visit(b: Builder, inner: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if inner.kind == "thread_index" and number is not None:
            return [number]
        if inner.kind == "group_index" and op.attr and number is not None:
            return [b.emit("floordiv", number, b.const(op.attr, i32))]
        return None

    inline(b, op.regions[0], indices, visit)
