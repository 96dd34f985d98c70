"""Emission of a Shader from one split Func: the entry point around the lowered code.

Sets the execution modes, orders the parts of the function, and checks that the device has all
capabilities that the module needs. `instruction_selection` has the rows that lower ops.
"""

from __future__ import annotations

from collections.abc import Callable

from vkchi import env
from vkchi.errors import DeviceError
from vkchi.ir.core import Func
from vkchi.spirv import spec
from vkchi.spirv.emitter import Emitter
from vkchi.spirv.instruction_selection import ROWS
from vkchi.spirv.module_builder import Words, encode_instruction
from vkchi.spirv.spec import Decoration, ExecutionMode
from vkchi.target.caps import Caps
from vkchi.target.shader import ArgumentSlot, Grid, Shader
from vkchi.types import f32, f64

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
