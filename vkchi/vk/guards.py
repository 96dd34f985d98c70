"""Who wants what buffers hold now, and saves it before something is written there.

Owns: the table of them, by buffer. Must not know: how anything is recorded.

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


class Saver(Protocol):
    """Who wants what a buffer holds now."""

    def save(self) -> None:
        """Something is about to be written there: copy it. Does nothing the second time."""


class Guarded:
    """`guards`: who is to save what stands in a buffer before it is written, by its key."""

    _lock: RLock
    guards: dict[int, list[weakref.ref[Any]]]  # of Savers

    def guard(self, key: int, saver: weakref.ref[Any]) -> None:
        """Have somebody save what a buffer holds before that is written, if they are still there
        then."""
        with restoring(self._lock), self._lock:
            self.guards[key] = [*self.guards.get(key, ()), saver]

    def unguard(self, key: int) -> None:
        """Forget who is not there any more."""
        with restoring(self._lock), self._lock:
            left = [saver for saver in self.guards.get(key, ()) if saver() is not None]
            if left:
                self.guards[key] = left
            else:
                self.guards.pop(key, None)

    def announce(self, keys: Iterable[int]) -> None:
        """Somebody is about to write to buffers. Raises DeviceError where there is no memory for
        what is to be saved of them."""
        if self.guards.keys().isdisjoint(keys):
            return
        with restoring(self._lock), self._lock:
            for key in sorted(self.guards.keys() & set(keys)):
                savers: list[Saver | None] = [saver() for saver in self.guards[key]]
                for saver in savers:
                    if saver is not None:
                        saver.save()
                self.guards.pop(key, None)

    @contextmanager
    def holding_writers(self) -> Iterator[None]:
        """While other threads that announce what they write to must wait with that."""
        with restoring(self._lock), self._lock:
            yield
