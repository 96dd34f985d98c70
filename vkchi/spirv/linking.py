"""Several shaders linked into one, whose single workgroup does what a list of dispatches says.

A dispatch of few invocations costs more than what it computes. So those that follow each other are
one dispatch: a loop over a list in memory, of which each entry says which shader comes next, where
its arguments stand, and whether the workgroup has to wait before it. Code is as long as all the
shaders together, however long the list is.

A shader becomes a function: types, constants and the workgroup's memory are shared by all; what the
hardware tells an invocation comes as parameters, as does the address of its arguments, which stand
in memory (`in_memory`). Nothing is constant any more, for another shader of the list may write it.

Owns: which shaders can be linked, the module. Must not know: what dispatches are for, who makes the
list (`target.stretch`).

    >>> link([a, b]).members
    (0, 1)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache

from vkchi.errors import InternalError
from vkchi.spirv import spec
from vkchi.spirv.disasm import GRAMMAR
from vkchi.spirv.in_memory import in_memory
from vkchi.spirv.invocation import BOTH_MEMORIES
from vkchi.spirv.module import Module, Words, dump, instruction, instructions
from vkchi.spirv.spec import BuiltIn, Decoration, ExecutionMode, MemoryAccess, Scope, StorageClass
from vkchi.target.shader import REPORTS, Shader, row_grid
from vkchi.target.stretch import ENTRY, Link

NAME = "stretch"
ADDRESS_BYTES = 8
ROW = 32  # the linked shader's workgroup is a multiple of that: whole subgroups
MOST_SHARED_BYTES = 1 << 14  # of the workgroup's memory, as any device has
MOST_WORDS = 1 << 16  # of all modules together
TYPES = range(spec.OpTypeVoid, spec.OpTypeFunction + 1)
CONSTANTS = (spec.OpConstantTrue, spec.OpConstantFalse, spec.OpConstant)
DECORATIONS = (spec.OpDecorate, spec.OpMemberDecorate)
# What every function is given: the address of its arguments, and what it would ask the hardware.
GIVEN = (0, BuiltIn.WorkgroupId, BuiltIn.NumWorkgroups, BuiltIn.GlobalInvocationId)
GIVEN_SIZES = (2, 3, 3, 3)


class Part:
    """A shader to be linked: the instructions of its module; `modes` of its entry point, but for
    the size of workgroups; what decorates its ids; the bytes of its workgroup's memory; whether
    invocations wait for each other, or lanes work together."""

    def __init__(self, shader: Shader) -> None:
        shader = in_memory(shader)
        self.axes, self.block, self.needs = shader.grid.axes, shader.grid.block, shader.needs
        words = list(struct.unpack(f"<{len(shader.words) // 4}I", shader.words))
        self.length, self.instructions = len(words), list(instructions(words))
        self.decorations: dict[int, list[Words]] = {}
        self.modes: set[tuple[int, ...]] = set()
        self.waits = self.asks_lanes = False
        for opcode, operands in self.instructions:
            if opcode in DECORATIONS:
                self.decorations.setdefault(operands[0], []).append([opcode, *operands[1:]])
            elif opcode == spec.OpExecutionMode and operands[1] != ExecutionMode.LocalSize:
                self.modes.add(tuple(operands[1:]))
            elif opcode == spec.OpControlBarrier:
                self.waits = True
            elif spec.OpGroupNonUniformElect <= opcode <= spec.OpGroupNonUniformLogicalXor:
                self.asks_lanes = True
        self.shared_bytes = shared_bytes(self.instructions)

    @property
    def can_be_linked(self) -> bool:
        """Whether lanes that work together, if any do, are those that follow each other in a row,
        as they are in the linked shader; and what the hardware tells is loaded whole, as in all
        modules of ours."""
        asked = {
            operands[1]
            for opcode, operands in self.instructions
            if opcode == spec.OpVariable and operands[2] == StorageClass.Input
        }
        is_ours = not any(
            opcode == spec.OpAccessChain and operands[2] in asked
            for opcode, operands in self.instructions
        )
        return is_ours and (len(self.axes) < 2 or not self.asks_lanes)


def read_parts(shaders: Sequence[Shader]) -> dict[int, Part]:
    """Those that can be linked, by number: of modules that others have written, none."""
    found: dict[int, Part] = {}
    for k, shader in enumerate(shaders):
        with suppress(InternalError):
            part = None if reports(shader) else Part(shader)
            if part is not None and part.can_be_linked:
                found[k] = part
    return found


def shared_bytes(all_: Sequence[tuple[int, Words]]) -> int:
    """The bytes of the workgroup's memory that a module declares: arrays of scalars."""
    known: dict[int, int] = {}  # sizes of types, values of constants
    pointees: dict[int, int] = {}
    found = 0
    for opcode, operands in all_:
        if opcode in (spec.OpTypeInt, spec.OpTypeFloat):
            known[operands[0]] = operands[1] // 8
        elif opcode == spec.OpTypeBool:
            known[operands[0]] = 4
        elif opcode == spec.OpConstant:
            known[operands[1]] = operands[2]
        elif opcode == spec.OpTypeArray:
            known[operands[0]] = known[operands[1]] * known[operands[2]]
        elif opcode == spec.OpTypePointer:
            pointees[operands[0]] = operands[2]
        elif opcode == spec.OpVariable and operands[2] == StorageClass.Workgroup:
            found += known[pointees[operands[0]]]
    return found


def reports(shader: Shader) -> bool:
    """Whether a shader tells the host something, for which somebody waits."""
    return any(slot.param == REPORTS for slot in shader.slots)


def link(shaders: Sequence[Shader]) -> Link | None:
    """The shader that runs lists of these, or of those that may stand in one module, the first
    before others; None where there is none."""
    found = read_parts(shaders)
    parts = choose(found) if found else {}
    if not parts:
        return None
    linking = _Linking(block_of(parts.values()))
    functions = [linking.copy(part) for part in parts.values()]
    words = linking.finish(functions, list(parts.values()))
    dump(words)
    needs = tuple(sorted({need for part in parts.values() for need in part.needs}))
    grid = row_grid(("const", linking.block), linking.block, guard=False)
    shader = Shader(NAME, words, (), ADDRESS_BYTES, True, grid, needs)
    return Link(shader, tuple(parts), tuple([part.shared_bytes > 0 for part in parts.values()]))


def block_of(parts: Iterable[Part]) -> int:
    """The invocations of a workgroup that is large enough for all."""
    return -(-max(part.block for part in parts) // ROW) * ROW


def choose(parts: dict[int, Part]) -> dict[int, Part]:
    """Those that can be in one module: floats are treated as in the first, invocations that wait
    for each other are the whole workgroup, and it is neither too long nor has too much memory."""
    block, modes = block_of(parts.values()), next(iter(parts.values())).modes
    chosen: dict[int, Part] = {}
    length = shared = 0
    for k, part in parts.items():
        is_short = length + part.length <= MOST_WORDS
        fits = is_short and shared + part.shared_bytes <= MOST_SHARED_BYTES
        if fits and part.modes == modes and (part.block == block or not part.waits):
            chosen[k] = part
            length, shared = length + part.length, shared + part.shared_bytes
    return chosen


class _Linking:
    """The module `m` of all, with types by what they are and how they are decorated."""

    def __init__(self, block: int) -> None:
        self.m, self.block = Module(), block
        self.decorated: dict[tuple[object, ...], int] = {}
        self.word = self.m.type(spec.OpTypeInt, 32, 0)
        self.void = self.m.type(spec.OpTypeVoid)
        vectors = [self.m.type(spec.OpTypeVector, self.word, size) for size in GIVEN_SIZES]
        self.given = vectors
        self.function = self.m.type(spec.OpTypeFunction, self.void, *vectors)

    def const(self, value: int) -> int:
        """The id of a u32."""
        return self.m.constant(spec.OpConstant, self.word, (value,), value)

    def input(self, number: int, t_id: int) -> int:
        """The variable that the hardware sets."""
        found = self.decorated.get((StorageClass.Input, number))
        if found is None:
            found = self.m.variable(StorageClass.Input, t_id)
            self.decorated[StorageClass.Input, number] = found
            self.m.decorate(found, Decoration.BuiltIn, number)
        return found

    def copy(self, part: Part) -> int:
        """Take a shader over, as a function; its id."""
        copying = _Copying(self, part)
        for opcode, operands in part.instructions:
            copying.take(opcode, operands)
        return copying.entry

    def finish(self, functions: Sequence[int], parts: Sequence[Part]) -> bytes:
        """The words, with the loop over the list as entry point."""
        entry = _Loop(self, functions, parts).write()
        m = self.m
        for mode in ((ExecutionMode.LocalSize, self.block, 1, 1), *sorted(parts[0].modes)):
            m.modes += instruction(spec.OpExecutionMode, entry, *mode)
        return m.assemble(entry, "main")


class _Copying:
    """One shader on its way into the module. `ids` are the new ones of its own."""

    def __init__(self, linking: _Linking, part: Part) -> None:
        self.linking, self.m, self.part = linking, linking.m, part
        self.ids: dict[int, int] = {}
        self.given = [self.m.new_id() for _ in GIVEN]
        self.stand: dict[int, int] = {}  # for variables: what their loads give
        self.push = self.address = 0  # the variable, and what points to its first member
        self.shared = 0
        self.entry = 0

    def id(self, old: int) -> int:
        """The new id for an old one."""
        found = self.ids.get(old)
        if found is None:
            found = self.ids[old] = self.m.new_id()
        return found

    def take(self, opcode: int, operands: Words) -> None:
        """Take over an instruction."""
        if opcode == spec.OpCapability:
            self.m.capabilities.add(operands[0])
        elif opcode == spec.OpExtension:
            self.m.extensions.add(_text(operands))
        elif opcode == spec.OpExtInstImport:
            self.ids[operands[0]] = self.m.glsl_set()
        elif opcode in TYPES:
            self.ids[operands[0]] = self._type(opcode, operands)
        elif opcode in CONSTANTS:
            t_id, old, *words = operands
            self.ids[old] = self.m.constant(opcode, self.id(t_id), words, 0)
        elif opcode == spec.OpConstantComposite:
            t_id, old, *members = operands
            self.ids[old] = self.m.composite(self.id(t_id), [self.id(k) for k in members])
        elif opcode == spec.OpFunction:
            self._begin(operands[1])
        elif self.entry:
            self._body(opcode, operands)
        elif opcode == spec.OpVariable:
            self._variable(*operands)

    def _renumbered(self, opcode: int, operands: Words) -> Words:
        """Operands with the new ids."""
        rest, found = operands, []
        for is_id, is_last in layout_of(opcode):
            count = len(rest) if is_last else 1
            found += [self.id(k) for k in rest[:count]] if is_id else rest[:count]
            rest = rest[count:]
        return found

    def _type(self, opcode: int, operands: Words) -> int:
        _, *rest = self._renumbered(opcode, operands)
        decorations = [d for d in self.part.decorations.get(operands[0], ()) if is_kept(d)]
        if not decorations:
            return self.m.type(opcode, *rest)
        key = (opcode, tuple(rest), tuple(map(tuple, decorations)))
        found = self.linking.decorated.get(key)
        if found is None:
            found = self.linking.decorated[key] = self.m.fresh_type(opcode, *rest)
            for decoration, *words in decorations:
                self.m.annotations += instruction(decoration, found, *words)
        return found

    def _variable(self, t_id: int, old: int, storage: int, *initial: int) -> None:
        """A variable of the module: those of workgroups are shared by all shaders."""
        if storage == StorageClass.PushConstant:
            self.push = old
        elif storage == StorageClass.Input:
            ((_, _, number),) = self.part.decorations[old]
            if number in GIVEN:
                self.stand[old] = self.given[GIVEN.index(number)]
            else:
                self.ids[old] = self.linking.input(number, self.linking.word)
        else:
            self.shared += storage == StorageClass.Workgroup
            values = [self.id(k) for k in initial]
            key = (storage, self.id(t_id), *(values or (self.shared,)))
            found = self.linking.decorated.get(key)
            if found is None:
                found = self.linking.decorated[key] = self.m.new_id()
                words = (self.id(t_id), found, storage, *values)
                self.m.types += instruction(spec.OpVariable, *words)
                self.m.interface.append(found)
            self.ids[old] = found

    def _begin(self, old: int) -> None:
        """The function begins, with what it is given as parameters."""
        linking, m = self.linking, self.m
        self.entry = self.id(old)
        m.functions += instruction(spec.OpFunction, linking.void, self.entry, 0, linking.function)
        for t_id, given in zip(linking.given, self.given, strict=True):
            m.functions += instruction(spec.OpFunctionParameter, t_id, given)

    def _body(self, opcode: int, operands: Words) -> None:
        if opcode == spec.OpAccessChain and operands[2] == self.push:
            self.address = operands[1]
            return
        if opcode == spec.OpLoad and operands[2] in self.stand:
            self.ids[operands[1]] = self.stand[operands[2]]
            return
        if opcode == spec.OpLoad and operands[2] == self.address:
            pointer, base = self.id(operands[0]), self.id(operands[1])
            self.m.functions += instruction(spec.OpBitcast, pointer, base, self.given[0])
            return
        self.m.functions += instruction(opcode, *self._renumbered(opcode, operands))
        for decoration, *words in self.part.decorations.get(result_of(opcode, operands), ()):
            self.m.annotations += instruction(decoration, self.id(operands[1]), *words)


def result_of(opcode: int, operands: Words) -> int:
    """The id of an instruction's result, 0 if it has none: of those that may be decorated."""
    return operands[1] if GRAMMAR.get(opcode, "T").startswith("T") else 0


def is_kept(decoration: Words) -> bool:
    """Whether it holds for a linked shader too: what one shader reads, another may write."""
    return decoration[0] == spec.OpDecorate or decoration[2] != Decoration.NonWritable


@cache
def layout_of(opcode: int) -> tuple[tuple[bool, bool], ...]:
    """Of an instruction's operands: which are ids; whether all that are left are alike."""
    results = {"T": ["id", "id"], "R": ["id"]}
    items = GRAMMAR.get(opcode, "T id*").split()
    items[:1] = results.get(items[0], items[:1]) if items else []
    return tuple([(item in ("id", "id*"), item[-1] == "*") for item in items])


def _text(words: Words) -> str:
    return struct.pack(f"<{len(words)}I", *words).split(b"\0")[0].decode()


class _Loop:
    """The entry point, which goes through the list: functions by number, with their `parts`."""

    def __init__(self, linking: _Linking, functions: Sequence[int], parts: Sequence[Part]) -> None:
        self.linking, self.m = linking, linking.m
        self.functions, self.parts = functions, parts
        self.word, self.const = linking.word, linking.const
        self.bool = self.m.type(spec.OpTypeBool)
        self.code: Words = []

    def op(self, opcode: int, t_id: int, *operands: int) -> int:
        """Append an instruction with a result; its id."""
        new = self.m.new_id()
        self.code += instruction(opcode, t_id, new, *operands)
        return new

    def act(self, opcode: int, *operands: int) -> None:
        """Append an instruction without a result."""
        self.code += instruction(opcode, *operands)

    def begin(self, label: int) -> None:
        """Append a label."""
        self.act(spec.OpLabel, label)

    def block(self, *members: int) -> int:
        """The id of a struct in a buffer, of words and of what takes eight bytes."""
        m, at = self.m, 0
        found = m.fresh_type(spec.OpTypeStruct, *members)
        for k, member in enumerate(members):
            m.decorate_member(found, k, Decoration.Offset, at)
            at += 4 if member == self.word else 8
        return found

    def members(self, pair: int) -> list[int]:
        """Types of what stands in an entry."""
        return [self.word, self.word, pair, *[self.word] * 6]

    def load(self, base: int, t_id: int, *indices: int) -> int:
        """A member of what a pointer to a buffer points to."""
        pointer = self.m.pointer(StorageClass.PhysicalStorageBuffer, t_id)
        chain = self.op(spec.OpAccessChain, pointer, base, *indices)
        align = 4 if t_id == self.word else 8
        return self.op(spec.OpLoad, t_id, chain, MemoryAccess.Aligned, align)

    def write(self) -> int:
        """Append the function to the module; its id."""
        m = self.m
        entry, first, header, check, body, after, merge = (m.new_id() for _ in range(7))
        t_id = m.type(spec.OpTypeFunction, self.linking.void)
        self.act(spec.OpFunction, self.linking.void, entry, 0, t_id)
        self.begin(first)
        list_ = self.find_list()
        count = self.load(list_, self.word, self.const(0))
        local = self.local_index()
        self.act(spec.OpBranch, header)
        self.begin(header)
        k, following = m.new_id(), m.new_id()
        self.act(spec.OpPhi, self.word, k, self.const(0), first, following, after)
        self.act(spec.OpLoopMerge, merge, after, 0)
        self.act(spec.OpBranch, check)
        self.begin(check)
        goes_on = self.op(spec.OpULessThan, self.bool, k, count)
        self.act(spec.OpBranchConditional, goes_on, body, merge)
        self.begin(body)
        self.run_entry(list_, k, local)
        self.act(spec.OpBranch, after)
        self.begin(after)
        self.act(spec.OpIAdd, self.word, following, k, self.const(1))
        self.act(spec.OpBranch, header)
        self.begin(merge)
        self.act(spec.OpReturn)
        self.act(spec.OpFunctionEnd)
        m.functions += self.code
        return entry

    def find_list(self) -> int:
        """The pointer to the list, which is the only push constant."""
        m, push = self.m, StorageClass.PushConstant
        pair = self.linking.given[0]
        entries = m.fresh_type(spec.OpTypeRuntimeArray, self.block(*self.members(pair)))
        m.decorate(entries, Decoration.ArrayStride, ENTRY.size)
        whole = self.block(self.word, self.word, entries)
        pointer = m.pointer(StorageClass.PhysicalStorageBuffer, whole)
        outer = m.fresh_type(spec.OpTypeStruct, pointer)
        m.decorate_member(outer, 0, Decoration.Offset, 0)
        for struct_ in (whole, outer):
            m.decorate(struct_, Decoration.Block)
        variable = m.variable(push, outer)
        chain = self.op(spec.OpAccessChain, m.pointer(push, pointer), variable, self.const(0))
        return self.op(spec.OpLoad, pointer, chain)

    def local_index(self) -> int:
        """The number of the invocation in the workgroup."""
        variable = self.linking.input(BuiltIn.LocalInvocationIndex, self.word)
        return self.op(spec.OpLoad, self.word, variable)

    def run_entry(self, list_: int, k: int, local: int) -> None:
        """Do what an entry of the list says."""
        m, const, (pair, triple, *_) = self.m, self.const, self.linking.given
        which, wait, address, *six = (
            self.load(list_, t_id, const(2), k, const(member))
            for member, t_id in enumerate(self.members(pair))
        )
        waiting, ready, merge = m.new_id(), m.new_id(), m.new_id()
        has_to = self.op(spec.OpINotEqual, self.bool, wait, const(0))
        self.act(spec.OpSelectionMerge, ready, 0)
        self.act(spec.OpBranchConditional, has_to, waiting, ready)
        self.begin(waiting)
        group = const(Scope.Workgroup)
        self.act(spec.OpControlBarrier, group, group, const(BOTH_MEMORIES))
        self.act(spec.OpBranch, ready)
        self.begin(ready)
        labels = [m.new_id() for _ in self.functions]
        cases = [word for case in enumerate(labels) for word in case]
        number, count = (self.op(spec.OpCompositeConstruct, triple, *k) for k in (six[:3], six[3:]))
        self.act(spec.OpSelectionMerge, merge, 0)
        self.act(spec.OpSwitch, which, merge, *cases)
        for label, function, part in zip(labels, self.functions, self.parts, strict=True):
            self.begin(label)
            self.call(function, part, local, six[:3], (address, number, count))
            self.act(spec.OpBranch, merge)
        self.begin(merge)

    def call(
        self, function: int, part: Part, local: int, group: Sequence[int], given: tuple[int, ...]
    ) -> None:
        """Run a shader's workgroup, in as many invocations as it has."""
        inside, merge = self.m.new_id(), self.m.new_id()
        is_whole = part.block == self.linking.block
        if not is_whole:
            is_inside = self.op(spec.OpULessThan, self.bool, local, self.const(part.block))
            self.act(spec.OpSelectionMerge, merge, 0)
            self.act(spec.OpBranchConditional, is_inside, inside, merge)
            self.begin(inside)
        triple, indices = self.linking.given[1], self.indices(part, local, group)
        here = self.op(spec.OpCompositeConstruct, triple, *indices)
        self.op(spec.OpFunctionCall, self.linking.void, function, *given, here)
        if not is_whole:
            self.act(spec.OpBranch, merge)
            self.begin(merge)

    def indices(self, part: Part, local: int, group: Sequence[int]) -> list[int]:
        """Of an invocation in the dispatch, along x, y and z."""
        sizes, found, rest = [axis.block for axis in part.axes] or [1], [], local
        for k, size in enumerate(sizes):
            here = rest
            if k < len(sizes) - 1:
                here = self.op(spec.OpUMod, self.word, rest, self.const(size))
                rest = self.op(spec.OpUDiv, self.word, rest, self.const(size))
            start = self.op(spec.OpIMul, self.word, group[k], self.const(size))
            found.append(self.op(spec.OpIAdd, self.word, start, here))
        return [*found, *group[len(sizes) :]]
