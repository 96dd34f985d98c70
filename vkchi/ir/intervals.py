"""Column `interval` of the op table: what an op of integers can give, from what its operands are.

An interval is (least, greatest) of a mathematical integer: results are not wrapped to their type,
so one that leaves it may be anything (`fit`). None is no bound: where an op has no meaning for
some operands (a division by zero), its result is anything.

Must not know: where operands come from, what rows there are.

    >>> add(i32, (0, 9), (1, 1))
    (1, 10)
"""

from __future__ import annotations

from collections.abc import Callable

from vkchi.types import Scalar

Interval = tuple[int, int]
Rule = Callable[..., "Interval | None"]  # of the result's scalar type, and an interval per operand


def type_range(t: Scalar) -> Interval:
    """Least and greatest value of an integer type, or of truth values."""
    if t.kind == "b":
        return 0, 1
    if t.kind == "i":
        return -(1 << (t.bits - 1)), (1 << (t.bits - 1)) - 1
    return 0, (1 << t.bits) - 1


def fit(found: Interval | None, t: Scalar) -> Interval | None:
    """The interval if it lies in its type, where nothing wraps."""
    lo, hi = type_range(t)
    return found if found is not None and lo <= found[0] and found[1] <= hi else None


def hull(*parts: Interval) -> Interval:
    """What holds all of these."""
    return min(p[0] for p in parts), max(p[1] for p in parts)


def corners(formula: Callable[[int, int], int], a: Interval, b: Interval) -> Interval:
    """Of a formula that is monotone in each operand where the other one stays."""
    ends = [formula(x, y) for x in a for y in b]
    return min(ends), max(ends)


def first(t: Scalar, a: Interval, *others: Interval) -> Interval:
    """The first operand."""
    return a


def natural(t: Scalar) -> Interval:
    """A number of things: never negative, as much as i32 holds."""
    return 0, (1 << 31) - 1


def add(t: Scalar, a: Interval, b: Interval) -> Interval:
    """Sum."""
    return a[0] + b[0], a[1] + b[1]


def sub(t: Scalar, a: Interval, b: Interval) -> Interval:
    """Difference."""
    return a[0] - b[1], a[1] - b[0]


def mul(t: Scalar, a: Interval, b: Interval) -> Interval:
    """Product."""
    return corners(lambda x, y: x * y, a, b)


def neg(t: Scalar, a: Interval) -> Interval:
    """Negative."""
    return -a[1], -a[0]


def absolute(t: Scalar, a: Interval) -> Interval:
    """Absolute value."""
    return max(0, a[0], -a[1]), max(-a[0], a[1])


def sign(t: Scalar, a: Interval) -> Interval:
    """-1, 0 or 1."""
    return (a[0] > 0) - (a[0] < 0), (a[1] > 0) - (a[1] < 0)


def smaller(t: Scalar, a: Interval, b: Interval) -> Interval:
    """Minimum."""
    return min(a[0], b[0]), min(a[1], b[1])


def larger(t: Scalar, a: Interval, b: Interval) -> Interval:
    """Maximum."""
    return max(a[0], b[0]), max(a[1], b[1])


def floordiv(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Quotient rounded down."""
    if b[0] <= 0 <= b[1]:
        return None
    return corners(lambda x, y: x // y, a, b)


def truncdiv(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Quotient rounded toward zero."""
    if b[0] <= 0 <= b[1]:
        return None
    return corners(lambda x, y: abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1), a, b)


def mod(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Remainder with the divisor's sign."""
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
    """Remainder with the dividend's sign."""
    if b[0] <= 0 <= b[1]:
        return None
    size = absolute(t, b)
    if a[0] >= 0:
        return mod(t, a, size)
    most = size[1] - 1
    return max(a[0], -most), min(max(a[1], 0), most)


def bit_and(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Bits of both."""
    if a[0] == a[1] and b[0] == b[1]:
        return a[0] & b[0], a[0] & b[0]
    natural = [x for x in (a, b) if x[0] >= 0]
    return (0, min(x[1] for x in natural)) if natural else None


def bit_xor(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Bits of one."""
    if a[0] < 0 or b[0] < 0:
        return None
    return 0, (1 << max(a[1], b[1]).bit_length()) - 1


def bit_or(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Bits of either."""
    found = bit_xor(t, a, b)
    return found and (max(a[0], b[0]), found[1])


def bit_not(t: Scalar, a: Interval) -> Interval:
    """The other bits."""
    last = -1 if t.kind == "i" else type_range(t)[1]
    return last - a[1], last - a[0]


def shl(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Times a power of two; 0 if by the width or more."""
    if b[0] != b[1]:
        return None
    if not 0 <= b[0] < t.bits:
        return 0, 0
    return a[0] << b[0], a[1] << b[0]


def shr(t: Scalar, a: Interval, b: Interval) -> Interval | None:
    """Divided by a power of two, rounded down."""
    if b[0] == b[1]:
        k = b[0] if 0 <= b[0] < t.bits else t.bits
        return a[0] >> k, a[1] >> k
    return (0, a[1]) if a[0] >= 0 else None


def bit_count(t: Scalar, a: Interval) -> Interval:
    """A number of bits."""
    return 0, t.bits


def trip_count(t: Scalar, begin: Interval, end: Interval, step: Interval) -> Interval:
    """The length of a range, however long."""
    if step[0] > 0:
        return length(begin[1], end[0], step[1]), length(begin[0], end[1], step[0])
    if step[1] < 0:
        return length(begin[0], end[1], step[0]), length(begin[1], end[0], step[1])
    return 0, max(0, end[1] - begin[0], begin[1] - end[0])


def length(begin: int, end: int, step: int) -> int:
    """The length of one range, whose step is not 0."""
    return max(0, -((begin - end) // step))


def select(t: Scalar, condition: Interval, a: Interval, b: Interval) -> Interval:
    """The second or the third."""
    return hull(a, b)
