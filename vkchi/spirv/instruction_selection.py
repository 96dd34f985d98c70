"""Instruction selection: one row per IR op, except ops that passes replace before.

`ROWS` maps each op kind to the function that emits it. Tensors are scalarized here: an op on a
tensor emits one instruction per component, and most tensor ops only rename ids.

See also: `scalar_ops.py` (scalar instructions), `pointers.py` (addresses), `control_flow.py`
(blocks).

    >>> ROWS["add"] is lower_elementwise
    True
"""

from __future__ import annotations

from vkchi.ir.core import Op
from vkchi.ir.ops import Trait, kinds_with
from vkchi.spirv import (
    control_flow,
    invocation,
    pointers,
    scalar_ops,
    spec,
    subgroup_ops,
)
from vkchi.spirv.emitter import Emitter, Row
from vkchi.spirv.spec import StorageClass
from vkchi.target.magic import MAGIC
from vkchi.types import Scalar, Tensor, scalar_of, u1, u32, u64

# Limits for select chains on a computed index. Above them, components are loaded from an array.
# It is a constant table if all are constants, else it is stored first. CPUs load lane by lane.
SELECT_MOST, SELECT_MOST_CONSTANTS = 10, 8


def lower_elementwise(em: Emitter, op: Op) -> tuple[int, ...]:
    columns = [em.ids[v] for v in op.args]
    t_id = em.type_id(scalar_of(op.type))
    opcode, *extra = scalar_ops.instruction_of(em, op.kind, scalar_of(op.args[0].type))
    m, code = em.m, em.code
    head, first = (len(columns) + len(extra) + 3) << 16 | opcode, m.bound
    for parts in zip(*columns, strict=True):
        code += head, t_id, m.bound, *extra, *parts
        m.bound += 1
    return tuple(range(first, m.bound))


def lower_const(em: Emitter, op: Op) -> tuple[int, ...]:
    t = op.type
    if isinstance(t, Scalar):
        return (em.const(t, op.attr),)
    elem = scalar_of(t)
    return tuple([em.const(elem, bits) for bits in op.attr])


def lower_select(em: Emitter, op: Op) -> tuple[int, ...]:
    t_id = em.type_id(scalar_of(op.type))
    columns = zip(*[em.ids[v] for v in op.args], strict=True)
    return tuple([em.op(spec.OpSelect, t_id, *parts) for parts in columns])


def lower_cast(em: Emitter, op: Op) -> tuple[int, ...]:
    old, new = scalar_of(op.args[0].type), scalar_of(op.type)
    return tuple([scalar_ops.convert(em, old, new, v) for v in em.ids[op.args[0]]])


def lower_bitcast(em: Emitter, op: Op) -> tuple[int, ...]:
    old, new, values = scalar_of(op.args[0].type), scalar_of(op.type), em.ids[op.args[0]]
    if old is new:
        return values
    return tuple([em.op(spec.OpBitcast, em.type_id(new), v) for v in values])


def lower_split_u64(em: Emitter, op: Op) -> tuple[int, ...]:
    (word,) = em.ids[op.args[0]]
    pair = em.op(spec.OpBitcast, em.pair_id(), word)
    return tuple([em.op(spec.OpCompositeExtract, em.type_id(u32), pair, k) for k in range(2)])


def lower_join_u64(em: Emitter, op: Op) -> tuple[int, ...]:
    pair = em.op(spec.OpCompositeConstruct, em.pair_id(), *em.ids[op.args[0]])
    return (em.op(spec.OpBitcast, em.type_id(u64), pair),)


# --- tensors -------------------------------------------------------------------------------------


def lower_splat(em: Emitter, op: Op) -> tuple[int, ...]:
    assert isinstance(op.type, Tensor)
    return em.ids[op.args[0]] * op.type.size


def lower_pack(em: Emitter, op: Op) -> tuple[int, ...]:
    return tuple([em.ids[v][0] for v in op.args])


def lower_extract(em: Emitter, op: Op) -> tuple[int, ...]:
    return (em.ids[op.args[0]][op.attr],)


def lower_insert(em: Emitter, op: Op) -> tuple[int, ...]:
    values, k = em.ids[op.args[0]], op.attr
    return (*values[:k], em.ids[op.args[1]][0], *values[k + 1 :])


def lower_extract_at(em: Emitter, op: Op) -> tuple[int, ...]:
    """Emit a chain of selects for few components, or a load from an array for many.

    The index is clamped. The array is a constant table if all components are constants, else a
    private variable.
    """
    values, t = em.ids[op.args[0]], scalar_of(op.type)
    k = pointers.clamp(em, em.ids[op.args[1]][0], len(values))
    t_id = em.type_id(t)
    is_table = all(em.known(v) is not None for v in values)
    if len(values) > (SELECT_MOST_CONSTANTS if is_table else SELECT_MOST):
        storage, array = _array_of(em, t_id, values, is_table=is_table)
        pointer = em.op(spec.OpAccessChain, em.m.pointer(storage, t_id), array, k)
        return (em.op(spec.OpLoad, t_id, pointer),)
    result = values[-1]
    for j in range(len(values) - 2, -1, -1):
        is_it = em.op(spec.OpIEqual, em.type_id(u1), k, em.index(j))
        result = em.op(spec.OpSelect, t_id, is_it, values[j], result)
    return (result,)


def _array_of(
    em: Emitter, t_id: int, values: tuple[int, ...], *, is_table: bool
) -> tuple[int, int]:
    """Return (storage class, variable id) of an array with these components.

    It is a constant, memoized table if `is_table`, else a new private variable that is stored to.
    """
    array_type = em.length(t_id, len(values))
    if is_table:
        table = em.m.composite(array_type, values)
        key = (0, StorageClass.Private, table)
        if key not in em.onces:
            em.onces[key] = em.m.variable(StorageClass.Private, array_type, table)
        return StorageClass.Private, em.onces[key]
    array = em.variable(array_type)
    whole = em.op(spec.OpCompositeConstruct, array_type, *values)
    em.act(spec.OpStore, array, whole)
    return StorageClass.Function, array


def lower_insert_at(em: Emitter, op: Op) -> tuple[int, ...]:
    """Emit one select per component; an out-of-range index changes none."""
    values, t_id = em.ids[op.args[0]], em.type_id(scalar_of(op.args[1].type))
    new, k = em.ids[op.args[1]][0], em.ids[op.args[2]][0]
    out = []
    for j, old in enumerate(values):
        is_it = em.op(spec.OpIEqual, em.type_id(u1), k, em.index(j))
        out.append(em.op(spec.OpSelect, t_id, is_it, new, old))
    return tuple(out)


def lower_transpose(em: Emitter, op: Op) -> tuple[int, ...]:
    t, values = op.args[0].type, em.ids[op.args[0]]
    assert isinstance(t, Tensor)
    return tuple([values[i * t.m + j] for j in range(t.m) for i in range(t.n)])


def lower_matmul(em: Emitter, op: Op) -> tuple[int, ...]:
    left, right = op.args[0].type, op.args[1].type
    assert isinstance(left, Tensor) and isinstance(right, Tensor)
    a, b, columns = em.ids[op.args[0]], em.ids[op.args[1]], right.m
    return tuple(
        [
            _dot(em, left.elem, a[i * left.m : (i + 1) * left.m], b[j::columns])
            for i in range(left.n)
            for j in range(columns)
        ]
    )


def _dot(em: Emitter, t: Scalar, a: tuple[int, ...], b: tuple[int, ...]) -> int:
    t_id = em.type_id(t)
    mul, add = scalar_ops.SIMPLE["mul", t.kind], scalar_ops.SIMPLE["add", t.kind]
    total = em.op(mul, t_id, a[0], b[0])
    for x, y in zip(a[1:], b[1:], strict=True):
        total = em.op(add, t_id, total, em.op(mul, t_id, x, y))
    return total


def lower_outer(em: Emitter, op: Op) -> tuple[int, ...]:
    t = scalar_of(op.type)
    mul, t_id = scalar_ops.SIMPLE["mul", t.kind], em.type_id(t)
    a, b = em.ids[op.args[0]], em.ids[op.args[1]]
    return tuple([em.op(mul, t_id, x, y) for x in a for y in b])


def lower_sum(em: Emitter, op: Op) -> tuple[int, ...]:
    t = scalar_of(op.type)
    add, t_id = scalar_ops.SIMPLE["add", t.kind], em.type_id(t)
    first, *rest = em.ids[op.args[0]]
    for v in rest:
        first = em.op(add, t_id, first, v)
    return (first,)


# --- the rows ----------------------------------------------------------------------------------

ELEMENTWISE = sorted({kind for kind, _ in (*scalar_ops.SIMPLE, *scalar_ops.GLSL)})
ROWS: dict[str, Row] = {
    **dict.fromkeys(ELEMENTWISE, lower_elementwise),
    "popcnt": scalar_ops.lower_popcnt,
    "clz": scalar_ops.lower_clz,
    "const": lower_const,
    **dict.fromkeys(kinds_with(Trait.IDENTITY), lambda em, op: em.ids[op.args[0]]),
    "select": lower_select,
    "cast": lower_cast,
    "bitcast": lower_bitcast,
    "split_u64": lower_split_u64,
    "join_u64": lower_join_u64,
    "splat": lower_splat,
    "pack": lower_pack,
    "extract": lower_extract,
    "extract_at": lower_extract_at,
    "insert": lower_insert,
    "insert_at": lower_insert_at,
    "matmul": lower_matmul,
    "transpose": lower_transpose,
    "outer": lower_outer,
    "sum": lower_sum,
    "address": pointers.lower_address,
    "member": pointers.lower_member,
    "member_at": pointers.lower_member_at,
    "word": pointers.lower_word,
    "word_shift": pointers.lower_word_shift,
    "size": pointers.lower_size,
    "shape": pointers.lower_shape,
    **dict.fromkeys(MAGIC, pointers.lower_magic),
    "local": pointers.lower_local,
    "shared": pointers.lower_shared,
    "load": pointers.lower_load,
    "store": pointers.lower_store,
    **dict.fromkeys([*pointers.ATOMIC_OPCODES, "atomic_mul"], pointers.lower_atomic),
    "thread_index": invocation.lower_thread_index,
    "local_index": invocation.lower_local_index,
    "group_index": invocation.lower_group_index,
    "group_size": invocation.lower_group_size,
    "grid_size": invocation.lower_grid_size,
    "exit_invocation": invocation.lower_exit_invocation,
    "barrier": invocation.lower_barrier,
    "fence": invocation.lower_fence,
    "subgroup_size": subgroup_ops.lower_size,
    "subgroup_index": subgroup_ops.lower_index,
    "subgroup_elect": subgroup_ops.lower_elect,
    "subgroup_ballot": subgroup_ops.lower_ballot,
    "subgroup_ballot_wide": subgroup_ops.lower_wide_ballot,
    "subgroup_barrier": subgroup_ops.lower_barrier,
    **dict.fromkeys(subgroup_ops.REDUCTIONS, subgroup_ops.lower_reduction),
    **dict.fromkeys(subgroup_ops.EXCHANGES, subgroup_ops.lower_exchange),
    "if": control_flow.lower_if,
    "for": control_flow.lower_for,
    "while": control_flow.lower_while,
    "parallel": control_flow.lower_parallel,
    "yield": control_flow.lower_yield,
}
