"""Dispatches that do nothing but set whole arrays to one number each.

A device does that by a command of its own. A processor's driver does it in the thread that goes
through commands, in a fortieth of what a small dispatch takes, which wakes other threads.

Owns: when a dispatch is that: every op of it is a constant, arithmetic of indices, a counted loop,
or a store of a constant of which 32 bits repeat; each array lies in one piece, and has all of its
elements stored to. Must not know: launches, devices.

    >>> fills_of(fn)                     # for i, j in x: x[i, j] = 0.0; of 4 by 8 numbers
    (Fill(name="x", word=0, size_bytes=128),)
"""

from __future__ import annotations

from math import prod

from vkchi.analysis.boxes import Box
from vkchi.ir.constants import is_constant
from vkchi.ir.core import Func, Op, Param, Value, base_of, walk
from vkchi.ir.ops import COUNTED, TABLE, Effect
from vkchi.target.artifact import Fill
from vkchi.types import Array, Scalar, Tensor, scalar_of
from vkchi.types.layout import shares_words

WORD_BITS = 32


def fills_of(fn: Func) -> tuple[Fill, ...]:
    """What a dispatch sets; nothing where it does anything else."""
    words = words_in(fn)
    if not words:
        return ()
    from vkchi.analysis.must_write import MustWrite  # not before there may be some
    from vkchi.analysis.segments import find_segments

    types = {p.name: p.type for p in words if isinstance(p.type, Array)}
    stored = MustWrite(fn, find_segments(fn)).boxes({}, {})
    whole = {c.name for c in stored if c.box == box_of(types[c.name])}
    if len(whole) < len(words):
        return ()
    return tuple([Fill(p.name, word, size_of(types[p.name])) for p, word in words.items()])


def words_in(fn: Func) -> dict[Param, int] | None:
    """The word that each array is set to; None where ops do more than to store such words."""
    found: dict[Param, int] = {}
    for op in walk(fn.body):
        if op.kind == "store":
            array, word = base_of(op.args[0]), word_of(op)
            if word is None or not isinstance(array, Param) or found.get(array, word) != word:
                return None
            found[array] = word
        elif not (TABLE[op.kind].effect is Effect.PURE or op.kind in COUNTED or op.kind == "yield"):
            return None
    return found


def word_of(store: Op) -> int | None:
    """The 32 bits that a store writes again and again into an array in one piece; None if it does
    not."""
    array, value = base_of(store.args[0]).type, store.args[1]
    if not (isinstance(array, Array) and is_piece(array) and is_constant(value)):
        return None
    bits = array.stored.bits
    parts = {bits_at(n, bits, k) for n in numbers_of(value) for k in range(0, bits, WORD_BITS)}
    if scalar_of(value.type) is not array.stored or len(parts) != 1:
        return None
    (part,) = parts
    return sum(part << at for at in range(0, WORD_BITS, min(bits, WORD_BITS)))


def bits_at(number: int, bits: int, at: int) -> int:
    """The bits of a number of so many that stand in one word with that one."""
    return number >> at & ((1 << min(bits, WORD_BITS)) - 1)


def numbers_of(value: Value) -> tuple[int, ...]:
    """The bits of a constant's components."""
    assert isinstance(value, Op)
    return value.attr if isinstance(value.type, Tensor) else (value.attr,)


def is_piece(t: Array) -> bool:
    """Whether an array's elements are all that stands between its ends, which are whole words."""
    if t.shape is None or t.space != "global" or not isinstance(t.stored, Scalar):
        return False
    if shares_words(t.layout):
        return False
    numbers = numbers_in(t)
    spread = numbers if t.layout is None else t.layout.size
    return 0 < spread == numbers and not size_of(t) * 8 % WORD_BITS


def numbers_in(t: Array) -> int:
    """The numbers that the elements of an array are made of."""
    return prod(t.shape or ()) * t.scalars_per_element


def size_of(t: Array) -> int:
    """The bytes of an array in one piece."""
    return numbers_in(t) * t.stored.size_bytes


def box_of(t: Array) -> Box:
    """Its elements, by the indices that programs know."""
    extents = t.shape or ()
    origin = (t.layout.origin if t.layout is not None else ()) or (0,) * len(extents)
    return tuple([(first, first + n - 1) for first, n in zip(origin, extents, strict=True)])
