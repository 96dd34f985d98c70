"""Subgroup operations: reductions, scans, shuffles, votes.

The tables give each op's instruction and required capability. Precondition: `legalize` has replaced
ops and operand types that the device lacks.

Ops that depend on the subgroup size, or on the order of invocations, need a fixed size
(`subgroup_size`), because on some devices it varies otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.errors import InternalError
from vkchi.ir.core import Op
from vkchi.spirv import spec
from vkchi.spirv.invocation import BOTH_MEMORIES, builtin, to_signed
from vkchi.spirv.spec import BuiltIn, Capability, GroupOperation, Scope
from vkchi.types import Scalar, scalar_of, u1, u32, u64

if TYPE_CHECKING:
    from vkchi.spirv.emitter import Emitter

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


def lower_size(em: Emitter, op: Op) -> tuple[int, ...]:
    scope_of(em)
    em.need("subgroup_size")
    return (to_signed(em, builtin(em, BuiltIn.SubgroupSize, 1)),)


def lower_index(em: Emitter, op: Op) -> tuple[int, ...]:
    scope_of(em)
    em.need("subgroup_size")
    return (to_signed(em, builtin(em, BuiltIn.SubgroupLocalInvocationId, 1)),)


def lower_barrier(em: Emitter, op: Op) -> None:
    """Emit an execution and memory barrier of the subgroup."""
    scope = scope_of(em)
    em.act(spec.OpControlBarrier, scope, scope, em.const(u32, BOTH_MEMORIES))
