"""Command buffers, submission and the timeline semaphore of one device.

Owns: the pool, the ring of command buffers, the numbers of submissions. Must not know: what is
recorded, when to submit. Not thread-safe but for `wait`.

    queue = Queue(logical)
    queue.outgoing = Outgoing(queue.submitted + 1, queue.begin())
    ...
    queue.wait(queue.send())

An exception can come at any bytecode (docs/design.md, part 6, Interrupts). A submission and the
note that it was made are therefore one call of C code, and `send` goes on where it was left.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter_ns
from typing import Any

from vkchi.vk.logical import Logical
from vkchi.vk.raw import SUCCESS, TIMEOUT

SLICE_NS = 50_000_000  # how long a wait cannot be interrupted
# A thread that sleeps is woken 20 to 50 microseconds late, as much as a short kernel takes; so a
# wait first looks for a while, unless that was in vain lately.
SPIN_NS = 60_000
WAITS_WITHOUT_SPIN = 16


class Outgoing:
    """A command buffer to be submitted under a number; the results of the two calls, once made."""

    __slots__ = ("commands", "ended", "number", "sent")

    def __init__(self, number: int, commands: Any) -> None:
        self.number, self.commands = number, commands
        self.ended: list[int] = []
        self.sent: list[int] = []


class Queue:
    """Submissions are numbered from 1; `submitted` is the last one's number, `outgoing` the one
    that `send` is to make next: whoever sets it gives the commands away."""

    def __init__(self, logical: Logical) -> None:
        self._logical = logical
        self._device = logical.handle
        self.submitted = 0
        self.outgoing: Outgoing | None = None
        self._completed = 0
        self._in_flight: deque[tuple[int, Any]] = deque()
        self._pool = self._make_pool()
        self._semaphore = self._make_semaphore()
        vk = logical.vk
        once = vk.const.VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT
        self._begin_info = vk.new("VkCommandBufferBeginInfo", flags=once)
        self._commands = vk.new("VkCommandBufferSubmitInfo")
        every = vk.const.VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT
        semaphore = self._semaphore[0]
        self._signal = vk.new("VkSemaphoreSubmitInfo", semaphore=semaphore, stageMask=every)
        self._submit_info = vk.new(
            "VkSubmitInfo2", commandBufferInfoCount=1, pCommandBufferInfos=self._commands,
            signalSemaphoreInfoCount=1, pSignalSemaphoreInfos=self._signal,
        )  # fmt: skip
        self._value = vk.ffi.new("uint64_t *")
        self._waits_without_spin = 0
        self._wait_infos: deque[tuple[Any, Any]] = deque()  # one per thread that waits

    def _make_pool(self) -> Any:
        vk = self._logical.vk
        info = vk.new(
            "VkCommandPoolCreateInfo",
            queueFamilyIndex=self._logical.physical.queue_family,
            flags=vk.const.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
        )
        call = self._logical.calls.vkCreateCommandPool
        return self._logical.handles("VkCommandPool").make(call, info, "making a command pool")

    def _make_semaphore(self) -> Any:
        vk = self._logical.vk
        timeline = vk.new(
            "VkSemaphoreTypeCreateInfo", semaphoreType=vk.const.VK_SEMAPHORE_TYPE_TIMELINE
        )
        info = vk.new("VkSemaphoreCreateInfo", pNext=timeline)
        call = self._logical.calls.vkCreateSemaphore
        return self._logical.handles("VkSemaphore").make(call, info, "making a semaphore")

    def begin(self) -> Any:
        """A command buffer ready for commands: one whose submission is done, or a new one. One that
        does not reach the caller, for an exception, is left to the pool."""
        logical = self._logical
        if self._in_flight and self._in_flight[0][0] <= self.read_completed():
            commands = self._in_flight.popleft()[1]
        else:
            info = logical.vk.new(
                "VkCommandBufferAllocateInfo", commandPool=self._pool[0], commandBufferCount=1
            )
            out = logical.vk.ffi.new("VkCommandBuffer *")
            result = logical.calls.vkAllocateCommandBuffers(self._device, info, out)
            commands = logical.vk.take(result, out, "making a command buffer")
        result = logical.calls.vkBeginCommandBuffer(commands, self._begin_info)
        logical.vk.check(result, "recording commands")
        return commands

    def send(self) -> int:
        """Submit `outgoing`, if there is something: what an exception left undone is done at the
        next call. Number of the last submission."""
        going = self.outgoing
        if going is None:
            return self.submitted
        calls, check = self._logical.calls, self._logical.vk.check
        if not going.ended:
            going.ended.extend(map(calls.vkEndCommandBuffer, (going.commands,)))
        if going.ended[0] < SUCCESS:
            self.outgoing = None
            check(going.ended[0], "recording commands")
        if not going.sent:
            self._commands.commandBuffer = going.commands
            self._signal.value = going.number
            null = self._logical.vk.NULL
            args = (self._logical.queue,), (1,), (self._submit_info,), (null,)
            going.sent.extend(map(calls.vkQueueSubmit2, *args))
        if going.sent[0] >= SUCCESS:
            self.submitted = going.number
            if not self._in_flight or self._in_flight[-1][0] < going.number:
                self._in_flight.append((going.number, going.commands))
        self.outgoing = None
        check(going.sent[0], "running kernels")
        return self.submitted

    def read_completed(self) -> int:
        """Number of the last submission that is done."""
        if self._completed < self.submitted:
            call = self._logical.calls.vkGetSemaphoreCounterValue
            result = call(self._device, self._semaphore[0], self._value)
            self._logical.vk.check(result, "asking how far the device is")
            self._completed = self._value[0]
        return self._completed

    def wait(self, number: int) -> None:
        """Return when submission `number` is done. Can be interrupted from the keyboard.

        Raises DeviceError when the device is lost.
        """
        if number <= self.read_completed() or self._spin(number):
            return
        while not self.wait_for(number, SLICE_NS):
            pass

    def wait_for(self, number: int, limit_ns: int) -> bool:
        """Whether submission `number` is done, or will be before so many nanoseconds pass; these
        cannot be interrupted. Raises DeviceError when the device is lost."""
        info, value = self._wait_infos.popleft() if self._wait_infos else self._make_wait_info()
        value[0] = number
        result = self._logical.calls.vkWaitSemaphores(self._device, info, limit_ns)
        self._wait_infos.append((info, value))
        self._logical.vk.check(result, "waiting for kernels")
        return bool(result != TIMEOUT)

    def _spin(self, number: int) -> bool:
        """Whether submission `number` was done soon."""
        if self._waits_without_spin:
            self._waits_without_spin -= 1
            return False
        end = perf_counter_ns() + SPIN_NS
        while perf_counter_ns() < end:
            if number <= self.read_completed():
                return True
        self._waits_without_spin = WAITS_WITHOUT_SPIN
        return False

    def _make_wait_info(self) -> tuple[Any, Any]:
        """A VkSemaphoreWaitInfo for the timeline, and the pointer to its value."""
        vk = self._logical.vk
        value = vk.ffi.new("uint64_t *")
        semaphores = vk.ffi.new("VkSemaphore[]", [self._semaphore[0]])
        info = vk.new(
            "VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=semaphores, pValues=value
        )
        return info, value
