"""Emission of a Shader from one split Func: the entry point around the lowered code.

Sets the execution modes, orders the parts of the function, and checks that the device has all
capabilities that the module needs. `ROWS` has the functions that lower ops.
"""

from __future__ import annotations

from collections.abc import Callable

from vkchi import env
from vkchi.errors import DeviceError, InternalError
from vkchi.ir.core import Func, Op
from vkchi.ir.ops import ELEMENTWISE, Trait, kinds_with
from vkchi.spirv import control_flow, invocation, pointers, spec
from vkchi.spirv.emitter import Emitter, Row
from vkchi.spirv.module_builder import Words, encode_instruction
from vkchi.spirv.spec import Decoration, ExecutionMode, Glsl, StorageClass
from vkchi.target.caps import Caps
from vkchi.target.magic import MAGIC
from vkchi.target.shader import ArgumentSlot, Grid, Shader
from vkchi.types import (
    Scalar,
    Tensor,
    bf16,
    f32,
    f64,
    i32,
    scalar_named,
    scalar_of,
    u1,
    u16,
    u32,
    u64,
)  # fmt: skip

# --- instruction selection -----------------------------------------------------------------------
#
# Instruction selection: one row per IR op, except ops that passes replace before.
#
# `ROWS` maps each op kind to the function that emits it. Tensors are scalarized here: an op on a
# tensor emits one instruction per component, and most tensor ops only rename ids.
#
# See also: `pointers.py` (addresses), `control_flow.py` (blocks).
#
#     >>> ROWS["add"] is lower_elementwise
#     True

# --- scalar instructions -------------------------------------------------------------------------
#
# Elementwise arithmetic: the instruction of each op by scalar kind, and numeric conversions.
#
# Preconditions: `legalize` and `arithmetic` have replaced all ops without an exact instruction.
# `arithmetic` also keeps shift amounts in range.
#
#     instruction_of(em, "sqrt", f32)        # (OpExtInst, the id of GLSL.std.450, Sqrt)

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
    if bf16 in (old, new):
        return _convert_bf16(em, old, new, value)
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


def _convert_bf16(em: Emitter, old: Scalar, new: Scalar, value: int) -> int:
    """Convert from or to bf16 by way of f32, whose high bits it is. Rounds to nearest, ties to
    even; NaN gets its quiet bit set. See also: `types.bfloat16`."""
    word, half, truth = em.type_id(u32), em.type_id(u16), em.type_id(u1)

    def number(k: int) -> int:
        return em.number(u32, k)

    if old is bf16:
        wide = em.op(spec.OpUConvert, word, value)
        high = em.op(spec.OpShiftLeftLogical, word, wide, number(16))
        return convert(em, f32, new, em.op(spec.OpBitcast, em.type_id(f32), high))
    bits = em.op(spec.OpBitcast, word, convert(em, old, f32, value))
    size = em.op(spec.OpBitwiseAnd, word, bits, number(0x7FFFFFFF))
    is_nan = em.op(spec.OpUGreaterThan, truth, size, number(0x7F800000))
    high = em.op(spec.OpShiftRightLogical, word, bits, number(16))
    odd = em.op(spec.OpBitwiseAnd, word, high, number(1))
    up = em.op(spec.OpIAdd, word, odd, number(0x7FFF))
    nearest = em.op(spec.OpIAdd, word, bits, up)
    quiet = em.op(spec.OpBitwiseOr, word, bits, number(0x400000))
    kept = em.op(spec.OpSelect, word, is_nan, quiet, nearest)
    return em.op(spec.OpUConvert, half, em.op(spec.OpShiftRightLogical, word, kept, number(16)))


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


# --- rows ----------------------------------------------------------------------------------------

# Limits for select chains on a computed index. Above them, components are loaded from an array.
# It is a constant table if all are constants, else it is stored first. CPUs load lane by lane.
SELECT_MOST, SELECT_MOST_CONSTANTS = 10, 8


def lower_elementwise(em: Emitter, op: Op) -> tuple[int, ...]:
    columns = [em.ids[v] for v in op.args]
    t_id = em.type_id(scalar_of(op.type))
    opcode, *extra = instruction_of(em, op.kind, scalar_of(op.args[0].type))
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
    return tuple([convert(em, old, new, v) for v in em.ids[op.args[0]]])


def lower_bitcast(em: Emitter, op: Op) -> tuple[int, ...]:
    old, new, values = scalar_of(op.args[0].type), scalar_of(op.type), em.ids[op.args[0]]
    if em.type_id(old) == em.type_id(new):
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
    mul, add = SIMPLE["mul", t.kind], SIMPLE["add", t.kind]
    total = em.op(mul, t_id, a[0], b[0])
    for x, y in zip(a[1:], b[1:], strict=True):
        total = em.op(add, t_id, total, em.op(mul, t_id, x, y))
    return total


def lower_outer(em: Emitter, op: Op) -> tuple[int, ...]:
    t = scalar_of(op.type)
    mul, t_id = SIMPLE["mul", t.kind], em.type_id(t)
    a, b = em.ids[op.args[0]], em.ids[op.args[1]]
    return tuple([em.op(mul, t_id, x, y) for x in a for y in b])


def lower_sum(em: Emitter, op: Op) -> tuple[int, ...]:
    t = scalar_of(op.type)
    add, t_id = SIMPLE["add", t.kind], em.type_id(t)
    first, *rest = em.ids[op.args[0]]
    for v in rest:
        first = em.op(add, t_id, first, v)
    return (first,)


# --- the rows ----------------------------------------------------------------------------------

SCALARIZED = sorted({kind for kind, _ in (*SIMPLE, *GLSL)})
ROWS: dict[str, Row] = {
    **dict.fromkeys(SCALARIZED, lower_elementwise),
    "popcnt": lower_popcnt,
    "clz": lower_clz,
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
    "has_iteration": lambda em, op: (em.const(u1, 1),),
    "subgroup_size": invocation.lower_subgroup_size,
    "subgroup_index": invocation.lower_subgroup_index,
    "subgroup_elect": invocation.lower_elect,
    "subgroup_ballot": invocation.lower_ballot,
    "subgroup_ballot_wide": invocation.lower_wide_ballot,
    "subgroup_barrier": invocation.lower_subgroup_barrier,
    **dict.fromkeys(invocation.REDUCTIONS, invocation.lower_reduction),
    **dict.fromkeys(invocation.EXCHANGES, invocation.lower_exchange),
    "if": control_flow.lower_if,
    "for": control_flow.lower_for,
    "while": control_flow.lower_while,
    "parallel": control_flow.lower_parallel,
    "yield": control_flow.lower_yield,
}


# --- the shader ----------------------------------------------------------------------------------

ENTRY = "main"
FLOAT_BITS = 32
PUSH_CONSTANT_LIMIT = 256  # in bytes, even if the device has more
# Operations that drivers may contract to an FMA.
FUSED = frozenset({spec.OpFAdd, spec.OpFSub, spec.OpFMul, spec.OpFDiv})


def emit(
    fn: Func, grid: Grid, caps: Caps, name: str, *, exact: bool = False, is_fast: bool = False,
    emitter: Callable[..., Emitter] = Emitter,
) -> Shader:  # fmt: skip
    """Compile a Func that `pipeline.lower_dispatch` has processed to a Shader.

    With `exact`, the driver must not contract float operations. With `is_fast`, it may ignore the
    sign of f32 zeros, and may assume that no f32 is infinite or NaN. `emitter` may be a subclass
    that records more. Arguments beyond the limit of push constants are read from memory. If
    VKCHI_DUMP_SPV is set, the module is also written to that folder.

    Raises DeviceError if the device lacks a capability the Func needs, InternalError for IR that
    earlier passes must remove.
    """
    em = emitter(fn, grid, caps, ROWS, exact=exact)
    entry, slots, size_bytes = _write_function(em)
    if caps.signed_zero_inf_nan_f32 and f32 in em.types and not is_fast:
        em.need("signed_zero_inf_nan_f32")
        mode = ExecutionMode.SignedZeroInfNanPreserve
        em.m.modes += encode_instruction(spec.OpExecutionMode, entry, mode, FLOAT_BITS)
    needs = tuple(sorted(em.needs))
    lacking = [field for field in needs if not getattr(caps, field)]
    if lacking:
        raise DeviceError(f"{name} needs what this device lacks: {', '.join(lacking)}")
    words = em.m.assemble(entry, ENTRY)
    del em.arguments, em.ids  # break reference cycles through the emitter
    shader = Shader(name, words, slots, size_bytes, False, grid, needs)
    if size_bytes > min(caps.push_constant_bytes, PUSH_CONSTANT_LIMIT):
        from vkchi.spirv.module_builder import in_memory  # few kernels need it

        shader = in_memory(shader)
    if env.flag("VKCHI_DUMP_SPV"):
        from hashlib import sha256  # only needed here

        env.dump("VKCHI_DUMP_SPV", f"{sha256(shader.words).hexdigest()}.spv", shader.words)
    return shader


def _write_function(em: Emitter) -> tuple[int, tuple[ArgumentSlot, ...], int]:
    """Lower the body into `em.m`; return the function's id, the slots, and the argument block's
    size."""
    m = em.m
    void, entry, block = m.type(spec.OpTypeVoid), m.new_id(), em.block
    sizes = [axis.block for axis in em.grid.axes]
    mode = (ExecutionMode.LocalSize, *sizes, *[1] * (3 - len(sizes)))
    m.modes += encode_instruction(spec.OpExecutionMode, entry, *mode)
    em.lower([op for op in em.fn.body.ops if op not in em.survey.dead])
    loads, slots, size_bytes = em.arguments.finish()
    t_id = m.type(spec.OpTypeFunction, void)
    head: Words = encode_instruction(spec.OpFunction, void, entry, 0, t_id)
    head += encode_instruction(spec.OpLabel, block)
    m.functions = [*head, *em.variables, *loads, *em.prologue, *em.code]
    m.functions += encode_instruction(spec.OpReturn) + encode_instruction(spec.OpFunctionEnd)
    if em.exact or f64 in em.types:
        forbid_contraction(em)
    return entry, slots, size_bytes


def forbid_contraction(em: Emitter) -> None:
    """Decorate float adds, subtractions, products and quotients NoContraction: all if `exact`, else
    f64.

    The f64 functions are computed in parts that must be rounded separately.
    """
    words, k = em.m.functions, 0
    while k < len(words):
        size, opcode = divmod(words[k], 1 << 16)
        if opcode in FUSED and (em.exact or words[k + 1] == em.types[f64]):
            em.m.decorate(words[k + 2], Decoration.NoContraction)
        k += size
