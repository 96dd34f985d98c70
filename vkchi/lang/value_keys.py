"""Keys of Python values: equal only if the values give the same code in a kernel.

Values with contents (numbers, strings, containers, vectors, structs, numpy arrays, dataclasses) are
compared by type and contents, most others by identity. Keys by identity do not keep their objects
alive, except those without weak references (see `IdentityKey.weaken`).

    >>> value_key([1, 2.0]) == value_key([1, 2.0]), value_key(1) == value_key(1.0)
    (True, False)
"""

from __future__ import annotations

import functools
import struct
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from types import MethodType
from typing import Any

from vkchi.interrupts.weak import Finalizer, WeakGroup
from vkchi.lang.matrix import Matrix
from vkchi.lang.struct import Struct, members_of
from vkchi.types import DefaultTensor, Type
from vkchi.types.lazy_numpy import is_array_of_numpy, is_number_of_numpy

# Modules whose immutable values have a complete `repr`.
SHOWN = frozenset(("fractions", "decimal", "datetime", "pathlib", "uuid"))
PLAIN: frozenset[type] = frozenset((
    int, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented),
))  # fmt: skip
_BITS = struct.Struct("<d").pack
_BY_IDENTITY: WeakGroup[type] = WeakGroup()  # classes compared by identity


class IdentityKey:
    """A key that compares by identity.

    It holds a weak reference if the object supports one, otherwise a strong one.
    """

    __slots__ = ("_id", "_obj")

    def __init__(self, obj: Any) -> None:
        self._id = id(obj)
        try:
            self._obj: Any = weakref.ref(obj)
        except TypeError:
            self._obj = lambda: obj

    @property
    def is_dead(self) -> bool:
        """True if the weakly referenced object was garbage-collected."""
        return self._obj is not None and self._obj() is None

    def weaken(self) -> None:
        """Drop the strong reference to an object without weak references, and compare by address
        after that.

        No effect on a weak reference.
        """
        if not isinstance(self._obj, weakref.ref):
            self._obj = None

    def watch(self, finalizers: deque[Finalizer[Any]], when_gone: Callable[[], None]) -> None:
        """Replace the weak reference by a finalizer, which is appended to `finalizers` after
        collection.

        Its `act` is `when_gone`, which must not reference this key. No effect for other references.
        """
        obj = self._obj() if isinstance(self._obj, weakref.ref) else None
        if obj is not None:
            finalizer = Finalizer(obj, finalizers.append)
            finalizer.act = when_gone
            self._obj = finalizer

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IdentityKey) or self._id != other._id:
            return False
        if self._obj is None or other._obj is None:
            return True
        return not self.is_dead and self._obj() is other._obj()


def identity_keys(key: Any) -> Iterator[IdentityKey]:
    """Yield the `IdentityKey` keys in `key`: itself, or those in a tuple, nested ones included."""
    if isinstance(key, tuple):
        for part in key:
            yield from identity_keys(part)
    elif isinstance(key, IdentityKey):
        yield key


def has_dead_key(key: Any) -> bool:
    """True if an `IdentityKey` in `key` (see `identity_keys`) is dead."""
    return any(part.is_dead for part in identity_keys(key))


def value_key(value: Any, within: tuple[int, ...] = ()) -> Any:
    """Return a hashable key of a value. `within`: ids of the enclosing containers, which end
    recursion."""
    kind = type(value)
    if kind in PLAIN:
        return (kind, value)
    if kind is float:
        return (float, _BITS(value))
    if kind in _BY_IDENTITY:
        return IdentityKey(value)
    if isinstance(value, Type | DefaultTensor):
        return value
    if id(value) in within:  # a list may contain itself
        return ("within", within.index(id(value)))
    inner = (*within, id(value))
    if isinstance(value, list | tuple):
        return (kind, *[value_key(x, inner) for x in value])
    if isinstance(value, dict):
        return (kind, *[(value_key(k, inner), value_key(x, inner)) for k, x in value.items()])
    if isinstance(value, Matrix):
        return (kind, value.dt, value_key(value.entries, inner))
    if isinstance(value, Struct):
        return (kind, value.__vkchi_type__, value_key(members_of(value), inner))
    if is_array_of_numpy(value) and not value.dtype.hasobject:
        return (kind, value.dtype.str, value.shape, value.tobytes())
    if is_number_of_numpy(value):
        return (kind, value.dtype.str, value.tobytes())
    if hasattr(kind, "__vkchi_view__"):
        base, axes = value.__vkchi_view__
        return (kind, IdentityKey(base), axes)
    if is_compared_by_fields(value):
        names = kind.__dataclass_fields__
        return (kind, *[value_key(getattr(value, name, None), inner) for name in names])
    return _others(value, inner)


def _others(value: Any, within: tuple[int, ...]) -> Any:
    kind = type(value)
    if isinstance(value, frozenset | set):
        return (kind, frozenset([value_key(x, within) for x in value]))
    if kind is complex:
        return (complex, _BITS(value.real), _BITS(value.imag))
    if kind in (range, slice):
        parts = (value.start, value.stop, value.step)
        return (kind, *[value_key(x, within) for x in parts])
    if isinstance(value, functools.partial):
        parts = (value.func, value.args, value.keywords)
        return (kind, *[value_key(x, within) for x in parts])
    if is_bound(value):
        return (kind, IdentityKey(value.__func__), IdentityKey(value.__self__))
    if isinstance(value, Enum):
        return IdentityKey(value)
    for base in (int, float, str, bytes):
        if isinstance(value, base):
            return (kind, base.__repr__(value))
    if kind.__module__ in SHOWN:
        return (kind, repr(value))
    if not is_array_of_numpy(value):  # arrays with dtype object
        _BY_IDENTITY.add(kind)
    return IdentityKey(value)


def is_bound(value: Any) -> bool:
    """True for a bound method, or an object with `__func__` and `__self__` in its `__dict__`."""
    held = getattr(value, "__dict__", ())
    return isinstance(value, MethodType) or ("__func__" in held and "__self__" in held)


def is_compared_by_fields(value: Any) -> bool:
    """True for instances of hashable dataclasses whose `==` is the generated one."""
    cls = type(value)
    if not hasattr(cls, "__dataclass_fields__") or cls.__hash__ is None:
        return False
    return cls.__dataclass_params__.eq and not is_own_comparison(cls)


def is_own_comparison(cls: type) -> bool:
    """True if the `__eq__` of a dataclass was not generated by `dataclass`."""
    own = next((vars(base)["__eq__"] for base in cls.__mro__ if "__eq__" in vars(base)), None)
    code = getattr(own, "__code__", None)
    return code is None or code.co_filename != "<string>"
