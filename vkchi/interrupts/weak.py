"""Weak references that run no Python code when what they refer to goes.

Owns: `WeakTable`, `WeakGroup`, `Finalizer`. The standard library's weak sets and dictionaries tidy
up in callbacks written in Python, and an interrupt that comes there is swallowed; these tidy up
when they are added to.

    >>> group = WeakGroup(); group.add(thing); thing in group
    True
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from threading import RLock
from typing import ClassVar, Generic, TypeVar

from vkchi.interrupts.locks import restoring

K = TypeVar("K")
T = TypeVar("T")
LEAST = 64


class Finalizer(weakref.ref[T]):
    """A weak reference that knows what is to be done when its object is gone. Give it the `append`
    of a deque as its callback: whoever owns that does it."""

    __slots__ = ("act",)
    act: Callable[[], None]


class WeakTable(Generic[K, T]):
    """Objects by key, as long as anybody holds them."""

    _lock: ClassVar[RLock] = RLock()  # of all tables: it is held for moments only

    def __init__(self) -> None:
        self._refs: dict[K, weakref.ref[T]] = {}
        self._limit = LEAST

    def get(self, key: K) -> T | None:
        """The object of a key; None if there is none, or it is gone."""
        ref = self._refs.get(key)
        return None if ref is None else ref()

    def __len__(self) -> int:
        return sum(1 for _ in self.values())

    def ref(self, key: K) -> weakref.ref[T] | None:
        """The reference that was put there."""
        return self._refs.get(key)

    def put(self, key: K, ref: weakref.ref[T]) -> None:
        """Set the object of a key, from any thread; takes as long as a look at all only now and
        then."""
        with restoring(self._lock), self._lock:
            self._refs[key] = ref
            if len(self._refs) > self._limit:
                for known, one in list(self._refs.items()):
                    if one() is None and self._refs.get(known) is one:
                        self._refs.pop(known)
                self._limit = 2 * len(self._refs) + LEAST

    def drop(self, key: K) -> None:
        """Forget a key."""
        self._refs.pop(key, None)

    def setdefault(self, key: K, thing: T) -> T:
        """The object of a key; this one from now on, if there is none. From any thread."""
        with restoring(self._lock), self._lock:
            found = self.get(key)
            if found is None:
                found = thing
                self.put(key, weakref.ref(thing))
            return found

    def values(self) -> Iterator[T]:
        """The objects that are left, in the order in which they were put."""
        for ref in list(self._refs.values()):
            thing = ref()
            if thing is not None:
                yield thing


def _renew_lock() -> None:
    """In a forked child: a thread of the parent may have held the lock for ever."""
    WeakTable._lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class WeakGroup(Generic[T]):
    """Objects by identity, in the order in which they were added."""

    def __init__(self) -> None:
        self._table: WeakTable[int, T] = WeakTable()

    def add(self, thing: T) -> None:
        """One more."""
        self._table.put(id(thing), weakref.ref(thing))

    def __contains__(self, thing: object) -> bool:
        return self._table.get(id(thing)) is thing

    def __iter__(self) -> Iterator[T]:
        return self._table.values()

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None
