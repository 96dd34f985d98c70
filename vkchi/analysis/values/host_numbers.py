"""Integers that the host computes at launch: loop bounds and trip counts as `Count` expressions.

Ops are translated to the `Count` language (specified in `vkchi.target.shader`). Each expression has
an interval of its possible values.

    >>> host_count(op)      # parallel 0, shape x [0]
    ('dim', 'x', 0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkchi.ir.core import Op, Param, Value, constant_int, has_kind, params_under, value_of
from vkchi.ir.op_table.interval_rules import Interval, hull, nonnegative, type_range
from vkchi.ir.ops import CHOICES, DIVISIONS, SUMS, TABLE, LoopAxis, Trait, axes_of, kinds_with
from vkchi.target.cell_lists import ENTRIES_AT, listed_activity
from vkchi.target.shader import Count
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Tensor, i32, i64

LARGEST_BLOCK = 1024  # the largest workgroup size that can be requested
BARRIERS = frozenset({"barrier"})
LARGEST_COUNT = 100  # ops of a count that a launch evaluates


class BoundedCount(NamedTuple):
    """A `Count` expression, its interval `lo <= value <= hi`, and its number of nodes (`size`)."""

    expr: Count
    lo: int
    hi: int
    size: int = 1


def host_count(op: Op) -> Count | None:
    """Trip count of a `parallel` op; None if the host cannot compute it.

    A constant is never negative. Other expressions may be; a negative value means no iterations.
    """
    n = host_length(op)
    if n is None:
        return None
    return ("const", max(0, n.lo)) if n.lo == n.hi else n.expr


def host_length(op: Op) -> BoundedCount | None:
    """End minus begin of a `parallel` op, multiplied over its axes.

    May be negative with one axis; with several, negative lengths count as 0. None if the host
    cannot compute it.
    """
    lengths = [axis_length(axis) for axis in axes_of(op)]
    total = lengths[0]
    if len(lengths) > 1:
        total = constant_count(1)
        for n in lengths:
            n = combine_counts("max", (n, constant_count(0))) if n is not None else None
            total = (
                combine_counts("mul", (total, n)) if total is not None and n is not None else None
            )
    return total


def axis_length(axis: LoopAxis) -> BoundedCount | None:
    """End minus begin of an axis, possibly negative; None if the host cannot compute it."""
    begin, end = (wrapped_count(host_number(v), v) for v in (axis.begin, axis.end))
    return None if begin is None or end is None else combine_counts("sub", (end, begin))


def most_iterations(op: Op) -> int:
    """Largest trip count of a `parallel` op that can run.

    The count must fit in i32; with barriers, the count rounded up to whole workgroups must fit.
    """
    return (1 << 31) - (LARGEST_BLOCK + 1 if has_kind(op.regions[0], BARRIERS) else 1)


def trips_of(loop: Op, given: frozenset[Param]) -> BoundedCount | None:
    """Trip count of a loop, 0 or more, computed by the host from the given parameters.

    None if that is not possible, for example for a `while`.
    """
    if loop.kind == "while":
        return None
    total: BoundedCount | None = constant_count(1)
    for axis in axes_of(loop):
        if any(p not in given for p in params_under((axis.begin, axis.end))):
            return None  # an enclosing loop's index is a parameter of its region
        n = axis_length(axis)
        n = combine_counts("max", (n, constant_count(0))) if n is not None else None
        total = combine_counts("mul", (total, n)) if total is not None and n is not None else None
    return total


def trips_over(
    axes: Sequence[tuple[int | Value, int | Value]], step: int | Value
) -> BoundedCount | None:
    """Trip count, 0 or more, of nested ranges (begin, end) that all have the same step.

    None if the host cannot compute it.
    """
    total: BoundedCount | None = constant_count(1)
    for begin, end in axes:
        bounds = [bound_number(v) for v in ((end, begin) if step == 1 else (begin, end, step))]
        known = [n for n in bounds if n is not None]
        if total is None or len(known) < len(bounds):
            return None
        n = combine_counts("sub" if step == 1 else "trip_count", known)
        n = combine_counts("max", (n, constant_count(0))) if n is not None else None
        total = combine_counts("mul", (total, n)) if n is not None else None
    return total


def bound_number(bound: int | Value) -> BoundedCount | None:
    """A loop bound or step as a count; None if the host cannot compute it."""
    if isinstance(bound, int):
        return constant_count(bound)
    return wrapped_count(host_number(bound), bound)


def host_number(v: Value) -> BoundedCount | None:
    """An integer value as a count, not yet wrapped to its type; None if the host cannot compute
    it."""
    t = v.type
    if isinstance(v, Param):
        return leaf(("arg", v.name), t) if isinstance(t, Scalar) else None
    if not isinstance(v, Op) or not isinstance(t, Scalar) or t.kind not in "iu":
        return None
    if v.kind in LEAVES:
        return LEAVES[v.kind](v)
    return _read_args(v) if v.kind in COUNTS else None


def leaf(count: Count, t: Scalar) -> BoundedCount | None:
    """The count of a launch argument of integer type t; None for other types."""
    return BoundedCount(count, *type_range(t)) if t.kind in "iu" else None


def constant_count(n: int) -> BoundedCount:
    return BoundedCount(("const", n), n, n)


def wrapped_count(n: BoundedCount | None, v: Value) -> BoundedCount | None:
    """The count, wrapped to the type of v; None for None."""
    if n is None or not isinstance(v.type, Scalar):
        return None
    lo, hi = type_range(v.type)
    if lo <= n.lo and n.hi <= hi:
        return n
    if n.lo == n.hi:
        return constant_count((n.lo - lo) % (hi - lo + 1) + lo)
    return BoundedCount(("wrap", v.type.name, n.expr), lo, hi, n.size + 1)


def combine_counts(kind: str, args: Sequence[BoundedCount]) -> BoundedCount | None:
    """Apply op `kind` of the `Count` language to counts, folded if possible.

    None if the result has more than LARGEST_COUNT nodes.
    """
    low, high = limits(kind, args)
    if low == high and all([n.lo == n.hi for n in args]):
        return constant_count(low)
    if kind in SUMS and args[-1].expr == ("const", 0):
        return args[0]
    if kind == "mul" and ("const", 1) in (args[0].expr, args[1].expr):
        return args[1] if args[0].expr == ("const", 1) else args[0]
    if kind in CHOICES:
        for this, other in (args, args[::-1]):
            if (this.hi <= other.lo) if kind == "min" else (this.lo >= other.hi):
                return this
    size = 1 + sum(n.size for n in args)
    if size > LARGEST_COUNT:
        return None
    return BoundedCount((kind, *(n.expr for n in args)), low, high, size)


def limits(kind: str, args: Sequence[BoundedCount]) -> Interval:
    """Interval of op `kind` of the `Count` language; division by zero yields 0."""
    parts = [(n.lo, n.hi) for n in args]
    rule = TABLE[kind].interval
    assert rule is not None
    if kind not in DIVISIONS:
        return rule(i64, *parts) or type_range(i64)
    a, (lo, hi) = parts
    signs = [(lo, min(hi, -1)), (max(lo, 1), hi)]
    found = [rule(i64, a, b) for b in signs if b[0] <= b[1]]
    return hull(*filter(None, found), *([(0, 0)] if lo <= 0 <= hi else []))


def _read_args(op: Op) -> BoundedCount | None:
    """Translate an op and its operands; None if the host cannot compute it.

    Operands of modular arithmetic (`RING`) need not be wrapped; all others are wrapped to their
    types.
    """
    numbers = []
    for v in op.args:
        n = host_number(v) if op.kind in RING else wrapped_count(host_number(v), v)
        if n is None:
            return None
        numbers.append(n)
    return combine_counts(op.kind, numbers)


def _read_const(op: Op) -> BoundedCount:
    assert isinstance(op.type, Scalar)
    return constant_count(int(value_of(op.attr, op.type)))


def _read_shape(op: Op) -> BoundedCount:
    array = op.args[0]
    assert isinstance(array.type, Array)
    if array.type.shape is not None:
        return constant_count(array.type.shape[op.attr])
    return BoundedCount(("dim", array.name, op.attr), *nonnegative(i32))


def _read_extract(op: Op) -> BoundedCount | None:
    tensor = op.args[0]
    if not isinstance(tensor, Param) or not isinstance(tensor.type, Tensor):
        return None
    return leaf(("item", tensor.name, op.attr), tensor.type.elem)


def _read_cast(op: Op) -> BoundedCount | None:
    v = op.args[0]
    return wrapped_count(host_number(v), v)


LEAVES: dict[str, Callable[[Op], BoundedCount | None]] = {
    "const": _read_const, "shape": _read_shape, "extract": _read_extract, "cast": _read_cast,
    "bitcast": _read_cast,
}  # fmt: skip
COUNTS, RING = kinds_with(Trait.COUNTS), kinds_with(Trait.RING)


# --- active lists --------------------------------------------------------------------------------


def listed_count(op: Op) -> Count | None:
    """Trip count of a `parallel` from 0 to the length of an active list, or to a multiple of it;
    else None."""
    end, factor = op.args[-1], 1
    if isinstance(end, Op) and end.kind == "mul":
        end, by = end.args
        factor = constant_int(by) or 0
    cells = list_length(end)
    if cells is None or factor < 1 or len(op.args) > 2 or constant_int(op.args[0]) != 0:
        return None
    return ("mul", ("word", cells.name, capacity_of(cells)), ("const", factor))


def list_length(v: Value) -> Param | None:
    """The active list of which a value is the length, read from the list; else None."""
    if not isinstance(v, Op) or v.kind != "load":
        return None
    place = v.args[0]
    if not isinstance(place, Op) or place.kind != "elem" or constant_int(place.args[-1]) != 0:
        return None
    array = place.args[0]
    return array if isinstance(array, Param) and listed_activity(array.name) else None


def capacity_of(cells: Param) -> int:
    """The most active cells in a list."""
    assert isinstance(cells.type, Array) and cells.type.shape is not None
    return cells.type.shape[0] - ENTRIES_AT
