"""Numbers that the host can compute at launch: bounds and lengths of loops, as counts.

Owns: reading ops as a `Count` (the language is specified in `vkchi.target.shader`) with what is
known of its range. Must not know: what the counts are for, devices.

    >>> host_count(op)      # parallel 0, shape x [0]
    ('dim', 'x', 0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkchi.ir.control import Axis, axes_of
from vkchi.ir.core import Op, Param, Value, has_kind, params_under, value_of
from vkchi.ir.intervals import Interval, hull, natural, type_range
from vkchi.ir.ops import CHOICES, DIVISIONS, SUMS, TABLE, Trait, kinds_with
from vkchi.target.shader import Count
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Tensor, i32, i64

LARGEST_BLOCK = 1024  # that can be demanded
BARRIERS = frozenset({"barrier"})
LARGEST_COUNT = 100  # ops that a launch is willing to evaluate


class Number(NamedTuple):
    """A count, how many ops it has, and what is known of it: `lo <= value <= hi`."""

    expr: Count
    lo: int
    hi: int
    size: int = 1


def host_count(op: Op) -> Count | None:
    """The number of iterations of a `parallel` op, or None where the host cannot compute it.

    A constant is never negative; anything else may be, which means none.
    """
    n = host_length(op)
    if n is None:
        return None
    return ("const", max(0, n.lo)) if n.lo == n.hi else n.expr


def host_length(op: Op) -> Number | None:
    """End minus begin of a `parallel` op, of several axes multiplied; None where the host cannot
    compute it."""
    lengths = [axis_length(axis) for axis in axes_of(op)]
    total = lengths[0]
    if len(lengths) > 1:
        total = constant(1)
        for n in lengths:
            n = combine("max", (n, constant(0))) if n is not None else None
            total = combine("mul", (total, n)) if total is not None and n is not None else None
    return total


def axis_length(axis: Axis) -> Number | None:
    """End minus begin of an axis, which may be negative; None where the host cannot compute it."""
    begin, end = (wrapped(host_number(v), v) for v in (axis.begin, axis.end))
    return None if begin is None or end is None else combine("sub", (end, begin))


def most_iterations(op: Op) -> int:
    """As many iterations of a `parallel` as can run: i32 counts them, those of whole workgroups
    where these wait for each other."""
    return (1 << 31) - (LARGEST_BLOCK + 1 if has_kind(op.regions[0], BARRIERS) else 1)


def trips_of(loop: Op, given: frozenset[Param]) -> Number | None:
    """How often a loop goes round, where the host can compute it from what is given."""
    if loop.kind == "while":
        return None
    total: Number | None = constant(1)
    for axis in axes_of(loop):
        if any(p not in given for p in params_under((axis.begin, axis.end))):
            return None  # an index of a loop around is a parameter too, but of its region
        n = axis_length(axis)
        n = combine("max", (n, constant(0))) if n is not None else None
        total = combine("mul", (total, n)) if total is not None and n is not None else None
    return total


def host_number(v: Value) -> Number | None:
    """An integer value as a count, not yet wrapped to its type; None if the host cannot know it."""
    t = v.type
    if isinstance(v, Param):
        return leaf(("arg", v.name), t) if isinstance(t, Scalar) else None
    if not isinstance(v, Op) or not isinstance(t, Scalar) or t.kind not in "iu":
        return None
    if v.kind in LEAVES:
        return LEAVES[v.kind](v)
    return _read_args(v) if v.kind in COUNTS else None


def leaf(count: Count, t: Scalar) -> Number | None:
    """A number given at launch, of integer type t."""
    return Number(count, *type_range(t)) if t.kind in "iu" else None


def constant(n: int) -> Number:
    """A known number."""
    return Number(("const", n), n, n)


def wrapped(n: Number | None, v: Value) -> Number | None:
    """The number as the value's type holds it."""
    if n is None or not isinstance(v.type, Scalar):
        return None
    lo, hi = type_range(v.type)
    if lo <= n.lo and n.hi <= hi:
        return n
    if n.lo == n.hi:
        return constant((n.lo - lo) % (hi - lo + 1) + lo)
    return Number(("wrap", v.type.name, n.expr), lo, hi, n.size + 1)


def combine(kind: str, args: Sequence[Number]) -> Number | None:
    """An op of the count language, folded where it can be; None if it grows too large."""
    low, high = limits(kind, args)
    if low == high and all(n.lo == n.hi for n in args):
        return constant(low)
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
    return Number((kind, *(n.expr for n in args)), low, high, size)


def limits(kind: str, args: Sequence[Number]) -> Interval:
    """What an op of the count language can give; of a division by zero, 0."""
    parts = [(n.lo, n.hi) for n in args]
    rule = TABLE[kind].interval
    assert rule is not None
    if kind not in DIVISIONS:
        return rule(i64, *parts) or type_range(i64)
    a, (lo, hi) = parts
    signs = [(lo, min(hi, -1)), (max(lo, 1), hi)]
    found = [rule(i64, a, b) for b in signs if b[0] <= b[1]]
    return hull(*filter(None, found), *([(0, 0)] if lo <= 0 <= hi else []))


def _read_args(op: Op) -> Number | None:
    """An op of numbers. Sums and products may wrap once at the end; all others need their operands
    as these types hold them."""
    numbers = []
    for v in op.args:
        n = host_number(v) if op.kind in RING else wrapped(host_number(v), v)
        if n is None:
            return None
        numbers.append(n)
    return combine(op.kind, numbers)


def _read_const(op: Op) -> Number:
    assert isinstance(op.type, Scalar)
    return constant(int(value_of(op.attr, op.type)))


def _read_shape(op: Op) -> Number:
    array = op.args[0]
    assert isinstance(array.type, Array)
    if array.type.shape is not None:
        return constant(array.type.shape[op.attr])
    return Number(("dim", array.name, op.attr), *natural(i32))


def _read_extract(op: Op) -> Number | None:
    tensor = op.args[0]
    if not isinstance(tensor, Param) or not isinstance(tensor.type, Tensor):
        return None
    return leaf(("item", tensor.name, op.attr), tensor.type.elem)


def _read_cast(op: Op) -> Number | None:
    v = op.args[0]
    return wrapped(host_number(v), v)


LEAVES: dict[str, Callable[[Op], Number | None]] = {
    "const": _read_const, "shape": _read_shape, "extract": _read_extract, "cast": _read_cast,
    "bitcast": _read_cast,
}  # fmt: skip
COUNTS, RING = kinds_with(Trait.COUNTS), kinds_with(Trait.RING)
