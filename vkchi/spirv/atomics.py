"""Atomic ops: one instruction per component in buffers and workgroup memory, plain arithmetic on
private places.

Owns: which atomics exist natively and what they need of the device. What is not in the table must
have been replaced by legalize. Must not know: how places are addressed (`memory.py`).

`atomic_exchange` and `atomic_cas` on floats work on the bits, through a pointer to unsigned
integers of the same width: two values are the same where their bits are.

A workgroup array of floats that is exchanged or swapped anywhere is kept as integers, and its other
atomics become loops; which arrays these are is known only here. One of numbers of less than 32
bits whose words are asked for is kept as words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.errors import InternalError
from vkchi.ir.core import Op
from vkchi.ir.ops import ATOMICS
from vkchi.spirv import arith, spec
from vkchi.spirv.control import Loop
from vkchi.spirv.memory import (
    BufferPlace,
    LocalPlace,
    Place,
    SharedPlace,
    buffer_pointer,
    load_place,
    scalar_pointers,
    store_place,
)  # fmt: skip
from vkchi.spirv.spec import Scope, Semantics
from vkchi.spirv.words import (
    WORD,
    WordPlace,
    own_word,
    put_number,
    take_number,
    word_around,
)  # fmt: skip
from vkchi.types import Scalar, scalar_named, scalar_of, u1, u32

if TYPE_CHECKING:
    from vkchi.spirv.emitter import Emitter

# op -> opcodes for i, u, f.
OPCODES: dict[str, tuple[int, int, int]] = {
    "atomic_add": (spec.OpAtomicIAdd, spec.OpAtomicIAdd, spec.OpAtomicFAddEXT),
    "atomic_min": (spec.OpAtomicSMin, spec.OpAtomicUMin, spec.OpAtomicFMinEXT),
    "atomic_max": (spec.OpAtomicSMax, spec.OpAtomicUMax, spec.OpAtomicFMaxEXT),
    "atomic_and": (spec.OpAtomicAnd, spec.OpAtomicAnd, 0),
    "atomic_or": (spec.OpAtomicOr, spec.OpAtomicOr, 0),
    "atomic_xor": (spec.OpAtomicXor, spec.OpAtomicXor, 0),
}
# (op, type, whether in workgroup memory) -> Caps field; 32-bit integers need nothing.
FLOAT_NEEDS = {
    ("atomic_add", "f32", False): "f32_atomic_add",
    ("atomic_add", "f32", True): "f32_atomic_add_shared",
    ("atomic_add", "f64", False): "f64_atomic_add",
    ("atomic_min", "f32", False): "f32_atomic_minmax",
    ("atomic_max", "f32", False): "f32_atomic_minmax",
}
WIDE_NEEDS = {False: "i64_atomics", True: "i64_atomics_shared"}


def lower_atomic(em: Emitter, op: Op) -> tuple[int, ...]:
    """atomic_add, _min, _max, _mul, _and, _or, _xor: the old components."""
    place, values = em.places[op.args[0]], em.ids[op.args[1]]
    if isinstance(place, LocalPlace):
        old = load_place(em, place)
        kind = ATOMICS[op.kind].combine
        new = [arith.apply(em, kind, place.elem, *pair) for pair in zip(old, values, strict=True)]
        store_place(em, place, tuple(new))
        return old
    if isinstance(place, SharedPlace) and place.kept is not place.elem:
        kind = ATOMICS[op.kind].combine
        pairs = zip(scalar_pointers(em, place), values, strict=True)
        return tuple([_swap_until_done(em, kind, place, *pair) for pair in pairs])
    opcode = OPCODES.get(op.kind, (0, 0, 0))["iuf".find(place.elem.kind)]
    if not opcode or place.elem is u1:
        raise InternalError(f"`{op.kind}` of {place.elem} is not native; legalize must replace it")
    _need_atomics(em, op.kind, place, place.elem)
    t_id, scope = em.type_id(place.elem), _scope(em, place)
    relaxed = em.const(u32, Semantics.Relaxed)
    pairs = zip(scalar_pointers(em, place), values, strict=True)
    return tuple([em.op(opcode, t_id, p, scope, relaxed, v) for p, v in pairs])


def _swap_until_done(
    em: Emitter, kind: str, place: SharedPlace, pointer: int, value: int
) -> int:  # fmt: skip
    """A float atomic on an array kept as integers, whose floats cannot be pointed to: compare and
    swap until nobody came between. The old value."""
    word, t_id = em.type_id(place.kept), em.type_id(place.elem)
    _need_atomics(em, kind, place, place.kept)
    loop = Loop(em, [place.kept], [em.op(spec.OpLoad, word, pointer)])
    expected = loop.phis[0]
    old = em.op(spec.OpBitcast, t_id, expected)
    new = em.op(spec.OpBitcast, word, arith.apply(em, kind, place.elem, old, value))
    relaxed = em.const(u32, Semantics.Relaxed)
    operands = (pointer, _scope(em, place), relaxed, relaxed, new, expected)
    seen = em.op(spec.OpAtomicCompareExchange, word, *operands)
    loop.enter(em.op(spec.OpINotEqual, em.type_id(u1), seen, expected))
    loop.begin_next()
    loop.close([seen])
    return old


def _scope(em: Emitter, place: Place) -> int:
    is_shared = _is_shared(place)
    return em.const(u32, Scope.Workgroup if is_shared else Scope.Device)


def _is_shared(place: Place) -> bool:
    return place.is_shared if isinstance(place, WordPlace) else isinstance(place, SharedPlace)


def _need_atomics(em: Emitter, kind: str, place: Place, t: Scalar) -> None:
    is_shared = _is_shared(place)
    if t.kind == "f":
        field = FLOAT_NEEDS.get((kind, t.name, is_shared), "")
        if not field:
            raise InternalError(f"`{kind}` of {t} is not native here; legalize must replace it")
        em.need(field)
    elif t.bits == 64:
        em.need(WIDE_NEEDS[is_shared])
    elif t.bits != 32:
        raise InternalError(f"`{kind}` of {t} is not native; legalize must replace it")


def lower_exchange(em: Emitter, op: Op) -> tuple[int, ...]:
    """atomic_exchange and atomic_cas: the old components."""
    place = em.places[op.args[0]]
    values = [em.ids[v] for v in op.args[1:]]
    if isinstance(place, LocalPlace):
        return _exchange_local(em, place, values)
    word = scalar_named(f"u{place.elem.bits}") if place.elem.kind == "f" else place.elem
    if place.elem is u1:
        raise InternalError(f"`{op.kind}` of truth values is not native")
    _need_atomics(em, op.kind, place, word)
    w_id, t_id = em.type_id(word), em.type_id(place.elem)
    scope, relaxed = _scope(em, place), em.const(u32, Semantics.Relaxed)
    out = []
    for pointer, *parts in zip(_word_pointers(em, place, word), *values, strict=True):
        if word is not place.elem:
            parts = [em.op(spec.OpBitcast, w_id, v) for v in parts]
        if op.kind == "atomic_exchange":
            old = em.op(spec.OpAtomicExchange, w_id, pointer, scope, relaxed, *parts)
        else:
            operands = (pointer, scope, relaxed, relaxed, parts[1], parts[0])
            old = em.op(spec.OpAtomicCompareExchange, w_id, *operands)
        out.append(old if word is place.elem else em.op(spec.OpBitcast, t_id, old))
    return tuple(out)


def _word_pointers(em: Emitter, place: Place, word: Scalar) -> list[int]:
    """Pointers to the components as integers. A shared array was made of integers in advance."""
    if not isinstance(place, BufferPlace):
        return scalar_pointers(em, place)
    return [buffer_pointer(em, place, c, em.type_id(word)) for c in place.components]


def _exchange_local(
    em: Emitter, place: LocalPlace, values: list[tuple[int, ...]]
) -> tuple[int, ...]:  # fmt: skip
    old = load_place(em, place)
    if len(values) == 1:
        store_place(em, place, values[0])
        return old
    new, t_id, t = [], em.type_id(place.elem), place.elem
    for before, expected, wanted in zip(old, *values, strict=True):
        same = _same_bits(em, t, before, expected)
        new.append(em.op(spec.OpSelect, t_id, same, wanted, before))
    store_place(em, place, tuple(new))
    return old


def _same_bits(em: Emitter, t: Scalar, a: int, b: int) -> int:
    if t.kind == "f":
        t = scalar_named(f"u{t.bits}")
        a, b = (em.op(spec.OpBitcast, em.type_id(t), v) for v in (a, b))
    return arith.apply(em, "eq", t, a, b)


# --- words of narrow numbers ---------------------------------------------------------------------


def lower_word(em: Emitter, op: Op) -> None:
    """word: of an element in a buffer, or in a workgroup array that is kept as words."""
    place = em.places[op.args[0]]
    if isinstance(place, WordPlace | LocalPlace):
        raise InternalError("`word` takes the place of an element that others see")
    (pointer,) = scalar_pointers(em, place)
    if isinstance(place, BufferPlace) and place.stored.bits < WORD:
        em.places[op] = word_around(em, pointer, place.stored.bits)
    else:
        em.places[op] = own_word(em, pointer, is_shared=isinstance(place, SharedPlace))


def _word_place(em: Emitter, op: Op) -> WordPlace:
    place = em.places[op.args[0]]
    if not isinstance(place, WordPlace):
        raise InternalError(f"`{op.kind}` takes the place of a word")
    return place


def lower_word_get(em: Emitter, op: Op) -> tuple[int, ...]:
    """word_get: the number's bits of the word."""
    word = em.ids[op.args[1]][0]
    return (take_number(em, _word_place(em, op), scalar_of(op.type), word),)


def lower_word_put(em: Emitter, op: Op) -> tuple[int, ...]:
    """word_put: the word with the number between the others."""
    word, value = (em.ids[v][0] for v in op.args[1:])
    t = scalar_of(op.args[2].type)
    return (put_number(em, _word_place(em, op), t, word, value),)
