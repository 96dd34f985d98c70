"""Kernels that copy boxes of a field to and from a buffer, in tapes, and for memory that the host
cannot address.

`boxes` is a tuple of (offset in the buffer, box), with positions in the arrays' own indices. The
buffer has the elements of all boxes, row-major, one after the other.
"""

from __future__ import annotations

from typing import Any

from vkchi.algorithms.array_kernels import library_func
from vkchi.kernel import kernel
from vkchi.lang.compile_time import static
from vkchi.lang.elementwise import zero
from vkchi.lang.ndrange import grouped, ndrange
from vkchi.types import ndarray as ndarray_argument
from vkchi.types import template


@library_func
def place_in(index: Any, start: Any, box: template()) -> Any:  # type: ignore[valid-type]
    """Row-major position of an index in a box, counted from `start`."""
    at = 0
    for k in static(range(len(box))):
        at = at * (box[k][1] - box[k][0]) + index[k] - box[k][0]
    return start + at


@kernel
def pack(  # type: ignore
    x: template(), buffer: ndarray_argument(), boxes: template(), clears: template()  # type: ignore
):  # fmt: skip
    for start, box in static(boxes):
        for index in grouped(ndrange(*box)):
            buffer[place_in(index, start, box)] = x[index]
            if static(clears):
                x[index] = zero(x[index])


@kernel
def unpack(  # type: ignore
    x: template(), buffer: ndarray_argument(), boxes: template(), adds: template()  # type: ignore
):  # fmt: skip
    for start, box in static(boxes):
        for index in grouped(ndrange(*box)):
            value = buffer[place_in(index, start, box)]
            if static(adds):
                value += x[index]
            x[index] = value
