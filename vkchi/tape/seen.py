"""Arrays that others see in place, by DLPack or as memory of theirs, and may write to meanwhile.

Owns: `Seen`, which finds such writes by what stands there, and tells of them as if Python had read
the array and called `from_numpy` then: what others put there may depend on what they saw. So it is
a constant where the array held nothing with a derivative, and refused where one would flow through.

Must not know: calls, gradients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.runtime import Runtime
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    Values = np.ndarray[Any, Any]
Part = tuple[Any, ...]  # an index of `contents()`


class Seen:
    """What the exported arrays held when a kernel had last to do with them, or they were exported;
    and what Python has written since, which is no write by others."""

    def __init__(self, runtime: Runtime) -> None:
        self.exported: Iterable[Storage] = runtime.exported
        self.left: dict[int, tuple[Storage, Values]] = {}
        self.ours: dict[int, list[Part]] = {}

    def find(self, arrays: Iterable[Storage]) -> list[Storage]:
        """The exported arrays in whose memory these are."""
        given = list(arrays)
        return [one for one in self.exported if any(is_part(one, array) for array in given)]

    def find_under(self, view: Values) -> list[Storage]:
        """The exported arrays in whose memory a numpy array is."""
        return [
            one for one in self.exported
            if one.host is not None and host.may_overlap(one.host, view)
        ]  # fmt: skip

    def look(self, arrays: Iterable[Storage]) -> None:
        """Tell of what others wrote to these arrays; waits if they are exported."""
        for one in self.find(arrays):
            if id(one) in self.left:
                found, known = one.contents(), self.left[id(one)][1].copy()
                for part in self.ours.get(id(one), ()):
                    known[part] = found[part]
                if found.tobytes() != known.tobytes():
                    one.put_unnoticed(known)  # what others overwrote is saved where it is wanted
                    one.tell(Access("read"))
                    one.from_numpy(found)

    def look_at_all(self) -> None:
        """The same of all that was remembered."""
        self.look([one for one, _ in self.left.values()])

    def close(self) -> None:
        """Look a last time; from now on nothing is remembered, for gradients write too."""
        self.look_at_all()
        self.exported = ()

    def take(self, arrays: Iterable[Storage]) -> None:
        """Remember what these hold; waits if they are exported."""
        for one in self.find(arrays):
            self.expect(one, one.contents())

    def expect(self, one: Storage, values: Values) -> None:
        """Remember what an array will hold when Python is done with it."""
        self.left[id(one)] = one, values
        self.ours.pop(id(one), None)

    def told(self, array: Storage, access: Access) -> None:
        """Python is about to write to an array. (What it adds counts as others', too: the sum has
        the derivative of what stood there, which others may overwrite.)"""
        self.look([array])
        for one in self.find([array]) if not access.is_sum else ():
            part = part_of(one, array, access)
            if part is not None:
                self.ours.setdefault(id(one), []).append(part)


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


def is_part(one: Storage, other: Storage) -> bool:
    """Whether two arrays have memory in common that the host reaches."""
    if one is other or one.host is None or other.host is None:
        return one is other
    return host.may_overlap(one.host, other.host)
