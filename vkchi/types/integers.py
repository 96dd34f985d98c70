"""Python integers as arguments of a narrower type: they wrap with a warning, as in Taichi.

>>> wrap_integer(300, u8, "argument `n`")       # warns
44
"""

from __future__ import annotations

from functools import cache

from vkchi.errors import ArgumentError, KernelOverflowWarning, warn_user
from vkchi.types import SCALARS, Scalar
from vkchi.types.lazy_numpy import np


@cache
def integer_range(t: Scalar) -> tuple[int, int]:
    if t.kind == "i":
        return -(1 << t.bits - 1), (1 << t.bits - 1) - 1
    return 0, (1 << t.bits) - 1


def wrap_integer(value: int, t: Scalar, name: str) -> int:
    """Convert an integer to an integer type t, modulo 2**bits, with a warning if it does not fit.

    `name` describes the argument in messages. Raises ArgumentError for numbers that do not even fit
    i64 (for signed t) or u64 (for unsigned t, so for all negative numbers).
    """
    low, high = integer_range(t)
    if low <= value <= high:
        return value
    low, high = integer_range(SCALARS[f"{t.kind}64"])
    if not low <= value <= high:
        raise ArgumentError(f"{name}: {value} does not fit {t}")
    found = int(np.array(value, f"{t.kind}8").astype(t.dtype))
    warn_user(f"{name}: {value} does not fit {t} and is taken as {found}", KernelOverflowWarning)
    return found
