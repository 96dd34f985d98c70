"""Stream compaction: the elements of an array that a mask selects, in order.

count = ti.algorithms.compact(mask, indices)            # where the mask is not 0
count = ti.algorithms.compact(mask, kept, values)       # kept[:count] = values[mask != 0]
"""

from __future__ import annotations

from typing import Any

from vkchi.algorithms.array_kernels import check_array, copy_first, on_arrays, spare_for
from vkchi.algorithms.radix_sort import gather
from vkchi.algorithms.scan import Scan
from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.fields.views import overlap
from vkchi.ndarray import ndarray
from vkchi.runtime import current_runtime
from vkchi.types import Scalar, i32

# (CPU, GPU): least elements of a chunk, most chunks.
CHUNK = (256, 32)
CHUNKS = (256, 1 << 30)


@on_arrays(at=i32, n=i32, chunk=i32, chunks=i32)
def count_kept(mask: Any, counts: Any, at: Any, n: Any, chunk: Any, chunks: Any) -> None:
    """Set counts[c + 1] to the number of nonzero elements in the c-th chunk, from mask[at] on."""
    for c in range(chunks):
        total = 0
        for i in range(c * chunk, min(n, c * chunk + chunk)):
            if mask[at + i] != 0:
                total += 1
        counts[c + 1] = total


@on_arrays(at=i32, first=i32, n=i32, chunk=i32, chunks=i32)
def store_kept(
    mask: Any, starts: Any, out: Any, at: Any, first: Any, n: Any, chunk: Any, chunks: Any
) -> None:
    """Store the positions of the c-th chunk's nonzero elements from out[first + starts[c]] on."""
    for c in range(chunks):
        to = first + starts[c]
        for i in range(c * chunk, min(n, c * chunk + chunk)):
            if mask[at + i] != 0:
                out[to] = i
                to += 1


def compact(mask: Storage, out: Storage, values: Storage | None = None) -> int:
    """Copy the values that a mask selects to the start of `out`, in order. Waits for the device.

    Args:
        mask: a one-dimensional field or ndarray of integers or bools. Nonzero elements select.
        out: a one-dimensional array for the values; other elements of it stay.
        values: an array of the same length as `mask`, with elements of the type of `out`. If it is
            left out, `out` holds ti.i32, and gets the indices, counted from 0.

    Returns:
        The number of selected values.

    Raises:
        ArgumentError: for other arrays, and if `out` is shorter than that number. `out` is then
            unchanged.

    Tapes differentiate the copy.
    """
    check_array("compact", "mask", mask, 1, takes_views=True)
    check_array("compact", "out", out, 1, takes_views=True)
    if not isinstance(mask.seen_elem, Scalar) or mask.seen_elem.kind == "f":
        raise ArgumentError(f"compact: `mask` holds integers or bools, not {mask.type_name}")
    n = mask.shape[0]
    if values is not None:
        check_array("compact", "values", values, 1, takes_views=True)
        if values.shape[0] != n:
            raise ArgumentError(f"compact: `mask` has {n} elements, and `values` {values.shape[0]}")
    needed = i32 if values is None else values.seen_elem
    if out.seen_elem is not needed:
        raise ArgumentError(f"compact: `out` must hold {needed}, not {out.type_name}")
    choose = current_runtime().device.caps.choose
    chunk = max(choose(CHUNK), -(-n // choose(CHUNKS)))
    chunks = -(-n // chunk)
    starts = ndarray(i32, chunks + 1)
    count_kept(mask, starts, *mask.origin, n, chunk, chunks)
    Scan(i32, chunks + 1).run(starts, starts, is_exclusive=False)
    count = int(starts[chunks])
    if out.shape[0] < count:
        raise ArgumentError(f"compact: {count} elements are selected, and `out` has {out.shape[0]}")
    if values is None and not overlap(mask, out):
        store_kept(mask, starts, out, *mask.origin, *out.origin, n, chunk, chunks)
        return count
    indices = ndarray(i32, max(1, count))
    store_kept(mask, starts, indices, *mask.origin, 0, n, chunk, chunks)
    if values is None:
        copy_first(indices, out, *out.origin, count)
    elif overlap(values, out):
        kept = spare_for(values, count)
        gather(values, indices, kept, *values.origin, 0, count)
        copy_first(kept, out, *out.origin, count)
    else:
        gather(values, indices, out, *values.origin, *out.origin, count)
    return count
