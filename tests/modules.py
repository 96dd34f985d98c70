"""Facts of SPIR-V modules: declarations, casts of element pointers, alignments, scans.

>>> declarations(words).capabilities
{'Shader', 'PhysicalStorageBufferAddresses'}
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import NamedTuple

from vkchi.spirv import spec
from vkchi.spirv.module_builder import iterate_instructions
from vkchi.spirv.spec import Capability, GroupOperation, MemoryAccess, StorageClass

OP_CAPABILITY, OP_EXTENSION, OP_TYPE_INT, OP_TYPE_FLOAT, OP_TYPE_VECTOR = 17, 10, 21, 22, 23
OP_TYPE_POINTER = 32
CHAINS = (spec.OpAccessChain, spec.OpInBoundsAccessChain)
NAMES = {v: k for k, v in vars(Capability).items() if isinstance(v, int)}
NATIVE_SCANS = (
    spec.OpGroupNonUniformIAdd, spec.OpGroupNonUniformFAdd, spec.OpGroupNonUniformIMul,
    spec.OpGroupNonUniformFMul,
)  # fmt: skip


class Declarations(NamedTuple):
    """Version, capabilities and extensions that a module declares."""

    version: tuple[int, int]
    capabilities: frozenset[str]
    extensions: frozenset[str]


def words_of(module: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(module) // 4}I", module))


def declarations(module: bytes) -> Declarations:
    """Read the declarations of a module."""
    words = words_of(module)
    capabilities, extensions = set(), set()
    for opcode, operands in iterate_instructions(words):
        if opcode == OP_CAPABILITY:
            capabilities.add(NAMES[operands[0]])
        elif opcode == OP_EXTENSION:
            text = struct.pack(f"<{len(operands)}I", *operands)
            extensions.add(text.rstrip(b"\0").decode())
    version = (words[1] >> 16, words[1] >> 8 & 0xFF)
    return Declarations(version, frozenset(capabilities), frozenset(extensions))


def pointer_faults(module: bytes) -> list[str]:
    """Casts of access chains, and accesses of vectors below their natural alignment."""
    faults, chains = alignment_faults(module), set()
    for opcode, operands in iterate_instructions(words_of(module)):
        if opcode in CHAINS:
            chains.add(operands[1])
        elif opcode == spec.OpBitcast and operands[2] in chains:
            faults.append(f"OpBitcast of the access chain %{operands[2]}")
    return faults


def alignment_faults(module: bytes) -> list[str]:
    """Accesses of vectors in buffers below their natural alignment."""
    sizes: dict[int, int] = {}  # bytes; three components take four
    vectors: set[int] = set()
    pointers: dict[int, int] = {}  # pointer types to buffers -> pointee
    typed: dict[int, int] = {}
    faults = []
    for opcode, operands in iterate_instructions(words_of(module)):
        if opcode in (OP_TYPE_INT, OP_TYPE_FLOAT):
            sizes[operands[0]] = operands[1] // 8
        elif opcode == OP_TYPE_VECTOR:
            new, elem, count = operands
            vectors.add(new)
            sizes[new] = sizes.get(elem, 0) * (4 if count == 3 else count)
        elif opcode == OP_TYPE_POINTER and operands[1] == StorageClass.PhysicalStorageBuffer:
            pointers[operands[0]] = operands[2]
        elif opcode in (*CHAINS, spec.OpBitcast, spec.OpSelect):
            typed[operands[1]] = operands[0]
        elif opcode in (spec.OpLoad, spec.OpStore):
            pointer, access = (
                (operands[2], operands[3:])
                if opcode == spec.OpLoad
                else (operands[0], operands[2:])
            )
            pointee = pointers.get(typed.get(pointer, 0))
            if pointee in vectors:
                assert access[0] & MemoryAccess.Aligned
                if access[1] < sizes[pointee]:
                    faults.append(f"a vector of {sizes[pointee]} bytes is aligned to {access[1]}")
    return faults


def missing_scans(module: bytes) -> list[int]:
    """Opcodes of scans that SPIRV-Cross does not translate."""
    scans = (GroupOperation.InclusiveScan, GroupOperation.ExclusiveScan)
    first, last = spec.OpGroupNonUniformIAdd, spec.OpGroupNonUniformLogicalXor
    return [
        opcode
        for opcode, operands in iterate_instructions(words_of(module))
        if first <= opcode <= last and opcode not in NATIVE_SCANS and operands[3] in scans
    ]


def movable_exchanges(module: bytes) -> list[int]:
    """Results of subgroup operations that the next instruction does not store."""
    first, last = spec.OpGroupNonUniformElect, spec.OpGroupNonUniformLogicalXor
    code = list(iterate_instructions(words_of(module)))
    return [
        operands[1]
        for (opcode, operands), (following, stored) in pairwise(code)
        if first <= opcode <= last and not (following == spec.OpStore and stored[1] == operands[1])
    ]
