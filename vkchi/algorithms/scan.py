"""Prefix sums (scan) of one-dimensional arrays, in place.

total = ti.field(ti.i32, n)
ti.algorithms.PrefixSumExecutor(n).run(total)       # total[i] becomes total[0] + ... + total[i]
"""

from __future__ import annotations

from typing import Any

from vkchi.algorithms.array_kernels import check_array, on_arrays
from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.ndarray import ndarray
from vkchi.runtime import Runtime, current_runtime
from vkchi.types import Scalar, i32

# Elements per invocation.
CHUNK = 32


@on_arrays(at=i32, n=i32, chunks=i32)
def sum_chunks(x: Any, sums: Any, at: Any, n: Any, chunks: Any) -> None:
    """Set sums[c] to the sum of the c-th chunk of CHUNK elements.

    The chunks divide the `n` elements of x from x[at] on.
    """
    for c in range(chunks):
        total = x[at + c * CHUNK]
        for i in range(c * CHUNK + 1, min(n, c * CHUNK + CHUNK)):
            total += x[at + i]
        sums[c] = total


@on_arrays(at=i32, n=i32, chunks=i32)
def scan_chunks(x: Any, sums: Any, at: Any, n: Any, chunks: Any) -> None:
    """Prefix sums, in place, of the `n` elements of x from x[at] on.

    sums: prefix sums of the chunk sums.
    """
    for c in range(chunks):
        total = x[at + c * CHUNK]
        if c > 0:
            total += sums[c - 1]
        x[at + c * CHUNK] = total
        for i in range(c * CHUNK + 1, min(n, c * CHUNK + CHUNK)):
            total += x[at + i]
            x[at + i] = total


@on_arrays(at=i32, n=i32)
def scan_serially(x: Any, at: Any, n: Any) -> None:
    """Prefix sums, in place, of the `n` elements of x from x[at] on, by a single invocation."""
    for _ in range(1):
        total = x[at]
        for i in range(1, n):
            total += x[at + i]
            x[at + i] = total


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
        self._sums: dict[Scalar, list[Any]] = {}

    def run(self, input_arr: Storage) -> None:
        """Replace the first `length` elements of `input_arr` by their prefix sums.

        Raises ArgumentError for unsuitable arrays. Under a gradient tape it is recorded.
        """
        check_array("PrefixSumExecutor.run", "input_arr", input_arr, 1)
        t = input_arr.seen_elem
        if not isinstance(t, Scalar) or t.kind == "b":
            raise ArgumentError(f"PrefixSumExecutor.run: numbers are added, not {t}")
        if input_arr.shape[0] < self.length:
            raise ArgumentError(
                f"PrefixSumExecutor.run: {self.length} elements are to be added up, and the array "
                f"has {input_arr.shape[0]}"
            )
        if self.length > 0:
            levels = self._levels(t)
            for sums in levels if current_runtime().is_taped and t.kind == "f" else ():
                if sums.grad is None:  # derivatives flow through them
                    sums.add_gradient()
            self._scan(input_arr, self.length, levels)

    def _levels(self, t: Scalar) -> list[Any]:
        """Scratch ndarrays of type t: chunk sums, sums of their chunks, and so on; cached."""
        runtime = current_runtime()
        if runtime is not self._runtime:
            self._runtime, self._sums = runtime, {}
        if t not in self._sums:
            counts, n = [], self.length
            while n > CHUNK:
                n = -(-n // CHUNK)
                counts.append(n)
            self._sums[t] = [ndarray(t, count) for count in counts]
        return self._sums[t]

    def _scan(self, x: Any, n: int, levels: list[Any]) -> None:
        if not levels:
            scan_serially(x, *x.origin, n)
            return
        sums = levels[0]
        chunks = sums.shape[0]
        sum_chunks(x, sums, *x.origin, n, chunks)
        self._scan(sums, chunks, levels[1:])
        scan_chunks(x, sums, *x.origin, n, chunks)
