"""Atomic ops: one instruction on one scalar in a buffer or in workgroup memory.

The tables list the native atomics and their required capabilities. Preconditions: `legalize` has
replaced all others; `opt.lowering.layouts` has split tensors, and turned exchange and
compare-and-swap of floats into ones of integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.errors import InternalError
from vkchi.ir.core import Op
from vkchi.spirv import spec
from vkchi.spirv.pointers import SharedPlace, scalar_pointer
from vkchi.spirv.spec import Scope, Semantics
from vkchi.types import Scalar, u1, u32

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
        opcode = OPCODES.get(op.kind, (0, 0, 0))["iuf".find(t.kind)]
    if not opcode or not isinstance(t, Scalar):
        raise InternalError(f"`{op.kind}` of {t} is not native; legalize must replace it")
    is_shared = isinstance(place, SharedPlace)
    _need(em, op.kind, t, is_shared=is_shared)
    scope = em.const(u32, Scope.Workgroup if is_shared else Scope.Device)
    operands = [scope, em.const(u32, Semantics.Relaxed), *values]
    if op.kind == "atomic_cas":
        operands = [*operands[:2], operands[1], *reversed(values)]
    return (em.op(opcode, em.type_id(t), scalar_pointer(em, place), *operands),)


def _need(em: Emitter, kind: str, t: Scalar, *, is_shared: bool) -> None:
    if t.kind == "f":
        field = FLOAT_NEEDS.get((kind, t.name, is_shared), "")
        if not field:
            raise InternalError(f"`{kind}` of {t} is not native here; legalize must replace it")
        em.need(field)
    elif t.bits == 64:
        em.need(WIDE_NEEDS[is_shared])
    elif t.bits != 32:
        raise InternalError(f"`{kind}` of {t} is not native; legalize must replace it")
