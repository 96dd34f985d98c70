"""Ranges at the ends of integer types, and kernels that record the indices of their loops.

for begin, end, step in corners(ti.u8): ...
x = expected(range(begin, end, step), bits=32)      # contents of a row after a kernel
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

import vkchi as ti

MOST = 40  # iterations of a range that is tried
FEW = 7
Range = tuple[int, int, int]
INDEX_BITS = {"i64": 64, "u64": 64}


def corners(t: Any) -> list[Range]:
    """Short ranges with bounds and steps near the ends of type t, whose indices fit the loop's
    type."""
    info = np.iinfo(t.dtype)
    low, high = int(info.min), int(info.max)
    top = (1 << (INDEX_BITS.get(t.name, 32) - 1)) - 1
    ends = {low, low + 1, low + FEW, low // 2, -3, 0, 1, 5, high // 3, high // 2, high - FEW,
            high - 1, high, top, top - 1}  # fmt: skip
    steps = {1, 2, 3, FEW, high // 5, high // 2, high // 2 + 1, high - 1, high}
    steps |= {-s for s in steps} | {low}
    bounds = sorted(n for n in ends if low <= n <= high)
    found = product(bounds, bounds, sorted(s for s in steps if low <= s <= high and s != 0))
    return [r for r in found if is_tried(r, top)]


def is_tried(r: Range, top: int) -> bool:
    """True if a range has at most MOST indices, none of them beyond `top`.

    If a bound is beyond `top`, no index is at `top` either.
    """
    begin, end, step = r
    count = max(0, -((begin - end) // step))
    most = max(begin, begin + (count - 1) * step) + (max(begin, end) > top)
    return count <= MOST and (count == 0 or most <= top)


def expected(indices: range, bits: int) -> tuple[int, int, int, int]:
    """(count, first, last, checksum) of the indices; the wrapped checksum depends on order."""
    total = 0
    for i in indices:
        total = (total * 3 + i) % (1 << bits)
    total -= (total >> (bits - 1)) << bits
    return len(indices), *(indices[k] if len(indices) else 0 for k in (0, -1)), total


def columns(ranges: list[Range], t: Any) -> list[Any]:
    return [np.array(column, t.dtype) for column in zip(*ranges)]


def expected_all(ranges: list[Range], t: Any) -> list[tuple[int, int, int, int]]:
    bits = INDEX_BITS.get(t.name, 32)
    return [expected(range(*r), bits) for r in ranges]


def kernels_of(t: Any) -> Iterator[Any]:
    """Two kernels with serial loops over ranges of type t from memory; the second may break."""
    index = ti.i64 if t.name in INDEX_BITS else ti.i32
    bounds = ti.types.ndarray(dtype=t, ndim=1)
    found = ti.types.ndarray(dtype=index, ndim=2)

    def runs_on(begin: bounds, end: bounds, step: bounds, out: found):
        for c in range(begin.shape[0]):
            n, first, last, total = ti.i32(0), index(0), index(0), index(0)
            for i in range(begin[c], end[c], step[c]):
                first = i if n == 0 else first
                last = i
                total = total * 3 + i
                n += 1
            out[c, 0], out[c, 1], out[c, 2], out[c, 3] = n, first, last, total

    def may_break(begin: bounds, end: bounds, step: bounds, out: found):
        for c in range(begin.shape[0]):
            n, first, last, total = ti.i32(0), index(0), index(0), index(0)
            for i in range(begin[c], end[c], step[c]):
                first = i if n == 0 else first
                last = i
                total = total * 3 + i
                n += 1
                if n > 1000:
                    break
            out[c, 0], out[c, 1], out[c, 2], out[c, 3] = n, first, last, total

    yield from (runs_on, may_break)
