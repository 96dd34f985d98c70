"""Arrays of a tape that others see in place, by DLPack or as memory of theirs, and may write to.

Owns: `Seen`, which finds such writes by what stands there, and tells of them as if Python had
called `from_numpy` then. Must not know: calls, gradients.

Between what Python itself writes to such an array and the next kernel that takes it, a write by
others is not told apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.runtime import Runtime


class Seen:
    """What the exported arrays held when a kernel, or Python, had last to do with them; None where
    that is not known."""

    def __init__(self, runtime: Runtime) -> None:
        self.exported = runtime.exported
        self.left: dict[int, tuple[Storage, np.ndarray[Any, Any] | None]] = {}

    def find(self, arrays: Iterable[Storage]) -> list[Storage]:
        """The exported arrays in whose memory these are."""
        given = list(arrays)
        return [one for one in self.exported if any(is_part(one, array) for array in given)]

    def look(self, arrays: Iterable[Storage]) -> None:
        """Tell of what others wrote to these arrays; waits if they are exported."""
        for one in self.find(arrays):
            _, known = self.left.get(id(one), (one, None))
            if known is not None:
                found = one.contents()
                if found.tobytes() != known.tobytes():
                    one.put_unnoticed(known)
                    one.from_numpy(found)

    def look_at_all(self) -> None:
        """The same of all that was remembered."""
        self.look([one for one, _ in self.left.values()])

    def take(self, arrays: Iterable[Storage]) -> None:
        """Remember what these hold; waits if they are exported."""
        for one in self.find(arrays):
            self.left[id(one)] = one, one.contents()

    def told(self, array: Storage) -> None:
        """Python is about to write to an array."""
        self.look([array])
        for one in self.find([array]):
            self.left[id(one)] = one, None


def is_part(one: Storage, other: Storage) -> bool:
    """Whether two arrays have memory in common that the host reaches."""
    if one is other or one.host is None or other.host is None:
        return one is other
    return host.may_overlap(one.host, other.host)
