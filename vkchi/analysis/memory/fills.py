"""Recognition of dispatches that only set whole arrays to one constant each (memset idiom).

A device can run such a dispatch by fill commands. Conditions:

- every op is pure, a counted loop, a `yield`, or a store of a constant whose 32-bit words are
  equal;
- all stores to an array store the same word;
- each array is contiguous and of static shape;
- every element is stored to (`must_write`).

    >>> fills_of(fn)                     # for i, j in x: x[i, j] = 0.0; x is f32 of shape (4, 8)
    (MemoryFill(name="x", word=0, size_bytes=128),)
"""

from __future__ import annotations

from math import prod

from vkchi.analysis.memory.boxes import Box, full_box
from vkchi.ir.core import Func, Op, Param, Value, base_memory, is_constant, walk
from vkchi.ir.ops import COUNTED, TABLE, Effect
from vkchi.target.artifact import MemoryFill
from vkchi.types import Array, Scalar, Tensor, scalar_of
from vkchi.types.layout import shares_words

WORD_BITS = 32


def fills_of(fn: Func) -> tuple[MemoryFill, ...]:
    """The fills that a dispatch is equivalent to; () if it is not proved to consist of fills."""
    words = words_in(fn)
    if not words:
        return ()
    from vkchi.analysis.memory.must_write import MustWrite  # imported only if there may be fills
    from vkchi.analysis.memory.segments import find_segments

    types = {p.name: p.type for p in words if isinstance(p.type, Array)}
    stored = MustWrite(fn, find_segments(fn)).boxes({}, {})
    whole = {c.name for c in stored if c.box == box_of(types[c.name])}
    if len(whole) < len(words):
        return ()
    return tuple([MemoryFill(p.name, word, size_of(types[p.name])) for p, word in words.items()])


def words_in(fn: Func) -> dict[Param, int] | None:
    """Map each stored array to the 32-bit word that all stores to it repeat.

    None if a store has no such word, or if the words of an array differ. Also None for an op that
    is neither a store nor pure, a counted loop or a `yield`.
    """
    found: dict[Param, int] = {}
    for op in walk(fn.body):
        if op.kind == "store":
            array, word = base_memory(op.args[0]), word_of(op)
            if word is None or not isinstance(array, Param) or found.get(array, word) != word:
                return None
            found[array] = word
        elif not (TABLE[op.kind].effect is Effect.PURE or op.kind in COUNTED or op.kind == "yield"):
            return None
    return found


def word_of(store: Op) -> int | None:
    """The 32-bit word that a store of a constant repeats in a contiguous array; otherwise None."""
    array, value = base_memory(store.args[0]).type, store.args[1]
    if not (isinstance(array, Array) and is_piece(array) and is_constant(value)):
        return None
    bits = array.stored.bits
    parts = {bits_at(n, bits, k) for n in numbers_of(value) for k in range(0, bits, WORD_BITS)}
    if scalar_of(value.type) is not array.stored or len(parts) != 1:
        return None
    (part,) = parts
    return sum(part << at for at in range(0, WORD_BITS, min(bits, WORD_BITS)))


def bits_at(number: int, bits: int, at: int) -> int:
    """Extract the bits of a scalar, `bits` wide, from bit `at` on, at most 32 of them."""
    return number >> at & ((1 << min(bits, WORD_BITS)) - 1)


def numbers_of(value: Value) -> tuple[int, ...]:
    assert isinstance(value, Op)
    return value.attr if isinstance(value.type, Tensor) else (value.attr,)


def is_piece(t: Array) -> bool:
    """True if an array is contiguous, without padding, and consists of whole 32-bit words.

    It must also be global, of static shape, and not empty.
    """
    if t.shape is None or t.space != "global" or not isinstance(t.stored, Scalar):
        return False
    if shares_words(t.layout):
        return False
    numbers = numbers_in(t)
    spread = numbers if t.layout is None else t.layout.size
    return 0 < spread == numbers and not size_of(t) * 8 % WORD_BITS


def numbers_in(t: Array) -> int:
    return prod(t.shape or ()) * t.scalars_per_element


def size_of(t: Array) -> int:
    return numbers_in(t) * t.stored.size_bytes


def box_of(t: Array) -> Box:
    """The box of all elements of an array of static shape."""
    return full_box(t.shape or (), t.layout.origin if t.layout is not None else ())
