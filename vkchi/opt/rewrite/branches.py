"""Simplification rules for control ops, applied by `simplify`.

- `if` with a known condition: replaced by its region. A condition is also known in the regions of
  an enclosing `if` that tests it.
- If-conversion: an `if` whose regions have few cheap ops becomes these ops and `select`. Ops with
  float results are not cheap, so no NaN can leak into a gradient.
- A result for which both regions yield the same value is that value. A result that is true in one
  region and false in the other is the condition, or its negation.
- `for` without iterations: its initial values. With one: its region, inlined. `parallel` without
  iterations: removed.
- A carried value that no iteration changes is replaced by its initial value, in and after the loop.
- `while` with a false condition: its condition region, inlined.

A rule is a function `(simplifier, op, new args) -> values of the op's results, or None to keep it`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from vkchi.ir.core import Op, Region, Result, Value, constant_int, is_constant, is_equal_value
from vkchi.ir.ops import (
    ROUNDED_DOWN,
    TABLE,
    Effect,
    carried_params,
    control_of,
    initial_values,
    is_loop,
)
from vkchi.opt.rewrite.dce import pruned_op
from vkchi.opt.rewrite.match import scalar_kind_of
from vkchi.target import tuning
from vkchi.types import Tensor, u1, with_shape

if TYPE_CHECKING:
    from vkchi.opt.rewrite.simplify import Simplifier

Args = tuple[Value, ...]


# --- if ----------------------------------------------------------------------------------------


def simplify_if(s: Simplifier, op: Op, args: Args) -> Sequence[Value] | None:
    """Simplify an `if` with a known condition, with cheap regions, or with equal results."""
    truth = s.truth(args[0])
    if truth is not None:
        return s.inline(op.regions[0 if truth else 1], ())
    then, orelse = (s.region_if(r, args[0], t) for r, t in zip(op.regions, (True, False)))
    if can_flatten(then, orelse):
        return flatten(s, op, args[0], then, orelse)
    new = s.finish(op, args, (then, orelse))
    results = zip(new.results, then.yielded, orelse.yielded, strict=True)
    return [known_result(s, args[0], *each) for each in results]


def known_result(s: Simplifier, cond: Value, result: Value, a: Value, b: Value) -> Value:
    """Return the value that both regions yield. If they yield different bool constants, return the
    condition or its negation; else the result."""
    if is_equal_value(a, b):
        return s.const(a.attr, a.type) if type(a) is Op and a.kind == "const" else a
    if a.type is u1 and is_constant(a) and is_constant(b):
        return cond if s.truth(a) else s.emit("not", cond)
    return result


def can_flatten(then: Region, orelse: Region) -> bool:
    """True if the `if` has results, and its regions have at most FLATTEN_OPS ops, all cheap and
    pure. Constants do not count."""
    ops = [op for r in (then, orelse) for op in r.ops[:-1] if op.kind != "const"]
    if not then.yielded or len(ops) > tuning.FLATTEN_OPS:
        return False
    return all(TABLE[op.kind].effect is Effect.PURE and is_cheap(op) for op in ops)


def is_cheap(op: Op) -> bool:
    """True for an op with integer or bool results, except casts, and divisions and remainders whose
    divisor is not a scalar constant."""
    if op.kind in ROUNDED_DOWN and constant_int(op.args[1]) is None:
        return False
    return scalar_kind_of(op.type) in ("i", "u", "b") and op.kind != "cast"


def flatten(
    s: Simplifier, op: Op, cond: Value, then: Region, orelse: Region
) -> Sequence[Value] | None:
    """Append both regions' ops, merged with equal ones, and a select per result. Returns the values
    of the results."""
    s.walk.ops([*then.ops[:-1], *orelse.ops[:-1]])
    s.b.span = op.span
    results = zip(op.results, then.yielded, orelse.yielded, strict=True)
    return [choose(s, cond, s.new(a), s.new(b), r.name) for r, a, b in results]


def choose(s: Simplifier, cond: Value, a: Value, b: Value, name: str) -> Value:
    if is_equal_value(a, b):
        return a
    t = a.type
    if isinstance(t, Tensor):
        cond = s.emit("splat", cond, type=with_shape(u1, t.shape))
    s.name = name
    return s.result("select", cond, a, b)


# --- loops -------------------------------------------------------------------------------------


def simplify_for(s: Simplifier, op: Op, args: Args) -> Sequence[Value] | None:
    """Simplify a `for` with at most one iteration, or with unchanged carried values."""
    begin, end, *first = args
    trips = trip_count(begin, end)
    if trips == 0:
        return first
    if trips == 1:
        return s.inline(op.regions[0], (begin, *first))
    return drop_fixed_slots(s, op, args)


def trip_count(begin: Value, end: Value) -> int | None:
    if begin is end:
        return 0
    first, last = constant_int(begin), constant_int(end)
    return None if first is None or last is None else max(0, last - first)


def simplify_while(s: Simplifier, op: Op, args: Args) -> Sequence[Value] | None:
    """Simplify a `while` whose condition is known to be false at first, or with unchanged carried
    values."""
    cond = op.regions[0]
    if s.truth(s.new(cond.yielded[0])) is False:
        s.inline(cond, args)
        return args
    return drop_fixed_slots(s, op, args)


def simplify_parallel(s: Simplifier, op: Op, args: Args) -> Sequence[Value] | None:
    """Remove a `parallel` without iterations."""
    axes = zip(args[::2], args[1::2], strict=True)
    return () if any(trip_count(*ends) == 0 for ends in axes) else None


def drop_fixed_slots(s: Simplifier, op: Op, args: Args) -> Sequence[Value] | None:
    """Replace by its initial value each carried value that every iteration passes on unchanged, or
    sets to its initial value. Returns the values of the loop's results, or None if there is no such
    carried value."""
    fixed, index = control_of(op).fixed, control_of(op).index_params
    first = args[fixed:]
    slots = list(zip(carried_params(op), op.regions[-1].yielded, first, strict=True))
    same = [k for k, (p, v, x) in enumerate(slots) if origin(v) is p or is_equal_value(s.new(v), x)]
    if not same:
        return None
    for region in op.regions:
        s.walk.map.update({region.params[index + k]: first[k] for k in same})
    keep = [k for k in range(len(first)) if k not in same]
    return pruned_op(s.walk, op, args, keep)


def origin(v: Value) -> Value:
    """Return the initial value of a loop result that all iterations pass on unchanged; else `v`."""
    while isinstance(v, Result) and is_loop(v.op):
        if origin(v.op.regions[-1].yielded[v.index]) is not carried_params(v.op)[v.index]:
            break
        v = initial_values(v.op)[v.index]
    return v


RULES: dict[str, Callable[[Simplifier, Op, Args], Sequence[Value] | None]] = {
    "if": simplify_if,
    "for": simplify_for,
    "while": simplify_while,
    "parallel": simplify_parallel,
}
