"""What must hold where a condition does: its conjuncts.

    where `a and not b` is true, a is true and b is false
    where `r = if c { yield x } else { yield false }` is true, c and x are

The second form is what `passes.shallow` leaves of branches that nest deeply.

and whether it can, where integers lie in known intervals.

Owns: `conjuncts`, `may_hold`, `guards_of`. Must not know: what is done with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vkchi.analysis.intervals import Intervals
from vkchi.ir.core import Op, Region, Result, Value
from vkchi.ir.intervals import Interval
from vkchi.types import Scalar

Conjunct = tuple[Value, bool]


def conjuncts(condition: Value, truth: bool, deepest: int) -> Iterator[Conjunct]:
    """The values that are known to be true or false where a truth value is, as far as they are not
    made of others by logic; those under more than `deepest` steps of logic are left out."""
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
    """What a truth value says of what it is made of; None if it is not made by logic."""
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
    """The same for `parts[1] if parts[0] else parts[2]`."""
    condition, then, orelse = parts
    found: list[Conjunct] = []
    for side, other, taken in ((then, orelse, True), (orelse, then, False)):
        if isinstance(other, Op) and other.kind == "const" and bool(other.attr) != truth:
            found += [(condition, taken), (side, truth)]
    return found


# --- what can hold -------------------------------------------------------------------------------

DEEPEST = 8  # steps of logic that are looked through
Test = Callable[[Interval, Interval], bool]
NEVER: dict[str, tuple[Test, Test]] = {  # when a comparison is false for sure, when true
    "lt": (lambda a, b: a[0] >= b[1], lambda a, b: a[1] < b[0]),
    "le": (lambda a, b: a[0] > b[1], lambda a, b: a[1] <= b[0]),
    "gt": (lambda a, b: a[1] <= b[0], lambda a, b: a[0] > b[1]),
    "ge": (lambda a, b: a[1] < b[0], lambda a, b: a[0] >= b[1]),
    "eq": (lambda a, b: a[1] < b[0] or b[1] < a[0], lambda a, b: a == b and a[0] == a[1]),
    "ne": (lambda a, b: a == b and a[0] == a[1], lambda a, b: a[1] < b[0] or b[1] < a[0]),
}


def may_hold(condition: Value, truth: bool, ranges: Intervals) -> bool:
    """Whether a truth value may be this one, as far as these ranges tell."""
    return not any(is_refuted(v, t, ranges) for v, t in conjuncts(condition, truth, DEEPEST))


def is_refuted(v: Value, truth: bool, ranges: Intervals) -> bool:
    """Whether a value is known to be the other one."""
    if isinstance(v, Op) and v.kind in NEVER:
        a, b = (ranges.of(x) for x in v.args)
        return a is not None and b is not None and NEVER[v.kind][0 if truth else 1](a, b)
    found = ranges.of(v)
    return found is not None and (found == (0, 0) if truth else found[0] > 0)


def guards_of(region: Region, around: tuple[Conjunct, ...] = ()) -> Iterator[tuple[Op, Guards]]:
    """The ops without regions that stand under conditions, and these."""
    for op in region.ops:
        if not op.regions and around:
            yield op, around
        for k, inner in enumerate(op.regions):
            more = ((op.args[0], k == 0),) if op.kind == "if" else ()
            yield from guards_of(inner, (*around, *more))


Guards = tuple[Conjunct, ...]
