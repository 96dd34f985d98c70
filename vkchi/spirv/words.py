"""Numbers of less than 32 bits in words of 32: what atomics on them are made of.

Owns: what a narrow number looks like in a word of its own (workgroup arrays whose elements are
combined atomically are kept as words, one for each), and between others in a buffer's word. That
begins at the next lower multiple of four bytes; memory is little-endian, so the number of byte k
has the bits from 8 * k on. Must not know: how places are addressed, which atomics there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vkchi.spirv import spec
from vkchi.spirv.spec import StorageClass
from vkchi.types import Scalar, scalar_named, u1, u32

if TYPE_CHECKING:
    from vkchi.spirv.emitter import Emitter

WORD = 32


class WordPlace(NamedTuple):
    """A word in memory: a pointer to it, its type (u32), and which of its bits hold the narrow
    number: so many of them, from the bit on whose number is the id `shift`."""

    pointer: int
    elem: Scalar
    bits: int
    shift: int
    is_shared: bool


# --- a number in a word of its own ---------------------------------------------------------------


def from_word(em: Emitter, t: Scalar, word: int) -> int:
    """The number of type t in the low bits of a word."""
    if t is u1:
        return em.op(spec.OpINotEqual, em.type_id(u1), word, em.const(u32, 0))
    bits, plain = word, u32
    if t.bits < WORD:
        plain = scalar_named(f"u{t.bits}")
        bits = em.op(spec.OpUConvert, em.type_id(plain), word)
    return bits if t is plain else em.op(spec.OpBitcast, em.type_id(t), bits)


def to_word(em: Emitter, t: Scalar, value: int) -> int:
    """A word that is zero but for the number in its low bits."""
    if t is u1:
        return em.op(spec.OpSelect, em.type_id(u32), value, em.const(u32, 1), em.const(u32, 0))
    plain = scalar_named(f"u{t.bits}")
    bits = value if t is plain else em.op(spec.OpBitcast, em.type_id(plain), value)
    return bits if t.bits == WORD else em.op(spec.OpUConvert, em.type_id(u32), bits)


# --- a number among others -----------------------------------------------------------------------


def own_word(em: Emitter, pointer: int, *, is_shared: bool) -> WordPlace:
    """The word that the pointer leads to, which holds one number alone."""
    return WordPlace(pointer, u32, WORD, em.const(u32, 0), is_shared)


def word_around(em: Emitter, pointer: int, bits: int) -> WordPlace:
    """The word in a buffer in which the number of so many bits that `pointer` leads to stands."""
    word = em.type_id(u32)
    pair = em.m.type(spec.OpTypeVector, word, 2)
    address = em.op(spec.OpBitcast, pair, pointer)
    low = em.op(spec.OpCompositeExtract, word, address, 0)
    high = em.op(spec.OpCompositeExtract, word, address, 1)
    byte = em.op(spec.OpBitwiseAnd, word, low, em.const(u32, 3))
    start = em.op(spec.OpBitwiseXor, word, low, byte)
    address = em.op(spec.OpCompositeConstruct, pair, start, high)
    shift = em.op(spec.OpShiftLeftLogical, word, byte, em.const(u32, 3))
    p_id = em.m.pointer(StorageClass.PhysicalStorageBuffer, word)
    return WordPlace(em.op(spec.OpBitcast, p_id, address), u32, bits, shift, False)


def take_number(em: Emitter, place: WordPlace, t: Scalar, word: int) -> int:
    """The number of type t that the bits of a word hold."""
    if place.bits < WORD:
        word = em.op(spec.OpShiftRightLogical, em.type_id(u32), word, place.shift)
    if place.bits < WORD and t is u1:
        word = em.op(spec.OpBitwiseAnd, em.type_id(u32), word, _ones(em, place.bits))
    return from_word(em, t, word)


def put_number(em: Emitter, place: WordPlace, t: Scalar, word: int, value: int) -> int:
    """The bits of a word with the number of type t in it replaced."""
    bits, t_id = to_word(em, t, value), em.type_id(u32)
    if place.bits == WORD:
        return bits
    mask = em.op(spec.OpShiftLeftLogical, t_id, _ones(em, place.bits), place.shift)
    others = em.op(spec.OpBitwiseAnd, t_id, word, em.op(spec.OpNot, t_id, mask))
    bits = em.op(spec.OpShiftLeftLogical, t_id, bits, place.shift)
    return em.op(spec.OpBitwiseOr, t_id, others, bits)


def _ones(em: Emitter, bits: int) -> int:
    return em.const(u32, (1 << bits) - 1)
