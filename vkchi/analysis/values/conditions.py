"""Condition analysis: the conjuncts of a condition, and their refutation by intervals.

where `a and not b` is true, a is true and b is false
where `r = if c { yield x } else { yield false }` is true, c and x are
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vkchi.analysis.values.interval_analysis import Intervals
from vkchi.ir.core import Op, Region, Result, Value
from vkchi.ir.op_table.interval_rules import Interval
from vkchi.types import Scalar

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
        parts = split(v, is_true)
        if parts is None:
            yield v, is_true
        else:
            todo += [(part, value, depth + 1) for part, value in reversed(parts)]


def split(v: Value, truth: bool) -> list[Conjunct] | None:
    """Implications of `v == truth` for the operands of v's op, a list of (value, bool).

    None for an `and` that is false, for an `or` that is true, and for values that no `not`, `and`,
    `or`, `select` or `if` defines.
    """
    if isinstance(v, Result):
        if v.op.kind != "if":
            return None
        return split_branch((v.op.args[0], *(r.yielded[v.index] for r in v.op.regions)), truth)
    if not isinstance(v, Op):
        return None
    if v.kind == "not":
        return [(v.args[0], not truth)]
    if v.kind == ("and" if truth else "or"):
        return [(x, truth) for x in v.args]
    return split_branch(v.args, truth) if v.kind == "select" else None


def split_branch(parts: tuple[Value, ...], truth: bool) -> list[Conjunct]:
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

DEEPEST = 8  # nested logical ops that are decomposed
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
    return not any(is_refuted(v, t, ranges) for v, t in conjuncts(condition, truth, DEEPEST))


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
