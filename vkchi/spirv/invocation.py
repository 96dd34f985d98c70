"""Ops of an invocation, its workgroup and its subgroup: indices, barriers, reductions, shuffles.

On a grid of one axis, the index of an invocation in the dispatch is `(group.y * groups.x + group.x)
* block + local`. The y term is omitted if the grid is known to fit x.

On a grid of several axes, an invocation has the hardware's index along each axis. If there may be
several dispatches, the `base` of the dispatch is added. Its index in the dispatch is the number of
its iteration, with x as the fastest component.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.errors import InternalError
from vkchi.ir.core import Op
from vkchi.spirv import spec
from vkchi.spirv.spec import BuiltIn, Capability, Decoration, GroupOperation, Scope, Semantics
from vkchi.target.shader import split_groups
from vkchi.types import Scalar, i32, scalar_of, u1, u32, u64

if TYPE_CHECKING:
    from vkchi.spirv.emitter import Emitter


# --- indices -----------------------------------------------------------------------------------


def builtin(em: Emitter, number: int, size: int = 3) -> int:
    """Return the id of a built-in input, loaded once: a vector of u32 or, for size 1, a u32."""
    key = (0, number)
    found = em.onces.get(key)
    if found is None:
        t_id = em.type_id(u32)
        if size > 1:
            t_id = em.m.type(spec.OpTypeVector, t_id, size)
        variable = em.m.variable(spec.StorageClass.Input, t_id)
        em.m.decorate(variable, Decoration.BuiltIn, number)
        found = em.onces[key] = em.once(spec.OpLoad, t_id, variable)
    return found


def builtin_part(em: Emitter, number: int, axis: int) -> int:
    """Return the id of one u32 component of a built-in vector."""
    vector = builtin(em, number)
    return em.once(spec.OpCompositeExtract, em.type_id(u32), vector, axis)


def to_signed(em: Emitter, value: int) -> int:
    return em.once(spec.OpBitcast, em.type_id(i32), value)


def needs_two_dimensions(em: Emitter) -> bool:
    """True if a launch on a grid of one axis may need more workgroups than fit the x dimension."""
    if len(em.grid.axes) != 1:
        return False
    (axis,) = em.grid.axes
    if axis.length[0] != "const":
        return True
    return split_groups(-(-int(axis.length[1]) // axis.block))[1] > 1


def require_single_axis(em: Emitter) -> None:
    """Raise InternalError on a grid of several axes, whose workgroups have no single index."""
    if len(em.grid.axes) > 1:
        raise InternalError("a workgroup on a grid of several axes has no number")


def group_id(em: Emitter) -> int:
    """Return the id of the workgroup's index in the dispatch, as u32.

    Raises InternalError on a grid of several axes.
    """
    require_single_axis(em)
    x = builtin_part(em, BuiltIn.WorkgroupId, 0)
    if not needs_two_dimensions(em):
        return x
    return em.once(spec.OpIAdd, em.type_id(u32), _row_start(em), x)


def _row_start(em: Emitter) -> int:
    width = builtin_part(em, BuiltIn.NumWorkgroups, 0)
    y = builtin_part(em, BuiltIn.WorkgroupId, 1)
    return em.once(spec.OpIMul, em.type_id(u32), y, width)


def index_along(em: Emitter, axis: int) -> int:
    """Return the id of the invocation's index along a grid axis, as u32; includes the dispatch's
    base."""
    if len(em.grid.axes) == 1:
        return global_id(em)
    here = builtin_part(em, BuiltIn.GlobalInvocationId, axis)
    if not em.grid.axes[axis].has_base:
        return here
    return em.once(spec.OpIAdd, em.type_id(u32), em.arguments.base(axis), here)


def global_id(em: Emitter) -> int:
    """Return the id of the invocation's index in the dispatch, as u32; 0 on a serial grid.

    On a grid of several axes, it is the number of the iteration in the whole loop.
    """
    if em.grid.is_serial:
        return em.const(u32, 0)
    if len(em.grid.axes) > 1:
        word = em.type_id(u32)
        *faster, slowest = range(len(em.grid.axes))
        number = index_along(em, slowest)
        for axis in reversed(faster):
            number = em.once(spec.OpIMul, word, number, em.arguments.count(axis))
            number = em.once(spec.OpIAdd, word, number, index_along(em, axis))
        return number
    x = builtin_part(em, BuiltIn.GlobalInvocationId, 0)
    if not needs_two_dimensions(em):
        return x
    block = em.const(u32, em.grid.block)
    before = em.once(spec.OpIMul, em.type_id(u32), _row_start(em), block)
    return em.once(spec.OpIAdd, em.type_id(u32), before, x)


def lower_thread_index(em: Emitter, op: Op) -> tuple[int, ...]:
    if em.grid.is_serial:
        return (em.index(0),)
    return (to_signed(em, global_id(em)),)


def lower_local_index(em: Emitter, op: Op) -> tuple[int, ...]:
    return (to_signed(em, builtin(em, BuiltIn.LocalInvocationIndex, 1)),)


def lower_group_index(em: Emitter, op: Op) -> tuple[int, ...]:
    return (to_signed(em, group_id(em)),)


def lower_group_size(em: Emitter, op: Op) -> tuple[int, ...]:
    return (em.index(em.grid.block),)


def lower_grid_size(em: Emitter, op: Op) -> tuple[int, ...]:
    """Return the number of launched invocations, which may exceed the number of iterations.

    Raises InternalError on a grid of several axes.
    """
    require_single_axis(em)
    groups, word = builtin_part(em, BuiltIn.NumWorkgroups, 0), em.type_id(u32)
    if needs_two_dimensions(em):
        rows = builtin_part(em, BuiltIn.NumWorkgroups, 1)
        groups = em.once(spec.OpIMul, word, groups, rows)
    size = em.once(spec.OpIMul, word, groups, em.const(u32, em.grid.block))
    return (to_signed(em, size),)


# --- synchronization -----------------------------------------------------------------------------

BOTH_MEMORIES = Semantics.AcquireRelease | Semantics.UniformMemory | Semantics.WorkgroupMemory


def lower_barrier(em: Emitter, op: Op) -> None:
    """Emit a workgroup barrier that makes writes to buffers and workgroup memory visible."""
    group = em.const(u32, Scope.Workgroup)
    em.act(spec.OpControlBarrier, group, group, em.const(u32, BOTH_MEMORIES))


def lower_fence(em: Emitter, op: Op) -> None:
    """Emit a memory barrier at device scope."""
    device = em.const(u32, Scope.Device)
    em.act(spec.OpMemoryBarrier, device, em.const(u32, BOTH_MEMORIES))


def lower_exit_invocation(em: Emitter, op: Op) -> None:
    """Emit a return as an always-taken branch so that no block is unreachable."""
    label, merge = em.m.new_id(), em.m.new_id()
    em.act(spec.OpSelectionMerge, merge, 0)
    em.act(spec.OpBranchConditional, em.const(u1, 1), label, merge)
    em.begin_block(label)
    em.act(spec.OpReturn)
    em.begin_block(merge)


# --- subgroup operations -------------------------------------------------------------------------
#
# Subgroup operations: reductions, scans, shuffles, votes.
#
# The tables give each op's instruction and required capability. Precondition: `legalize` has
# replaced ops and operand types that the device lacks.
#
# Ops that depend on the subgroup size, or on the order of invocations, need a fixed size
# (`subgroup_size`), because on some devices it varies otherwise.

# Combining operation of reductions and scans -> opcodes for i, u, f, b.
ARITHMETIC: dict[str, tuple[int, int, int, int]] = {
    "add": (
        spec.OpGroupNonUniformIAdd, spec.OpGroupNonUniformIAdd, spec.OpGroupNonUniformFAdd, 0,
    ),
    "mul": (
        spec.OpGroupNonUniformIMul, spec.OpGroupNonUniformIMul, spec.OpGroupNonUniformFMul, 0,
    ),
    "min": (
        spec.OpGroupNonUniformSMin, spec.OpGroupNonUniformUMin, spec.OpGroupNonUniformFMin, 0,
    ),
    "max": (
        spec.OpGroupNonUniformSMax, spec.OpGroupNonUniformUMax, spec.OpGroupNonUniformFMax, 0,
    ),
    "and": (
        spec.OpGroupNonUniformBitwiseAnd, spec.OpGroupNonUniformBitwiseAnd, 0,
        spec.OpGroupNonUniformLogicalAnd,
    ),
    "or": (
        spec.OpGroupNonUniformBitwiseOr, spec.OpGroupNonUniformBitwiseOr, 0,
        spec.OpGroupNonUniformLogicalOr,
    ),
    "xor": (
        spec.OpGroupNonUniformBitwiseXor, spec.OpGroupNonUniformBitwiseXor, 0,
        spec.OpGroupNonUniformLogicalXor,
    ),
}  # fmt: skip
SPANS = {
    "": GroupOperation.Reduce,
    "inclusive_": GroupOperation.InclusiveScan,
    "exclusive_": GroupOperation.ExclusiveScan,
}
NATIVE_SCANS = frozenset({"add", "mul"})  # scans of devices without `subgroup_scans`
# op -> (combining operation, group operation)
REDUCTIONS = {
    f"subgroup_{span}{name}": (name, operation)
    for span, operation in SPANS.items()
    for name in ARITHMETIC
}
# op of (value, u32) or of a value -> opcode, Caps field
EXCHANGES: dict[str, tuple[int, str]] = {
    "subgroup_broadcast": (spec.OpGroupNonUniformBroadcast, "subgroup_ballot"),
    "subgroup_first": (spec.OpGroupNonUniformBroadcastFirst, "subgroup_ballot"),
    "subgroup_shuffle": (spec.OpGroupNonUniformShuffle, "subgroup_shuffle"),
    "subgroup_shuffle_xor": (spec.OpGroupNonUniformShuffleXor, "subgroup_shuffle"),
    "subgroup_shuffle_up": (spec.OpGroupNonUniformShuffleUp, "subgroup_shuffle_relative"),
    "subgroup_shuffle_down": (spec.OpGroupNonUniformShuffleDown, "subgroup_shuffle_relative"),
    "subgroup_all": (spec.OpGroupNonUniformAll, "subgroup_vote"),
    "subgroup_any": (spec.OpGroupNonUniformAny, "subgroup_vote"),
    "subgroup_all_equal": (spec.OpGroupNonUniformAllEqual, "subgroup_vote"),
}


def scope_of(em: Emitter) -> int:
    """Return the id of the scope operand of subgroup instructions. Declares GroupNonUniform."""
    em.m.capabilities.add(Capability.GroupNonUniform)
    return em.const(u32, Scope.Subgroup)


def _settled(em: Emitter, t_id: int, value: int) -> int:
    """Return the result of a subgroup operation, without `subgroup_at_once` by way of a variable.

    The variable keeps the operation in place: SPIRV-Cross writes an expression where its value is
    used, which may be in one side of a select.
    """
    if em.caps.subgroup_at_once:
        return value
    variable = em.variable(t_id)
    em.act(spec.OpStore, variable, value)
    return em.op(spec.OpLoad, t_id, variable)


def _check_type(op: Op, t: Scalar) -> None:
    if t.bits in (8, 16):
        raise InternalError(f"`{op.kind}` of {t} is not portable; legalize must replace it")


def lower_reduction(em: Emitter, op: Op) -> tuple[int, ...]:
    """Emit `subgroup_add` or another reduction, or one of their scans."""
    t = scalar_of(op.args[0].type)
    _check_type(op, t)
    name, operation = REDUCTIONS[op.kind]
    opcode = ARITHMETIC[name]["iufb".index(t.kind)]
    if not opcode:
        raise InternalError(f"`{op.kind}` has no row for {t}")
    em.need("subgroup_arithmetic")
    if t.bits == 64 and t.kind != "f":
        em.need("subgroup_wide")
    if operation is not GroupOperation.Reduce:
        em.need("subgroup_size")
        if name not in NATIVE_SCANS:
            em.need("subgroup_scans")
    value, scope, t_id = em.ids[op.args[0]][0], scope_of(em), em.type_id(t)
    return (_settled(em, t_id, em.op(opcode, t_id, scope, operation, value)),)


def lower_exchange(em: Emitter, op: Op) -> tuple[int, ...]:
    opcode, field = EXCHANGES[op.kind]
    _check_type(op, scalar_of(op.args[0].type))
    em.need(field)
    if len(op.args) > 1:
        em.need("subgroup_size")
    operands, t_id = [em.ids[v][0] for v in op.args], em.type_id(scalar_of(op.type))
    return (_settled(em, t_id, em.op(opcode, t_id, scope_of(em), *operands)),)


def lower_ballot(em: Emitter, op: Op) -> tuple[int, ...]:
    """subgroup_ballot: the first of the four words."""
    return (_ballot_words(em, op, 1)[0],)


def lower_wide_ballot(em: Emitter, op: Op) -> tuple[int, ...]:
    """Emit `subgroup_ballot_wide`: the first two of the ballot's four words, as a u64."""
    pair = em.op(spec.OpCompositeConstruct, em.pair_id(), *_ballot_words(em, op, 2))
    return (em.op(spec.OpBitcast, em.type_id(u64), pair),)


def _ballot_words(em: Emitter, op: Op, count: int) -> list[int]:
    em.need("subgroup_ballot")
    em.need("subgroup_size")
    word = em.type_id(u32)
    four = em.m.type(spec.OpTypeVector, word, 4)
    vote = em.op(spec.OpGroupNonUniformBallot, four, scope_of(em), em.ids[op.args[0]][0])
    bits = _settled(em, four, vote)
    return [em.op(spec.OpCompositeExtract, word, bits, k) for k in range(count)]


def lower_elect(em: Emitter, op: Op) -> tuple[int, ...]:
    t_id = em.type_id(u1)
    return (_settled(em, t_id, em.op(spec.OpGroupNonUniformElect, t_id, scope_of(em))),)


def lower_subgroup_size(em: Emitter, op: Op) -> tuple[int, ...]:
    scope_of(em)
    em.need("subgroup_size")
    return (to_signed(em, builtin(em, BuiltIn.SubgroupSize, 1)),)


def lower_subgroup_index(em: Emitter, op: Op) -> tuple[int, ...]:
    scope_of(em)
    em.need("subgroup_size")
    return (to_signed(em, builtin(em, BuiltIn.SubgroupLocalInvocationId, 1)),)


def lower_subgroup_barrier(em: Emitter, op: Op) -> None:
    """Emit an execution and memory barrier of the subgroup."""
    scope = scope_of(em)
    em.act(spec.OpControlBarrier, scope, scope, em.const(u32, BOTH_MEMORIES))
