"""Arrays that others see in place, by DLPack or as memory of theirs, and may write to meanwhile.

Owns: `Shown`, which finds such writes by what stands there, and tells of them as if Python had read
the array and called `from_numpy` then: what others put there may depend on what they saw. So it is
a constant where the array held nothing with a derivative, and refused where one would flow through.

Must not know: calls, gradients, which arrays are looked at when (`ledger`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    Values = np.ndarray[Any, Any]
Part = tuple[Any, ...]  # an index of `contents()`


class Shown:
    """An exported array, and the `contents` that it had when somebody looked last; `ours` are the
    parts that Python has written since, which is no write by others."""

    def __init__(self, array: Storage, contents: Values) -> None:
        self.array, self.contents = array, contents
        self.ours: list[Part] = []

    def look(self) -> None:
        """Tell of what others wrote; waits."""
        found, known = self.array.contents(), self.contents.copy()
        for part in self.ours:
            known[part] = found[part]
        if host.changes(known, found).any():
            self.array.put_unnoticed(known)  # what others overwrote is saved where it is wanted
            self.array.tell(Access("read"))
            self.array.from_numpy(found)

    def note(self, array: Storage, access: Access) -> None:
        """Python is about to write to an array in the same memory. (What it adds counts as others',
        too: the sum has the derivative of what stood there, which others may overwrite.)"""
        part = None if access.is_sum else part_of(self.array, array, access)
        if part is not None:
            self.ours.append(part)


def part_of(one: Storage, array: Storage, access: Access) -> Part | None:
    """Where an access to an array is in another, which it is or is a component of; None if that is
    not known: then what is written counts as others'."""
    whole, component = getattr(array, "component_of", (array, None))
    if whole is not one:
        return None
    rest: Part = () if component is None else np.unravel_index(component, shape_of(one.elem))
    if access.at is None:
        return (Ellipsis, *rest)
    axes = len(array.shape)
    element = tuple(k - first for k, first in zip(access.at, array.origin, strict=False))
    return (*element[:axes], *access.at[axes:], *rest)


def is_part(one: Storage, other: Storage | Values) -> bool:
    """Whether an array has memory that the host reaches in common with another, or with a numpy
    array."""
    view = other.host if isinstance(other, Storage) else other
    if one is other or one.host is None or view is None:
        return one is other
    return host.may_overlap(one.host, view)
