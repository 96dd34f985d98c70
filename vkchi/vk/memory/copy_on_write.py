"""Copy-on-write hooks: callbacks that run before a buffer is overwritten, by buffer key.

device.guard(buffer.key, weakref.ref(saver))
device.announce([buffer.key])       # calls saver.save()
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, Protocol

from vkchi.interrupts.locks import restoring


class SnapshotTaker(Protocol):
    """Object that takes a snapshot of a buffer just before the buffer is overwritten."""

    def save(self) -> None:
        """Copy the buffer. A second call has no effect."""


class CopyOnWriteHooks:
    """Table `guards`: weak references to the savers (`SnapshotTaker`) of each buffer, by key."""

    _lock: RLock
    guards: dict[int, list[weakref.ref[Any]]]  # of Savers

    def guard(self, key: int, saver: weakref.ref[Any]) -> None:
        """Register a weak reference to a saver, whose `save` is called before the next write to the
        buffer."""
        with restoring(self._lock), self._lock:
            self.guards[key] = [*self.guards.get(key, ()), saver]

    def unguard(self, key: int) -> None:
        """Remove the dead savers of a buffer."""
        with restoring(self._lock), self._lock:
            left = [saver for saver in self.guards.get(key, ()) if saver() is not None]
            if left:
                self.guards[key] = left
            else:
                self.guards.pop(key, None)

    def announce(self, keys: Iterable[int]) -> None:
        """Call `save` of all live savers of the buffers `keys`, and remove these savers. Call it
        before the buffers are written. Raises DeviceError if there is no memory for the copies."""
        if self.guards.keys().isdisjoint(keys):
            return
        with restoring(self._lock), self._lock:
            for key in sorted(self.guards.keys() & set(keys)):
                savers: list[SnapshotTaker | None] = [saver() for saver in self.guards[key]]
                for saver in savers:
                    if saver is not None:
                        saver.save()
                self.guards.pop(key, None)

    @contextmanager
    def holding_writers(self) -> Iterator[None]:
        """Context in which `announce` for buffers with savers blocks in other threads."""
        with restoring(self._lock), self._lock:
            yield
