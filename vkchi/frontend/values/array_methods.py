"""Methods of arrays in kernels: each is a loop, inlined like a user's function.

At a kernel's top level the loop is parallel.

    x.fill(0.0)        # for I in ti.grouped(x): x[I] = 0.0
"""

from __future__ import annotations

from typing import Any

from vkchi.lang.compile_time import static
from vkchi.lang.matrix import Vector
from vkchi.lang.ndrange import grouped


def fill(array: Any, value: Any) -> None:
    """Set every element to value; a scalar is broadcast."""
    for place in grouped(array):
        array[place] = value


def copy_from(array: Any, other: Any) -> None:
    """Copy the elements of `other` to `array`.

    The shapes must be equal, which is not checked. Origins may differ.
    """
    for place in grouped(array):
        if static(array.__vkchi_origin__ == other.__vkchi_origin__):
            array[place] = other[place]
        else:
            k = place - Vector(array.__vkchi_origin__)
            array[place] = other[k + Vector(other.__vkchi_origin__)]


METHODS = {"fill": fill, "copy_from": copy_from}
# Host-side copies: in a kernel, they would run once, at compile time.
REFUSED = ("to_numpy", "from_numpy", "to_torch", "from_torch", "__getitem__", "__setitem__")
NAMES = (*METHODS, *REFUSED)
