"""Interval arithmetic on integers: the transfer functions of the op table's column `interval`.

An interval is the pair (least, greatest) of mathematical integers. Arithmetic does not wrap; a
result outside of the type's range may be any value at run time (see `within_type`). A rule returns
None for "no bound", for example if a divisor may be zero.

    >>> add(i32, (0, 9), (1, 1))
    (1, 10)
"""

from __future__ import annotations

from collections.abc import Callable

from vkchi.types import Scalar, integer_range

Interval = tuple[int, int]
Rule = Callable[..., "Interval | None"]  # (result's scalar type, interval per operand)


type_range: Callable[[Scalar], Interval] = integer_range  # of integers and u1


def within_type(found: Interval | None, t: Scalar) -> Interval | None:
    """Return `found` if it lies within the range of type `t`, where nothing wraps; else None."""
    lo, hi = type_range(t)
    return found if found is not None and lo <= found[0] and found[1] <= hi else None


def hull(*parts: Interval) -> Interval:
    """Return the smallest interval that contains all `parts`."""
    return min(p[0] for p in parts), max(p[1] for p in parts)


def corners(formula: Callable[[int, int], int], a: Interval, b: Interval) -> Interval:
    """Return the interval of a formula that is monotone in each operand: its extremes over the
    corners."""
    ends = [formula(x, y) for x in a for y in b]
    return min(ends), max(ends)


def first(t: Scalar, a: Interval, *others: Interval) -> Interval:
    """Return the first operand's interval."""
    return a


def nonnegative(t: Scalar) -> Interval:
    """Range of a non-negative i32, for counts and indices."""
    return 0, (1 << 31) - 1


def add(t: Scalar, a: Interval, b: Interval) -> Interval:
    return a[0] + b[0], a[1] + b[1]


def sub(t: Scalar, a: Interval, b: Interval) -> Interval:
    return a[0] - b[1], a[1] - b[0]


def mul(t: Scalar, a: Interval, b: Interval) -> Interval:
    return corners(lambda x, y: x * y, a, b)


def neg(t: Scalar, a: Interval) -> Interval:
    return -a[1], -a[0]


def absolute(t: Scalar, a: Interval) -> Interval:
    return max(0, a[0], -a[1]), max(-a[0], a[1])


def sign(t: Scalar, a: Interval) -> Interval:
    return (a[0] > 0) - (a[0] < 0), (a[1] > 0) - (a[1] < 0)


def smaller(t: Scalar, a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), min(a[1], b[1])


def larger(t: Scalar, a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), max(a[1], b[1])


def floordiv(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Quotient rounded down; no bound if the divisor may be 0."""
    if b[0] <= 0 <= b[1]:
        return None
    return corners(lambda x, y: x // y, a, b)


def truncdiv(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Quotient rounded toward zero; no bound if the divisor may be 0."""
    if b[0] <= 0 <= b[1]:
        return None
    return corners(lambda x, y: abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1), a, b)


def mod(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Remainder with the divisor's sign; no bound if the divisor may be 0."""
    if b[0] <= 0 <= b[1]:
        return None
    if b[1] < 0:
        found = mod(t, neg(t, a), neg(t, b))
        return found and neg(t, found)
    if a[0] < 0:
        return 0, b[1] - 1
    if b[0] == b[1] and a[1] // b[0] == a[0] // b[0]:
        return a[0] % b[0], a[1] % b[0]
    return 0, min(a[1], b[1] - 1)


def rem(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Remainder with the dividend's sign; no bound if the divisor may be 0."""
    if b[0] <= 0 <= b[1]:
        return None
    size = absolute(t, b)
    if a[0] >= 0:
        return mod(t, a, size)
    most = size[1] - 1
    return max(a[0], -most), min(max(a[1], 0), most)


def bit_and(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Bitwise and: exact for two constants.

    Otherwise from 0 to the least upper bound of the non-negative operands; no bound if both may be
    negative.
    """
    if a[0] == a[1] and b[0] == b[1]:
        return a[0] & b[0], a[0] & b[0]
    natural = [x for x in (a, b) if x[0] >= 0]
    return (0, min(x[1] for x in natural)) if natural else None


def bit_xor(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Bitwise exclusive or; no bound if an operand may be negative."""
    if a[0] < 0 or b[0] < 0:
        return None
    return 0, (1 << max(a[1], b[1]).bit_length()) - 1


def bit_or(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Bitwise or: at least the larger lower bound; no bound if an operand may be negative."""
    found = bit_xor(t, a, b)
    return found and (max(a[0], b[0]), found[1])


def bit_not(t: Scalar, a: Interval) -> Interval:
    last = -1 if t.kind == "i" else type_range(t)[1]
    return last - a[1], last - a[0]


def shl(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Shift left by a constant: 0 for an amount outside [0, width); no bound for a variable
    amount."""
    if b[0] != b[1]:
        return None
    if not 0 <= b[0] < t.bits:
        return 0, 0
    return a[0] << b[0], a[1] << b[0]


def shr(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Shift right, rounding down.

    A constant amount outside [0, width) counts as the width. A variable amount gives [0, a[1]] if
    the first operand is non-negative, else no bound.
    """
    if b[0] == b[1]:
        k = b[0] if 0 <= b[0] < t.bits else t.bits
        return a[0] >> k, a[1] >> k
    return (0, a[1]) if a[0] >= 0 else None


def bit_count(t: Scalar, a: Interval) -> Interval:
    """Number of bits that an op counts: [0, width of the type]."""
    return 0, t.bits


def trip_count(t: Scalar, begin: Interval, end: Interval, step: Interval) -> Interval:
    """Interval of the trip count of `range(begin, end, step)`, not limited to any type.

    If the step's interval contains 0, it reaches from 0 to the largest distance of the bounds.
    """
    if step[0] > 0:
        return length(begin[1], end[0], step[1]), length(begin[0], end[1], step[0])
    if step[1] < 0:
        return length(begin[0], end[1], step[0]), length(begin[1], end[0], step[1])
    return 0, max(0, end[1] - begin[0], begin[1] - end[0])


def length(begin: int, end: int, step: int) -> int:
    return max(0, -((begin - end) // step))


def select(t: Scalar, condition: Interval, a: Interval, b: Interval) -> Interval:
    return hull(a, b)
