"""Places: how elements and components are addressed, loaded and stored.

Owns: `elem`, `member`, `member_at`, `local`, `shared`, `load`, `store`, `shape`; three kinds of
place (in buffers, in workgroup memory, in private variables); what happens to stray indices.
Must not know: how offsets are computed (`offsets.py`), other arithmetic, control flow.

Indices are 32 bits wide where the array is static and has fewer than 2**31 scalars, or is dynamic
and all its index values are 32 bits wide; else 64.

An access with an index that may be outside goes to a spare element behind the array where the
element's offset is not below the limit, as unsigned numbers: negative indices are outside too.
Whoever makes the memory of an array adds that element (one instruction per access; selecting
another address instead costs half the speed on software drivers). Where other arrays' elements are
in between, each index is judged, and the trash block's address selected.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from vkchi.errors import InternalError
from vkchi.ir.core import Op, Param, value_of
from vkchi.spirv import spec
from vkchi.spirv.offsets import (
    Offset,
    add_id,
    axis_index,
    has_spare,
    index_of,
    layout_of,
    materialise,
    multiply,
    static_offset,
)
from vkchi.spirv.spec import Glsl, MemoryAccess, StorageClass
from vkchi.spirv.words import WordPlace, from_word, to_word
from vkchi.types import (
    WIDE_FROM,
    Array,
    Scalar,
    i32,
    i64,
    scalar_named,
    scalar_of,
    u1,
    u32,
    u64,
)  # fmt: skip

if TYPE_CHECKING:
    from vkchi.spirv.emitter import Emitter

VECTOR_MAX = 4


class BufferPlace:
    """An element, or some components of it, in a buffer. `ok` is a truth id or 0 for no check;
    `t` is the type of the index; `pointers` are those formed in `block`."""

    __slots__ = ("base", "block", "components", "elem", "offset", "ok", "pointers", "stored", "t")

    def __init__(
        self, base: int, stored: Scalar, elem: Scalar, offset: Offset, t: Scalar, ok: int,
        components: tuple[int, ...],
    ) -> None:  # fmt: skip
        self.base, self.stored, self.elem = base, stored, elem
        self.offset, self.t, self.ok, self.components = offset, t, ok, components
        self.block = 0
        self.pointers: dict[tuple[int, int], int] = {}

    def at(self, offset: Offset, components: tuple[int, ...]) -> BufferPlace:
        """Other components of the same array, under the same check."""
        return BufferPlace(self.base, self.stored, self.elem, offset, self.t, self.ok, components)


class SharedPlace(NamedTuple):
    """An element, or some components of it, in workgroup memory; `kept` is the scalar that the
    variable is made of (an unsigned integer for floats that are compared and swapped)."""

    variable: int
    kept: Scalar
    elem: Scalar
    offset: Offset
    components: tuple[int, ...]

    def at(self, offset: Offset, components: tuple[int, ...]) -> SharedPlace:
        return self._replace(offset=offset, components=components)


class LocalPlace(NamedTuple):
    """A private value: one Function variable per component, or, if `array`, a single one that
    components are reached in by the ids of their indices."""

    elem: Scalar
    variables: tuple[int, ...]
    array: int
    indices: tuple[int, ...]


Place = BufferPlace | SharedPlace | LocalPlace | WordPlace


# --- elements ----------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def chunks_of(components: tuple[int, ...], is_plain: bool) -> tuple[tuple[int, int], ...]:
    """Runs of up to four consecutive components as (first offset, count); all single where values
    are converted on their way."""
    runs: list[tuple[int, int]] = []
    for c in components:
        if is_plain and runs and c == sum(runs[-1]) and runs[-1][1] < VECTOR_MAX:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((c, 1))
    return tuple(runs)


def lower_elem(em: Emitter, op: Op) -> None:
    """elem: a place in a buffer or in workgroup memory."""
    array = op.args[0]
    t = array.type
    assert isinstance(t, Array)
    if t.space == "shared":
        em.places[op] = _shared_elem(em, op, t)
    elif t.shape is not None:
        em.places[op] = _static_elem(em, op, t)
    else:
        em.places[op] = _dynamic_elem(em, op, t)


def _static_elem(em: Emitter, op: Op, t: Array) -> BufferPlace:
    layout = layout_of(t)
    width = i64 if layout.size >= WIDE_FROM else i32
    offset, ok = static_offset(em, width, layout, op.args[1:]), 0
    if op.attr != "inside" and has_spare(t):
        offset = _spare_offset(em, op, t, width, offset)
    elif op.attr != "inside":
        ok = _is_inside(em, op, t, width)
    base = em.arguments.pointer(_param(op))
    elem = scalar_of(t.elem)
    return BufferPlace(base, t.stored, elem, offset, width, ok, layout.components)


def _spare_offset(em: Emitter, op: Op, t: Array, width: Scalar, offset: Offset) -> Offset:
    """The offset of an element, or of the spare one behind the array. Of a single axis, the index
    itself is judged: its multiples may wrap."""
    layout = layout_of(t)
    if not offset.id and 0 <= offset.constant < layout.size:
        return offset
    if t.ndim != 1 or t.shape is None or len(layout.axes[0]) != 1:
        size = em.number(width, layout.size)
        return Offset(_to_spare(em, width, materialise(em, width, offset), size), 0)
    index = materialise(em, width, axis_index(em, width, layout, 0, op.args[1]))
    index = _to_spare(em, width, index, em.number(width, t.shape[0]))
    return Offset(multiply(em, width, index, t.scalars_per_element), 0)


def _to_spare(em: Emitter, t: Scalar, number: int, limit: int) -> int:
    """A number, or the limit where the number is negative or not below it."""
    return em.glsl(Glsl.UMin, em.type_id(t), number, limit)


def _is_inside(em: Emitter, op: Op, t: Array, width: Scalar) -> int:
    """Whether every index is one of its axis; 0 where that is known."""
    assert t.shape is not None
    inside = 0
    for axis, (v, extent) in enumerate(zip(op.args[1:], t.shape, strict=True)):
        index = axis_index(em, width, layout_of(t), axis, v)
        if not index.id and 0 <= index.constant < extent:
            continue
        ends = materialise(em, width, index), em.number(width, extent)
        one = em.op(spec.OpULessThan, em.type_id(u1), *ends)
        inside = em.op(spec.OpLogicalAnd, em.type_id(u1), inside, one) if inside else one
    return inside


def _dynamic_elem(em: Emitter, op: Op, t: Array) -> BufferPlace:
    param, indices, n = _param(op), op.args[1:], t.scalars_per_element
    is_wide = t.wide or any(scalar_of(v.type).bits == 64 for v in indices)
    width = i64 if is_wide else i32
    offset = Offset(0, 0)
    for axis, v in enumerate(indices):
        if offset.id or offset.constant:
            number = materialise(em, width, offset)
            extent = _dim(em, param, axis, width)
            offset = Offset(em.op(spec.OpIMul, em.type_id(width), number, extent), 0)
        index = index_of(em, width, v)
        offset = Offset(offset.id, offset.constant + index.constant)
        if index.id:
            offset = add_id(em, width, offset, index.id)
    if op.attr != "inside" and indices:
        number = materialise(em, width, offset)
        limit = _element_limit(em, param, t, width)
        offset = Offset(_to_spare(em, width, number, limit), 0)
    if n > 1 and offset.id:
        offset = Offset(multiply(em, width, offset.id, n), offset.constant * n)
    elif n > 1:
        offset = Offset(0, offset.constant * n)
    base = em.arguments.pointer(param)
    return BufferPlace(base, t.stored, scalar_of(t.elem), offset, width, 0, tuple(range(n)))


def _dim(em: Emitter, param: Param, axis: int, t: Scalar) -> int:
    extent = em.arguments.dim(param, axis)
    return em.once(spec.OpSConvert, em.type_id(i64), extent) if t is i64 else extent


def _element_limit(em: Emitter, param: Param, t: Array, width: Scalar) -> int:
    """How many elements a dynamic array has."""
    if t.ndim == 1:
        return _dim(em, param, 0, width)
    size, n = em.arguments.size(param, width), t.scalars_per_element
    if n == 1:
        return size
    unsigned = u64 if width is i64 else u32
    plain = em.once(spec.OpBitcast, em.type_id(unsigned), size)
    return em.once(spec.OpUDiv, em.type_id(unsigned), plain, em.number(unsigned, n))


def _param(op: Op) -> Param:
    array = op.args[0]
    if not isinstance(array, Param):
        raise InternalError("an array in a buffer must be a parameter of the function")
    return array


def lower_shape(em: Emitter, op: Op) -> tuple[int, ...]:
    """shape: a constant, or a slot of the argument block."""
    array = op.args[0]
    assert isinstance(array.type, Array)
    if array.type.shape is not None:
        return (em.index(array.type.shape[op.attr]),)
    return (em.arguments.dim(_param(op), op.attr),)


# --- workgroup memory ----------------------------------------------------------------------------


def lower_shared(em: Emitter, op: Op) -> None:
    """shared: a Workgroup variable, with a spare element if an index may be outside."""
    t = op.type
    assert isinstance(t, Array)
    elem = scalar_of(t.elem)
    kept = scalar_named(f"u{max(elem.bits, 32)}") if op in em.survey.as_bits else elem
    size = layout_of(t).size
    length = size + (t.scalars_per_element if op in em.survey.strays else 0)
    array = em.length(em.type_id(kept), max(length, 1))
    variable = em.m.variable(StorageClass.Workgroup, array)
    em.places[op] = SharedPlace(variable, kept, elem, Offset(0, 0), layout_of(t).components)


def _shared_elem(em: Emitter, op: Op, t: Array) -> SharedPlace:
    whole = em.places[op.args[0]]
    assert isinstance(whole, SharedPlace)
    layout = layout_of(t)
    offset = static_offset(em, i32, layout, op.args[1:])
    if op.attr != "inside":
        number = materialise(em, i32, offset)
        spare = em.index(layout.size)
        offset = Offset(_to_spare(em, i32, number, spare), 0)
    return whole.at(offset, layout.components)


# --- private places ----------------------------------------------------------------------------


def lower_local(em: Emitter, op: Op) -> None:
    """local: Function variables holding the first value."""
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


# --- components --------------------------------------------------------------------------------


def _tensor_place(em: Emitter, op: Op) -> BufferPlace | SharedPlace | LocalPlace:
    place = em.places[op.args[0]]
    if isinstance(place, WordPlace):
        raise InternalError("a word has no components")
    return place


def lower_member(em: Emitter, op: Op) -> None:
    """member: one component, known now."""
    place, k = _tensor_place(em, op), op.attr
    if isinstance(place, LocalPlace):
        part = slice(k, k + 1)
        kept = place._replace(variables=place.variables[part], indices=place.indices[part])
        em.places[op] = kept
    else:
        em.places[op] = place.at(place.offset, (place.components[k],))


def lower_member_at(em: Emitter, op: Op) -> None:
    """member_at: one component by a clamped index."""
    place = _tensor_place(em, op)
    if isinstance(place, LocalPlace):
        k = clamp(em, em.ids[op.args[1]][0], len(place.indices))
        em.places[op] = place._replace(indices=(k,))
        return
    components = place.components
    k = clamp(em, em.ids[op.args[1]][0], len(components))
    t = place.t if isinstance(place, BufferPlace) else i32
    first, step = components[0], components[1] - components[0] if len(components) > 1 else 0
    if components != tuple(first + step * j for j in range(len(components))):
        moved = _pick_component(em, components, k)
    else:
        moved = multiply(em, i32, k, step)
    if t is i64:
        moved = em.op(spec.OpSConvert, em.type_id(t), moved)
    offset = add_id(em, t, place.offset, moved)
    em.places[op] = place.at(offset, (first,))


def _pick_component(em: Emitter, components: tuple[int, ...], k: int) -> int:
    """How far component k lies behind the first, for components at irregular distances."""
    result = em.index(components[-1] - components[0])
    for j in range(len(components) - 2, -1, -1):
        is_it = em.op(spec.OpIEqual, em.type_id(u1), k, em.index(j))
        away = em.index(components[j] - components[0])
        result = em.op(spec.OpSelect, em.type_id(i32), is_it, away, result)
    return result


def clamp(em: Emitter, k: int, n: int) -> int:
    """The i32 component index k, moved into 0 .. n - 1."""
    bits = em.known(k)
    if bits is not None:
        return em.index(min(max(int(value_of(bits, i32)), 0), n - 1))
    return em.glsl(Glsl.SClamp, em.type_id(i32), k, em.index(0), em.index(n - 1))


# --- pointers ----------------------------------------------------------------------------------


def buffer_pointer(em: Emitter, place: BufferPlace, first: int, pointee: int) -> int:
    """A pointer to a value of type id `pointee` that begins at component offset `first`; remembered
    in its block."""
    if place.block != em.block:
        place.block, place.pointers = em.block, {}
    found = place.pointers.get((first, pointee))
    if found is None:
        found = place.pointers[first, pointee] = _new_pointer(em, place, first, pointee)
    return found


def _new_pointer(em: Emitter, place: BufferPlace, first: int, pointee: int) -> int:
    """Pointers are cast and selected as pairs of words, which all drivers know."""
    m, storage = em.m, StorageClass.PhysicalStorageBuffer
    t_id = em.stored_id(place.stored)
    offset = place.offset._replace(constant=place.offset.constant + first)
    index = materialise(em, place.t, offset)
    opcode = spec.OpAccessChain if place.ok else spec.OpInBoundsAccessChain
    pointer = em.op(opcode, m.pointer(storage, t_id), place.base, em.index(0), index)
    if not place.ok and pointee == t_id:
        return pointer
    pair = m.type(spec.OpTypeVector, em.type_id(u32), 2)
    address = em.op(spec.OpBitcast, pair, pointer)
    if place.ok:
        stray = em.once(spec.OpBitcast, pair, em.arguments.trash())
        address = em.op(spec.OpSelect, pair, place.ok, address, stray)
    return em.op(spec.OpBitcast, m.pointer(storage, pointee), address)


def scalar_pointers(em: Emitter, place: Place) -> list[int]:
    """One pointer per component, to the scalar that stands there."""
    if isinstance(place, BufferPlace):
        t_id = em.stored_id(place.stored)
        return [buffer_pointer(em, place, c, t_id) for c in place.components]
    if isinstance(place, SharedPlace):
        p_id = em.m.pointer(StorageClass.Workgroup, em.type_id(place.kept))
        indices = [
            materialise(em, i32, place.offset._replace(constant=place.offset.constant + c))
            for c in place.components
        ]
        return [em.op(spec.OpAccessChain, p_id, place.variable, index) for index in indices]
    if isinstance(place, WordPlace):
        return [place.pointer]
    if not place.array:
        return list(place.variables)
    p_id = em.m.pointer(StorageClass.Function, em.type_id(place.elem))
    return [em.op(spec.OpAccessChain, p_id, place.array, k) for k in place.indices]


# --- loads and stores --------------------------------------------------------------------------


def lower_load(em: Emitter, op: Op) -> tuple[int, ...]:
    """load: the components at a place."""
    return load_place(em, em.places[op.args[0]])


def lower_store(em: Emitter, op: Op) -> None:
    """store: the components to a place."""
    store_place(em, em.places[op.args[0]], em.ids[op.args[1]])


def load_place(em: Emitter, place: Place) -> tuple[int, ...]:
    """The ids of the components that stand at a place."""
    if isinstance(place, BufferPlace):
        return _load_buffer(em, place)
    if isinstance(place, WordPlace):
        return (em.op(spec.OpLoad, em.type_id(place.elem), place.pointer, *_word_access(place)),)
    kept = place.kept if isinstance(place, SharedPlace) else place.elem
    t_id = em.type_id(kept)
    values = [em.op(spec.OpLoad, t_id, p) for p in scalar_pointers(em, place)]
    if kept is not place.elem:
        values = [_from_kept(em, kept, place.elem, v) for v in values]
    return tuple(values)


def store_place(em: Emitter, place: Place, values: tuple[int, ...]) -> None:
    """Put components at a place."""
    if isinstance(place, BufferPlace):
        _store_buffer(em, place, values)
        return
    if isinstance(place, SharedPlace) and place.kept is not place.elem:
        values = tuple([_to_kept(em, place.kept, place.elem, v) for v in values])
    for pointer, value in zip(scalar_pointers(em, place), values, strict=True):
        em.act(spec.OpStore, pointer, value)


def _word_access(place: WordPlace) -> tuple[int, ...]:
    return () if place.is_shared else (MemoryAccess.Aligned, place.elem.size_bytes)


def _from_kept(em: Emitter, kept: Scalar, t: Scalar, value: int) -> int:
    if t.bits < kept.bits:
        return from_word(em, t, value)
    return em.op(spec.OpBitcast, em.type_id(t), value)


def _to_kept(em: Emitter, kept: Scalar, t: Scalar, value: int) -> int:
    if t.bits < kept.bits:
        return to_word(em, t, value)
    return em.op(spec.OpBitcast, em.type_id(kept), value)


def _load_buffer(em: Emitter, place: BufferPlace) -> tuple[int, ...]:
    stored, elem = place.stored, place.elem
    t_id = em.stored_id(stored)
    access = (MemoryAccess.Aligned, stored.size_bytes)
    out: list[int] = []
    for first, count in chunks_of(place.components, stored is elem):
        whole_id = em.m.type(spec.OpTypeVector, t_id, count) if count > 1 else t_id
        pointer = buffer_pointer(em, place, first, whole_id)
        whole = em.op(spec.OpLoad, whole_id, pointer, *access)
        if count == 1:
            out.append(whole)
        else:
            out += [em.op(spec.OpCompositeExtract, t_id, whole, k) for k in range(count)]
    if stored is not elem:
        out = [_from_stored(em, stored, v) for v in out]
    return tuple(out)


def _store_buffer(em: Emitter, place: BufferPlace, values: tuple[int, ...]) -> None:
    stored, elem, at = place.stored, place.elem, 0
    t_id = em.stored_id(stored)
    access = (MemoryAccess.Aligned, stored.size_bytes)
    if stored is not elem:
        values = tuple([_to_stored(em, stored, v) for v in values])
    for first, count in chunks_of(place.components, stored is elem):
        whole_id, value = t_id, values[at]
        if count > 1:
            whole_id = em.m.type(spec.OpTypeVector, t_id, count)
            value = em.op(spec.OpCompositeConstruct, whole_id, *values[at : at + count])
        em.act(spec.OpStore, buffer_pointer(em, place, first, whole_id), value, *access)
        at += count


def _from_stored(em: Emitter, stored: Scalar, value: int) -> int:
    """A truth value from the unsigned integer that stands for it."""
    if stored.bits < 32:
        value = em.op(spec.OpUConvert, em.type_id(u32), value)
    return em.op(spec.OpINotEqual, em.type_id(u1), value, em.const(u32, 0))


def _to_stored(em: Emitter, stored: Scalar, value: int) -> int:
    one, zero = em.const(u32, 1), em.const(u32, 0)
    word = em.op(spec.OpSelect, em.type_id(u32), value, one, zero)
    return em.op(spec.OpUConvert, em.stored_id(stored), word) if stored.bits < 32 else word
