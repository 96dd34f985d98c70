"""Memory of the reference interpreter: values of arrays and pointers.

An array is a numpy array of its logical shape plus the element's shape. Memory layout matters only
to `address`, which counts scalars in memory order, and to the origin of indices. Locations outside
of an array and padding between its scalars read as 0; writes to them are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from vkchi.ir.reference.evaluate import checked_value, zero_of
from vkchi.types import Array, Ptr, Scalar, Type, scalar_of, shape_of
from vkchi.types.layout import shares_words
from vkchi.types.lazy_numpy import np
from vkchi.types.packed_numbers import NumpyLanes

Numbers = list[tuple[tuple[int, ...], int]]  # (index with component, first bit)


class ElementPointer:
    """A pointer to an element or component: `array[index]`. `index` is None if it is out of
    range."""

    __slots__ = ("array", "index", "type")

    def __init__(self, array: Any, index: tuple[int, ...] | None, t: Type) -> None:
        self.array, self.index, self.type = array, index, t

    def load(self) -> Any:
        if self.index is None:
            return zero_of(self.type)
        return np.array(self.array[self.index])[()]

    def store(self, v: Any) -> None:
        if self.index is not None:
            self.array[self.index] = v

    def member(self, k: int) -> ElementPointer:
        if self.index is None:
            return ElementPointer(self.array, None, scalar_of(self.type))
        inner = tuple(int(i) for i in np.unravel_index(k, shape_of(self.type)))
        return ElementPointer(self.array, self.index + inner, scalar_of(self.type))


class ScalarsPointer:
    """A pointer to consecutive scalars of `array`, accessed as one value of scalar or tensor type
    `t`.

    `indices` are those of the scalars, None where out of range. A scalar of the accessed type
    covers one or several of them; their bits are reinterpreted.
    """

    __slots__ = ("array", "indices", "type")

    def __init__(self, array: Any, indices: Sequence[tuple[int, ...] | None], t: Type) -> None:
        self.array, self.indices, self.type = array, indices, t

    def load(self) -> Any:
        t = scalar_of(self.type)
        zero = self.array.dtype.type(0)
        found = [zero if index is None else self.array[index] for index in self.indices]
        if t.dtype.itemsize > zero.itemsize:
            values = np.array(found).view(t.dtype)
        else:
            values = np.array([reinterpret_scalar(v, t.dtype) for v in found])
        return checked_value(values.reshape(shape_of(self.type)), self.type)

    def store(self, v: Any) -> None:
        parts = np.asarray(v).reshape(-1)
        if parts.dtype.itemsize > self.array.dtype.itemsize:
            parts = parts.view(self.array.dtype)
        for index, part in zip(self.indices, parts, strict=True):
            if index is not None:
                self.array[index] = reinterpret_scalar(part, self.array.dtype)

    def member(self, k: int) -> ScalarsPointer:
        count = len(self.indices) // prod(shape_of(self.type))  # scalars of a component
        part = self.indices[k * count : (k + 1) * count]
        return ScalarsPointer(self.array, part, scalar_of(self.type))


def reinterpret_scalar(v: Any, dtype: Any) -> Any:
    """Return the scalar `v` with the same bits in another dtype. To and from bool it is a
    conversion."""
    if v.dtype == dtype:
        return v
    if v.dtype.kind == "b" or dtype.kind == "b":
        return v.astype(dtype)
    return np.ascontiguousarray(v).view(dtype).reshape(())[()]


class WordPointer:
    """A pointer to the 32-bit word that contains the narrower scalar at `place`.

    Loads return the scalar in the low bits and zeros above. Stores write the scalar from the low
    bits and ignore the others.
    """

    __slots__ = ("place",)

    def __init__(self, place: ElementPointer | ScalarsPointer) -> None:
        self.place = place

    def load(self) -> Any:
        return self.put(self.place.load())

    def store(self, bits: Any) -> None:
        self.place.store(self.get(bits))

    def get(self, bits: Any) -> Any:
        t = scalar_of(self.place.type)
        raw = np.uint32(bits).tobytes()[: t.dtype.itemsize]
        return t.dtype.type(bits & 1) if t.kind == "b" else np.frombuffer(raw, t.dtype)[0]

    def put(self, v: Any) -> Any:
        return np.uint32(int.from_bytes(np.asarray(v).tobytes(), "little"))


class ArrayValue:
    """A numpy array with its IR type, which gives the origin of its indices and its layout."""

    __slots__ = ("array", "table", "type", "words")

    def __init__(self, array: Any, t: Array) -> None:
        self.array, self.type = array, t
        self.words: dict[int, Numbers] = {}  # only for bit-packed elements
        self.table: dict[int, tuple[int, ...]] | None = None

    def place(self, indices: Sequence[Any]) -> ElementPointer:
        """Return a pointer to the element at `indices`, out of range if any index is."""
        t = self.type
        origin = t.layout.origin if t.layout is not None and t.layout.origin else (0,) * t.ndim
        index = tuple(int(k) - first for k, first in zip(indices, origin, strict=True))
        inside = all(0 <= k < extent for k, extent in zip(index, self.array.shape))
        return ElementPointer(self.array, index if inside else None, t.elem)

    def cells(
        self, constant: int, operands: Sequence[Any], pointer: Ptr
    ) -> ScalarsPointer | PackedWordPointer:
        """Return the pointer of an `address` op.

        It begins at scalar `constant + operands[0]` in memory order, wrapped to the operand's
        width. In an array of bit-packed elements that number counts words. The pointer is out of
        range if `operands[1]` is false.
        """
        t = pointer.elem
        first = constant
        if operands:
            first = (constant + int(operands[0])) % (1 << 8 * operands[0].itemsize)
        is_harmless = len(operands) == 2 and not operands[1]
        if shares_words(self.type.layout):
            self.words = self.words or numbers_by_word(self.type, self.array.shape)
            return PackedWordPointer(self, [] if is_harmless else self.words.get(first, []))
        count = 1 if isinstance(t, Scalar) else t.size
        count *= max(1, scalar_of(t).dtype.itemsize // self.array.dtype.itemsize)
        found = [None if is_harmless else self.index_of(first + k) for k in range(count)]
        return ScalarsPointer(self.array, found, t)

    def index_of(self, scalar: int) -> tuple[int, ...] | None:
        """Return the numpy index of a scalar by its offset in memory, or None for an offset without
        one."""
        if self.type.layout is None:
            if not 0 <= scalar < self.array.size:
                return None
            return tuple(int(k) for k in np.unravel_index(scalar, self.array.shape))
        if self.table is None:
            self.table = scalars_of(self.type, self.array.shape)
        return self.table.get(scalar)


class PackedWordPointer:
    """A pointer to a word of an array of bit-packed elements.

    Bits that belong to no element read as 0, and stores ignore them.
    """

    __slots__ = ("array", "layout", "numbers")

    def __init__(self, value: ArrayValue, numbers: Numbers) -> None:
        self.array, self.layout, self.numbers = value.array, value.type.layout, numbers

    def load(self) -> Any:
        layout: Any = self.layout
        found = layout.word.dtype.type(0)
        for index, bit in self.numbers:
            found |= layout.put(NumpyLanes(self.array[index]), bit).v
        return found

    def store(self, v: Any) -> None:
        layout: Any = self.layout
        for index, bit in self.numbers:
            self.array[index] = layout.take(NumpyLanes(v), bit).v


def numbers_by_word(t: Array, shape: tuple[int, ...]) -> dict[int, Numbers]:
    """Map the offset of each word of an array of bit-packed elements to its scalars.

    A scalar is given as (index, first bit in the word); the index includes its component.
    """
    layout: Any = t.layout
    inner = shape_of(t.elem)
    table: dict[int, Numbers] = {}
    for index in np.ndindex(shape[: t.ndim]):
        numbers = table.setdefault(int(layout.offset(index)), [])
        for start, at in zip(layout.starts, np.ndindex(inner), strict=True):
            numbers.append(((*index, *at), int(layout.bit(index)) + start))
    return table


def scalars_of(t: Array, shape: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """Map the memory offset of each scalar of an array with a layout to its index, component
    included."""
    assert t.layout is not None
    inner = shape_of(t.elem)
    table = {}
    for index in np.ndindex(shape[: t.ndim]):
        first = t.layout.offset(index)
        for component, at in zip(t.layout.components, np.ndindex(inner), strict=True):
            table[first + component] = (*index, *at)
    return table
