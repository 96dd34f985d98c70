"""Histograms of one-dimensional arrays.

ti.algorithms.histogram(x, counts)                  # counts[v] = how often v is in x
ti.algorithms.histogram(x, counts, 0.0, 1.0)        # of floats, in bins of equal width
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from vkchi.algorithms.array_kernels import check_array, copy_first, on_arrays
from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.fields.views import overlap
from vkchi.lang.math import clamp
from vkchi.ndarray import ndarray
from vkchi.types import Scalar, f32, i32
from vkchi.types.lazy_numpy import np


@on_arrays(at=i32, n=i32, to=i32, bins=i32)
def count_values(x: Any, out: Any, at: Any, n: Any, to: Any, bins: Any) -> None:
    for b in range(bins):
        out[to + b] = 0
    for k in range(n):
        v = x[at + k]
        if 0 <= v < bins:
            out[to + i32(v)] += 1


@on_arrays(at=i32, n=i32, to=i32, bins=i32)
def count_in_bins(x: Any, edges: Any, out: Any, at: Any, n: Any, to: Any, bins: Any) -> None:
    """Count the floats between edges[b] and edges[b + 1]; the last edge is in the last bin."""
    for b in range(bins):
        out[to + b] = 0
    for k in range(n):
        v, low, high = x[at + k], edges[0], edges[bins]
        if bins > 0 and low <= v <= high:
            b = i32(clamp((v - low) / (high - low) * bins, 0, bins - 1))
            while v < edges[b]:  # by rounding
                b -= 1
            while b + 1 < bins and v >= edges[b + 1]:
                b += 1
            out[to + b] += 1


def histogram(
    x: Storage, out: Storage, low: float | None = None, high: float | None = None
) -> None:
    """Count the elements of x in bins, on the device.

    Without bounds, out[v] is set to the number of elements that are v. With bounds, the bins divide
    the range from `low` to `high` equally. A bin contains its lower edge; the last one also `high`.
    Other elements are not counted.

    Args:
        x: a one-dimensional field or ndarray: of integers or bools without bounds, of floats with
            bounds.
        out: a one-dimensional field or ndarray of ti.i32 for the counts.
        low: a number, the first bound.
        high: a larger number, the last one.

    Raises:
        ArgumentError: for other arrays or bounds.

    Source: numpy's `histogram` with `range=` and `bincount` have these results.
    """
    check_array("histogram", "x", x, 1, takes_views=True)
    check_array("histogram", "out", out, 1, takes_views=True)
    if out.seen_elem is not i32:
        raise ArgumentError(f"histogram: `out` must hold ti.i32, not {out.type_name}")
    t = x.seen_elem
    if not isinstance(t, Scalar):
        raise ArgumentError(f"histogram: numbers are counted, not {t}")
    if overlap(x, out):
        counts: Any = ndarray(i32, out.shape[0])
        histogram(x, counts, low, high)
        copy_first(counts, out, *out.origin, out.shape[0])
        return
    where = *x.origin, x.shape[0], *out.origin, out.shape[0]
    if low is None and high is None:
        if t.kind == "f":
            raise ArgumentError(f"histogram: {t} need bounds: histogram(x, out, low, high)")
        count_values(x, out, *where)
        return
    if t.kind != "f":
        raise ArgumentError(f"histogram: bounds are for floats, not {t}")
    bounds: Any = low, high  # numpy's scalars are numbers too
    is_finite = all(isinstance(v, Real) and math.isfinite(v) for v in bounds)
    if not (is_finite and bounds[0] < bounds[1]):
        raise ArgumentError(f"histogram: finite low < high are needed, not {low!r} and {high!r}")
    edges: Any = ndarray(t if t.bits > 32 else f32, out.shape[0] + 1)
    edges.from_numpy(np.linspace(float(bounds[0]), float(bounds[1]), out.shape[0] + 1))
    count_in_bins(x, edges, out, *where)
