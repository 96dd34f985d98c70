"""Sorting of one-dimensional arrays: stable radix sort of (key, index) pairs on the device.

ti.algorithms.parallel_sort(keys)
ti.algorithms.parallel_sort(keys, values)
order = ti.algorithms.argsort(keys)

The sort begins at the least significant digit. A pass sorts by one digit. Each lane counts the
digits of a contiguous part of the pairs. The exclusive prefix sums of these counts, ordered by
digit, then by lane, are the destinations.

Keys become unsigned words whose order is that of the keys: -0 equals 0, and nan is last. A 64-bit
key is sorted by its lower word, then by its upper word.

Source: Satish, Harris, Garland, "Designing efficient sorting algorithms for manycore GPUs", 2009.
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
from vkchi.algorithms.scan import Scan
from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.lang.elementwise import bit_cast
from vkchi.lang.matrix import Vector
from vkchi.ndarray import ndarray
from vkchi.runtime import current_runtime
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, f32, i32, u32, u64, vector
from vkchi.types.lazy_numpy import np

# (CPU, GPU): bits of a digit, least pairs of a lane, most lanes.
DIGIT_BITS = (8, 4)
LANE_PAIRS = (512, 32)
LANES = (256, 1 << 14)

# --- keys ----------------------------------------------------------------------------------------


@library_func
def ordered_unsigned(x: Any) -> Any:
    return x


@library_func
def ordered_i32(x: Any) -> Any:
    return bit_cast(i32(x), u32) ^ u32(1 << 31)


@library_func
def ordered_i64(x: Any) -> Any:
    return bit_cast(x, u64) ^ (u64(1) << u64(63))


@library_func
def ordered_f32(x: Any) -> Any:
    bits = bit_cast(f32(x), u32)
    size = bits & u32(0x7FFFFFFF)
    found = bits ^ u32(1 << 31)
    if size > u32(0x7F800000):
        found = u32(0xFFFFFFFF)
    elif size == u32(0):
        found = u32(1 << 31)
    elif bits != size:
        found = ~bits
    return found


@library_func
def ordered_f64(x: Any) -> Any:
    sign = u64(1) << u64(63)
    bits = bit_cast(x, u64)
    size = bits & ~sign
    found = bits ^ sign
    if size > (u64(0x7FF) << u64(52)):
        found = ~u64(0)
    elif size == u64(0):
        found = sign
    elif bits != size:
        found = ~bits
    return found


ORDERED = {
    "b": ordered_unsigned, "u": ordered_unsigned, "i": ordered_i32, "f": ordered_f32,
    "i64": ordered_i64, "f64": ordered_f64,
}  # fmt: skip


class KeyKernels(NamedTuple):
    """Kernels on an array's keys, for one type of keys. The first two make pairs."""

    load: ArrayKernel  # (keys, pairs, at, n): the lower words, in order
    load_upper: ArrayKernel  # (keys, pairs, at, n): the upper words, in the order of the pairs
    mark: ArrayKernel  # (keys, marks, at, n): 1 where a key differs from the one before, else 0


@functools.cache
def key_kernels(t: Scalar) -> KeyKernels:
    ordered = ORDERED.get(t.name) or ORDERED[t.kind]

    @on_arrays(at=i32, n=i32)
    def load(keys: Any, pairs: Any, at: Any, n: Any) -> None:
        for k in range(n):
            pairs[k] = Vector([u32(ordered(keys[at + k])), u32(k)])

    @on_arrays(at=i32, n=i32)
    def load_upper(keys: Any, pairs: Any, at: Any, n: Any) -> None:
        for k in range(n):
            index = pairs[k][1]
            pairs[k] = Vector([u32(ordered(keys[at + i32(index)]) >> u64(32)), index])

    @on_arrays(at=i32, n=i32)
    def mark(keys: Any, marks: Any, at: Any, n: Any) -> None:
        for k in range(n):
            is_new = 1
            if k > 0:
                is_new = i32(ordered(keys[at + k]) != ordered(keys[at + k - 1]))
            marks[k] = is_new

    return KeyKernels(load, load_upper, mark)


# --- passes --------------------------------------------------------------------------------------


class DigitKernels(NamedTuple):
    """Kernels of a pass, for one length of digits."""

    count: ArrayKernel  # (pairs, counts, n, lanes, shift): counts[digit * lanes + lane]
    move: ArrayKernel  # (pairs, out, starts, n, lanes, shift): advances the starts


@functools.cache
def digit_kernels(bits: int) -> DigitKernels:
    digits = 1 << bits

    @on_arrays(n=i32, lanes=i32, shift=u32)
    def count(pairs: Any, counts: Any, n: Any, lanes: Any, shift: Any) -> None:
        for lane in range(lanes):
            for d in range(digits):
                counts[d * lanes + lane] = 0
            share = (n + lanes - 1) // lanes
            for k in range(lane * share, min(n, lane * share + share)):
                at = i32((pairs[k][0] >> shift) & u32(digits - 1)) * lanes + lane
                counts[at] = counts[at] + 1

    @on_arrays(n=i32, lanes=i32, shift=u32)
    def move(pairs: Any, out: Any, starts: Any, n: Any, lanes: Any, shift: Any) -> None:
        for lane in range(lanes):
            share = (n + lanes - 1) // lanes
            for k in range(lane * share, min(n, lane * share + share)):
                pair = pairs[k]
                at = i32((pair[0] >> shift) & u32(digits - 1)) * lanes + lane
                to = starts[at]
                out[to] = pair
                starts[at] = to + 1

    return DigitKernels(count, move)


@on_arrays(to=i32, n=i32)
def store_values(pairs: Any, out: Any, to: Any, n: Any) -> None:
    """Set n elements of out, from out[to] on, to the values of the pairs."""
    for k in range(n):
        out[to + k] = i32(pairs[k][1])


class PairSort:
    """Sorts up to `capacity` pairs of u32, (key, value), in `pairs`; with scratch memory."""

    def __init__(self, capacity: int) -> None:
        choose = current_runtime().device.caps.choose
        pair = vector(2, u32)
        self.capacity = capacity
        self.bits: int = choose(DIGIT_BITS)
        self.lanes = max(1, min(choose(LANES), -(-capacity // choose(LANE_PAIRS))))
        self.pairs: Any = ndarray(pair, capacity)
        self._spare: Any = ndarray(pair, capacity)
        counts = self.lanes << self.bits
        self._counts: Any = ndarray(i32, counts)
        self._scan = Scan(i32, counts)

    def run(self, n: int, key_bits: int) -> None:
        """Sort the first `n` pairs by the lowest `key_bits` bits of their keys; stable."""
        kernels = digit_kernels(self.bits)
        for shift in range(0, key_bits, self.bits):
            kernels.count(self.pairs, self._counts, n, self.lanes, shift)
            self._scan.run(self._counts, self._counts, is_exclusive=True)
            kernels.move(self.pairs, self._spare, self._counts, n, self.lanes, shift)
            self.pairs, self._spare = self._spare, self.pairs


def sort_pairs(keys: Any, n: int) -> PairSort:
    """Return the pairs of the first n keys in the keys' stable order. Their values are indices."""
    t = keys.seen_elem
    sort, kernels = PairSort(n), key_kernels(t)
    kernels.load(keys, sort.pairs, *keys.origin, n)
    sort.run(n, min(32, t.bits) if t.kind in "bu" else 32)
    if t.bits == 64:
        kernels.load_upper(keys, sort.pairs, *keys.origin, n)
        sort.run(n, 32)
    return sort


def store_order(keys: Any, n: int, order: Any) -> None:
    """Store the stable order of the first n keys: keys[order[k]] ascends."""
    store_values(sort_pairs(keys, n).pairs, order, *order.origin, n)


# --- arrays --------------------------------------------------------------------------------------

FEW = 1 << 14  # keys that numpy sorts faster than the launches of a radix sort take


@on_arrays(at=i32, to=i32, n=i32)
def gather(x: Any, order: Any, out: Any, at: Any, to: Any, n: Any) -> None:
    """Set out[to + k] to x[at + order[k]], for n values of k."""
    for k in range(n):
        out[to + k] = x[at + order[k]]


def sort_by_numpy(arrays: list[Storage]) -> None:
    """Permute the arrays so that the first is sorted; the others may be longer."""
    order = np.argsort(arrays[0].to_numpy(), kind="stable")
    contents = [x.to_numpy() for x in arrays]  # before any is written: they may share memory
    for values in contents:
        values[: len(order)] = values[order]
    for x, values in zip(arrays, contents):
        x.from_numpy(values)


def sort_by_kernels(arrays: list[Storage]) -> None:
    """`sort_by_numpy` on the device."""
    n = arrays[0].shape[0]
    order = ndarray(i32, n)
    store_order(arrays[0], n, order)
    permute(arrays, order, 0, n)


def permute(arrays: list[Storage], order: Storage, origin: int, n: int) -> None:
    """Set the k-th of the first n elements of each array to the one with index
    order[k] - `origin`."""
    permuted = []  # before any array is written: they may share memory
    for x in arrays:
        made = spare_for(x, n)
        (at,) = x.origin
        gather(x, order, made, at - origin, 0, n)
        permuted.append(made)
    for x, made in zip(arrays, permuted):
        copy_first(made, x, *x.origin, n)


def check_keys(who: str, keys: Any, name: str = "keys") -> int:
    """Return the number of keys. Raises ArgumentError for other arrays than keys."""
    check_array(who, name, keys, 1, takes_views=True)
    if not isinstance(keys.elem, Scalar):
        raise ArgumentError(f"{who}: keys are numbers, not {keys.elem}")
    n: int = keys.shape[0]
    return n


def with_values(who: str, keys: Storage, values: Storage | None) -> list[Storage]:
    """Return the arrays that are permuted. Raises ArgumentError for values that are too short."""
    if values is None or values is keys:
        return [keys]
    check_array(who, "values", values, 1, takes_views=True)
    if values.shape[0] < keys.shape[0]:
        raise ArgumentError(f"{who}: {keys.shape[0]} keys, and {values.shape[0]} values")
    return [keys, values]


def parallel_sort(keys: Storage, values: Storage | None = None) -> None:
    """Sort a one-dimensional field or ndarray of scalars in place: ascending, stable, nan last.

    Args:
        keys: numbers or bools. -0 equals 0.
        values: a one-dimensional array at least as long as `keys`, of numbers, vectors or matrices.
            It is permuted like the keys.

    Raises:
        ArgumentError: for other arrays.

    Tapes differentiate the permutation that was found.
    """
    n = check_keys("parallel_sort", keys)
    arrays = with_values("parallel_sort", keys, values)
    is_read = current_runtime().tape is None and all(x.host is not None for x in arrays)
    if n == 0:
        return
    if n <= FEW and is_read:
        sort_by_numpy(arrays)
    else:
        sort_by_kernels(arrays)


def argsort(keys: Storage, order: Storage | None = None) -> Storage:
    """Indices that sort `keys`: ascending, stable, nan last. The keys stay where they are.

    Args:
        keys: a one-dimensional field or ndarray of numbers or bools. -0 equals 0.
        order: a field or ndarray of ti.i32 of the same length for the result; a new ndarray, if it
            is left out.

    Returns:
        The array of indices, which count from 0 also if those of `keys` start elsewhere.

    Raises:
        ArgumentError: for other arrays.
    """
    n = check_keys("argsort", keys)
    if n == 0:
        raise ArgumentError("argsort: `keys` is empty")
    if order is None:
        order = ndarray(i32, n)
    check_array("argsort", "order", order, 1, takes_views=True)
    if order.seen_elem is not i32 or order.shape[0] != n:
        raise ArgumentError(
            f"argsort: `order` must hold {n} ti.i32, not {order.shape[0]} {order.type_name}"
        )
    store_order(keys, n, order)
    return order


# --- segments ------------------------------------------------------------------------------------


@on_arrays(at=i32, n=i32, count=i32)
def count_starts(starts: Any, segments: Any, at: Any, n: Any, count: Any) -> None:
    """Set segments[k] to the number of starts that are k, for k from 0 to n - 1."""
    for k in range(n):
        segments[k] = 0
    for s in range(count):
        k = starts[at + s]
        if 0 <= k < n:
            segments[k] += 1


@on_arrays(n=i32)
def load_segments(segments: Any, pairs: Any, n: Any) -> None:
    """Set the key of each pair to the segment of its index."""
    for k in range(n):
        index = pairs[k][1]
        pairs[k] = Vector([u32(segments[i32(index)]), index])


def segmented_sort(keys: Storage, starts: Storage, values: Storage | None = None) -> None:
    """Sort segments of a one-dimensional field or ndarray of scalars in place, each like
    `parallel_sort`.

    Args:
        keys: numbers or bools. -0 equals 0, and nan is last.
        starts: a one-dimensional field or ndarray of ti.i32: a segment begins at each of these
            indices, and at index 0. Equal starts, and starts outside of the keys, have no effect.
        values: a one-dimensional array at least as long as `keys`, of numbers, vectors or matrices.
            It is permuted like the keys.

    Raises:
        ArgumentError: for other arrays.

    Tapes differentiate the permutation that was found.
    """
    n = check_keys("segmented_sort", keys)
    check_array("segmented_sort", "starts", starts, 1, takes_views=True)
    if starts.seen_elem is not i32:
        raise ArgumentError(f"segmented_sort: `starts` must hold ti.i32, not {starts.type_name}")
    arrays = with_values("segmented_sort", keys, values)
    if n == 0:
        return
    sort, segments, order = sort_pairs(keys, n), ndarray(i32, n), ndarray(i32, n)
    count = starts.shape[0]
    count_starts(starts, segments, *starts.origin, n, count)
    Scan(i32, n).run(segments, segments, is_exclusive=False)
    load_segments(segments, sort.pairs, n)
    sort.run(n, count.bit_length())
    store_values(sort.pairs, order, 0, n)
    permute(arrays, order, 0, n)
