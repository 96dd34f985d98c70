"""Integers of Python's as arguments of a narrower type.

Owns: their ranges, and what becomes of those beyond: they wrap, with a warning, as in Taichi.
Must not know: kernels.

    wrapped(300, u8, "argument `n`")        # 44
"""

from __future__ import annotations

from functools import cache

from vkchi.errors import ArgumentError, KernelOverflowWarning, warn_user
from vkchi.types import SCALARS, Scalar
from vkchi.types.lazy_numpy import np


@cache
def range_of(t: Scalar) -> tuple[int, int]:
    """The least and the greatest number of an integer type."""
    if t.kind == "i":
        return -(1 << t.bits - 1), (1 << t.bits - 1) - 1
    return 0, (1 << t.bits) - 1


def wrapped(value: int, t: Scalar, name: str) -> int:
    """An integer as one of type t, modulo 2 to the power of its bits; `name` is of what it is for.
    Raises ArgumentError for negative numbers of unsigned types, and beyond 64 bits."""
    low, high = range_of(t)
    if low <= value <= high:
        return value
    low, high = range_of(SCALARS[f"{t.kind}64"])
    if not low <= value <= high:
        raise ArgumentError(f"{name}: {value} does not fit {t}")
    found = int(np.array(value, f"{t.kind}8").astype(t.dtype))
    warn_user(f"{name}: {value} does not fit {t} and is taken as {found}", KernelOverflowWarning)
    return found
