"""Prefix sums (scan) of one-dimensional arrays.

ti.algorithms.inclusive_scan(x)             # x[i] becomes x[0] + ... + x[i]
ti.algorithms.exclusive_scan(x, out)        # out[i] = x[0] + ... + x[i - 1]
ti.algorithms.PrefixSumExecutor(n).run(x)   # inclusive, in place, of the first n elements
"""

from __future__ import annotations

from typing import Any

from vkchi.algorithms.array_kernels import (
    check_array,
    copy_first,
    library_func,
    on_arrays,
    spare_for,
)
from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.fields.views import is_same, overlap
from vkchi.lang.elementwise import ifte
from vkchi.ndarray import ndarray
from vkchi.runtime import Runtime, current_runtime
from vkchi.types import Scalar, i32

# (CPU, GPU): elements that one invocation adds up alone, least elements of a chunk, most chunks.
SERIAL = (4096, 32)
CHUNK = 32
CHUNKS = (256, 1 << 30)


@on_arrays(at=i32, n=i32, chunk=i32, chunks=i32)
def sum_chunks(x: Any, sums: Any, at: Any, n: Any, chunk: Any, chunks: Any) -> None:
    """Set sums[c] to the sum of the c-th chunk of `chunk` elements.

    The chunks divide the `n` elements of x from x[at] on.
    """
    for c in range(chunks):
        total = x[at + c * chunk]
        for i in range(c * chunk + 1, min(n, c * chunk + chunk)):
            total += x[at + i]
        sums[c] = total


@library_func
def scan_chunk(
    x: Any, out: Any, total: Any, at: Any, to: Any, begin: Any, end: Any,
    is_exclusive: Any,
) -> None:  # fmt: skip
    """Prefix sums of x[at + begin] to x[at + end - 1], plus `total`, stored from out[to + begin]
    on."""
    for i in range(begin, end):
        after = total + x[at + i]
        out[to + i] = ifte(is_exclusive != 0, total, after)
        total = after


@on_arrays(at=i32, to=i32, n=i32, chunk=i32, chunks=i32, is_exclusive=i32)
def scan_chunks(
    x: Any, out: Any, sums: Any, at: Any, to: Any, n: Any, chunk: Any, chunks: Any,
    is_exclusive: Any,
) -> None:  # fmt: skip
    """Prefix sums of the `n` elements of x from x[at] on, stored from out[to] on.

    sums: exclusive prefix sums of the chunk sums.
    """
    for c in range(chunks):
        begin = c * chunk
        scan_chunk(x, out, sums[c], at, to, begin, min(n, begin + chunk), is_exclusive)


@on_arrays(at=i32, n=i32, chunk=i32, chunks=i32, is_exclusive=i32)
def scan_in_place(
    x: Any, sums: Any, at: Any, n: Any, chunk: Any, chunks: Any, is_exclusive: Any
) -> None:
    """`scan_chunks` where `out` is x. Gradients need one argument per array."""
    for c in range(chunks):
        begin = c * chunk
        scan_chunk(x, x, sums[c], at, at, begin, min(n, begin + chunk), is_exclusive)


class Scan:
    """Prefix sums of `length` elements of type t, with scratch memory for chunk sums."""

    def __init__(self, t: Scalar, length: int) -> None:
        self.length = length
        self.runtime = current_runtime()
        choose = self.runtime.device.caps.choose
        self.chunks: list[tuple[int, int]] = []  # (length, number) of chunks, per level
        self.sums: list[Any] = []
        n = length
        while n > choose(SERIAL):
            chunk = max(CHUNK, -(-n // choose(CHUNKS)))
            self.chunks.append((chunk, n := -(-n // chunk)))
            self.sums.append(ndarray(t, n))
        self.chunks.append((n, 1))
        self.sums.append(ndarray(t, 1))  # stays 0

    def run(self, x: Any, out: Any, *, is_exclusive: bool) -> None:
        """Store the sums of x in out, which may be x. The origins of both are respected."""
        if self.length == 0:
            return
        if self.runtime.is_taped and self.sums[0].dtype.kind == "f":
            for sums in self.sums[:-1]:  # derivatives flow through them
                if sums.grad is None:
                    sums.add_gradient()
        self._scan(x, out, self.length, 0, is_exclusive)

    def _scan(self, x: Any, out: Any, n: int, level: int, is_exclusive: bool) -> None:
        sums, (chunk, chunks) = self.sums[level], self.chunks[level]
        if level + 1 < len(self.chunks):
            sum_chunks(x, sums, *x.origin, n, chunk, chunks)
            self._scan(sums, sums, chunks, level + 1, True)
        division = n, chunk, chunks, int(is_exclusive)
        if out is x:
            scan_in_place(x, sums, *x.origin, *division)
        else:
            scan_chunks(x, out, sums, *x.origin, *out.origin, *division)


def check_summands(who: str, name: str, x: Any) -> Scalar:
    """Return the scalar type of x. Raises ArgumentError unless x is a one-dimensional field or
    ndarray of numbers."""
    check_array(who, name, x, 1, takes_views=True)
    t = x.seen_elem
    if not isinstance(t, Scalar) or t.kind == "b":
        raise ArgumentError(f"{who}: numbers are added, not {t}")
    return t


def scan_into(who: str, x: Storage, out: Storage | None, *, is_exclusive: bool) -> None:
    t = check_summands(who, "x", x)
    if out is not None:
        found = check_summands(who, "out", out)
        if found is not t or out.shape != x.shape:
            raise ArgumentError(
                f"{who}: `out` is {found} of shape {out.shape}, and {t} of shape {x.shape} is "
                "needed"
            )
    scan, n = Scan(t, x.shape[0]), x.shape[0]
    if out is None or is_same(x, out):
        scan.run(x, x, is_exclusive=is_exclusive)
    elif overlap(x, out):
        sums = spare_for(x, n)
        scan.run(x, sums, is_exclusive=is_exclusive)
        copy_first(sums, out, *out.origin, n)
    else:
        scan.run(x, out, is_exclusive=is_exclusive)


def inclusive_scan(x: Storage, out: Storage | None = None) -> None:
    """Set out[i] to x[0] + ... + x[i], on the device.

    Args:
        x: a one-dimensional field or ndarray of integers (sums wrap) or floats.
        out: an array of the same type and length; x, if it is left out.

    Raises:
        ArgumentError: for other arrays.

    Tapes differentiate it. The order of float additions depends on the device.
    """
    scan_into("inclusive_scan", x, out, is_exclusive=False)


def exclusive_scan(x: Storage, out: Storage | None = None) -> None:
    """Set out[i] to x[0] + ... + x[i - 1], and out[0] to 0, on the device.

    Args:
        x: a one-dimensional field or ndarray of integers (sums wrap) or floats.
        out: an array of the same type and length; x, if it is left out.

    Raises:
        ArgumentError: for other arrays.

    Tapes differentiate it. The order of float additions depends on the device.
    """
    scan_into("exclusive_scan", x, out, is_exclusive=True)


class PrefixSumExecutor:
    """Inclusive prefix sums, in place, of the first `length` elements of arrays.

    `run(array)` accepts one-dimensional fields and ndarrays of at least `length` integers (sums
    wrap) or floats. It raises ArgumentError for other arrays, the constructor for invalid lengths.
    """

    def __init__(self, length: int) -> None:
        if not isinstance(length, int) or length < 0:
            raise ArgumentError(f"PrefixSumExecutor: a length is needed, not {length!r}")
        self.length = length
        self._runtime: Runtime | None = None
        self._scans: dict[Scalar, Scan] = {}

    def run(self, input_arr: Storage) -> None:
        """Replace the first `length` elements of `input_arr` by their prefix sums.

        Raises ArgumentError for unsuitable arrays. Under a gradient tape it is recorded.
        """
        t = check_summands("PrefixSumExecutor.run", "input_arr", input_arr)
        if input_arr.shape[0] < self.length:
            raise ArgumentError(
                f"PrefixSumExecutor.run: {self.length} elements are to be added up, and the array "
                f"has {input_arr.shape[0]}"
            )
        runtime = current_runtime()
        if runtime is not self._runtime:
            self._runtime, self._scans = runtime, {}
        if t not in self._scans:
            self._scans[t] = Scan(t, self.length)
        self._scans[t].run(input_arr, input_arr, is_exclusive=False)
