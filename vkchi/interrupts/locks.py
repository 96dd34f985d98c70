"""Exception-safe locks: an exception restores their state.

Python enters the `with` block of a lock in one step, but leaves it in several. An exception between
the last statement and the call of `__exit__` leaves the lock held forever. Therefore a block that
an interrupt may leave is written

    with restoring(lock), lock: ...
"""

from __future__ import annotations

from threading import RLock
from types import TracebackType
from typing import Any


def release_wholly(lock: RLock) -> None:
    """Release all recursive acquisitions of a lock by this thread."""
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
