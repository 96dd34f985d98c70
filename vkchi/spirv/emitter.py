"""State of one emission, and the methods that append instructions.

An IR value is a tuple of scalar ids, one per component; a pointer is a place (`pointers.py`). The
function is assembled from four lists:

- `variables`;
- loads of the argument block (`arguments.finish`);
- `prologue`: values computed once, such as invocation ids and limits;
- `code`.

The first three are in the entry block, where `code` begins. Values of the prologue are therefore
available in the whole function.

    em.op(spec.OpFAdd, em.type_id(f32), a, b)       # appended to the code; the new id
    em.once(spec.OpSConvert, em.type_id(i64), a)    # in the prologue; interned
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.analysis.memory.alias import bases_may_alias
from vkchi.errors import InternalError
from vkchi.ir.core import Func, Op, Param, Value, base_memory, bits_of, find_parallel, walk
from vkchi.ir.ops import WRITES, Effect, effect_of
from vkchi.spirv import spec
from vkchi.spirv.module_builder import SpirvModule, Words, encode_instruction
from vkchi.spirv.spec import Capability, Decoration, StorageClass
from vkchi.target.caps import Caps
from vkchi.target.magic import MAGIC
from vkchi.target.shader import ArgumentSlot, Grid
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, bf16, i32, scalar_named, scalar_of, u1, u16, u32, u64

if TYPE_CHECKING:
    from vkchi.spirv.pointers import Place


# --- argument block ------------------------------------------------------------------------------
#
# Argument block of one shader: the used slots, their offsets, and the loads.
#
# `target/shader.py` defines the meaning of slots. Arguments are push constants;
# `module_builder.in_memory` reads them from a buffer instead. Scalars narrower than 32 bits are
# passed in 32 bits (`Scalar.carrier`), and converted in the shader.
#
# Methods such as `pointer` return the id of a value at once. Offsets and loads are determined by
# `finish`, because pointers and 8-byte values come first.
#
#     em.arguments.pointer(param)         # id of a pointer to struct { f32[] }
#     em.arguments.dim(param, 0)          # id of an i32

if TYPE_CHECKING:
    pass

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
        is_indirect = param.attributes.indirect
        if stored.bits >= 32 and not is_indirect:
            return self._ask("ptr", param.name, 0, stored.name)
        em = self.em
        pointee = em.array_struct(stored, is_constant=param.name in em.survey.constant)
        struct = em.m.pointer(StorageClass.PhysicalStorageBuffer, pointee)
        words = self._ask("ptr", param.name, 0, "u32")
        return em.once(spec.OpBitcast, struct, self._address_at(words) if is_indirect else words)

    def _address_at(self, words: int) -> int:
        """Return the id of the address in the first two of the u32 that `words` points to: a pair
        of u32 or, without `chain_casts`, a u64."""
        em, word = self.em, self.em.type_id(u32)
        p_id = em.m.pointer(StorageClass.PhysicalStorageBuffer, word)
        chains = [
            em.once(spec.OpInBoundsAccessChain, p_id, words, em.index(0), em.index(k))
            for k in (0, 1)
        ]
        low, high = [
            em.once(spec.OpLoad, word, chain, spec.MemoryAccess.Aligned, u32.size_bytes)
            for chain in chains
        ]
        if em.caps.chain_casts:
            em.need("chain_casts")
            return em.once(spec.OpCompositeConstruct, em.pair_id(), low, high)
        wide = em.type_id(u64)
        above = em.once(
            spec.OpShiftLeftLogical, wide, em.once(spec.OpUConvert, wide, high), em.const(u32, 32)
        )
        return em.once(spec.OpBitwiseOr, wide, em.once(spec.OpUConvert, wide, low), above)

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


# --- emission ------------------------------------------------------------------------------------

REMOVABLE = frozenset({Effect.PURE, Effect.READ, Effect.ALLOC})


class EmissionFacts(NamedTuple):
    """Facts about a Func that emission needs in advance, from one walk over its ops.

    - `indexed`: `local` ops whose components are accessed by computed indices.
    - `dead`: ops of the body that emission omits (`find_dead`).
    - `constant`: names of arrays that no write of this Func may alias.
    """

    indexed: frozenset[Value]
    dead: frozenset[Value]
    has_fence: bool
    constant: frozenset[str]


def survey_func(fn: Func) -> EmissionFacts:
    indexed: set[Value] = set()
    has_fence = False
    written: set[Value] = set()
    for op in walk(fn.body):
        if op.kind == "member_at":
            indexed.add(base_memory(op.args[0]))
        elif op.kind == "fence":
            has_fence = True
        elif op.kind in WRITES:
            written.add(base_memory(op.args[0]))
    arrays = (p for p in fn.params if isinstance(p.type, Array))
    constant = frozenset(p.name for p in arrays if not any(bases_may_alias(p, w) for w in written))
    return EmissionFacts(frozenset(indexed), find_dead(fn), has_fence, constant)


def find_dead(fn: Func) -> frozenset[Value]:
    """Return the removable ops of the body that the shader of a `parallel` op does not use.

    The ends of the loop do not count as uses, because the launch computes them. Empty for a Func
    without a `parallel` op.
    """
    if find_parallel(fn) is None:
        return frozenset()
    used: set[Value] = set()
    dead: set[Value] = set()
    for op in reversed(fn.body.ops):
        if effect_of(op.kind) in REMOVABLE and op not in used:
            dead.add(op)
            continue
        used.update(op.args[::2] if op.kind == "parallel" else op.args)
        for region in op.regions:
            used.update(v for inner in walk(region) for v in inner.args)
    return frozenset(dead)


Row = Callable[["Emitter", Op], "tuple[int, ...] | None"]

# Caps field -> (SPIR-V capability, extension).
REQUIREMENTS: dict[str, tuple[int, str]] = {
    "int8": (Capability.Int8, ""),
    "int16": (Capability.Int16, ""),
    "int64": (Capability.Int64, ""),
    "float16": (Capability.Float16, ""),
    "float64": (Capability.Float64, ""),
    "storage8": (Capability.StorageBuffer8BitAccess, ""),
    "storage16": (Capability.StorageBuffer16BitAccess, ""),
    "scalar_alignment": (Capability.Shader, ""),
    "chain_casts": (Capability.Shader, ""),
    "f32_atomic_add": (Capability.AtomicFloat32AddEXT, "SPV_EXT_shader_atomic_float_add"),
    "f32_atomic_add_shared": (Capability.AtomicFloat32AddEXT, "SPV_EXT_shader_atomic_float_add"),
    "f64_atomic_add": (Capability.AtomicFloat64AddEXT, "SPV_EXT_shader_atomic_float_add"),
    "f32_atomic_minmax": (
        Capability.AtomicFloat32MinMaxEXT, "SPV_EXT_shader_atomic_float_min_max",
    ),
    "i64_atomics": (Capability.Int64Atomics, ""),
    "i64_atomics_shared": (Capability.Int64Atomics, ""),
    "subgroup_arithmetic": (Capability.GroupNonUniformArithmetic, ""),
    "subgroup_ballot": (Capability.GroupNonUniformBallot, ""),
    "subgroup_shuffle": (Capability.GroupNonUniformShuffle, ""),
    "subgroup_shuffle_relative": (Capability.GroupNonUniformShuffleRelative, ""),
    "subgroup_vote": (Capability.GroupNonUniformVote, ""),
    "subgroup_wide": (Capability.GroupNonUniform, ""),
    "subgroup_scans": (Capability.GroupNonUniformArithmetic, ""),
    "subgroup_size": (Capability.GroupNonUniform, ""),
    "signed_zero_inf_nan_f32": (Capability.SignedZeroInfNanPreserve, ""),
}  # fmt: skip


class Ids(dict[Value, tuple[int, ...]]):
    """Component ids of every lowered value. A parameter of the Func is added at first use.

    Other values that are missing raise InternalError.
    """

    __slots__ = ("em",)

    def __init__(self, em: Emitter) -> None:
        self.em = em

    def __missing__(self, v: Value) -> tuple[int, ...]:
        if not isinstance(v, Param) or v not in self.em.fn.params:
            raise InternalError(f"a value of type {v.type} is used before it is lowered")
        found = self[v] = self.em.arguments.value(v)
        return found


class Emitter:
    """See the module's docstring.

    - rows: the function that lowers each op kind.
    - block: label of the current block.
    - exact: True if float operations must not be contracted.
    - needs: fields of Caps that the module needs.
    """

    __slots__ = (
        "arguments", "block", "caps", "code", "constants", "exact", "fn", "grid", "ids", "m",
        "needs", "onces", "places", "prologue", "rows", "structs", "survey", "types", "variables",
    )  # fmt: skip

    def __init__(
        self, fn: Func, grid: Grid, caps: Caps, rows: dict[str, Row], *, exact: bool = False
    ) -> None:
        self.fn, self.grid, self.caps, self.rows, self.exact = fn, grid, caps, rows, exact
        self.m = SpirvModule()
        self.arguments = Arguments(self)
        self.survey: EmissionFacts = survey_func(fn)
        self.block = self.m.new_id()
        self.variables: Words = []
        self.prologue: Words = []
        self.code: Words = []
        self.onces: dict[tuple[int, ...], int] = {}
        self.ids = Ids(self)
        self.places: dict[Value, Place] = {}
        self.needs: set[str] = set()
        self.types: dict[Scalar, int] = {}
        self.structs: dict[tuple[str, int], int] = {}
        self.constants: dict[tuple[Scalar, int], int] = {}

    # --- types and constants ---------------------------------------------------------------

    def need(self, field: str) -> None:
        """Record that the module needs this field of Caps; declare its capability and extension."""
        if field not in self.needs:
            capability, extension = REQUIREMENTS[field]
            self.needs.add(field)
            self.m.capabilities.add(capability)
            if extension:
                self.m.extensions.add(extension)

    def type_id(self, t: Scalar) -> int:
        """Return the id of a scalar type for arithmetic; records the Caps field that it needs."""
        found = self.types.get(t)
        if found is None:
            if t.arithmetic_cap:
                self.need(t.arithmetic_cap)
            found = self.types[t] = self._declare(t)
        return found

    def stored_id(self, t: Scalar) -> int:
        """Return the id of a scalar type for buffers; records the Caps fields that it needs."""
        if t.storage_cap:
            self.need(t.storage_cap)
        return self.type_id(t)

    def _declare(self, t: Scalar) -> int:
        if t.kind == "b":
            return self.m.type(spec.OpTypeBool)
        if t is bf16:
            return self.type_id(u16)  # its bits
        if t.kind == "f":
            return self.m.type(spec.OpTypeFloat, t.bits)
        return self.m.type(spec.OpTypeInt, t.bits, int(t.kind == "i"))

    def const(self, t: Scalar, bits: int) -> int:
        found = self.constants.get((t, bits))
        if found is None:
            found = self.constants[t, bits] = self._new_constant(t, bits)
        return found

    def number(self, t: Scalar, value: Any) -> int:
        return self.const(t, bits_of(value, t))

    def _new_constant(self, t: Scalar, bits: int) -> int:
        t_id = self.type_id(t)
        if t is u1:
            opcode = spec.OpConstantTrue if bits else spec.OpConstantFalse
            return self.m.constant(opcode, t_id, (), bits)
        word = bits
        if t.kind == "i" and t.bits < 32 and bits >> (t.bits - 1):
            word = bits | 0xFFFFFFFF << t.bits & 0xFFFFFFFF
        words = (word,) if t.bits <= 32 else (word & 0xFFFFFFFF, word >> 32)
        return self.m.constant(spec.OpConstant, t_id, words, bits)

    def known(self, value: int) -> int | None:
        """Return the bit pattern of an id that is a scalar constant, None for other ids."""
        return self.m.bits.get(value)

    def array_struct(self, stored: Scalar, *, is_constant: bool = False) -> int:
        """Return the id of `struct { stored[] }`, the pointee of array parameters.

        Its member is NonWritable if `is_constant`.
        """
        elem = self.stored_id(stored)
        key = ("constant array" if is_constant else "array", elem)
        found = self.structs.get(key)
        if found is None:
            array = self.m.fresh_type(spec.OpTypeRuntimeArray, elem)
            self.m.decorate(array, Decoration.ArrayStride, stored.size_bytes)
            found = self.structs[key] = self._block_of(array, is_constant)
        return found

    def cell_struct(self, member: int, *, is_constant: bool) -> int:
        """Return the id of `struct { member }`, to which addresses are cast.

        It exists because only struct members can be decorated NonWritable, which `is_constant`
        requests.
        """
        key = ("constant" if is_constant else "cell", member)
        found = self.structs.get(key)
        if found is None:
            found = self.structs[key] = self._block_of(member, is_constant)
        return found

    def _block_of(self, member: int, is_constant: bool) -> int:
        """Return the id of a new Block struct of one member: NonWritable if `is_constant`.

        Otherwise it is Coherent if the Func has a fence.
        """
        found = self.m.fresh_type(spec.OpTypeStruct, member)
        self.m.decorate(found, Decoration.Block)
        self.m.decorate_member(found, 0, Decoration.Offset, 0)
        if is_constant:
            self.m.decorate_member(found, 0, Decoration.NonWritable)
        elif self.survey.has_fence:
            self.m.decorate_member(found, 0, Decoration.Coherent)
        return found

    # --- instructions ----------------------------------------------------------------------

    def op(self, opcode: int, t_id: int, *operands: int) -> int:
        m = self.m
        new = m.bound
        m.bound = new + 1
        self.code += (len(operands) + 3) << 16 | opcode, t_id, new, *operands
        return new

    def act(self, opcode: int, *operands: int) -> None:
        self.code += (len(operands) + 1) << 16 | opcode, *operands

    def glsl(self, number: int, t_id: int, *operands: int) -> int:
        return self.op(spec.OpExtInst, t_id, self.m.glsl_set(), number, *operands)

    def once(self, opcode: int, t_id: int, *operands: int) -> int:
        """Return the id of a pure instruction in the prologue; equal ones are emitted once."""
        key = (opcode, t_id, *operands)
        found = self.onces.get(key)
        if found is None:
            found = self.onces[key] = self.m.new_id()
            self.prologue += (len(operands) + 3) << 16 | opcode, t_id, found, *operands
        return found

    def variable(self, pointee: int) -> int:
        new = self.m.new_id()
        t_id = self.m.pointer(StorageClass.Function, pointee)
        self.variables += 4 << 16 | spec.OpVariable, t_id, new, StorageClass.Function
        return new

    def begin_block(self, label: int) -> None:
        self.code += 2 << 16 | spec.OpLabel, label
        self.block = label

    def pair_id(self) -> int:
        """Return the id of the type of two u32, used for addresses and u64 values."""
        return self.m.type(spec.OpTypeVector, self.type_id(u32), 2)

    def length(self, elem_id: int, count: int) -> int:
        """Return the id of the type `elem[count]` without a stride, for variables."""
        return self.m.type(spec.OpTypeArray, elem_id, self.const(u32, count))

    def index(self, k: int) -> int:
        return self.const(i32, k & 0xFFFFFFFF)

    # --- ops -------------------------------------------------------------------------------

    def lower(self, ops: Sequence[Op]) -> None:
        """Append the code of these ops. Raises InternalError for an op without a row."""
        rows, ids = self.rows, self.ids
        for op in ops:
            row = rows.get(op.kind)
            if row is None:
                raise InternalError(
                    f"spirv/dispatch.py has no row for `{op.kind}`; passes replace it"
                )
            result = row(self, op)
            if result is not None:
                ids[op] = result
