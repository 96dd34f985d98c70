"""Locks that an exception leaves as it found them, wherever it comes.

Owns: `restoring` and what it does. Must not know: what is locked.

Python enters a `with` block of a lock as one step, but leaves it in several: an exception that
comes between the last statement and the call of `__exit__` leaves the lock held for ever. So a
block that an interrupt may leave is written

    with restoring(lock), lock: ...
"""

from __future__ import annotations

from threading import RLock
from types import TracebackType
from typing import Any


def release_wholly(lock: RLock) -> None:
    """Release whatever this thread holds of a lock."""
    while lock._is_owned():  # type: ignore[attr-defined]
        lock.release()


class restoring:
    """After an exception in its block, this thread holds the lock only if it held it before."""

    __slots__ = ("_lock", "_was_held")

    def __init__(self, lock: RLock) -> None:
        self._lock = lock
        self._was_held: bool = lock._is_owned()  # type: ignore[attr-defined]

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: Any, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not self._was_held:
            release_wholly(self._lock)
