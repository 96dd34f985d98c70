"""Copies of whole arrays as kernels, which tapes record like any other.

Owns: the kernels. Must not know: tapes, copies that none notices (`log`).
"""

# No postponed annotations here: they are the kernels' types.
import functools
from typing import Any

from vkchi.fields.storage import Storage
from vkchi.kernel import func, kernel
from vkchi.lang.matrix import Vector
from vkchi.lang.ndrange import grouped
from vkchi.lang.static import static
from vkchi.ndarray import Ndarray
from vkchi.types import i32, ndarray, template

MOST_KERNELS = 256  # of each kind that are kept: one for each type, shift or first index
NDARRAY, FIELD = ndarray(), template()  # one of each: the kernels are found by them


@functools.lru_cache(MOST_KERNELS)
def make_copy(target_type: Any, source_type: Any, between: Any) -> Any:
    """The kernel that copies elements between arrays that are passed in these ways; `between` is
    how far the source's first indices are from the target's."""
    shift = Vector(between) if any(between) else 0

    @kernel  # type: ignore[arg-type]
    def copy_from(target: target_type, source: source_type):  # type: ignore[no-untyped-def]
        if static(between == ()):
            target[None] = source[None]
        else:
            for place in grouped(target):
                target[place] = source[place + shift]

    return copy_from


def copy_elements(target: Storage, source: Storage) -> None:
    """Copy all elements in a kernel."""
    between = tuple(s - t for s, t in zip(source.origin, target.origin, strict=True))
    make_copy(type_for(target), type_for(source), between)(target, source)


def copy_floats(target: Storage, source: Storage) -> bool:
    """The same for arrays of floats only; whether they are."""
    is_smooth: bool = target.compute.kind == source.compute.kind == "f"
    if is_smooth:
        copy_elements(target, source)
    return is_smooth


def copy_tensor(target: Storage, tensor: Any) -> None:
    """The same out of a torch tensor of the array's shape and its elements'."""
    between = tuple(-first for first in target.origin)
    make_copy(type_for(target), tensor_type(target.seen_elem), between)(target, tensor)


@functools.lru_cache(MOST_KERNELS)
def tensor_type(elem: Any) -> Any:
    """How kernels take a tensor whose last axes are those of an element."""
    return ndarray(dtype=elem)


@func  # type: ignore[arg-type]
def element_in_order(array, number, first):  # type: ignore[no-untyped-def]
    """The element with this number in the order of indices; `first` is the first index."""
    place = Vector([0] * len(array.shape), i32)
    rest = number
    for k in static(range(len(array.shape) - 1, -1, -1)):
        place[k] = first[k] + rest % array.shape[k]
        rest //= array.shape[k]
    return array[place]


@functools.lru_cache(MOST_KERNELS)
def make_refill(target_type: Any, source_type: Any, first: tuple[int, ...], parts: int) -> Any:
    """The kernel that copies elements in the order of their indices between arrays of different
    shapes; the source has its elements' components, if `parts`, as a last axis."""

    @kernel  # type: ignore[arg-type]
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
    """Copy as many numbers in the order of indices; components may be a last axis of the source."""
    parts = target.components if source.components < target.components else 0
    make_refill(NDARRAY, type_for(source), tuple(source.origin), parts)(target, source)


def type_for(array: Storage) -> Any:
    """How kernels take an array."""
    return NDARRAY if isinstance(array, Ndarray) else FIELD
