"""Copies of whole arrays, as kernels that tapes record like any other.

Owns: the kernel. Must not know: tapes.
"""

# No postponed annotations here: they are the kernels' types.
import functools
from typing import Any

from vkchi.fields.storage import Storage
from vkchi.kernel import kernel
from vkchi.lang.ndrange import grouped
from vkchi.ndarray import Ndarray
from vkchi.types import ndarray, template


@functools.cache
def make_copy(target_type: Any, source_type: Any) -> Any:
    """The kernel that copies elements between arrays that are passed in these ways."""

    @kernel  # type: ignore[arg-type]
    def copy_from(target: target_type, source: source_type):  # type: ignore[no-untyped-def]
        for place in grouped(target):
            target[place] = source[place]

    return copy_from


def copy_elements(target: Storage, source: Storage) -> None:
    """Copy all elements in a kernel."""
    make_copy(type_for(target), type_for(source))(target, source)


def copy_floats(target: Storage, source: Storage) -> bool:
    """The same for arrays of floats only; whether they are."""
    is_smooth = target.dtype.kind == source.dtype.kind == "f"
    if is_smooth:
        copy_elements(target, source)
    return is_smooth


def type_for(array: Storage) -> Any:
    """How kernels take an array."""
    return ndarray() if isinstance(array, Ndarray) else template()
