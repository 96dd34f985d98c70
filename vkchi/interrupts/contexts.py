"""Context managers that remain valid if an exception skips `__exit__`: locks, `SafeContext`."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from threading import RLock
from types import TracebackType
from typing import Any, overload

from vkchi.public_names import visible_names

# --- locks ---------------------------------------------------------------------------------------
#
# Exception-safe locks: an exception restores their state.
#
# Python enters the `with` block of a lock in one step, but leaves it in several. An exception
# between the last statement and the call of `__exit__` leaves the lock held forever. Therefore a
# block that an interrupt may leave is written
#
#     with restoring(lock), lock: ...


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


# --- context managers ----------------------------------------------------------------------------
#
# Context managers that detect their end, even if an exception skips `__exit__`.
#
# An exception can be raised at any bytecode (docs/design.md, part 6, Interrupts), also in
# `__enter__` or `__exit__` themselves. Therefore no flag records whether the block is active. It is
# active as long as the `with` statement holds a reference to the bound `__exit__`.
#
#     class Measuring(SafeContext):
#         def __enter__(self): self.enter(); ...
#         def leave(self, kind, error, traceback): ...


class ExitDescriptor:
    """Descriptor for `__exit__`: returns a new call of `leave`, referenced only by the reader."""

    @overload
    def __get__(self, block: None, owner: Any = None) -> Callable[..., None]: ...

    @overload
    def __get__(self, block: SafeContext, owner: Any = None) -> partial[None]: ...

    def __get__(self, block: SafeContext | None, owner: Any = None) -> Any:
        if block is None:
            return owner.leave
        leaving = partial(type(block).leave, block)
        if not block.is_entered:  # read by a `with` statement before `__enter__`
            block.leaving = weakref.ref(leaving)
        return leaving


class SafeContext:
    """Context manager that is entered once. The `__enter__` of a subclass calls `enter`."""

    is_entered = False
    leaving: weakref.ref[Any] | None = None  # the call that the `with` statement holds
    __exit__ = ExitDescriptor()
    __dir__ = visible_names

    def enter(self) -> None:
        """Mark the block as entered."""
        if self.leaving is not None and self.leaving() is None:
            self.leaving = None  # entered without `with`: ends by an explicit `leave`
        self.is_entered = True

    @property
    def is_left(self) -> bool:
        """True if the block has ended, even if an exception skipped `leave`."""
        return self.leaving is not None and self.leaving() is None

    def leave(self, kind: Any, error: Any, traceback: Any) -> None:
        """End of the block; `__exit__` calls it."""
        raise NotImplementedError
