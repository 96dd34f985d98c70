"""Argument block of one shader: the used slots, their offsets, and the loads.

`target/shader.py` defines the meaning of slots. Arguments are push constants;
`module_rewriting.in_memory` reads them from a buffer instead. Scalars narrower than 32 bits are
passed in 32 bits (`Scalar.carrier`), and converted in the shader.

Methods such as `pointer` return the id of a value at once. Offsets and loads are determined by
`finish`, because pointers and 8-byte values come first.

    em.arguments.pointer(param)         # id of a pointer to struct { f32[] }
    em.arguments.dim(param, 0)          # id of an i32
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.errors import InternalError
from vkchi.ir.core import Param
from vkchi.spirv import spec
from vkchi.spirv.module_builder import Words, encode_instruction
from vkchi.spirv.spec import Decoration, StorageClass
from vkchi.target.magic import MAGIC
from vkchi.target.shader import ArgumentSlot
from vkchi.types import Array, Scalar, scalar_named, scalar_of, u1, u32

if TYPE_CHECKING:
    from vkchi.spirv.emitter import Emitter

POINTER_BYTES = 8
POINTERS = frozenset({"ptr", "trash"})
Key = tuple[str, str, int, str]


class Arguments:
    """Slots that the shader uses, each with the id of its loaded value."""

    __slots__ = ("em", "ids")

    def __init__(self, em: Emitter) -> None:
        self.em = em
        self.ids: dict[Key, int] = {}

    def _ask(self, kind: str, param: str, axis: int, dtype: str) -> int:
        key = (kind, param, axis, dtype)
        found = self.ids.get(key)
        if found is None:
            found = self.ids[key] = self.em.m.new_id()
        return found

    def pointer(self, param: Param) -> int:
        """Return the id of a pointer to `struct { stored[] }` of an array parameter.

        If the scalars have less than 32 bits, the slot is a pointer to words, which is cast.
        Validators would otherwise require support of push constants of 8 and 16 bits.
        """
        assert isinstance(param.type, Array)
        stored = param.type.stored
        if stored.bits >= 32:
            return self._ask("ptr", param.name, 0, stored.name)
        em = self.em
        pointee = em.array_struct(stored, is_constant=param.name in em.survey.constant)
        struct = em.m.pointer(StorageClass.PhysicalStorageBuffer, pointee)
        return em.once(spec.OpBitcast, struct, self._ask("ptr", param.name, 0, "u32"))

    def trash(self) -> int:
        """Return the id of a pointer to the `struct { u32[] }` that receives out-of-range
        accesses."""
        return self._ask("trash", "", 0, "u32")

    def dim(self, param: Param, axis: int) -> int:
        """Return the id of an extent of an array with dynamic shape, as i32."""
        return self._ask("dim", param.name, axis, "i32")

    def magic(self, kind: str, param: Param, axis: int) -> int:
        """Return the id of a u32 that `target.magic` computes from an extent of an array."""
        return self._ask(kind, param.name, axis, "u32")

    def size(self, param: Param, t: Scalar) -> int:
        """Return the id of the number of scalars of an array with dynamic shape, of type t, i32 or
        i64."""
        return self._ask("size", param.name, 0, t.name)

    def count(self, axis: int) -> int:
        """Return the id of the number of loop iterations along an axis of the grid, as i32."""
        return self._ask("count", "", axis, "i32")

    def base(self, axis: int) -> int:
        """Return the id of the first iteration of the dispatch along an axis of the grid, as
        i32."""
        return self._ask("base", "", axis, "i32")

    def value(self, param: Param) -> tuple[int, ...]:
        """Return the ids of the components of a scalar or tensor parameter, in its own type."""
        t = scalar_of(param.type)
        size = getattr(param.type, "size", 1)
        raw = [self._ask("value", param.name, k, t.carrier.name) for k in range(size)]
        return tuple([self._narrow(t, v) for v in raw])

    def _narrow(self, t: Scalar, value: int) -> int:
        em = self.em
        if t.carrier is t:
            return value
        if t is u1:
            return em.once(spec.OpINotEqual, em.type_id(u1), value, em.const(u32, 0))
        opcode = {"i": spec.OpSConvert, "u": spec.OpUConvert, "f": spec.OpFConvert}[t.kind]
        return em.once(opcode, em.type_id(t), value)

    # --- assembly of the function ------------------------------------------------------------

    def finish(self) -> tuple[Words, tuple[ArgumentSlot, ...], int]:
        """Declare the argument block. Return (loads for the entry block, slots in order, size in
        bytes)."""
        keys = sorted(self.ids, key=lambda key: (key[0] not in POINTERS, -_width(key)))  # stable
        if not keys:
            return [], (), 0
        slots, offset = [], 0
        for key in keys:
            slots.append(ArgumentSlot(*key, offset))
            offset += _width(key)
        return self._load_all(self._declare_block(slots), slots), tuple(slots), offset

    def _member_type(self, slot: ArgumentSlot) -> int:
        em, t = self.em, scalar_named(slot.dtype)
        if slot.kind in POINTERS:
            struct = em.array_struct(t, is_constant=slot.param in em.survey.constant)
            return em.m.pointer(StorageClass.PhysicalStorageBuffer, struct)
        return em.type_id(t)

    def _declare_block(self, slots: list[ArgumentSlot]) -> int:
        m = self.em.m
        block = m.fresh_type(spec.OpTypeStruct, *[self._member_type(slot) for slot in slots])
        m.decorate(block, Decoration.Block)
        m.name(block, "Arguments")
        for k, slot in enumerate(slots):
            m.decorate_member(block, k, Decoration.Offset, slot.offset)
            m.name_member(block, k, slot_text(slot))
        return block

    def _load_all(self, block: int, slots: list[ArgumentSlot]) -> Words:
        em, storage = self.em, StorageClass.PushConstant
        code: Words = []
        variable = em.m.variable(storage, block)
        for k, slot in enumerate(slots):
            t_id = self._member_type(slot)
            chain = em.m.new_id()
            p_id = em.m.pointer(storage, t_id)
            code += encode_instruction(spec.OpAccessChain, p_id, chain, variable, em.index(k))
            code += encode_instruction(spec.OpLoad, t_id, self.ids[slot[:4]], chain)
        return code


def slot_text(slot: ArgumentSlot) -> str:
    """Readable name of a slot: `x.ptr`, `x.dim.1`, `v.value.2`, `count`, `count.1`."""
    has_axis = slot.kind in ("dim", "value", *MAGIC) or slot.axis > 0
    parts = [slot.param, slot.kind, str(slot.axis) if has_axis else ""]
    return ".".join(part for part in parts if part)


def _width(key: tuple[str, ...] | Key | ArgumentSlot) -> int:
    kind, dtype = str(key[0]), str(key[3])
    if kind in POINTERS:
        return POINTER_BYTES
    size = scalar_named(dtype).size_bytes
    if size not in (4, 8):
        raise InternalError(f"an argument slot cannot hold a {dtype}")
    return size
