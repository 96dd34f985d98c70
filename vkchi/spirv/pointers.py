"""Memory ops: addresses, loads, stores, atomics, workgroup memory, private variables.

A pointer op becomes a place: in a buffer, in workgroup memory, or in private variables.
Precondition: `opt.lowering.lower_access` has computed the offsets.

A pointer to a buffer is formed in the block that uses it, as an access chain with one computed
index. The chain is in-bounds unless the access is guarded, or its offset may reach 4 GiB. Guarded
accesses and vectors cast the chain. On devices without `chain_casts` they cast the sum of the
array's address and the offset instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.errors import InternalError
from vkchi.ir.core import Op, Param, is_wide
from vkchi.ir.op_table.memory_ops import address_constant
from vkchi.spirv import spec
from vkchi.spirv.spec import Glsl, MemoryAccess, Scope, Semantics, StorageClass
from vkchi.tuples import NamedTuple
from vkchi.types import WIDE_FROM, Array, Ptr, Scalar, Tensor, i32, i64, scalar_of, u1, u32, u64

if TYPE_CHECKING:
    from vkchi.spirv.emitter import Emitter


class BufferPlace:
    """A vector of `count` scalars in a buffer of `stored` scalars, from `index` + `constant` on.

    - `base`: id of the pointer to the array's struct.
    - `index`: id of the computed index, 0 for none; `width`: its type.
    - `ok`: id of the bounds check, 0 for none.
    - `pointer`: the pointer formed in `block`.
    - `is_constant`: no write of the dispatch may alias this array.
    - `is_wide`: the offset may reach 4 GiB.
    """

    __slots__ = (
        "base", "block", "constant", "count", "index", "is_constant", "is_wide", "ok", "pointer",
        "scalar", "stored", "width",
    )  # fmt: skip

    def __init__(
        self, base: int, stored: Scalar, t: Scalar | Tensor, index: int, constant: int,
        width: Scalar, ok: int,
    ) -> None:  # fmt: skip
        self.base, self.stored, self.ok = base, stored, ok
        self.scalar, self.count = scalar_of(t), t.size if isinstance(t, Tensor) else 1
        self.index, self.constant, self.width = index, constant, width
        self.block, self.pointer, self.is_constant, self.is_wide = 0, 0, False, False

    def component(self, k: int) -> BufferPlace:
        at = self.constant + k
        width = self.width if self.index else _width_of(at)
        found = BufferPlace(self.base, self.stored, self.scalar, self.index, at, width, self.ok)
        found.is_constant, found.is_wide = self.is_constant, self.is_wide
        return found


class SharedPlace(NamedTuple):
    """A scalar in workgroup memory."""

    pointer: int
    scalar: Scalar


class BufferWordPlace(NamedTuple):
    """A u32 in a buffer."""

    pointer: int
    scalar: Scalar


class LocalPlace(NamedTuple):
    """A private value.

    It has one Function variable per component. If `array` is set, it is an array variable instead,
    and `indices` are the ids of the component indices.
    """

    scalar: Scalar
    variables: tuple[int, ...]
    array: int
    indices: tuple[int, ...]


Place = BufferPlace | SharedPlace | BufferWordPlace | LocalPlace


# --- addresses ---------------------------------------------------------------------------------


def lower_address(em: Emitter, op: Op) -> None:
    """Note the place of an `address` op, in a buffer or in workgroup memory."""
    array, t = op.args[0], op.type
    assert isinstance(t, Ptr)
    operands, constant = [em.ids[v][0] for v in op.args[1:]], address_constant(op.attr)
    index = operands[0] if operands else 0
    width = scalar_of(op.args[1].type) if operands else _width_of(constant)
    if t.space == "shared":
        em.places[op] = _shared_place(em, op, index, width)
        return
    param, ok = _param(array), operands[1] if len(operands) > 1 else 0
    assert isinstance(param.type, Array)
    base = em.arguments.pointer(param)
    if isinstance(op.attr, tuple):
        base, constant = _moved(em, base, param, constant), 0
    place = BufferPlace(base, param.type.stored, t.elem, index, constant, width, ok)
    place.is_constant, place.is_wide = param.name in em.survey.constant, is_wide(param)
    em.places[op] = place


def _moved(em: Emitter, base: int, param: Param, count: int) -> int:
    """Return a pointer to an array's struct, advanced by `count` scalars; computed in the
    prologue."""
    assert isinstance(param.type, Array)
    stored = param.type.stored
    word = em.type_id(u64)
    bytes_ = em.const(u64, count * stored.size_bytes & 0xFFFFFFFFFFFFFFFF)
    address = em.once(spec.OpIAdd, word, em.once(spec.OpBitcast, word, base), bytes_)
    pointee = em.array_struct(stored, is_constant=param.name in em.survey.constant)
    struct = em.m.pointer(StorageClass.PhysicalStorageBuffer, pointee)
    return em.once(spec.OpBitcast, struct, address)


def _width_of(constant: int) -> Scalar:
    """Return the type of a constant index, which SPIR-V treats as signed: u64 from WIDE_FROM on,
    else u32."""
    return u64 if constant >= WIDE_FROM else u32


def _shared_place(em: Emitter, op: Op, index: int, width: Scalar) -> SharedPlace:
    assert isinstance(op.type, Ptr) and isinstance(op.args[0].type, Array)
    variable, scalar = em.ids[op.args[0]][0], scalar_of(op.type.elem)
    if scalar is not op.args[0].type.elem:
        raise InternalError("workgroup memory is not read as another type")
    p_id = em.m.pointer(StorageClass.Workgroup, em.type_id(scalar))
    index = sum_index(em, index, address_constant(op.attr), width)
    return SharedPlace(em.op(spec.OpAccessChain, p_id, variable, index), scalar)


def sum_index(em: Emitter, index: int, constant: int, width: Scalar) -> int:
    """Return the id of index + constant; an index of 0 means none."""
    if not index:
        return em.number(width, constant)
    if not constant:
        return index
    return em.op(spec.OpIAdd, em.type_id(width), index, em.number(width, constant))


def _param(array: object) -> Param:
    if not isinstance(array, Param):
        raise InternalError("an array in a buffer must be a parameter of the function")
    return array


def lower_shape(em: Emitter, op: Op) -> tuple[int, ...]:
    return (em.arguments.dim(_param(op.args[0]), op.attr),)


def lower_magic(em: Emitter, op: Op) -> tuple[int, ...]:
    return (em.arguments.magic(op.kind, _param(op.args[0]), op.attr),)


def lower_size(em: Emitter, op: Op) -> tuple[int, ...]:
    t = scalar_of(op.type)
    signed = i64 if t.bits == i64.bits else i32
    size = em.arguments.size(_param(op.args[0]), signed)
    return (em.once(spec.OpBitcast, em.type_id(t), size),)


def lower_shared(em: Emitter, op: Op) -> tuple[int, ...]:
    t = op.type
    assert isinstance(t, Array) and t.shape is not None
    array = em.length(em.type_id(scalar_of(t.elem)), t.shape[0])
    return (em.m.variable(StorageClass.Workgroup, array),)


# --- words of narrow scalars ---------------------------------------------------------------------


def _narrow_address(em: Emitter, op: Op) -> tuple[int, int]:
    """Return the ids of the address of a narrow scalar in a buffer, and of its low 32 bits.

    The address is a pair of words or, without `chain_casts`, a u64.
    """
    place = em.places[op.args[0]]
    assert isinstance(place, BufferPlace)
    word = em.type_id(u32)
    if not em.caps.chain_casts:
        address = _computed_address(em, place)
        return address, em.op(spec.OpUConvert, word, address)
    em.need("chain_casts")
    address = em.op(spec.OpBitcast, em.pair_id(), buffer_pointer(em, place))
    return address, em.op(spec.OpCompositeExtract, word, address, 0)


def lower_word(em: Emitter, op: Op) -> None:
    """Note the place of a `word` op: the aligned u32 that contains a narrow scalar."""
    word = em.type_id(u32)
    address, low = _narrow_address(em, op)
    if em.caps.chain_casts:
        high = em.op(spec.OpCompositeExtract, word, address, 1)
        start = em.op(spec.OpBitwiseXor, word, low, _byte(em, low))
        address = em.op(spec.OpCompositeConstruct, em.pair_id(), start, high)
    else:
        mask = em.const(u64, 0xFFFFFFFFFFFFFFFC)
        address = em.op(spec.OpBitwiseAnd, em.type_id(u64), address, mask)
    em.places[op] = BufferWordPlace(_cast(em, address, word), u32)


def _byte(em: Emitter, low: int) -> int:
    return em.op(spec.OpBitwiseAnd, em.type_id(u32), low, em.const(u32, 3))


def lower_word_shift(em: Emitter, op: Op) -> tuple[int, ...]:
    """Return the bit position of a narrow scalar in its word: 8 * byte, as memory is
    little-endian."""
    byte = _byte(em, _narrow_address(em, op)[1])
    return (em.op(spec.OpShiftLeftLogical, em.type_id(u32), byte, em.const(u32, 3)),)


# --- private places ----------------------------------------------------------------------------


def lower_local(em: Emitter, op: Op) -> None:
    values = em.ids[op.args[0]]
    elem = scalar_of(op.args[0].type)
    t_id, n = em.type_id(elem), len(values)
    if op in em.survey.indexed:
        array = em.variable(em.length(t_id, n))
        place = LocalPlace(elem, (), array, tuple([em.index(k) for k in range(n)]))
    else:
        place = LocalPlace(elem, tuple([em.variable(t_id) for _ in values]), 0, ())
    em.places[op] = place
    store_place(em, place, values)


def _local_place(em: Emitter, op: Op) -> LocalPlace:
    place = em.places[op.args[0]]
    if not isinstance(place, LocalPlace):
        raise InternalError(f"`{op.kind}` of what others see; `access` must replace it")
    return place


def lower_member(em: Emitter, op: Op) -> None:
    place, part = _local_place(em, op), slice(op.attr, op.attr + 1)
    kept = place._replace(variables=place.variables[part], indices=place.indices[part])
    em.places[op] = kept


def lower_member_at(em: Emitter, op: Op) -> None:
    place = _local_place(em, op)
    k = clamp(em, em.ids[op.args[1]][0], len(place.indices))
    em.places[op] = place._replace(indices=(k,))


def clamp(em: Emitter, k: int, n: int) -> int:
    """Return the id of the i32 component index k, clamped to [0, n - 1]."""
    return em.glsl(Glsl.SClamp, em.type_id(i32), k, em.index(0), em.index(n - 1))


# --- pointers ----------------------------------------------------------------------------------


def buffer_pointer(em: Emitter, place: BufferPlace) -> int:
    """Pointer to a place, memoized within its block."""
    if place.block != em.block:
        place.block, place.pointer = em.block, _new_pointer(em, place)
    return place.pointer


def _new_pointer(em: Emitter, place: BufferPlace) -> int:
    """Form a pointer to a place: an access chain, or for guarded accesses and vectors a cast
    address."""
    pointee = vector_id(em, place)
    if not place.ok and pointee == em.stored_id(place.stored):
        return _element_chain(em, place)
    address = _address(em, place) if em.caps.chain_casts else _computed_address(em, place)
    return _cast(em, address, pointee, is_constant=place.is_constant)


def _cast(em: Emitter, address: int, pointee: int, *, is_constant: bool = False) -> int:
    """Return a pointer to a value of type `pointee` at an address.

    For constants, and without `chain_casts`, the address is cast to a struct, and the pointer is to
    its member. SPIRV-Cross supports casts to structs, and atomics on members.
    """
    m, storage = em.m, StorageClass.PhysicalStorageBuffer
    p_id = m.pointer(storage, pointee)
    if em.caps.chain_casts and not is_constant:
        return em.op(spec.OpBitcast, p_id, address)
    struct = m.pointer(storage, em.cell_struct(pointee, is_constant=is_constant))
    cell = em.op(spec.OpBitcast, struct, address)
    return em.op(spec.OpInBoundsAccessChain, p_id, cell, em.index(0))


def _element_chain(em: Emitter, place: BufferPlace) -> int:
    """Access chain to the first scalar of a place."""
    p_id = em.m.pointer(StorageClass.PhysicalStorageBuffer, em.stored_id(place.stored))
    index = sum_index(em, place.index, place.constant, place.width)
    is_near = not (place.ok or place.is_wide)  # Mesa multiplies in-bounds indices in 32 bits
    opcode = spec.OpInBoundsAccessChain if is_near else spec.OpAccessChain
    return em.op(opcode, p_id, place.base, em.index(0), index)


def _address(em: Emitter, place: BufferPlace) -> int:
    """Return the address of a place as a pair of words, by a cast of its access chain.

    A failed bounds check selects the trash.
    """
    em.need("chain_casts")
    address = em.op(spec.OpBitcast, em.pair_id(), _element_chain(em, place))
    if not place.ok:
        return address
    stray = em.once(spec.OpBitcast, em.pair_id(), em.arguments.trash())
    return em.op(spec.OpSelect, em.pair_id(), place.ok, address, stray)


def _computed_address(em: Emitter, place: BufferPlace) -> int:
    """Return the address of a place as a u64: that of the array plus the signed index times the
    stride.

    A failed bounds check selects the trash.
    """
    wide, size = em.type_id(u64), em.const(u64, place.stored.size_bytes)
    index = sum_index(em, place.index, place.constant, place.width)
    if place.width.bits < u64.bits:
        index = em.op(spec.OpSConvert, wide, index)
    start = em.once(spec.OpBitcast, wide, place.base)
    address = em.op(spec.OpIAdd, wide, start, em.op(spec.OpIMul, wide, index, size))
    if not place.ok:
        return address
    stray = em.once(spec.OpBitcast, wide, em.arguments.trash())
    return em.op(spec.OpSelect, wide, place.ok, address, stray)


def vector_id(em: Emitter, place: BufferPlace) -> int:
    t_id = em.stored_id(place.scalar)
    return em.m.type(spec.OpTypeVector, t_id, place.count) if place.count > 1 else t_id


def scalar_pointer(em: Emitter, place: Place) -> int:
    """Return a pointer to a one-scalar place in a buffer or in workgroup memory.

    Raises InternalError for a private place.
    """
    if isinstance(place, BufferPlace):
        return buffer_pointer(em, place)
    if isinstance(place, LocalPlace):
        raise InternalError("an atomic on a private place; legalize must replace it")
    return place.pointer


# --- loads and stores --------------------------------------------------------------------------


def lower_load(em: Emitter, op: Op) -> tuple[int, ...]:
    place = em.places[op.args[0]]
    t_id = em.type_id(place.scalar)
    if isinstance(place, BufferPlace):
        return _load_buffer(em, place, t_id, op.attr)
    if isinstance(place, LocalPlace):
        return tuple([em.op(spec.OpLoad, t_id, p) for p in _local_pointers(em, place)])
    return (em.op(spec.OpLoad, t_id, place.pointer, *_access(place)),)


def lower_store(em: Emitter, op: Op) -> None:
    store_place(em, em.places[op.args[0]], em.ids[op.args[1]], op.attr)


def store_place(
    em: Emitter, place: Place, values: tuple[int, ...], aligned: int | None = None
) -> None:  # fmt: skip
    """Store components at a place. `aligned` is its alignment in bytes, or None for that of a
    scalar."""
    if isinstance(place, BufferPlace):
        _store_buffer(em, place, values, aligned)
    elif isinstance(place, LocalPlace):
        for pointer, value in zip(_local_pointers(em, place), values, strict=True):
            em.act(spec.OpStore, pointer, value)
    else:
        em.act(spec.OpStore, place.pointer, values[0], *_access(place))


def _access(place: SharedPlace | BufferWordPlace) -> tuple[int, ...]:
    if isinstance(place, SharedPlace):
        return ()
    return (MemoryAccess.Aligned, place.scalar.size_bytes)


def _local_pointers(em: Emitter, place: LocalPlace) -> list[int]:
    if not place.array:
        return list(place.variables)
    p_id = em.m.pointer(StorageClass.Function, em.type_id(place.scalar))
    return [em.op(spec.OpAccessChain, p_id, place.array, k) for k in place.indices]


def _aligned(place: BufferPlace, aligned: int | None) -> tuple[int, ...]:
    return (MemoryAccess.Aligned, max(place.scalar.size_bytes, aligned or 0))


def _is_one_access(em: Emitter, place: BufferPlace, aligned: int | None) -> bool:
    """True if the device can access the components of a place as one value.

    A vector needs its natural alignment (and other than three components), or `scalar_alignment`,
    which is then recorded as needed.
    """
    whole = place.count * place.scalar.size_bytes
    if place.count == 1 or (place.count != 3 and (aligned or 0) >= whole):
        return True
    if em.caps.scalar_alignment:
        em.need("scalar_alignment")
    return em.caps.scalar_alignment


def _load_buffer(
    em: Emitter, place: BufferPlace, t_id: int, aligned: int | None
) -> tuple[int, ...]:  # fmt: skip
    if not _is_one_access(em, place, aligned):
        parts = [place.component(k) for k in range(place.count)]
        return tuple([_load_buffer(em, part, t_id, None)[0] for part in parts])
    whole_id, pointer = vector_id(em, place), buffer_pointer(em, place)
    whole = em.op(spec.OpLoad, whole_id, pointer, *_aligned(place, aligned))
    if place.count == 1:
        return (whole,)
    return tuple([em.op(spec.OpCompositeExtract, t_id, whole, k) for k in range(place.count)])


def _store_buffer(
    em: Emitter, place: BufferPlace, values: tuple[int, ...], aligned: int | None
) -> None:  # fmt: skip
    if not _is_one_access(em, place, aligned):
        for k, value in enumerate(values):
            _store_buffer(em, place.component(k), (value,), None)
        return
    value = values[0]
    if place.count > 1:
        value = em.op(spec.OpCompositeConstruct, vector_id(em, place), *values)
    em.act(spec.OpStore, buffer_pointer(em, place), value, *_aligned(place, aligned))


# --- atomic ops ----------------------------------------------------------------------------------

# Native atomics. `legalize` replaces all others. `opt.lowering.layouts` splits tensors, and turns
# exchange and compare-and-swap of floats into ones of integers.


# op -> opcodes for i, u, f.
ATOMIC_OPCODES: dict[str, tuple[int, int, int]] = {
    "atomic_add": (spec.OpAtomicIAdd, spec.OpAtomicIAdd, spec.OpAtomicFAddEXT),
    "atomic_min": (spec.OpAtomicSMin, spec.OpAtomicUMin, spec.OpAtomicFMinEXT),
    "atomic_max": (spec.OpAtomicSMax, spec.OpAtomicUMax, spec.OpAtomicFMaxEXT),
    "atomic_and": (spec.OpAtomicAnd, spec.OpAtomicAnd, 0),
    "atomic_or": (spec.OpAtomicOr, spec.OpAtomicOr, 0),
    "atomic_xor": (spec.OpAtomicXor, spec.OpAtomicXor, 0),
    "atomic_exchange": (spec.OpAtomicExchange, spec.OpAtomicExchange, 0),
    "atomic_cas": (spec.OpAtomicCompareExchange, spec.OpAtomicCompareExchange, 0),
}
# (op, type, is workgroup memory) -> Caps field; 32-bit integers need none.
FLOAT_NEEDS = {
    ("atomic_add", "f32", False): "f32_atomic_add",
    ("atomic_add", "f32", True): "f32_atomic_add_shared",
    ("atomic_add", "f64", False): "f64_atomic_add",
    ("atomic_min", "f32", False): "f32_atomic_minmax",
    ("atomic_max", "f32", False): "f32_atomic_minmax",
}
WIDE_NEEDS = {False: "i64_atomics", True: "i64_atomics_shared"}


def lower_atomic(em: Emitter, op: Op) -> tuple[int, ...]:
    """Emit a relaxed atomic instruction; return the id of the old value.

    Raises InternalError if the op is not native to the type and memory.
    """
    place, t = em.places[op.args[0]], op.type
    values = [em.ids[v][0] for v in op.args[1:]]
    opcode = 0
    if isinstance(t, Scalar) and t is not u1:
        opcode = ATOMIC_OPCODES.get(op.kind, (0, 0, 0))["iuf".find(t.kind)]
    if not opcode or not isinstance(t, Scalar):
        raise InternalError(f"`{op.kind}` of {t} is not native; legalize must replace it")
    is_shared = isinstance(place, SharedPlace)
    _need_atomic(em, op.kind, t, is_shared=is_shared)
    scope = em.const(u32, Scope.Workgroup if is_shared else Scope.Device)
    operands = [scope, em.const(u32, Semantics.Relaxed), *values]
    if op.kind == "atomic_cas":
        operands = [*operands[:2], operands[1], *reversed(values)]
    return (em.op(opcode, em.type_id(t), scalar_pointer(em, place), *operands),)


def _need_atomic(em: Emitter, kind: str, t: Scalar, *, is_shared: bool) -> None:
    if t.kind == "f":
        field = FLOAT_NEEDS.get((kind, t.name, is_shared), "")
        if not field:
            raise InternalError(f"`{kind}` of {t} is not native here; legalize must replace it")
        em.need(field)
    elif t.bits == 64:
        em.need(WIDE_NEEDS[is_shared])
    elif t.bits != 32:
        raise InternalError(f"`{kind}` of {t} is not native; legalize must replace it")
