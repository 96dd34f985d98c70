"""Rewriting of finished shaders: arguments in memory, another workgroup shape.

Arguments in memory, not in push constants, can be changed without recording commands again, and may
be larger than a device's push constants. Precondition: only the entry block reads arguments, each
exactly once (`argument_block`).

    >>> in_memory(shader).indirect
    True
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from vkchi.errors import InternalError
from vkchi.spirv import spec
from vkchi.spirv.module_builder import HEADER_WORDS, Words, encode_instruction, iterate_instructions
from vkchi.spirv.spec import Decoration, ExecutionMode, MemoryAccess, StorageClass
from vkchi.target.shader import Grid, Shader

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
