"""Runs of equal keys: distinct values, and reductions by key.

count = ti.algorithms.unique(x, values, counts)
count = ti.algorithms.reduce_by_key(keys, values, out_keys, out_values)
"""

from __future__ import annotations

import functools
from typing import Any

from vkchi.algorithms.array_kernels import (
    ArrayKernel,
    check_array,
    copy_first,
    library_func,
    on_arrays,
    spare_for,
)
from vkchi.algorithms.radix_sort import check_keys, gather, key_kernels, store_order
from vkchi.algorithms.scan import Scan, check_summands
from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.lang.atomic_functions import atomic_add, atomic_max, atomic_min
from vkchi.lang.compile_time import static
from vkchi.lang.elementwise import max, min
from vkchi.ndarray import ndarray
from vkchi.tuples import NamedTuple
from vkchi.types import i32

CHUNK = 256  # values that one invocation combines, before it updates a result


@on_arrays(n=i32)
def store_begins(runs: Any, begins: Any, n: Any) -> None:
    """Store the first index of each run of keys, and n at last."""
    for k in range(n):
        is_first = True
        if k > 0:
            is_first = runs[k] != runs[k - 1]
        if is_first:
            begins[runs[k] - 1] = k
        if k == n - 1:
            begins[runs[k]] = n


@on_arrays(to=i32, count=i32)
def store_lengths(begins: Any, out: Any, to: Any, count: Any) -> None:
    for r in range(count):
        out[to + r] = begins[r + 1] - begins[r]


class ReduceKernels(NamedTuple):
    """Kernels that reduce the values of runs, for one operation."""

    begin: ArrayKernel  # (values, begins, out, at, count): before any value is combined
    combine: ArrayKernel  # (values, runs, out, at, n, chunk)


@library_func
def add(a: Any, b: Any) -> Any:
    return a + b


# Per operation: of two values, and of an element and a value.
OPERATIONS: dict[str, tuple[Any, Any]] = {
    "add": (add, atomic_add),
    "min": (min, atomic_min),
    "max": (max, atomic_max),
}


@functools.cache
def reduce_kernels(op: str) -> ReduceKernels:
    of_two, update = OPERATIONS[op]
    is_sum = op == "add"

    @on_arrays(at=i32, count=i32)
    def begin(values: Any, begins: Any, out: Any, at: Any, count: Any) -> None:
        for r in range(count):
            first = values[at + begins[r]]
            out[r] = first - first if static(is_sum) else first

    @on_arrays(at=i32, n=i32, chunk=i32)
    def combine(values: Any, runs: Any, out: Any, at: Any, n: Any, chunk: Any) -> None:
        for c in range((n + chunk - 1) // chunk):
            run, total = runs[c * chunk], values[at + c * chunk]
            for k in range(c * chunk + 1, min(n, c * chunk + chunk)):
                if runs[k] == run:
                    total = of_two(total, values[at + k])
                else:
                    update(out[run - 1], total)
                    run = runs[k]
                    total = values[at + k]
            update(out[run - 1], total)

    return ReduceKernels(begin, combine)


class Runs:
    """Runs of equal keys, among the n elements of `keys`, one or more.

    Attributes:
        count: the number of runs. Computing it waits for the device.
        numbers: an ndarray with the number of the run of each key, from 1.
        begins: an ndarray with the index of each run's first key, and n at last.
    """

    def __init__(self, keys: Any, n: int) -> None:
        self.numbers, self.begins = ndarray(i32, n), ndarray(i32, n + 1)
        key_kernels(keys.seen_elem).mark(keys, self.numbers, *keys.origin, n)
        Scan(i32, n).run(self.numbers, self.numbers, is_exclusive=False)
        store_begins(self.numbers, self.begins, n)
        self.count = int(self.numbers[n - 1])


def check_out(who: str, name: str, out: Any, needed: Any) -> None:
    """Raise ArgumentError unless `out` is a one-dimensional array of elements of a type."""
    check_array(who, name, out, 1, takes_views=True)
    if out.seen_elem is not needed:
        raise ArgumentError(f"{who}: `{name}` must hold {needed}, not {out.type_name}")


def check_room(who: str, count: int, *outs: Storage | None) -> None:
    for out in outs:
        if out is not None and out.shape[0] < count:
            raise ArgumentError(
                f"{who}: there are {count} results, and an array for them has {out.shape[0]} "
                "elements"
            )


def unique(x: Storage, out: Storage, counts: Storage | None = None) -> int:
    """Store the distinct elements of x, sorted, at the start of `out`. Waits for the device.

    Args:
        x: a one-dimensional field or ndarray of numbers or bools. -0 equals 0; nan equals nan, and
            is last.
        out: a one-dimensional array of elements of x's type; other elements of it stay.
        counts: a one-dimensional array of ti.i32. If given, it gets the number of elements that
            equal each one.

    Returns:
        The number of distinct elements.

    Raises:
        ArgumentError: for other arrays, and if one is shorter than that number. Both are then
            unchanged.

    Tapes differentiate the selection that was found.
    """
    n = check_keys("unique", x, "x")
    check_out("unique", "out", out, x.seen_elem)
    if counts is not None:
        check_out("unique", "counts", counts, i32)
    if n == 0:
        return 0
    order, ascending = ndarray(i32, n), spare_for(x, n)
    store_order(x, n, order)
    gather(x, order, ascending, *x.origin, 0, n)
    runs = Runs(ascending, n)
    check_room("unique", runs.count, out, counts)
    gather(ascending, runs.begins, out, 0, *out.origin, runs.count)
    if counts is not None:
        store_lengths(runs.begins, counts, *counts.origin, runs.count)
    return runs.count


def reduce_by_key(
    keys: Storage, values: Storage, out_keys: Storage, out_values: Storage, op: str = "add"
) -> int:
    """Reduce the values of each run of equal keys. Waits for the device.

    Keys that are equal, but not adjacent, are different runs: sort first, by
    `parallel_sort(keys, values)`.

    Args:
        keys: a one-dimensional field or ndarray of numbers or bools. -0 equals 0, nan equals nan.
        values: a one-dimensional array of as many integers (sums wrap) or floats.
        out_keys: a one-dimensional array of the keys' type, which gets the first key of each run,
            in order. Other elements of it stay.
        out_values: a one-dimensional array of the values' type, which gets the results.
        op: "add", "min" or "max".

    Returns:
        The number of runs.

    Raises:
        ArgumentError: for other arrays or operations, and if an array is shorter than that number.
            Both are then unchanged.

    Tapes differentiate sums. The order of float additions depends on the device.
    """
    n = check_keys("reduce_by_key", keys)
    t = check_summands("reduce_by_key", "values", values)
    if values.shape[0] != n:
        raise ArgumentError(f"reduce_by_key: {n} keys, and {values.shape[0]} values")
    check_out("reduce_by_key", "out_keys", out_keys, keys.seen_elem)
    check_out("reduce_by_key", "out_values", out_values, t)
    if op not in OPERATIONS:
        raise ArgumentError(f"reduce_by_key: op is one of {', '.join(OPERATIONS)}, not {op!r}")
    if n == 0:
        return 0
    runs, kernels = Runs(keys, n), reduce_kernels(op)
    check_room("reduce_by_key", runs.count, out_keys, out_values)
    first_keys = ndarray(keys.seen_elem, runs.count)
    results = spare_for(values, runs.count)
    gather(keys, runs.begins, first_keys, *keys.origin, 0, runs.count)
    kernels.begin(values, runs.begins, results, *values.origin, runs.count)
    kernels.combine(values, runs.numbers, results, *values.origin, n, CHUNK)
    # after all is read: the outputs may be the inputs
    copy_first(first_keys, out_keys, *out_keys.origin, runs.count)
    copy_first(results, out_values, *out_values.origin, runs.count)
    return runs.count
