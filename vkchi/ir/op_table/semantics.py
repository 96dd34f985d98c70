"""Numpy meanings of op table rows for which numpy has no function of the same behaviour; random
numbers.

Example:

    >>> int(floordiv(np.int32(-7), np.int32(2)))
    -4
"""

from __future__ import annotations

from typing import Any

from vkchi.types.lazy_numpy import np


def floordiv(a: Any, b: Any) -> Any:
    """Quotient rounded down, like Python's `//`.

    - Integers by zero: 0 here, undefined on a device.
    - Floats of 16 and 32 bits: the floor of the f64 quotient, converted back.
    - f64: `np.floor_divide`; by zero, or with an infinite operand, the floor of `a / b`.
    """
    if a.dtype.kind == "f":
        return _floordiv_floats(a, b)
    safe = np.where(b == 0, np.ones_like(b), b)
    return np.where(b == 0, np.zeros_like(a), np.floor_divide(a, safe)).astype(a.dtype)


def _floordiv_floats(a: Any, b: Any) -> Any:
    if a.dtype.itemsize < 8:
        # The f64 quotient never rounds up to a whole number that the exact one is below:
        # a quotient of 24-bit significands below 2**28 is at least 2**-24 from a whole number.
        return np.floor(a.astype(np.float64) / b.astype(np.float64)).astype(a.dtype)
    is_plain = np.isfinite(a) & np.isfinite(b) & (b != 0)
    return np.where(is_plain, np.floor_divide(a, b), np.floor(a / b)).astype(a.dtype)


def mod(a: Any, b: Any) -> Any:
    """Remainder with the divisor's sign: `a - b * floor(a / b)`, rounded once; for floats a zero is
    +0.

    NaN for floats by zero or with an infinite operand. Integers by zero: 0 here, undefined on a
    device.
    """
    if a.dtype.kind == "f":
        left = np.fmod(a, b)
        moved = np.where((left != 0) & ((left < 0) != (b < 0)), left + b, left + a.dtype.type(0))
        return np.where(np.isfinite(b), moved, a.dtype.type(np.nan)).astype(a.dtype)
    safe = np.where(b == 0, np.ones_like(b), b)
    return np.where(b == 0, np.zeros_like(a), np.mod(a, safe)).astype(a.dtype)


def truncdiv(a: Any, b: Any) -> Any:
    """Quotient of integers rounded toward zero, like C's `/`.

    By zero: 0 here, undefined on a device.
    """
    quotient = floordiv(a, b)
    inexact = (quotient * b != a) & (b != 0) & ((a < 0) != (b < 0))
    return (quotient + inexact.astype(a.dtype)).astype(a.dtype)


def rem(a: Any, b: Any) -> Any:
    """Remainder with the dividend's sign, like C's `%`.

    Integers by zero: 0 here, undefined on a device.
    """
    if a.dtype.kind == "f":
        return np.fmod(a, b)
    return np.where(b == 0, np.zeros_like(a), a - truncdiv(a, b) * b).astype(a.dtype)


def power(a: Any, b: Any) -> Any:
    """Power of floats, computed in f64 and rounded to the type of `a`."""
    return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)


def is_within(b: Any) -> Any:
    return (b >= 0) & (b < b.dtype.itemsize * 8)


def shl(a: Any, b: Any) -> Any:
    """Shift left; 0 for amounts outside [0, width)."""
    shifted = np.left_shift(a, np.where(is_within(b), b, np.zeros_like(b)))
    return np.where(is_within(b), shifted, np.zeros_like(a))


def shr(a: Any, b: Any) -> Any:
    """Shift right, arithmetic for signed types.

    For amounts outside [0, width) all bits are shifted out: 0, or -1 for a negative number.
    """
    all_but_one = b.dtype.type(b.dtype.itemsize * 8 - 1)
    shifted = np.right_shift(a, np.where(is_within(b), b, all_but_one))
    is_lost = ~is_within(b) & (a.dtype.kind == "u")
    return np.where(is_lost, np.zeros_like(a), shifted)


def invert(a: Any) -> Any:
    return np.logical_not(a) if a.dtype == np.bool_ else np.invert(a)


def negate(a: Any) -> Any:
    return np.negative(a)


def sign(a: Any) -> Any:
    """-1, 0 or 1 in the same type; 0 for NaN."""
    return ((a > 0).astype(a.dtype) - (a < 0).astype(a.dtype)).astype(a.dtype)


def round_even(a: Any) -> Any:
    return np.rint(a)


def popcnt(a: Any) -> Any:
    size = a.dtype.itemsize
    raw = np.ascontiguousarray(a).view(f"u{size}")
    bits = np.unpackbits(raw.reshape(-1, 1).view(np.uint8), axis=1)
    return bits.sum(axis=1).reshape(np.shape(a)).astype(a.dtype)


def clz(a: Any) -> Any:
    width = a.dtype.itemsize * 8
    raw = np.atleast_1d(a).view(f"u{a.dtype.itemsize}")
    lengths = [width - int(v).bit_length() for v in raw.reshape(-1)]
    return np.array(lengths, a.dtype).reshape(np.shape(a))


def cast(a: Any, dtype: np.dtype[Any]) -> Any:
    """Numeric conversion.

    - To bool: `a != 0`.
    - Float to integer of 32 or 64 bits: toward zero. Out of range it saturates here and NaN becomes
      0; a device may return anything.
    - Float to integer of 8 or 16 bits: converted to i32, then wrapped.
    - Integer to integer: wraps.
    - Integer or float to float: rounded to nearest.
    """
    if dtype == np.bool_:
        return a != 0
    if a.dtype.kind == "f" and dtype.kind in "iu":
        if dtype.itemsize < 4:
            return cast(a, np.dtype(np.int32)).astype(dtype)
        info = np.iinfo(dtype)
        wide = np.trunc(np.nan_to_num(a.astype(np.float64), nan=0.0))
        top = np.nextafter(float(info.max) + 1.0, 0.0)
        return np.where(
            wide > top, info.max, np.clip(wide, float(info.min), top).astype(dtype)
        ).astype(dtype)
    return a.astype(dtype)


def trip_count(begin: Any, end: Any, step: Any) -> Any:
    """Trip count of Python's `range(begin, end, step)`, in the unsigned type of the same width.

    0 if the step is 0.
    """
    unsigned = np.dtype(f"u{begin.dtype.itemsize}")
    up, one = step > 0, unsigned.type(1)
    low, high = np.where(up, begin, end), np.where(up, end, begin)
    size = np.maximum(np.where(up, step, np.negative(step)).astype(unsigned), one)
    length = high.astype(unsigned) - low.astype(unsigned)
    some = (low < high) & (step != 0)
    return np.where(some, (length - one) // size + one, unsigned.type(0)).astype(unsigned)


def matmul(a: Any, b: Any) -> Any:
    """Matrix-matrix or matrix-vector product; terms are added in the order of the inner index."""
    total = a[..., :, :1] * b[:1] if b.ndim == 2 else a[:, 0] * b[0]
    for k in range(1, a.shape[1]):
        total = total + (a[:, k : k + 1] * b[k : k + 1] if b.ndim == 2 else a[:, k] * b[k])
    return total


def total(a: Any) -> Any:
    """Sum of a tensor's components, added in order, in its own type."""
    flat = a.reshape(-1)
    result = flat[0]
    for v in flat[1:]:
        result = result + v
    return result


# --- random numbers ------------------------------------------------------------------------------

# PCG: one stream per invocation. A draw computes `state = state * MULTIPLIER + INCREMENT` modulo
# 2**32, and returns a permutation of the new state (`output_of`). The stream of an invocation
# begins with `first_state`, where `seed` is the parameter `.seed` and `index` is `thread_index`.
# The interpreter computes this directly; the pass `streams` expands it to ops.
#
# Source: O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms",
# 2014 (RXS-M-XS 32); Jarzynski and Olano, Hash Functions for GPU Rendering, 2020.
MULTIPLIER, INCREMENT, PERMUTER, SPREADER = 747796405, 2891336453, 277803737, 2654435769
_MASK = 0xFFFFFFFF


def next_state(state: int) -> int:
    return (state * MULTIPLIER + INCREMENT) & _MASK


def output_of(state: int) -> int:
    word = (((state >> ((state >> 28) + 4)) ^ state) * PERMUTER) & _MASK
    return (word >> 22) ^ word


def first_state(seed: int, index: int) -> int:
    return output_of(next_state(seed ^ (index * SPREADER & _MASK)))
