"""Kernels that copy whole arrays. Tapes record them like other kernels.

See also: `log.restore_array`, a copy that tapes do not record.
"""

# No postponed annotations: kernels read their argument types from them.
import functools
from typing import Any

from vkchi.fields.storage import Storage
from vkchi.kernel import func, kernel
from vkchi.lang.compile_time import static
from vkchi.lang.matrix import Vector
from vkchi.lang.ndrange import grouped
from vkchi.ndarray import Ndarray
from vkchi.types import i32, ndarray, template

MOST_KERNELS = 256  # cached per kind: one for each type, shift or first index
NDARRAY, FIELD = ndarray(), template()  # unique objects: they are keys of the kernel caches


@functools.lru_cache(MOST_KERNELS)
def make_copy(target_type: Any, source_type: Any, between: Any) -> Any:
    """Return the kernel that copies elements between arrays of these annotations; memoized.

    `between` is the offset of the source's first index from the target's.
    """
    shift = Vector(between) if any(between) else 0

    @kernel
    def copy_from(target: target_type, source: source_type):  # type: ignore[no-untyped-def]
        if static(between == ()):
            target[None] = source[None]
        else:
            for place in grouped(target):
                target[place] = source[place + shift]

    return copy_from


def copy_elements(target: Storage, source: Storage) -> None:
    between = tuple(s - t for s, t in zip(source.origin, target.origin, strict=True))
    make_copy(type_for(target), type_for(source), between)(target, source)


def copy_floats(target: Storage, source: Storage) -> bool:
    """Copy all elements if both arrays hold floats; return True if they do."""
    is_smooth: bool = target.compute.kind == source.compute.kind == "f"
    if is_smooth:
        copy_elements(target, source)
    return is_smooth


def copy_tensor(target: Storage, tensor: Any) -> None:
    """Copy a torch tensor of the same shape, elements included, into an array."""
    between = tuple(-first for first in target.origin)
    make_copy(type_for(target), tensor_type(target.seen_elem), between)(target, tensor)


@functools.lru_cache(MOST_KERNELS)
def tensor_type(elem: Any) -> Any:
    return ndarray(dtype=elem)


@func
def element_in_order(array, number, first):  # type: ignore[no-untyped-def]
    """Element at a row-major position; `first` is the first index of the array."""
    place = Vector([0] * len(array.shape), i32)
    rest = number
    for k in static(range(len(array.shape) - 1, -1, -1)):
        place[k] = first[k] + rest % array.shape[k]
        rest //= array.shape[k]
    return array[place]


@functools.lru_cache(MOST_KERNELS)
def make_refill(target_type: Any, source_type: Any, first: tuple[int, ...], parts: int) -> Any:
    """Return the kernel that copies elements in row-major order between arrays of different shapes.

    If `parts` is positive, the last axis of the source holds the `parts` components of a target
    element. `first` is the source's first index. Memoized.
    """

    @kernel
    def refill(target: target_type, source: source_type):  # type: ignore[no-untyped-def]
        for place in grouped(target):
            number = 0
            for k in static(range(len(target.shape))):
                number = number * target.shape[k] + place[k]
            if static(parts > 0):
                for c in static(range(parts)):
                    at = number * parts + c
                    target[place][c] = element_in_order(source, at, static(first))
            else:
                target[place] = element_in_order(source, number, static(first))

    return refill


def copy_in_order(target: Ndarray, source: Storage) -> None:
    """Copy all scalars in row-major order by a kernel.

    If the source's elements have fewer components, its last axis holds those of the target.
    """
    parts = target.components if source.components < target.components else 0
    make_refill(NDARRAY, type_for(source), tuple(source.origin), parts)(target, source)


def type_for(array: Storage) -> Any:
    return NDARRAY if isinstance(array.whole, Ndarray) else FIELD
