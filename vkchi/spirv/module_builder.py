"""SPIR-V module under construction: a word list per section, ids, interned types and constants.

`assemble` orders the sections and adds capabilities and extensions.

    >>> m = SpirvModule()
    >>> m.type(spec.OpTypeFloat, 32) == m.type(spec.OpTypeFloat, 32)
    True
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence

from vkchi.errors import InternalError
from vkchi.spirv import spec
from vkchi.spirv.spec import Capability

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
