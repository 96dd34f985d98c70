"""Dispatches recorded once, to be run many times by one command each.

Owns: a secondary command buffer, the barriers between its dispatches, its argument blocks. Must not
know: when it runs, what its dispatches are for.

What a dispatch is given stands in the commands themselves, in memory that nobody changes later, or
in memory whose owner orders what changes it as other commands are; so a sequence may be run again
while the device is still busy with it. It is freed with its last reference, when the device is done
with it.

    sequence = recorder.sequence([Command(pipeline, args, (16, 1, 1), reads, writes), ...])
    recorder.execute(sequence)
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import Any

from vkchi.tuples import NamedTuple
from vkchi.vk.logical import Logical
from vkchi.vk.memory import HOST, Block, make_block
from vkchi.vk.pipelines import Filling, Pipeline, Runnable
from vkchi.vk.ring import STEP_BYTES

COMPUTE_POINT = 1  # VK_PIPELINE_BIND_POINT_COMPUTE
COMPUTE_STAGE = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT


class Command(NamedTuple):
    """A dispatch of so many workgroups along x, y and z, with the bytes of its arguments, or,
    of pipelines that read them from memory, the address where they stand; reads and writes are keys
    of buffers. indirect: the VkBuffer, and the offset in it, where its numbers of
    workgroups are found when it runs, in place of these."""

    pipeline: Runnable
    args: bytes | bytearray | int
    groups: tuple[int, int, int]
    reads: frozenset[int]
    writes: frozenset[int]
    indirect: tuple[Any, int] | None = None


class Sequence:
    """`count` dispatches in a command buffer at the pointer `cell`; reads, writes: keys of all the
    buffers that they touch. like: one whose commands differ in their arguments only. `order` is a
    VkDependencyInfo that lets what follows see what went before. Raises DeviceError where the
    driver is out of memory."""

    def __init__(
        self,
        logical: Logical,
        commands: SequenceOf[Command],
        order: Any,
        like: Sequence | None = None,
    ) -> None:
        self.count = len(commands)
        if like is None:
            self.reads = frozenset().union(*(c.reads for c in commands))
            self.writes = frozenset().union(*(c.writes for c in commands))
            self._barriers = barriers_between(commands)
        else:
            self.reads, self.writes, self._barriers = like.reads, like.writes, like._barriers
        self._logical, self._order = logical, order
        self._pipelines = {c.pipeline for c in commands}  # alive for as long as the commands
        self._pool = self._make_pool()
        self.cell = self._begin()
        self._blocks, self._offset = self._make_blocks(commands), 0
        self._bound: Pipeline | None = None
        self._record(commands)
        if any(c.indirect for c in commands):  # what comes next does not know of such reads
            logical.calls.vkCmdPipelineBarrier2(self.cell[0], order)
        result = logical.calls.vkEndCommandBuffer(self.cell[0])
        logical.vk.check(result, "recording a graph")

    def _make_pool(self) -> Any:
        logical = self._logical
        info = logical.vk.new(
            "VkCommandPoolCreateInfo", queueFamilyIndex=logical.physical.queue_family
        )
        call = logical.calls.vkCreateCommandPool
        return logical.handles("VkCommandPool").make(call, info, "making a command pool")

    def _begin(self) -> Any:
        vk, calls = self._logical.vk, self._logical.calls
        wanted = vk.new(
            "VkCommandBufferAllocateInfo", commandPool=self._pool[0], commandBufferCount=1,
            level=vk.const.VK_COMMAND_BUFFER_LEVEL_SECONDARY,
        )  # fmt: skip
        cell = vk.ffi.new("VkCommandBuffer *")
        result = calls.vkAllocateCommandBuffers(self._logical.handle, wanted, cell)
        vk.take(result, cell, "making a command buffer")
        info = vk.new(
            "VkCommandBufferBeginInfo",
            flags=vk.const.VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT,
            pInheritanceInfo=vk.new("VkCommandBufferInheritanceInfo"),
        )
        vk.check(calls.vkBeginCommandBuffer(cell[0], info), "recording a graph")
        return cell

    def _make_blocks(self, commands: SequenceOf[Command]) -> Block | None:
        """Memory for the arguments that are too long to stand in commands."""
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
            if isinstance(pipeline, Filling):
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
            if indirect is None:
                dispatch(target, *groups)
            else:
                calls.vkCmdDispatchIndirect(target, *indirect)

    def _place(self, args: bytes, size_bytes: int) -> Any:
        """A pointer to the device address of a copy of the arguments."""
        assert self._blocks is not None
        ffi, at = self._logical.vk.ffi, self._offset
        ffi.memmove(self._blocks.pointer + at, args, size_bytes)
        self._offset += -(-size_bytes // STEP_BYTES) * STEP_BYTES
        return ffi.new("uint64_t *", self._blocks.address + at)


def barriers_between(commands: SequenceOf[Command]) -> list[bool]:
    """Whether a barrier stands before each: where it touches what was written since the last one,
    or writes what was read."""
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
