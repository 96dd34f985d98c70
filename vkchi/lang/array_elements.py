"""Vector or matrix elements of arrays in Python scope; their components refer to device memory.

An element's store provides `read(index)` and `write(index, value)`. An index that includes the
component accesses a scalar, an index without it a numpy array.

    x[i][1] -= 0.5          # make_element(x, (i,))[1] = make_element(x, (i,))[1] - 0.5
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

from vkchi.lang.matrix import Matrix, Vector
from vkchi.types.lazy_numpy import np

_WIDE = {"f": "f8", "i": "i8", "u": "u8", "b": "?"}


class ElementStore(Protocol):
    """Interface of an array in memory."""

    elem: Any

    def read(self, index: tuple[int, ...]) -> Any: ...

    def write(self, index: tuple[int, ...], value: Any) -> None: ...

    def place_of(self, index: tuple[int, ...]) -> Hashable | None: ...


class _Element(Matrix):
    """A vector or matrix at `index` of `store`. Reads of the whole element widen numbers to 64
    bits."""

    __slots__ = ("_index", "_store")
    _index: tuple[int, ...]
    _store: ElementStore

    def __init__(self, store: ElementStore, index: tuple[int, ...]) -> None:
        self._store, self._index, self.dt, self._sum_of = store, index, None, None

    @property
    def entries(self) -> Any:
        """A copy of the components, read from memory; numbers have 64 bits."""
        values = np.asarray(self._store.read(self._index))
        return values.astype(_WIDE[values.dtype.kind])

    @property
    def shape(self) -> tuple[int, ...]:
        return self._store.elem.shape  # type: ignore[no-any-return]

    def __getitem__(self, key: Any) -> Any:
        keys = self._key(key)
        if any(isinstance(k, slice) for k in keys):
            return super().__getitem__(key)
        return self._store.read(self._index + self._place(keys))

    def __setitem__(self, key: Any, value: Any) -> None:
        keys = self._key(key)
        if not any(isinstance(k, slice) for k in keys):
            self._store.write(self._index + self._place(keys), value)
            return
        entries = self.entries
        entries[keys] = getattr(value, "entries", value)
        self._store.write(self._index, entries)

    def _place(self, keys: Any) -> tuple[int, ...]:
        return tuple(int(k) % extent for k, extent in zip(keys, self.shape))

    def place_of_sum(self) -> Hashable | None:
        return self._store.place_of(self._index)

    def fill(self, val: Any) -> None:
        """Set every component in memory to val."""
        self._store.write(self._index, np.full(self.shape, val))


class VectorElement(_Element, Vector):
    __slots__ = ()


class MatrixElement(_Element):
    __slots__ = ()


def make_element(store: ElementStore, index: tuple[int, ...]) -> Matrix:
    """Return the vector or matrix of `store` at `index`; its components read and write memory."""
    return (VectorElement if len(store.elem.shape) == 1 else MatrixElement)(store, index)
