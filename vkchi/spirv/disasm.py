"""SPIR-V disassembler without external tools; spirv-as accepts its output.

Types, numeric constants and ids with an OpName get descriptive names. Other ids are numbered in
order of appearance, so that a change of code changes few lines.

    >>> print(disassemble(shader.words))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from vkchi.errors import InternalError
from vkchi.spirv import spec
from vkchi.spirv.module_builder import HEADER_WORDS, iterate_instructions
from vkchi.types.lazy_numpy import np

# Operands after the result's type and id: the name of an enumerant class, `id`, `number`, `string`.
# A * means any number of them. T: result type and id; R: only a result id. Opcodes without a row,
# mainly arithmetic, are "T id*".
GRAMMAR: dict[int, str] = {
    spec.OpName: "id string",
    spec.OpMemberName: "id number string",
    spec.OpExtension: "string",
    spec.OpExtInstImport: "R string",
    spec.OpExtInst: "T id Glsl id*",
    spec.OpMemoryModel: "AddressingModel MemoryModel",
    spec.OpEntryPoint: "ExecutionModel id string id*",
    spec.OpExecutionMode: "id ExecutionMode number*",
    spec.OpCapability: "Capability",
    spec.OpTypeVoid: "R",
    spec.OpTypeBool: "R",
    spec.OpTypeInt: "R number number",
    spec.OpTypeFloat: "R number",
    spec.OpTypeVector: "R id number",
    spec.OpTypeArray: "R id id",
    spec.OpTypeRuntimeArray: "R id",
    spec.OpTypeStruct: "R id*",
    spec.OpTypePointer: "R StorageClass id",
    spec.OpTypeFunction: "R id id*",
    spec.OpConstant: "T literal",
    spec.OpFunction: "T ControlMask id",
    spec.OpFunctionEnd: "",
    spec.OpVariable: "T StorageClass id*",
    spec.OpLoad: "T id MemoryAccess number*",
    spec.OpStore: "id id MemoryAccess number*",
    spec.OpDecorate: "id Decoration decorated*",
    spec.OpMemberDecorate: "id number Decoration decorated*",
    spec.OpCompositeExtract: "T id number*",
    spec.OpControlBarrier: "id id id",
    spec.OpMemoryBarrier: "id id",
    spec.OpLoopMerge: "id id ControlMask",
    spec.OpSelectionMerge: "id ControlMask",
    spec.OpLabel: "R",
    spec.OpBranch: "id",
    spec.OpBranchConditional: "id id id",
    spec.OpReturn: "",
}
OPCODES: dict[int, str] = {v: k for k, v in vars(spec).items() if re.match(r"Op[A-Z]", k)}
FIRST_REDUCTION = spec.OpGroupNonUniformIAdd
for _code, _name in OPCODES.items():
    if _name.startswith("OpGroupNonUniform") and _code >= FIRST_REDUCTION:
        GRAMMAR[_code] = "T id GroupOperation id"


class ControlMask:
    """Values of function, loop and selection control; only loops use DontUnroll."""

    None_, DontUnroll = 0, 2


ENUMERANTS: dict[str, dict[int, str]] = {
    c.__name__: {v: k.rstrip("_") for k, v in vars(c).items() if isinstance(v, int)}
    for c in [*(c for c in vars(spec).values() if isinstance(c, type)), ControlMask]
}


def disassemble(words: bytes) -> str:
    """Return the module as text, one instruction per line.

    Raises InternalError for words that are no module, and for opcodes that vkchi does not emit.
    """
    if len(words) % 4:
        raise InternalError("not a SPIR-V module")
    return "\n".join(_Disassembler(np.frombuffer(words, "<u4").tolist()).lines()) + "\n"


class _Disassembler:
    def __init__(self, words: list[int]) -> None:
        if words[:1] != [spec.MAGIC] or len(words) < HEADER_WORDS:
            raise InternalError("not a SPIR-V module")
        self.words = words
        self.names: dict[int, str] = {}
        self.taken: set[str] = set()
        self.types: dict[int, tuple[int, list[int]]] = {}
        self.count = 0

    def lines(self) -> Iterator[str]:
        all_ = list(iterate_instructions(self.words))
        for opcode, operands in all_:
            self._name(opcode, operands)
        yield f"; SPIR-V {self.words[1] >> 16}.{self.words[1] >> 8 & 0xFF}"
        for opcode, operands in all_:
            yield self._line(opcode, operands)

    # --- names -----------------------------------------------------------------------------

    def _name(self, opcode: int, operands: list[int]) -> None:
        if opcode == spec.OpName:
            self._give(operands[0], decode_string(operands[1:])[0])
        elif opcode in TYPE_NAMES:
            self.types[operands[0]] = (opcode, operands[1:])
            self._give(operands[0], TYPE_NAMES[opcode](self, operands[1:]))
        elif opcode == spec.OpConstant:
            text = self._literal(operands[0], operands[2:])
            self._give(operands[1], f"{self._of(operands[0])}_{text}")
        elif opcode == spec.OpExtInstImport:
            self._give(operands[0], "glsl")

    def _give(self, target: int, name: str) -> None:
        name = re.sub(r"\W", "_", name.replace("-", "n"))
        if target not in self.names:
            while name in self.taken:
                name += "_"
            self.names[target] = name
            self.taken.add(name)

    def _of(self, target: int) -> str:
        if target not in self.names:
            self.count += 1
            self.names[target] = str(self.count)
        return self.names[target]

    # --- lines -----------------------------------------------------------------------------

    def _line(self, opcode: int, operands: list[int]) -> str:
        name = OPCODES.get(opcode)
        if name is None:
            raise InternalError(f"opcode {opcode} is not one that vkchi emits")
        items = GRAMMAR.get(opcode, "T id*").split()
        words, parts, result = list(operands), [name], ""
        if items and items[0] in ("T", "R"):
            t = [words.pop(0)] if items.pop(0) == "T" else []
            result = f"%{self._of(words.pop(0))} = "
            parts += [f"%{self._of(k)}" for k in t]
        for item in items:
            parts += self._operands(item, words, operands)
        return result + " ".join(parts)

    def _operands(self, item: str, words: list[int], all_: list[int]) -> Iterator[str]:
        if item.endswith("*"):
            while words:
                yield from self._operands(item[:-1], words, all_)
        elif not words:
            return
        elif item == "id":
            yield f"%{self._of(words.pop(0))}"
        elif item == "string":
            text, length = decode_string(words)
            del words[:length]
            yield f'"{text}"'
        elif item == "literal":
            yield self._literal(all_[0], words)
            words.clear()
        elif item == "decorated":
            number = words.pop(0)
            is_builtin = all_[-2] == spec.Decoration.BuiltIn
            yield ENUMERANTS["BuiltIn"][number] if is_builtin else str(number)
        elif item == "number":
            yield str(words.pop(0))
        else:
            yield ENUMERANTS[item][words.pop(0)]

    def _literal(self, t_id: int, words: list[int]) -> str:
        opcode, (width, *sign) = self.types[t_id]
        bits = words[0] | (words[1] << 32 if len(words) > 1 else 0)
        if opcode == spec.OpTypeFloat:
            return float_text(bits & ((1 << width) - 1), width)
        is_below = sign[0] and bits >> (max(width, 32) - 1)
        return str(bits - (1 << max(width, 32)) if is_below else bits)


def decode_string(words: list[int]) -> tuple[str, int]:
    """Decode the literal string at the start of `words`. Return (string, length in words)."""
    raw = np.array(words, "<u4").tobytes()
    end = raw.index(b"\0")
    return raw[:end].decode(), end // 4 + 1


def float_text(bits: int, width: int) -> str:
    """Return a float literal that spirv-as reads back exactly; infinities and NaN as hexadecimal
    floats."""
    value: Any = np.array(bits, f"u{width // 8}").view(f"f{width // 8}")[()]
    if np.isfinite(value):
        if value == 0 or 1e-4 <= abs(value) < 1e16:
            return np.format_float_positional(value, unique=True, trim="0")
        return float(value).hex()
    digits = {16: 10, 32: 23, 64: 52}[width]
    top = {16: 16, 32: 128, 64: 1024}[width]
    payload = (bits & ((1 << digits) - 1)) << (-digits % 4)
    fraction = f".{payload:0{-(-digits // 4)}x}" if payload else ""
    return f"{'-' if bits >> (width - 1) else ''}0x1{fraction}p+{top}"


def _storage(number: int) -> str:
    return ENUMERANTS["StorageClass"][number]


TYPE_NAMES: dict[int, Callable[[Any, list[int]], str]] = {
    spec.OpTypeVoid: lambda d, w: "void",
    spec.OpTypeBool: lambda d, w: "bool",
    spec.OpTypeInt: lambda d, w: f"{'ui'[w[1]]}{w[0]}",
    spec.OpTypeFloat: lambda d, w: f"f{w[0]}",
    spec.OpTypeVector: lambda d, w: f"{d._of(w[0])}x{w[1]}",
    spec.OpTypeArray: lambda d, w: f"array_{d._of(w[0])}_{d._of(w[1])}",
    spec.OpTypeRuntimeArray: lambda d, w: f"array_{d._of(w[0])}",
    spec.OpTypeStruct: lambda d, w: "struct_" + "_".join(d._of(k) for k in w),
    spec.OpTypePointer: lambda d, w: f"ptr_{_storage(w[0])}_{d._of(w[1])}",
    spec.OpTypeFunction: lambda d, w: "function_" + "_".join(d._of(k) for k in w),
}
