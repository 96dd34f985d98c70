"""Memory of the reference interpreter: what arrays and pointers are there.

An array is a numpy array of its logical shape plus the element's shape; where its scalars lie in
memory only matters to `address`, which counts them. What lies outside an array, or between its
scalars, is read as 0 and not written to.

Owns: places. Must not know: ops, invocations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vkchi.ir.evaluate import as_value, zero_of
from vkchi.types import Array, Ptr, Scalar, Type, scalar_of, shape_of
from vkchi.types.layout import shares_words
from vkchi.types.lazy_numpy import np
from vkchi.types.numpy_lanes import Lanes

Numbers = list[tuple[tuple[int, ...], int]]  # indices, components included, and their first bits


class Place:
    """What a pointer leads to: the components of `array` at `index`, or nothing (None)."""

    __slots__ = ("array", "index", "type")

    def __init__(self, array: Any, index: tuple[int, ...] | None, t: Type) -> None:
        self.array, self.index, self.type = array, index, t

    def load(self) -> Any:
        """The value that stands here now."""
        if self.index is None:
            return zero_of(self.type)
        return np.array(self.array[self.index])[()]

    def store(self, v: Any) -> None:
        """Put v here."""
        if self.index is not None:
            self.array[self.index] = v

    def member(self, k: int) -> Place:
        """The place of component k, counted row by row."""
        if self.index is None:
            return Place(self.array, None, scalar_of(self.type))
        inner = tuple(int(i) for i in np.unravel_index(k, shape_of(self.type)))
        return Place(self.array, self.index + inner, scalar_of(self.type))


class Cells:
    """The scalars at these indices of `array`, None for those outside, as a value of a type, each
    of whose scalars is one or several of them."""

    __slots__ = ("array", "indices", "type")

    def __init__(self, array: Any, indices: Sequence[tuple[int, ...] | None], t: Type) -> None:
        self.array, self.indices, self.type = array, indices, t

    def load(self) -> Any:
        """The value that stands here now."""
        t = scalar_of(self.type)
        zero = self.array.dtype.type(0)
        found = [zero if index is None else self.array[index] for index in self.indices]
        if t.dtype.itemsize > zero.itemsize:
            values = np.array(found).view(t.dtype)
        else:
            values = np.array([read_as(v, t.dtype) for v in found])
        return as_value(values.reshape(shape_of(self.type)), self.type)

    def store(self, v: Any) -> None:
        """Put v here."""
        parts = np.asarray(v).reshape(-1)
        if parts.dtype.itemsize > self.array.dtype.itemsize:
            parts = parts.view(self.array.dtype)
        for index, part in zip(self.indices, parts, strict=True):
            if index is not None:
                self.array[index] = read_as(part, self.array.dtype)

    def member(self, k: int) -> Cells:
        """The place of component k."""
        return Cells(self.array, self.indices[k : k + 1], scalar_of(self.type))


def read_as(v: Any, dtype: Any) -> Any:
    """The bits of a number as another type; of truth values, which bits do not tell, the number."""
    if v.dtype == dtype:
        return v
    if v.dtype.kind == "b" or dtype.kind == "b":
        return v.astype(dtype)
    return np.ascontiguousarray(v).view(dtype).reshape(())[()]


class WordPlace:
    """The word in which the number at a place stands: it has the low bits, the others are zero."""

    __slots__ = ("place",)

    def __init__(self, place: Place | Cells) -> None:
        self.place = place

    def load(self) -> Any:
        """The word."""
        return self.put(self.place.load())

    def store(self, bits: Any) -> None:
        """Replace the word."""
        self.place.store(self.get(bits))

    def get(self, bits: Any) -> Any:
        """The number that the bits of a word hold."""
        t = scalar_of(self.place.type)
        raw = np.uint32(bits).tobytes()[: t.dtype.itemsize]
        return t.dtype.type(bits & 1) if t.kind == "b" else np.frombuffer(raw, t.dtype)[0]

    def put(self, v: Any) -> Any:
        """The bits of a word with the number."""
        return np.uint32(int.from_bytes(np.asarray(v).tobytes(), "little"))


class ArrayValue:
    """An array with its type, which knows the origin of its indices."""

    __slots__ = ("array", "table", "type", "words")

    def __init__(self, array: Any, t: Array) -> None:
        self.array, self.type = array, t
        self.words: dict[int, Numbers] = {}  # of an array whose elements share words
        self.table: dict[int, tuple[int, ...]] | None = None

    def place(self, indices: Sequence[Any]) -> Place:
        """The place of an element."""
        t = self.type
        origin = t.layout.origin if t.layout is not None and t.layout.origin else (0,) * t.ndim
        index = tuple(int(k) - first for k, first in zip(indices, origin, strict=True))
        inside = all(0 <= k < extent for k, extent in zip(index, self.array.shape))
        return Place(self.array, index if inside else None, t.elem)

    def cells(self, constant: int, operands: Sequence[Any], pointer: Ptr) -> Cells | Word:
        """The place of a value that begins at a scalar, counted as they lie in memory."""
        t = pointer.elem
        first = constant
        if operands:
            first = (constant + int(operands[0])) % (1 << 8 * operands[0].itemsize)
        is_harmless = len(operands) == 2 and not operands[1]
        if shares_words(self.type.layout):
            self.words = self.words or numbers_by_word(self.type, self.array.shape)
            return Word(self, [] if is_harmless else self.words.get(first, []))
        count = 1 if isinstance(t, Scalar) else t.size
        count *= max(1, scalar_of(t).dtype.itemsize // self.array.dtype.itemsize)
        found = [None if is_harmless else self.index_of(first + k) for k in range(count)]
        return Cells(self.array, found, t)

    def index_of(self, scalar: int) -> tuple[int, ...] | None:
        """The index, component included, of the scalar so far behind the first."""
        if self.type.layout is None:
            if not 0 <= scalar < self.array.size:
                return None
            return tuple(int(k) for k in np.unravel_index(scalar, self.array.shape))
        if self.table is None:
            self.table = scalars_of(self.type, self.array.shape)
        return self.table.get(scalar)


class Word:
    """A word of an array whose elements share words. The bits that are none of its elements' are
    read as 0, and not written to."""

    __slots__ = ("array", "layout", "numbers")

    def __init__(self, value: ArrayValue, numbers: Numbers) -> None:
        self.array, self.layout, self.numbers = value.array, value.type.layout, numbers

    def load(self) -> Any:
        """The word."""
        layout: Any = self.layout
        found = layout.word.dtype.type(0)
        for index, bit in self.numbers:
            found |= layout.put(Lanes(self.array[index]), bit).v
        return found

    def store(self, v: Any) -> None:
        """Put its bits where they belong."""
        layout: Any = self.layout
        for index, bit in self.numbers:
            self.array[index] = layout.take(Lanes(v), bit).v


def numbers_by_word(t: Array, shape: tuple[int, ...]) -> dict[int, Numbers]:
    """The words of an array whose elements share them -> the numbers in each."""
    layout: Any = t.layout
    inner = shape_of(t.elem)
    table: dict[int, Numbers] = {}
    for index in np.ndindex(shape[: t.ndim]):
        numbers = table.setdefault(int(layout.offset(index)), [])
        for start, at in zip(layout.starts, np.ndindex(inner), strict=True):
            numbers.append(((*index, *at), int(layout.bit(index)) + start))
    return table


def scalars_of(t: Array, shape: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """Where in memory each scalar of an array with a layout lies -> its index in the array."""
    assert t.layout is not None
    inner = shape_of(t.elem)
    table = {}
    for index in np.ndindex(shape[: t.ndim]):
        first = t.layout.offset(index)
        for component, at in zip(t.layout.components, np.ndindex(inner), strict=True):
            table[first + component] = (*index, *at)
    return table
