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
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    Values = np.ndarray[Any, Any]


class Shown:
    """An exported array, and the `contents` that it had when it was last known who wrote them."""

    def __init__(self, array: Storage, contents: Values) -> None:
        self.array, self.contents = array, contents

    def look(self) -> None:
        """Tell of what others wrote; waits."""
        found, known = self.array.contents(), self.contents
        if host.changes(known, found).any():
            self.array.put_unnoticed(known)  # what others overwrote is saved where it is wanted
            self.array.tell(Access("read"))
            self.array.from_numpy(found)


def is_part(one: Storage, other: Storage | Values) -> bool:
    """Whether an array has memory that the host reaches in common with another, or with a numpy
    array."""
    view = other.host if isinstance(other, Storage) else other
    if one is other or one.host is None or view is None:
        return one is other
    return host.may_overlap(one.host, view)
