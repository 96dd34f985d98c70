"""Sorting of one-dimensional arrays.

ti.algorithms.parallel_sort(keys)
ti.algorithms.parallel_sort(keys, values)
"""

from __future__ import annotations

from typing import Any

from vkchi.algorithms.array_kernels import check_array, on_arrays
from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.lang.math import isnan
from vkchi.runtime import current_runtime
from vkchi.types import Scalar, i32
from vkchi.types.lazy_numpy import np


@on_arrays(at=i32, n=i32, p=i32, k=i32, count=i32)
def exchange_stage(keys: Any, at: Any, n: Any, p: Any, k: Any, count: Any) -> None:
    """One stage of merge exchange: swap out-of-order pairs at distance k within blocks of 2p keys.

    The first of the `n` keys is keys[at]; `count` iterations handle one pair each.
    """
    for t in range(count):
        i = k % p + t // k * 2 * k + t % k
        j = i + k
        if j < n and i // (2 * p) == j // (2 * p):
            a, b = keys[at + i], keys[at + j]
            if a > b or (isnan(a) and not isnan(b)):
                keys[at + i] = b
                keys[at + j] = a


@on_arrays(at=i32, to=i32, n=i32, p=i32, k=i32, count=i32)
def exchange_stage_with_values(
    keys: Any, values: Any, at: Any, to: Any, n: Any, p: Any, k: Any, count: Any
) -> None:
    """`exchange_stage` that moves values along with the keys; the first is values[to].

    In an iteration, all reads precede all writes, because keys and values may share memory.
    """
    for t in range(count):
        i = k % p + t // k * 2 * k + t % k
        j = i + k
        if j < n and i // (2 * p) == j // (2 * p):
            a, b = keys[at + i], keys[at + j]
            if a > b or (isnan(a) and not isnan(b)):
                first, second = values[to + i], values[to + j]
                keys[at + i] = b
                keys[at + j] = a
                values[to + i] = second
                values[to + j] = first


def sort_by_numpy(arrays: list[Storage]) -> None:
    """Permute the arrays so that the first is sorted; the others may be longer."""
    order = np.argsort(arrays[0].to_numpy(), kind="stable")
    contents = [x.to_numpy() for x in arrays]  # before any is written: they may share memory
    for values in contents:
        values[: len(order)] = values[order]
    for x, values in zip(arrays, contents):
        x.from_numpy(values)


def parallel_sort(keys: Storage, values: Storage | None = None) -> None:
    """Sort a one-dimensional field or ndarray of scalars in place, ascending, nan last.

    `values`, a one-dimensional array at least as long as `keys`, is permuted in the same way. The
    order of equal keys is arbitrary. Raises ArgumentError for other arrays.

    Numpy sorts arrays in memory that the host can address, unless a tape or `ti.record` is active.
    Otherwise kernels sort.

    Source of the kernels: K. E. Batcher, "Sorting networks and their applications", 1968, in the
    form for any length of D. E. Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M.
    """
    check_array("parallel_sort", "keys", keys, 1)
    n = keys.shape[0]
    if not isinstance(keys.elem, Scalar):
        raise ArgumentError(f"parallel_sort: keys are numbers, not {keys.elem}")
    if values is not None:
        check_array("parallel_sort", "values", values, 1)
        if values.shape[0] < n:
            raise ArgumentError(f"parallel_sort: {n} keys, and {values.shape[0]} values")
    arrays = [keys] if values is None else [keys, values]
    if current_runtime().tape is None and all(x.host is not None for x in arrays):
        sort_by_numpy(arrays)
        return
    p = 1
    while p < n:
        k = p
        while k >= 1:
            count = -(-(n - k % p) // (2 * k)) * k
            if values is None:
                exchange_stage(keys, *keys.origin, n, p, k, count)
            else:
                exchange_stage_with_values(
                    keys, values, *keys.origin, *values.origin, n, p, k, count
                )
            k //= 2
        p *= 2
