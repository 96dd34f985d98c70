"""Dispatches and fills recorded once into a secondary command buffer, to be executed many times.

Arguments of a dispatch are in one of three places:

- in the commands themselves;
- in memory that nobody changes later;
- in memory whose owner orders its changes like other commands.

Therefore a sequence may be executed again while the device still runs it. It is freed after its
last reference, when the device has finished with it.

    sequence = recorder.sequence([Command(pipeline, args, (16, 1, 1), reads, writes), ...])
    recorder.execute(sequence)
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import Any

from vkchi.tuples import NamedTuple
from vkchi.vk.logical import Logical
from vkchi.vk.memory.blocks import HOST, MemoryBlock, make_block
from vkchi.vk.memory.ring import STEP_BYTES
from vkchi.vk.pipelines import BufferFills, Pipeline, Runnable

COMPUTE_POINT = 1  # VK_PIPELINE_BIND_POINT_COMPUTE
COMPUTE_STAGE = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT


class Command(NamedTuple):
    """A dispatch of `groups` workgroups along x, y and z, or buffer fills (`BufferFills`).

    - `args`: the bytes of the arguments, or the device address of arguments that the caller keeps
      in memory; then the pipeline must be `indirect`.
    - `reads`, `writes`: keys of buffers.
    - `indirect`: a VkBuffer and an offset in it. The workgroup counts are read there at execution,
      in place of `groups` and of the pipeline's `counts`.
    """

    pipeline: Runnable
    args: bytes | bytearray | int
    groups: tuple[int, int, int]
    reads: frozenset[int]
    writes: frozenset[int]
    indirect: tuple[Any, int] | None = None


class CommandSequence:
    """`count` commands in the secondary command buffer at the pointer `cell`.

    `reads`, `writes`: keys of all buffers that they access. `like`: a sequence whose commands
    differ only in their arguments. `is_counted`: the device reads workgroup counts. `order`: a
    VkDependencyInfo that makes earlier writes visible.
    The constructor raises DeviceError if the driver fails, such as out of memory.
    """

    def __init__(
        self,
        logical: Logical,
        commands: SequenceOf[Command],
        order: Any,
        like: CommandSequence | None = None,
        *,
        is_counted: bool = False,
    ) -> None:
        self.count = len(commands)
        if like is None:
            self.reads = frozenset().union(*(c.reads for c in commands))
            self.writes = frozenset().union(*(c.writes for c in commands))
            self._barriers = barriers_between(commands)
        else:
            self.reads, self.writes, self._barriers = like.reads, like.writes, like._barriers
        self._logical, self._order = logical, order
        self._pipelines = {c.pipeline for c in commands}  # must outlive the commands
        self._pool = logical.make_pool()
        self.cell = self._begin()
        self._blocks, self._offset = self._make_blocks(commands), 0
        self._bound: Pipeline | None = None
        self._record(commands)
        self.is_counted = is_counted
        if is_counted:  # reads of the counts are not tracked later
            logical.calls.vkCmdPipelineBarrier2(self.cell[0], order)
        result = logical.calls.vkEndCommandBuffer(self.cell[0])
        logical.vk.check(result, "recording a graph")

    def _begin(self) -> Any:
        vk, calls = self._logical.vk, self._logical.calls
        secondary = vk.const.VK_COMMAND_BUFFER_LEVEL_SECONDARY
        cell = self._logical.make_commands(self._pool[0], secondary)
        info = vk.new(
            "VkCommandBufferBeginInfo",
            flags=vk.const.VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT,
            pInheritanceInfo=vk.new("VkCommandBufferInheritanceInfo"),
        )
        vk.check(calls.vkBeginCommandBuffer(cell[0], info), "recording a graph")
        return cell

    def _make_blocks(self, commands: SequenceOf[Command]) -> MemoryBlock | None:
        sizes = [
            c.pipeline.args_bytes
            for c in commands
            if c.pipeline.indirect and not isinstance(c.args, int)
        ]
        need = sum(-(-size // STEP_BYTES) * STEP_BYTES for size in sizes)
        return make_block(self._logical, need, HOST) if need else None

    def _record(self, commands: SequenceOf[Command]) -> None:
        calls, target = self._logical.calls, self.cell[0]
        push, dispatch = calls.vkCmdPushConstants, calls.vkCmdDispatch
        barrier, order = calls.vkCmdPipelineBarrier2, self._order
        for (pipeline, args, groups, _, _, indirect), is_after in zip(commands, self._barriers):
            if is_after:
                barrier(target, order)
            if isinstance(pipeline, BufferFills):
                assert indirect is None, "nothing but a dispatch is left out by the device"
                pipeline.record(calls.vkCmdFillBuffer, target)
                continue
            if pipeline is not self._bound:
                calls.vkCmdBindPipeline(target, COMPUTE_POINT, pipeline.handle)
                self._bound = pipeline
            if isinstance(args, int):
                given: Any = self._logical.vk.ffi.new("uint64_t *", args)
            elif pipeline.indirect:
                given = self._place(bytes(args), pipeline.args_bytes)
            else:
                given = bytes(args)
            if pipeline.push_bytes:
                push(target, pipeline.layout, COMPUTE_STAGE, 0, pipeline.push_bytes, given)
            indirect = indirect or pipeline.counts
            if indirect is None:
                dispatch(target, *groups)
            else:
                calls.vkCmdDispatchIndirect(target, *indirect)

    def _place(self, args: bytes, size_bytes: int) -> Any:
        assert self._blocks is not None
        ffi, at = self._logical.vk.ffi, self._offset
        ffi.memmove(self._blocks.pointer + at, args, size_bytes)
        self._offset += -(-size_bytes // STEP_BYTES) * STEP_BYTES
        return ffi.new("uint64_t *", self._blocks.address + at)


def barriers_between(commands: SequenceOf[Command]) -> list[bool]:
    """Return, for each command, True if it needs a barrier before it. That is a read-after-write,
    write-after-write or write-after-read hazard since the last barrier."""
    found = []
    read: set[int] = set()
    written: set[int] = set()
    for c in commands:
        is_apart = written.isdisjoint
        found.append(not (is_apart(c.reads) and is_apart(c.writes) and read.isdisjoint(c.writes)))
        if found[-1]:
            read.clear()
            written.clear()
        read |= c.reads
        written |= c.writes
    return found
