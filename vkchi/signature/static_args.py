"""What arguments are in a kernel's signature: compile-time ones equal only for those of equal code.

Owns: keys by contents and by identity, which keep nothing alive; which arrays lie apart. Must not
know: parameters, plans.

    >>> contents([1, 2.0]) == contents([1, 2.0]), contents(1) == contents(1.0)
    (True, False)
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from typing import Any

from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.interop.in_place import HostNdarray
from vkchi.interrupts.weak import Finalizer
from vkchi.lang.matrix import Matrix
from vkchi.lang.struct import Struct, members_of
from vkchi.ndarray import Ndarray
from vkchi.types.lazy_numpy import is_array_of_numpy, is_number_of_numpy, np


class ById:
    """A key that compares by identity and, where it can, does not keep its object alive."""

    __slots__ = ("_id", "_obj")

    def __init__(self, obj: Any) -> None:
        self._id = id(obj)
        try:
            self._obj: Any = weakref.ref(obj)
        except TypeError:
            self._obj = lambda: obj

    @property
    def is_dead(self) -> bool:
        """Whether the object is gone: no call can have this key any more."""
        return self._obj() is None

    def watch(self, finalizers: deque[Finalizer[Any]], when_gone: Callable[[], None]) -> None:
        """Add to `finalizers` when the object is gone. `when_gone` must not refer to this key."""
        obj = self._obj() if isinstance(self._obj, weakref.ref) else None
        if obj is not None:
            finalizer = Finalizer(obj, finalizers.append)
            finalizer.act = when_gone
            self._obj = finalizer

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and not self.is_dead and self._obj() is other._obj()


def identities(key: Any) -> Iterator[ById]:
    """The keys by identity in a signature."""
    if isinstance(key, tuple):
        for part in key:
            yield from identities(part)
    elif isinstance(key, ById):
        yield key


def is_stale(key: Any) -> bool:
    """Whether a signature names an object that is gone."""
    return any(part.is_dead for part in identities(key))


def contents(value: Any) -> Any:
    """A hashable stand-in for a compile-time value: equal only for values that give the same code.
    Numbers, sequences, dicts, vectors and numpy arrays go by type and contents, arrays on the
    device and what is unhashable by identity, others by `==`."""
    if isinstance(value, bool | int | float | str | bytes) or is_number_of_numpy(value):
        return (type(value), repr(value))
    if isinstance(value, list | tuple):
        return (type(value), *map(contents, value))
    if isinstance(value, dict):
        return (dict, *((contents(k), contents(v)) for k, v in value.items()))
    if isinstance(value, Matrix):
        return (type(value), value.dt, contents(value.entries))
    if is_array_of_numpy(value):
        return (np.ndarray, value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, Storage) or hasattr(value, "__vkchi_struct__"):
        return ById(value)
    if isinstance(value, Struct):
        return (type(value), value.__vkchi_type__, contents(members_of(value)))
    try:
        hash(value)
    except TypeError:
        return ById(value)
    return value


def lie_apart(arrays: list[Any]) -> bool:
    """Whether arrays share no memory on the device: neither they nor their gradients are one, and
    no two are the same host memory (which is copied there once), or overlap in it."""
    buffers: set[int] = set()
    gradients, others, ranges = [], [], []
    for a in arrays:
        if isinstance(a, Ndarray):
            buffers.add(id(a.buffer))
            if isinstance(a, HostNdarray):
                ranges.append((a.start, a.end))
            if a.grad is not None:
                gradients.append(a.grad.buffer)
        else:
            others.append(a)
    if len(buffers) + len(others) < len(arrays):
        return False
    if len(ranges) > 1 and any(end > start for (_, end), (start, _) in pairwise(sorted(ranges))):
        return False
    if gradients and not buffers.isdisjoint(map(id, gradients)):
        return False
    return len(others) < 2 or not any(
        a is None or b is None or host.is_same_view(a, b)
        for a, b in combinations(map(host.view_of, others), 2)
    )
