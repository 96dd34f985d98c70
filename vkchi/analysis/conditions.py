"""What must hold where a condition does: its conjuncts.

    where `a and not b` is true, a is true and b is false
    where `r = if c { yield x } else { yield false }` is true, c and x are

The second form is what `passes.shallow` leaves of branches that nest deeply.

Owns: `conjuncts`. Must not know: what is done with them.
"""

from __future__ import annotations

from collections.abc import Iterator

from vkchi.ir.core import Op, Result, Value
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
