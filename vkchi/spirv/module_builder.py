"""SPIR-V module under construction: a word list per section, ids, interned types and constants.

`assemble` orders the sections and adds capabilities and extensions.

    >>> m = SpirvModule()
    >>> m.type(spec.OpTypeFloat, 32) == m.type(spec.OpTypeFloat, 32)
    True
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence

from vkchi.errors import InternalError
from vkchi.spirv import spec
from vkchi.spirv.spec import Capability, Decoration, ExecutionMode, MemoryAccess, StorageClass
from vkchi.target.shader import Grid, Shader

Words = list[int]
HEADER_WORDS = 5  # of a module, before its instructions


def encode_string(text: str) -> Words:
    """Encode a string as UTF-8 in little-endian words, with at least one terminating zero byte."""
    raw = text.encode() + b"\0"
    raw += b"\0" * (-len(raw) % 4)
    return [int.from_bytes(raw[k : k + 4], "little") for k in range(0, len(raw), 4)]


def encode_instruction(opcode: int, *operands: int) -> Words:
    return [(len(operands) + 1) << 16 | opcode, *operands]


def iterate_instructions(words: Words) -> Iterator[tuple[int, Words]]:
    """Yield (opcode, operands) of each instruction of a module.

    Raises InternalError for an instruction of 0 words, or one that exceeds the end.
    """
    at = HEADER_WORDS
    while at < len(words):
        length, opcode = words[at] >> 16, words[at] & 0xFFFF
        if not length or at + length > len(words):
            raise InternalError(f"word {at} does not begin an instruction")
        yield opcode, words[at + 1 : at + length]
        at += length


class SpirvModule:
    """Sections of a module, as lists of words.

    `bound` is the next free id. `bits` maps the id of a scalar constant to its bit pattern.
    """

    __slots__ = (
        "annotations", "bits", "bound", "capabilities", "extensions", "functions", "glsl",
        "interface", "interned", "modes", "names", "types",
    )  # fmt: skip

    def __init__(self) -> None:
        self.bound = 1
        self.bits: dict[int, int] = {}
        self.capabilities: set[int] = {Capability.Shader, Capability.PhysicalStorageBufferAddresses}
        self.extensions: set[str] = set()
        self.interned: dict[tuple[int, ...], int] = {}
        self.interface: Words = []
        self.glsl = 0
        self.modes: Words = []
        self.names: Words = []
        self.annotations: Words = []
        self.types: Words = []
        self.functions: Words = []

    def new_id(self) -> int:
        self.bound += 1
        return self.bound - 1

    def type(self, opcode: int, *operands: int) -> int:
        key = (opcode, *operands)
        found = self.interned.get(key)
        if found is None:
            found = self.interned[key] = self.new_id()
            self.types += (len(operands) + 2) << 16 | opcode, found, *operands
        return found

    def pointer(self, storage: int, pointee: int) -> int:
        return self.type(spec.OpTypePointer, storage, pointee)

    def fresh_type(self, opcode: int, *operands: int) -> int:
        """Return the id of a new type, which can be decorated; not interned."""
        new = self.new_id()
        self.types += encode_instruction(opcode, new, *operands)
        return new

    def constant(self, opcode: int, t_id: int, words: Sequence[int], bits: int) -> int:
        """Return the id of a scalar constant whose literal is `words`, interned; `bits` is its bit
        pattern."""
        key = (opcode, t_id, *words)
        found = self.interned.get(key)
        if found is None:
            found = self.interned[key] = self.new_id()
            self.types += (len(words) + 3) << 16 | opcode, t_id, found, *words
            self.bits[found] = bits
        return found

    def composite(self, t_id: int, parts: Sequence[int]) -> int:
        key = (spec.OpConstantComposite, t_id, *parts)
        found = self.interned.get(key)
        if found is None:
            found = self.interned[key] = self.new_id()
            self.types += (len(parts) + 3) << 16 | spec.OpConstantComposite, t_id, found, *parts
        return found

    def variable(self, storage: int, pointee: int, *initial: int) -> int:
        """Return the id of a new module-scope variable, which is added to the entry point's
        interface."""
        new = self.new_id()
        t_id = self.pointer(storage, pointee)
        self.types += encode_instruction(spec.OpVariable, t_id, new, storage, *initial)
        self.interface.append(new)
        return new

    def decorate(self, target: int, *words: int) -> None:
        self.annotations += encode_instruction(spec.OpDecorate, target, *words)

    def decorate_member(self, target: int, member: int, *words: int) -> None:
        self.annotations += encode_instruction(spec.OpMemberDecorate, target, member, *words)

    def name(self, target: int, text: str) -> None:
        self.names += encode_instruction(spec.OpName, target, *encode_string(text))

    def name_member(self, target: int, member: int, text: str) -> None:
        self.names += encode_instruction(spec.OpMemberName, target, member, *encode_string(text))

    def glsl_set(self) -> int:
        if not self.glsl:
            self.glsl = self.new_id()
        return self.glsl

    def assemble(self, entry: int, entry_name: str) -> bytes:
        """Return the bytes of the module, little-endian. `entry` is the id of the entry-point
        function."""
        out = [spec.MAGIC, spec.VERSION, 0, self.bound, 0]
        for capability in sorted(self.capabilities):
            out += encode_instruction(spec.OpCapability, capability)
        for extension in sorted(self.extensions):
            out += encode_instruction(spec.OpExtension, *encode_string(extension))
        if self.glsl:
            out += encode_instruction(
                spec.OpExtInstImport, self.glsl, *encode_string("GLSL.std.450")
            )
        addressing = spec.AddressingModel.PhysicalStorageBuffer64
        out += encode_instruction(spec.OpMemoryModel, addressing, spec.MemoryModel.GLSL450)
        head = [spec.ExecutionModel.GLCompute, entry, *encode_string(entry_name)]
        out += encode_instruction(spec.OpEntryPoint, *head, *self.interface)
        for section in (self.modes, self.names, self.annotations, self.types, self.functions):
            out += section
        words = array("I", out)
        if sys.byteorder == "big":
            words.byteswap()
        return words.tobytes()


# --- rewriting of finished shaders ---------------------------------------------------------------
#
# Rewriting of finished shaders: arguments in memory, another workgroup shape.
#
# Arguments in memory, not in push constants, can be changed without recording commands again, and
# may be larger than a device's push constants. Precondition: only the entry block reads arguments,
# each exactly once (`emitter.Arguments`).
#
#     >>> in_memory(shader).indirect
#     True

BOUND = 3  # index of the id bound in the header
WIDE = ("ptr", "trash")
WIDE_TYPES = ("i64", "u64", "f64")


def in_memory(shader: Shader) -> Shader:
    """Return the shader with the address of its arguments as its only push constant.

    A shader that is already indirect, or has no arguments, is returned unchanged. Raises
    InternalError if the module reads other than each argument once.
    """
    if shader.indirect or not shader.slots:
        return shader
    words = list(struct.unpack(f"<{len(shader.words) // 4}I", shader.words))
    out = _Rewriting(
        words, [8 if s.kind in WIDE or s.dtype in WIDE_TYPES else 4 for s in shader.slots]
    ).out
    return shader._replace(words=struct.pack(f"<{len(out)}I", *out), indirect=True)


def with_workgroup_shape(shader: Shader, block: Sequence[int]) -> Shader:
    """Return the shader with workgroups of these sizes along x, y and z (its mode LocalSize).

    Preconditions: no axis of the grid omits a bounds guard that the new shape needs, and no
    instruction depends on the workgroup shape, as is so for grids of several axes. Raises
    InternalError for a grid of one axis, and if `block` has not one size per axis.
    """
    axes = shader.grid.axes
    if len(axes) < 2 or len(block) != len(axes):
        raise InternalError(f"{shader.name} has no workgroups of {len(block)} axes")
    words = list(struct.unpack(f"<{len(shader.words) // 4}I", shader.words))
    at = HEADER_WORDS
    while (words[at] & 0xFFFF, words[at + 2]) != (spec.OpExecutionMode, ExecutionMode.LocalSize):
        at += words[at] >> 16
    words[at + 3 : at + 6] = [*block, 1][:3]
    grid = Grid(tuple([axis._replace(block=n) for axis, n in zip(axes, block, strict=True)]))
    return shader._replace(words=struct.pack(f"<{len(words)}I", *words), grid=grid)


class _Rewriting:
    """Rewriting of a module. `out`: the new words. `widths`: bytes of each argument, in order."""

    def __init__(self, words: Words, widths: list[int]) -> None:
        self.widths = widths
        self.bound = words[BOUND]
        self.variable, self.block_pointer, self.block = self._find_variable(words)
        self.outer, self.outer_pointer, self.inner_pointer, self.chain, self.base = (
            self._new() for _ in range(5)
        )
        self.out: Words = words[:HEADER_WORDS]
        self.read = 0  # number of arguments read so far
        self.pending = 0  # id of an access chain whose load follows
        for opcode, operands in iterate_instructions(words):
            if opcode in REWRITES:
                REWRITES[opcode](self, operands)
            self._put(opcode, *operands)
        self.out[BOUND] = self.bound
        if self.read != len(widths) or self.pending:
            raise InternalError(f"{self.read} of {len(widths)} arguments are read")

    def _new(self) -> int:
        self.bound += 1
        return self.bound - 1

    def _find_variable(self, words: Words) -> tuple[int, int, int]:
        """Return the ids of the push-constant variable, of its pointer type, and of the block
        type."""
        pointees: dict[int, int] = {}
        for opcode, operands in iterate_instructions(words):
            if opcode == spec.OpTypePointer:
                pointees[operands[0]] = operands[2]
            elif opcode == spec.OpVariable and operands[2] == StorageClass.PushConstant:
                return operands[1], operands[0], pointees[operands[0]]
        raise InternalError("the module has no push constants")

    def _put(self, opcode: int, *operands: int) -> None:
        self.out += encode_instruction(opcode, *operands)

    def at_decoration(self, operands: Words) -> None:
        if operands == [self.block, Decoration.Block]:
            self._put(spec.OpDecorate, self.outer, Decoration.Block)
            self._put(spec.OpMemberDecorate, self.outer, 0, Decoration.Offset, 0)

    def at_pointer(self, operands: Words) -> None:
        if operands[1] == StorageClass.PushConstant:
            operands[1] = StorageClass.PhysicalStorageBuffer

    def at_variable(self, operands: Words) -> None:
        if operands[1] == self.variable:
            push = StorageClass.PushConstant
            self._put(spec.OpTypeStruct, self.outer, self.block_pointer)
            self._put(spec.OpTypePointer, self.outer_pointer, push, self.outer)
            self._put(spec.OpTypePointer, self.inner_pointer, push, self.block_pointer)
            operands[0] = self.outer_pointer

    def at_access(self, operands: Words) -> None:
        if operands[2] == self.variable:
            if not self.read:  # its index is 0, as is the address's index
                first = (self.inner_pointer, self.chain, self.variable, operands[3])
                self._put(spec.OpAccessChain, *first)
                self._put(spec.OpLoad, self.block_pointer, self.base, self.chain)
            operands[2], self.pending = self.base, operands[1]

    def at_load(self, operands: Words) -> None:
        if self.pending and operands[2] == self.pending:
            operands += [MemoryAccess.Aligned, self.widths[self.read]]
            self.read, self.pending = self.read + 1, 0


# Rewrite rules: change an instruction's operands, and insert instructions before it.
REWRITES: dict[int, Callable[[_Rewriting, Words], None]] = {
    spec.OpDecorate: _Rewriting.at_decoration,
    spec.OpTypePointer: _Rewriting.at_pointer,
    spec.OpVariable: _Rewriting.at_variable,
    spec.OpAccessChain: _Rewriting.at_access,
    spec.OpLoad: _Rewriting.at_load,
}
