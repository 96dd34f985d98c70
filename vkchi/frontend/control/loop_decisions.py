"""Decisions about the outermost loops of a kernel: parallel or serial, and the reason.

`loops` decides and records; loops inside other loops have no records. The compiler adds trip
counts. `kernel.explain` prints the records. A long loop that a variable or a condition makes
serial gives a warning.

    cx.decisions.append(serial_loop(cx, n, space, CONDITIONAL))
"""

from __future__ import annotations

import ast

from vkchi.frontend.context import Lowering
from vkchi.frontend.control.loop_dependence import CarriedVariable
from vkchi.frontend.control.spaces import LoopSpace
from vkchi.frontend.state.pending import PendingDecision
from vkchi.frontend.state.scope import CONDITIONAL, REAL
from vkchi.span import Span, is_ours
from vkchi.target.remarks import Decision

ASKED = "ti.loop_config(serialize=True) is written before it"
LEFT = "a `break` or `return` of the function ends it"
ONCE = "its range has at most one item"
RACES = "its iterations conflict, and under ti.cpu such loops run in order"
WHILE = "each iteration of a `while` loop depends on the one before"
ORDERED = "if the order is meant, write ti.loop_config(serialize=True) before the loop"
REMEDIES = {
    CONDITIONAL: "put the condition inside the loop, or decide in Python which kernel to call",
    LEFT: "move the loop to the kernel",
    RACES: "let each iteration store to elements of its own",
    REAL: "move the loop to the kernel",
}  # by reason
HELPS = {
    "reduction": "write {update}: sums, products, minima and maxima stay parallel",
    "inside": "assign `{name}` first in the loop's body, so that each iteration has its own; "
    + ORDERED,
    "after": "store what is read later in an array; " + ORDERED,
}


def parallel_loop(cx: Lowering, n: ast.For, space: LoopSpace) -> PendingDecision:
    made = Decision("parallel", span_of(cx, n.iter), is_sparse=space.guard is not None)
    return PendingDecision(made, space.axes, space.step)


def serial_loop(
    cx: Lowering, n: ast.For, space: LoopSpace, reason: str, is_warned: bool = False
) -> PendingDecision:
    help, is_sparse = REMEDIES.get(reason, ""), space.guard is not None
    made = Decision("serial", span_of(cx, n.iter), reason, help, is_sparse=is_sparse)
    return PendingDecision(made, space.axes, space.step, is_warned and not is_ours(made.span))


def carried_loop(
    cx: Lowering, n: ast.For, space: LoopSpace, found: CarriedVariable
) -> PendingDecision:
    """Return the record of a loop that is serial because a variable carries values between
    iterations."""
    help = HELPS[found.kind].format(name=found.name, update=found.update)
    origin = span_of(cx, found.node)
    made = Decision(
        "serial", span_of(cx, n.iter), found.sentence, help, origin, name=found.name,
        is_sparse=space.guard is not None,
    )  # fmt: skip
    return PendingDecision(made, space.axes, space.step, is_warned=not is_ours(made.span))


def while_loop(cx: Lowering, n: ast.While) -> PendingDecision:
    return PendingDecision(Decision("serial", span_of(cx, n.test), WHILE))


def span_of(cx: Lowering, n: ast.AST) -> Span:
    return cx.act.source.span(n, cx.act.caller)
