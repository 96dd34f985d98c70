"""Elementwise arithmetic: the instruction of each op by scalar kind, and numeric conversions.

Preconditions: `legalize` and `arithmetic` have replaced all ops without an exact instruction.
`arithmetic` also keeps shift amounts in range.

    instruction_of(em, "sqrt", f32)        # (OpExtInst, the id of GLSL.std.450, Sqrt)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.errors import InternalError
from vkchi.ir.core import Op
from vkchi.ir.ops import ELEMENTWISE
from vkchi.spirv import spec
from vkchi.spirv.spec import Decoration, Glsl
from vkchi.types import Scalar, f64, i32, scalar_named, scalar_of, u1

if TYPE_CHECKING:
    from vkchi.spirv.emitter import Emitter

# fmt: off
# op -> opcodes for i, u, f, b; 0 if the op has no such type or a pass expands it.
OPCODES: dict[str, tuple[int, int, int, int]] = {
    "add": (spec.OpIAdd, spec.OpIAdd, spec.OpFAdd, 0),
    "sub": (spec.OpISub, spec.OpISub, spec.OpFSub, 0),
    "mul": (spec.OpIMul, spec.OpIMul, spec.OpFMul, 0),
    "div": (0, 0, spec.OpFDiv, 0),
    "floordiv": (0, spec.OpUDiv, 0, 0),
    "truncdiv": (spec.OpSDiv, spec.OpUDiv, 0, 0),
    "mod": (0, spec.OpUMod, 0, 0),
    "rem": (0, spec.OpUMod, 0, 0),
    "shl": (spec.OpShiftLeftLogical, spec.OpShiftLeftLogical, 0, 0),
    "shr": (spec.OpShiftRightArithmetic, spec.OpShiftRightLogical, 0, 0),
    "neg": (spec.OpSNegate, spec.OpSNegate, spec.OpFNegate, 0),
    "and": (spec.OpBitwiseAnd, spec.OpBitwiseAnd, 0, spec.OpLogicalAnd),
    "or": (spec.OpBitwiseOr, spec.OpBitwiseOr, 0, spec.OpLogicalOr),
    "xor": (spec.OpBitwiseXor, spec.OpBitwiseXor, 0, spec.OpLogicalNotEqual),
    "not": (spec.OpNot, spec.OpNot, 0, spec.OpLogicalNot),
    "lt": (spec.OpSLessThan, spec.OpULessThan, spec.OpFOrdLessThan, 0),
    "le": (spec.OpSLessThanEqual, spec.OpULessThanEqual, spec.OpFOrdLessThanEqual, 0),
    "gt": (spec.OpSGreaterThan, spec.OpUGreaterThan, spec.OpFOrdGreaterThan, 0),
    "ge": (spec.OpSGreaterThanEqual, spec.OpUGreaterThanEqual, spec.OpFOrdGreaterThanEqual, 0),
    "eq": (spec.OpIEqual, spec.OpIEqual, spec.OpFOrdEqual, spec.OpLogicalEqual),
    "ne": (spec.OpINotEqual, spec.OpINotEqual, spec.OpFUnordNotEqual, spec.OpLogicalNotEqual),
    "isnan": (0, 0, spec.OpIsNan, 0),
    "isinf": (0, 0, spec.OpIsInf, 0),
}
# op -> GLSL.std.450 instructions for i, u, f; 0 as above. An elementwise op of floats whose
# capitalised name is an instruction (`sqrt`, Sqrt) needs no row.
EXTENDED: dict[str, tuple[int, int, int]] = {
    "abs": (Glsl.SAbs, 0, Glsl.FAbs),
    "min": (Glsl.SMin, Glsl.UMin, Glsl.NMin),
    "max": (Glsl.SMax, Glsl.UMax, Glsl.NMax),
    "sign": (Glsl.SSign, 0, 0),
    "rsqrt": (0, 0, Glsl.InverseSqrt),
    "round": (0, 0, Glsl.RoundEven),
}
# fmt: on
SIMPLE = {(k, c): code for k, row in OPCODES.items() for c, code in zip("iufb", row) if code}
NAMED = {kind: getattr(Glsl, kind.capitalize(), 0) for kind in ELEMENTWISE - EXTENDED.keys()}
GLSL = {(k, c): code for k, row in EXTENDED.items() for c, code in zip("iuf", row) if code}
GLSL.update({(kind, "f"): code for kind, code in NAMED.items() if code})
IN_64_BITS = frozenset({"abs", "min", "max", "sqrt", "floor", "ceil"})  # of GLSL, for f64


def instruction_of(em: Emitter, kind: str, t: Scalar) -> tuple[int, ...]:
    """Return (opcode, leading operands...) of `kind` on components of type t.

    Raises InternalError if there is no instruction.
    """
    key = (kind, t.kind)
    if key in SIMPLE:
        return (SIMPLE[key],)
    if key in GLSL and (t is not f64 or kind in IN_64_BITS):
        return spec.OpExtInst, em.m.glsl_set(), GLSL[key]
    raise missing_instruction_error(kind, t)


def missing_instruction_error(kind: str, t: Scalar) -> InternalError:
    return InternalError(f"no instruction is `{kind}` of {t}; legalize or arithmetic replaces it")


def lower_popcnt(em: Emitter, op: Op) -> tuple[int, ...]:
    """Count the set bits of each component. Raises InternalError for other than 32 bits."""
    t = scalar_of(op.type)
    if t.bits != 32:
        raise missing_instruction_error(op.kind, t)
    return tuple([em.op(spec.OpBitCount, em.type_id(t), v) for v in em.ids[op.args[0]]])


def lower_clz(em: Emitter, op: Op) -> tuple[int, ...]:
    """Count the leading zeros of each component: 31 minus FindUMsb, which returns -1 for zero.

    Raises InternalError for other than 32 bits.
    """
    t = scalar_of(op.type)
    if t.bits != 32:
        raise missing_instruction_error(op.kind, t)
    t_id, last = em.type_id(t), em.number(t, 31)
    tops = [em.glsl(Glsl.FindUMsb, t_id, v) for v in em.ids[op.args[0]]]
    return tuple([em.op(spec.OpISub, t_id, last, top) for top in tops])


# --- conversions -----------------------------------------------------------------------------

# (source kind, destination kind) -> opcode, for conversions that involve floats.
CONVERSIONS = {
    ("f", "f"): spec.OpFConvert, ("f", "i"): spec.OpConvertFToS, ("f", "u"): spec.OpConvertFToU,
    ("i", "f"): spec.OpConvertSToF, ("u", "f"): spec.OpConvertUToF,
}  # fmt: skip


def convert(em: Emitter, old: Scalar, new: Scalar, value: int) -> int:
    """Convert a component by value, as the op `cast`; return the id of the result."""
    if old is new:
        return value
    t_id = em.type_id(new)
    if new is u1:
        opcode = spec.OpFUnordNotEqual if old.kind == "f" else spec.OpINotEqual
        return em.op(opcode, t_id, value, em.const(old, 0))
    if old is u1:
        return em.op(spec.OpSelect, t_id, value, em.number(new, 1), em.const(new, 0))
    opcode = CONVERSIONS.get((old.kind, new.kind), 0)
    if not opcode:
        return _convert_integer(em, old, new, value)
    if old.kind == "f" and new.kind != "f" and new.bits < 32:
        whole = em.op(spec.OpConvertFToS, em.type_id(i32), value)
        return _convert_integer(em, i32, new, whole)
    result = em.op(opcode, t_id, value)
    if new.kind == "f" and (old.kind != "f" or old.bits > new.bits):
        em.m.decorate(result, Decoration.NoContraction)  # x -> f16 -> f64 rounds to f16
    return result


def _convert_integer(em: Emitter, old: Scalar, new: Scalar, value: int) -> int:
    """Convert between integer types. Widening extends by the sign of the source type."""
    t_id = em.type_id(new)
    if old.bits == new.bits:
        return em.op(spec.OpBitcast, t_id, value)
    is_wider = old.bits < new.bits
    if is_wider and (old.kind, new.kind) == ("u", "i"):
        unsigned = em.type_id(scalar_named(f"u{new.bits}"))
        return em.op(spec.OpBitcast, t_id, em.op(spec.OpUConvert, unsigned, value))
    is_signed = new.kind == "i" or (old.kind == "i" and is_wider)
    return em.op(spec.OpSConvert if is_signed else spec.OpUConvert, t_id, value)
