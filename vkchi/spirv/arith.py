"""Elementwise arithmetic on one component: tables of instructions, and formulas where no single
instruction has the op's meaning.

Owns: op kind x kind of scalar -> opcode, GLSL.std.450 instruction or formula; numeric conversions.
Must not know: tensors, memory, control flow.

Rules that the formulas keep: OpSRem and OpSMod are not used, since Vulkan leaves them undefined for
negative operands (specification, appendix "Precision and Operation of SPIR-V Instructions"); shift
amounts are brought into range unless known to be in it; instructions that Vulkan limits to 32 bits
are put together for other widths; of f64, only what GLSL.std.450 has in 64 bits exists.

    arith.apply(em, "floordiv", i32, a, b)        # the id of the quotient
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from vkchi.errors import InternalError
from vkchi.ir.core import value_of
from vkchi.ir.ops import TRUTHS
from vkchi.spirv import spec
from vkchi.spirv.spec import Decoration, Glsl
from vkchi.types import Scalar, f64, i32, scalar_named, u1, u32, u64

if TYPE_CHECKING:
    from vkchi.spirv.emitter import Emitter

# fmt: off
# op -> opcodes for i, u, f, b; 0 where the row has no such type or a formula stands below.
OPCODES: dict[str, tuple[int, int, int, int]] = {
    "add": (spec.OpIAdd, spec.OpIAdd, spec.OpFAdd, 0),
    "sub": (spec.OpISub, spec.OpISub, spec.OpFSub, 0),
    "mul": (spec.OpIMul, spec.OpIMul, spec.OpFMul, 0),
    "div": (0, 0, spec.OpFDiv, 0),
    "truncdiv": (spec.OpSDiv, 0, 0, 0),
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
# op -> GLSL.std.450 instructions for i, u, f; 0 as above.
EXTENDED: dict[str, tuple[int, int, int]] = {
    "abs": (Glsl.SAbs, 0, Glsl.FAbs),
    "min": (Glsl.SMin, Glsl.UMin, Glsl.NMin),
    "max": (Glsl.SMax, Glsl.UMax, Glsl.NMax),
    "sign": (Glsl.SSign, 0, 0),
    "sqrt": (0, 0, Glsl.Sqrt), "rsqrt": (0, 0, Glsl.InverseSqrt),
    "exp": (0, 0, Glsl.Exp), "exp2": (0, 0, Glsl.Exp2),
    "log": (0, 0, Glsl.Log), "log2": (0, 0, Glsl.Log2),
    "sin": (0, 0, Glsl.Sin), "cos": (0, 0, Glsl.Cos), "tan": (0, 0, Glsl.Tan),
    "asin": (0, 0, Glsl.Asin), "acos": (0, 0, Glsl.Acos), "atan": (0, 0, Glsl.Atan),
    "sinh": (0, 0, Glsl.Sinh), "cosh": (0, 0, Glsl.Cosh), "tanh": (0, 0, Glsl.Tanh),
    "floor": (0, 0, Glsl.Floor), "ceil": (0, 0, Glsl.Ceil),
    "round": (0, 0, Glsl.RoundEven), "trunc": (0, 0, Glsl.Trunc),
}
# fmt: on
SIMPLE = {(k, c): code for k, row in OPCODES.items() for c, code in zip("iufb", row) if code}
GLSL = {(k, c): code for k, row in EXTENDED.items() for c, code in zip("iuf", row) if code}
IN_64_BITS = frozenset({"abs", "min", "max", "sqrt", "floor", "ceil"})  # of GLSL, for f64

Formula = Callable[["Emitter", Scalar, "tuple[int, ...]"], int]


def apply(em: Emitter, kind: str, t: Scalar, *args: int) -> int:
    """The id of `kind` applied to components of type t. Raises InternalError where there is no such
    row, or none for t."""
    key = (kind, t.kind)
    t_id = em.type_id(u1 if kind in TRUTHS else t)
    if key in SIMPLE:
        return em.op(SIMPLE[key], t_id, *args)
    formula = FORMULAS.get(f"{kind}.{t.name}") or FORMULAS.get(f"{kind}.{t.kind}")
    if formula is not None:
        return formula(em, t, args)
    if key in GLSL and (t is not f64 or kind in IN_64_BITS):
        return em.glsl(GLSL[key], t_id, *args)
    raise InternalError(f"spirv/arith.py has no `{kind}` of {t}; legalize must replace it")


# --- integers --------------------------------------------------------------------------------


def power_of_two(em: Emitter, t: Scalar, value: int) -> int | None:
    """k where `value` is the constant 2**k of type t and positive, else None."""
    bits = em.known(value)
    if not bits or bits & (bits - 1) or (t.kind == "i" and bits >> (t.bits - 1)):
        return None
    return bits.bit_length() - 1


def _truncated(em: Emitter, t: Scalar, a: int, b: int) -> tuple[int, int]:
    """Quotient toward zero and the remainder that goes with it."""
    t_id = em.type_id(t)
    quotient = em.op(spec.OpSDiv, t_id, a, b)
    product = em.op(spec.OpIMul, t_id, quotient, b)
    return quotient, em.op(spec.OpISub, t_id, a, product)


def _is_astray(em: Emitter, t: Scalar, remainder: int, b: int) -> int:
    """Whether a remainder of truncated division has not the divisor's sign and is not zero."""
    truth, t_id, zero = em.type_id(u1), em.type_id(t), em.const(t, 0)
    bits = em.known(b)
    if bits and not bits >> (t.bits - 1):
        return em.op(spec.OpSLessThan, truth, remainder, zero)
    signs = em.op(spec.OpBitwiseXor, t_id, remainder, b)
    differ = em.op(spec.OpSLessThan, truth, signs, zero)
    some = em.op(spec.OpINotEqual, truth, remainder, zero)
    return em.op(spec.OpLogicalAnd, truth, differ, some)


def _floordiv_i(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
    a, b = args
    t_id, shift = em.type_id(t), power_of_two(em, t, b)
    if shift is not None:
        return em.op(spec.OpShiftRightArithmetic, t_id, a, em.const(t, shift)) if shift else a
    quotient, remainder = _truncated(em, t, a, b)
    astray = _is_astray(em, t, remainder, b)
    lower = em.op(spec.OpISub, t_id, quotient, em.const(t, 1))
    return em.op(spec.OpSelect, t_id, astray, lower, quotient)


def _mod_i(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
    a, b = args
    t_id, shift = em.type_id(t), power_of_two(em, t, b)
    if shift is not None:
        return em.op(spec.OpBitwiseAnd, t_id, a, em.const(t, (1 << shift) - 1))
    _, remainder = _truncated(em, t, a, b)
    astray = _is_astray(em, t, remainder, b)
    moved = em.op(spec.OpIAdd, t_id, remainder, b)
    return em.op(spec.OpSelect, t_id, astray, moved, remainder)


def _rem_i(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
    return _truncated(em, t, *args)[1]


def _div_u(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
    a, b = args
    t_id, shift = em.type_id(t), power_of_two(em, t, b)
    if shift is not None:
        return em.op(spec.OpShiftRightLogical, t_id, a, em.const(t, shift)) if shift else a
    return em.op(spec.OpUDiv, t_id, a, b)


def _mod_u(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
    a, b = args
    t_id, shift = em.type_id(t), power_of_two(em, t, b)
    if shift is not None:
        return em.op(spec.OpBitwiseAnd, t_id, a, em.const(t, (1 << shift) - 1))
    return em.op(spec.OpUMod, t_id, a, b)


def _trip_count(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
    """`(high - low - 1) / size + 1` where low < high, in unsigned numbers, which hold every length.
    Of steps of 1 and -1 that is `max(low, high) - low`."""
    begin, end, step = args
    unsigned, bits = scalar_named(f"u{t.bits}"), em.known(step)
    if bits is None:
        return _computed_trip_count(em, t, args)
    by = int(value_of(bits, t))
    if by == 0:
        return em.const(unsigned, 0)
    low, high = (begin, end) if by > 0 else (end, begin)
    if abs(by) == 1:
        return _distance(em, t, low, apply(em, "max", t, low, high))
    some = apply(em, "lt", t, low, high)
    return _steps(em, t, some, _distance(em, t, low, high), em.number(unsigned, abs(by)))


def _computed_trip_count(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
    """The same for a step that is computed; where it is 0, nothing is divided by it."""
    begin, end, step = args
    t_id, truth = em.type_id(t), em.type_id(u1)
    up = apply(em, "gt", t, step, em.const(t, 0))
    low, high = (em.op(spec.OpSelect, t_id, up, *pair) for pair in ((begin, end), (end, begin)))
    moves = apply(em, "ne", t, step, em.const(t, 0))
    size = em.op(spec.OpSelect, t_id, up, step, em.op(spec.OpSNegate, t_id, step))
    size = em.op(spec.OpSelect, t_id, moves, size, em.const(t, 1))
    some = em.op(spec.OpLogicalAnd, truth, moves, apply(em, "lt", t, low, high))
    return _steps(em, t, some, _distance(em, t, low, high), _as_unsigned(em, t, size))


def _steps(em: Emitter, t: Scalar, some: int, length: int, size: int) -> int:
    """The steps of a size that a length takes if `some`, else 0."""
    unsigned = scalar_named(f"u{t.bits}")
    u_id, one = em.type_id(unsigned), em.const(unsigned, 1)
    whole = _div_u(em, unsigned, (em.op(spec.OpISub, u_id, length, one), size))
    count = em.op(spec.OpIAdd, u_id, whole, one)
    return em.op(spec.OpSelect, u_id, some, count, em.const(unsigned, 0))


def _distance(em: Emitter, t: Scalar, low: int, high: int) -> int:
    """high - low, unsigned; low <= high."""
    u_id = em.type_id(scalar_named(f"u{t.bits}"))
    high = _as_unsigned(em, t, high)
    return high if em.known(low) == 0 else em.op(
        spec.OpISub, u_id, high, _as_unsigned(em, t, low)
    )  # fmt: skip


def _as_unsigned(em: Emitter, t: Scalar, value: int) -> int:
    """The bits of an integer as the unsigned type of its width."""
    if t.kind == "u":
        return value
    return em.op(spec.OpBitcast, em.type_id(scalar_named(f"u{t.bits}")), value)


SHIFTS = {
    ("shl", "i"): spec.OpShiftLeftLogical, ("shl", "u"): spec.OpShiftLeftLogical,
    ("shr", "i"): spec.OpShiftRightArithmetic, ("shr", "u"): spec.OpShiftRightLogical,
}  # fmt: skip


def _shift(opcode: int) -> Formula:
    """SPIR-V leaves amounts of the width and more undefined: 0 then, or the sign everywhere. Taken
    for unsigned, negative amounts are such too."""
    keeps_sign = opcode == spec.OpShiftRightArithmetic

    def formula(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
        a, amount = args
        t_id, bits = em.type_id(t), em.known(amount)
        last = em.const(t, t.bits - 1)
        if bits is not None and bits < t.bits:
            return em.op(opcode, t_id, a, amount)
        if bits is not None:
            return em.op(opcode, t_id, a, last) if keeps_sign else em.const(t, 0)
        within = em.op(spec.OpULessThan, em.type_id(u1), amount, em.const(t, t.bits))
        if keeps_sign:
            return em.op(opcode, t_id, a, em.op(spec.OpSelect, t_id, within, amount, last))
        shifted = em.op(opcode, t_id, a, em.op(spec.OpBitwiseAnd, t_id, amount, last))
        return em.op(spec.OpSelect, t_id, within, shifted, em.const(t, 0))

    return formula


def _identity(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
    return args[0]


def _sign_u(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
    return em.glsl(Glsl.UMin, em.type_id(t), args[0], em.const(t, 1))


def _halves(em: Emitter, t: Scalar, value: int) -> tuple[int, int]:
    """Low and high u32 of a 64-bit integer."""
    t_id, word = em.type_id(t), em.type_id(u32)
    high = em.op(spec.OpShiftRightLogical, t_id, value, em.const(t, 32))
    return em.op(spec.OpUConvert, word, value), em.op(spec.OpUConvert, word, high)


def _to_word(em: Emitter, t: Scalar, value: int) -> int:
    """An integer of at most 32 bits as u32, its own bits only."""
    if t is u32:
        return value
    opcode = spec.OpBitcast if t.bits == 32 else spec.OpUConvert
    if t.kind == "i" and t.bits < 32:
        value = em.op(spec.OpBitcast, em.type_id(scalar_named(f"u{t.bits}")), value)
    return em.op(opcode, em.type_id(u32), value)


def _popcnt(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
    word = em.type_id(u32)
    if t.bits < 64:
        count = em.op(spec.OpBitCount, word, _to_word(em, t, args[0]))
        return convert(em, u32, t, count)
    counts = [em.op(spec.OpBitCount, word, half) for half in _halves(em, t, args[0])]
    return convert(em, u32, t, em.op(spec.OpIAdd, word, *counts))


def _clz(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
    """`bits - 1 - position of the highest bit`, which FindUMsb gives as -1 for zero."""
    i_id, word = em.type_id(i32), em.type_id(u32)
    if t.bits < 64:
        top = em.glsl(Glsl.FindUMsb, i_id, _to_word(em, t, args[0]))
        return convert(em, i32, t, em.op(spec.OpISub, i_id, em.index(t.bits - 1), top))
    low, high = _halves(em, t, args[0])
    has_high = em.op(spec.OpINotEqual, em.type_id(u1), high, em.const(u32, 0))
    part = em.op(spec.OpSelect, word, has_high, high, low)
    width = em.op(spec.OpSelect, i_id, has_high, em.index(31), em.index(63))
    top = em.glsl(Glsl.FindUMsb, i_id, part)
    return convert(em, i32, t, em.op(spec.OpISub, i_id, width, top))


# --- floats ----------------------------------------------------------------------------------


def _sign_f(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
    """By comparisons, so that NaN gives 0; FSign leaves it open."""
    t_id, truth, zero = em.type_id(t), em.type_id(u1), em.const(t, 0)
    above = em.op(spec.OpFOrdGreaterThan, truth, args[0], zero)
    below = em.op(spec.OpFOrdLessThan, truth, args[0], zero)
    rest = em.op(spec.OpSelect, t_id, below, em.number(t, -1), zero)
    return em.op(spec.OpSelect, t_id, above, em.number(t, 1), rest)


def _rsqrt_f64(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
    root = em.glsl(Glsl.Sqrt, em.type_id(t), args[0])
    return em.op(spec.OpFDiv, em.type_id(t), em.number(t, 1), root)


def _pow(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
    """GLSL's Pow is undefined for x < 0: whole exponents are given their sign, others NaN."""
    x, y = args
    bits = em.known(y)
    if bits is not None:
        return _pow_known(em, t, x, y, float(value_of(bits, t)))
    t_id, truth = em.type_id(t), em.type_id(u1)
    raised = _pow_abs(em, t, x, y)
    negated = em.op(spec.OpFNegate, t_id, raised)
    half = em.op(spec.OpFMul, t_id, y, em.number(t, 0.5))
    floor_half = em.glsl(Glsl.Floor, t_id, half)
    floor_y = em.glsl(Glsl.Floor, t_id, y)
    is_whole = em.op(spec.OpFOrdEqual, truth, floor_y, y)
    is_even = em.op(spec.OpFOrdEqual, truth, floor_half, half)
    signed = em.op(spec.OpSelect, t_id, is_even, raised, negated)
    of_negative = em.op(spec.OpSelect, t_id, is_whole, signed, em.number(t, math.nan))
    is_below = em.op(spec.OpFOrdLessThan, truth, x, em.const(t, 0))
    result = em.op(spec.OpSelect, t_id, is_below, of_negative, raised)
    is_zero = em.op(spec.OpFOrdEqual, truth, y, em.const(t, 0))
    return em.op(spec.OpSelect, t_id, is_zero, em.number(t, 1), result)


def _pow_known(em: Emitter, t: Scalar, x: int, y: int, exponent: float) -> int:
    if exponent == 0:
        return em.number(t, 1)
    if exponent == 1:
        return x
    if math.isfinite(exponent) and not exponent.is_integer():
        return em.glsl(Glsl.Pow, em.type_id(t), x, y)
    raised = _pow_abs(em, t, x, y)
    if not math.isfinite(exponent) or exponent % 2 == 0:
        return raised
    is_below = em.op(spec.OpFOrdLessThan, em.type_id(u1), x, em.const(t, 0))
    negated = em.op(spec.OpFNegate, em.type_id(t), raised)
    return em.op(spec.OpSelect, em.type_id(t), is_below, negated, raised)


def _pow_abs(em: Emitter, t: Scalar, x: int, y: int) -> int:
    t_id = em.type_id(t)
    return em.glsl(Glsl.Pow, t_id, em.glsl(Glsl.FAbs, t_id, x), y)


def _atan2(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
    """GLSL leaves the origin open; 0 there."""
    t_id, truth, zero = em.type_id(t), em.type_id(u1), em.const(t, 0)
    equal = [em.op(spec.OpFOrdEqual, truth, v, zero) for v in args]
    is_origin = em.op(spec.OpLogicalAnd, truth, *equal)
    angle = em.glsl(Glsl.Atan2, t_id, *args)
    return em.op(spec.OpSelect, t_id, is_origin, zero, angle)


def _not_in_64_bits(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
    raise InternalError("GLSL.std.450 has no f64 `pow` and `atan2`; legalize must replace them")


def _extreme(kind: str) -> Formula:
    """The smaller or larger integer: the instruction, or chosen by a comparison where the device
    does the former wrong."""

    def emit(em: Emitter, t: Scalar, args: tuple[int, ...]) -> int:
        if em.caps.integer_extremes:
            return em.glsl(GLSL[kind, t.kind], em.type_id(t), *args)
        chosen = apply(em, "lt" if kind == "min" else "gt", t, *args)
        return em.op(spec.OpSelect, em.type_id(t), chosen, *args)

    return emit


# "op.kind" or "op.type" -> formula.
FORMULAS: dict[str, Formula] = {
    "floordiv.i": _floordiv_i, "floordiv.u": _div_u, "truncdiv.u": _div_u,
    "mod.i": _mod_i, "mod.u": _mod_u, "rem.i": _rem_i, "rem.u": _mod_u,
    **{f"{kind}.{of}": _shift(opcode) for (kind, of), opcode in SHIFTS.items()},
    "min.i": _extreme("min"), "min.u": _extreme("min"),
    "max.i": _extreme("max"), "max.u": _extreme("max"),
    "abs.u": _identity, "sign.u": _sign_u, "sign.f": _sign_f,
    "popcnt.i": _popcnt, "popcnt.u": _popcnt, "clz.i": _clz, "clz.u": _clz,
    "trip_count.i": _trip_count, "trip_count.u": _trip_count,
    "rsqrt.f64": _rsqrt_f64, "pow.f64": _not_in_64_bits, "pow.f": _pow,
    "atan2.f64": _not_in_64_bits, "atan2.f": _atan2,
}  # fmt: skip


# --- conversions -----------------------------------------------------------------------------

# Kinds of source and destination -> opcode, where the width does not matter or both are floats.
CONVERSIONS = {
    ("f", "f"): spec.OpFConvert, ("f", "i"): spec.OpConvertFToS, ("f", "u"): spec.OpConvertFToU,
    ("i", "f"): spec.OpConvertSToF, ("u", "f"): spec.OpConvertUToF,
}  # fmt: skip


def convert(em: Emitter, old: Scalar, new: Scalar, value: int) -> int:
    """The id of a component converted by value, as the row `cast` says."""
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
    """Widening follows the source's sign; OpUConvert only gives unsigned types."""
    t_id = em.type_id(new)
    if old.bits == new.bits:
        return em.op(spec.OpBitcast, t_id, value)
    if new.kind == "i" and (old.kind == "i" or old.bits > new.bits):
        return em.op(spec.OpSConvert, t_id, value)
    if old.kind == "i" and old.bits < new.bits:
        return em.op(spec.OpSConvert, t_id, value)
    if new.kind == "u":
        return em.op(spec.OpUConvert, t_id, value)
    unsigned = u64 if new.bits == 64 else scalar_named(f"u{new.bits}")
    return em.op(spec.OpBitcast, t_id, em.op(spec.OpUConvert, em.type_id(unsigned), value))
