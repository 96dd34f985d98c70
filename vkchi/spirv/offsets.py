"""Offsets of elements, in scalars from an array's pointer.

Owns: `Offset`, index values of any width, layouts. Must not know: pointers, loads and stores.

An offset is a dynamic part and a constant one, and stays so until a pointer is formed: components
and constant indices cost nothing.

    >>> materialise(em, i32, Offset(0, 12)) == em.index(12)
    True
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from vkchi.ir.core import Value, value_of
from vkchi.spirv import spec
from vkchi.types import Array, AxisTerm, Layout, Scalar, i64, row_major, scalar_of, u32, u64

if TYPE_CHECKING:
    from vkchi.spirv.emitter import Emitter


class Offset(NamedTuple):
    """`id + constant` in scalars; id 0 stands for nothing."""

    id: int
    constant: int


@lru_cache(maxsize=4096)
def layout_of(t: Array) -> Layout:
    """The layout of an array of static shape."""
    assert t.shape is not None
    return t.layout or row_major(t.shape, t.scalars_per_element)


@lru_cache(maxsize=4096)
def has_spare(t: Array) -> bool:
    """Whether the memory of an array of static shape has a spare element at its end: where the
    array fills its memory from the first scalar to the last, nothing else is there
    (`fields.cells`: in company, cells are larger than one of their fields)."""
    layout, step = layout_of(t), t.scalars_per_element
    if t.shape is None or layout.components != tuple(range(step)):
        return False
    digits = [
        (term.stride, term.modulus or -(-extent // term.divisor))
        for extent, terms in zip(t.shape, layout.axes, strict=True)
        for term in terms
    ]
    for stride, count in sorted(digits):
        if count > 1 and stride != step:
            return False
        step *= count
    return all(stride <= step for stride, _ in digits)


def materialise(em: Emitter, t: Scalar, offset: Offset) -> int:
    """The id of an offset as one number of type t."""
    if not offset.id:
        return em.number(t, offset.constant)
    if not offset.constant:
        return offset.id
    return em.op(spec.OpIAdd, em.type_id(t), offset.id, em.number(t, offset.constant))


def add_id(em: Emitter, t: Scalar, offset: Offset, value: int) -> Offset:
    """The offset with a dynamic term added."""
    if offset.id:
        value = em.op(spec.OpIAdd, em.type_id(t), offset.id, value)
    return Offset(value, offset.constant)


def multiply(em: Emitter, t: Scalar, value: int, factor: int) -> int:
    """value * factor."""
    if factor == 1:
        return value
    return em.op(spec.OpIMul, em.type_id(t), value, em.number(t, factor))


def index_of(em: Emitter, t: Scalar, v: Value) -> Offset:
    """An index value as an offset of type t: constants as numbers, others widened or narrowed."""
    value, old = em.ids[v][0], scalar_of(v.type)
    bits = em.known(value)
    if bits is not None:
        return Offset(0, int(value_of(bits, old)))
    if old.bits == t.bits:
        return Offset(value, 0)
    if old.kind == "u" and t.bits == 64:
        unsigned = em.op(spec.OpUConvert, em.type_id(u64), value)
        return Offset(em.op(spec.OpBitcast, em.type_id(t), unsigned), 0)
    return Offset(em.op(spec.OpSConvert, em.type_id(t), value), 0)


def axis_index(em: Emitter, t: Scalar, layout: Layout, axis: int, v: Value) -> Offset:
    """An index value counted from the first index of its axis."""
    index = index_of(em, t, v)
    origin = layout.origin[axis] if layout.origin else 0
    return index._replace(constant=index.constant - origin)


def static_offset(
    em: Emitter, t: Scalar, layout: Layout, indices: tuple[Value, ...]
) -> Offset:  # fmt: skip
    """Where the layout puts the element: sums of digits of the indices."""
    total = Offset(0, 0)
    for axis, v in enumerate(indices):
        index = axis_index(em, t, layout, axis, v)
        for term in layout.axes[axis]:
            total = _add_term(em, t, total, index, term)
    return total


def _add_term(em: Emitter, t: Scalar, total: Offset, index: Offset, term: AxisTerm) -> Offset:
    divisor, modulus, stride = term
    if not index.id:
        digit = index.constant // divisor
        digit = digit % modulus if modulus else digit
        return Offset(total.id, total.constant + digit * stride)
    if divisor == 1 and not modulus:
        total = total._replace(constant=total.constant + index.constant * stride)
        return add_id(em, t, total, multiply(em, t, index.id, stride))
    value = materialise(em, t, index)
    if divisor != 1:
        value = _unsigned(em, t, value, divisor, spec.OpShiftRightLogical, spec.OpUDiv)
    if modulus:
        value = _unsigned(em, t, value, modulus, spec.OpBitwiseAnd, spec.OpUMod)
    return add_id(em, t, total, multiply(em, t, value, stride))


def _unsigned(em: Emitter, t: Scalar, value: int, by: int, cheap: int, opcode: int) -> int:
    """value / by or value % by, of unsigned numbers; by the cheap opcode for powers of two."""
    t_id = em.type_id(t)
    if by & (by - 1) == 0:
        operand = by.bit_length() - 1 if cheap == spec.OpShiftRightLogical else by - 1
        return em.op(cheap, t_id, value, em.number(t, operand))
    unsigned = u64 if t is i64 else u32
    plain = em.op(spec.OpBitcast, em.type_id(unsigned), value)
    result = em.op(opcode, em.type_id(unsigned), plain, em.number(unsigned, by))
    return em.op(spec.OpBitcast, t_id, result)
