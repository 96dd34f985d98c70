"""Weak collections that run no Python code when an object dies.

The weak sets and dictionaries of the standard library clean up in Python callbacks, where an
interrupt is discarded. These clean up when entries are added.

    >>> group = WeakGroup(); group.add(thing); thing in group
    True

`insert_bounded` is for tables whose entries stay: it evicts the oldest, first in, first out.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, repeat
from threading import RLock
from typing import Any, ClassVar, Generic, TypeVar

from vkchi import platform
from vkchi.interrupts.contexts import restoring

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
LEAST = 64


class Finalizer(weakref.ref[T]):
    """Weak reference with the action to run after its object dies.

    Its callback is C code: the `append` of a deque whose owner runs the actions, or a call of
    `act`.
    """

    __slots__ = ("act",)
    act: Callable[[], None]


class WeakTable(Generic[K, T]):
    """Weak-value dictionary."""

    _lock: ClassVar[RLock] = RLock()  # shared by all tables; held only briefly

    def __init__(self) -> None:
        self._refs: dict[K, weakref.ref[T]] = {}
        self._limit = LEAST

    def get(self, key: K) -> T | None:
        """The object of a key; None if it is absent or dead."""
        ref = self._refs.get(key)
        return None if ref is None else ref()

    def __len__(self) -> int:
        return sum(1 for _ in self.values())

    def ref(self, key: K) -> weakref.ref[T] | None:
        """The weak reference of a key, dead or not; None if the key is absent."""
        return self._refs.get(key)

    def put(self, key: K, ref: weakref.ref[T]) -> None:
        """Set the reference of a key, from any thread. Amortized constant time."""
        with restoring(self._lock), self._lock:
            self._refs[key] = ref
            if len(self._refs) > self._limit:
                for known, one in list(self._refs.items()):
                    if one() is None and self._refs.get(known) is one:
                        self._refs.pop(known)
                self._limit = 2 * len(self._refs) + LEAST

    def drop(self, key: K) -> None:
        """Remove a key, if present."""
        self._refs.pop(key, None)

    def clear(self) -> None:
        """Remove all keys."""
        self._refs.clear()

    def setdefault(self, key: K, thing: T) -> T:
        """The object of a key, set to `thing` if it is absent or dead. From any thread."""
        with restoring(self._lock), self._lock:
            found = self.get(key)
            if found is None:
                found = thing
                self.put(key, weakref.ref(thing))
            return found

    def values(self) -> Iterator[T]:
        """Iterate over the living objects in insertion order."""
        for ref in list(self._refs.values()):
            thing = ref()
            if thing is not None:
                yield thing


def _renew_lock() -> None:
    """Replace the lock in a forked child: a thread of the parent may have held it."""
    WeakTable._lock = RLock()


platform.at_fork(in_child=_renew_lock)


class WeakGroup(Generic[T]):
    """Weak set of objects by identity, in insertion order."""

    def __init__(self) -> None:
        self._table: WeakTable[int, T] = WeakTable()

    def add(self, thing: T) -> None:
        self._table.put(id(thing), weakref.ref(thing))

    def __contains__(self, thing: object) -> bool:
        return self._table.get(id(thing)) is thing

    def __iter__(self) -> Iterator[T]:
        return self._table.values()

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None


def insert_bounded(table: dict[K, V], key: K, value: V, most: int) -> None:
    """Insert an entry and evict the oldest beyond `most`. Other threads may read the table."""
    table[key] = value
    while len(table) > most:
        table.pop(next(iter(table)), None)


# --- callbacks of destructors and drivers --------------------------------------------------------
#
# Callbacks for destructors and drivers, made only of C functions.
#
# Python discards exceptions in destructors, in callbacks of weak references, and in callbacks from
# C. An interrupt at their first bytecode is lost before any `try`. Therefore none of these
# callbacks executes bytecode. They are composed from C functions of the standard library:
#
#     filter(None, map(f, things))    # f of each in order, where f returns None
#     partial(next, steps)            # the next step; the caller's argument becomes the default

# For cffi's `onerror`, called with (class, exception, traceback): interrupt the program as Ctrl-C
# does, at the next bytecode outside of the failed callback. The C function ignores the arguments.
interrupt_again = ctypes.PYFUNCTYPE(None, *(ctypes.py_object,) * 3)(
    ("PyErr_SetInterrupt", ctypes.pythonapi)
)


def run_each_once(*deeds: partial[None]) -> Iterator[None]:
    """Iterator that runs one of these calls per step, each at most once.

    The calls are C functions that return None.
    """
    return map(partial.__call__, deeds)


def finalize_after_all(things: Iterable[T], deeds: Iterator[None]) -> list[weakref.ref[T]]:
    """Weak references that run the iterator `deeds` when the last of the things dies.

    `run_each_once` creates `deeds`. The references must be kept alive. References to the same thing
    run in the opposite order of their creation.
    """
    held = list(things)
    steps: Iterator[Any] = chain(repeat(True, len(held) - 1), filter(None, deeds))
    return [weakref.ref(thing, partial(next, steps)) for thing in held]


def resurrecting_del(to: deque[Any]) -> property:
    """`__del__` of a class: appends the object to a deque, which resurrects it.

    Python reads the attribute `__del__` and calls the result: a `partial` that this property
    creates.
    """
    give: Callable[[Any], Any] = partial(partial, to.append)
    return property(give)
