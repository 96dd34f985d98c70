"""Exported arrays: memory that other code accesses in place.

It was exported by DLPack, or belongs to the other code, which writes there without notice.
`ExportedArray` detects writes by comparing contents. It then reports a read and a call of
`from_numpy`, because the new values may depend on the old ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.fields.elements import ArrayAccess
from vkchi.fields.storage import Storage
from vkchi.interop import host_views
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    Values = np.ndarray[Any, Any]


class ExportedArray:
    """An exported array and its last known `contents`."""

    def __init__(self, array: Storage, contents: Values) -> None:
        self.array, self.contents = array, contents

    def look(self) -> None:
        """Detect writes by other code since `contents` was saved; waits for the device.

        They are reported as a read and a write by Python.
        """
        found, known = self.array.contents(), self.contents
        if host_views.changed_mask(known, found).any():
            self.array.put_unnoticed(known)  # restored first, so that snapshots save it
            self.array.tell(ArrayAccess("read"))
            self.array.from_numpy(found)


def shares_host_memory(one: Storage, other: Storage | Values) -> bool:
    """True if two arrays are the same object, or may share host-visible memory."""
    view = other.host if isinstance(other, Storage) else other
    if one is other or one.host is None or view is None:
        return one is other
    return host_views.may_overlap(one.host, view)
