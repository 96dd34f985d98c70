"""Command buffers, submission and the timeline semaphore of one device.

Owns: the pool, the ring of command buffers, the numbers of submissions. Must not know: what is
recorded, when to submit. Not thread-safe but for `wait`.

    queue = Queue(logical)
    commands = queue.begin()
    ...
    number = queue.submit(commands)
    queue.wait(number)
"""

from __future__ import annotations

from collections import deque
from time import perf_counter_ns
from typing import Any

from vkchi.vk.logical import Logical
from vkchi.vk.raw import TIMEOUT

SLICE_NS = 50_000_000  # how long a wait cannot be interrupted
# A thread that sleeps is woken 20 to 50 microseconds late, as much as a short kernel takes; so a
# wait first looks for a while, unless that was in vain lately.
SPIN_NS = 60_000
WAITS_WITHOUT_SPIN = 16


class Queue:
    """Submissions are numbered from 1; `submitted` is the last one's number."""

    def __init__(self, logical: Logical) -> None:
        self._logical = logical
        self._device = logical.handle
        self.submitted = 0
        self._completed = 0
        self._in_flight: deque[tuple[int, Any]] = deque()
        self._pool = self._make_pool()
        self._semaphore = self._make_semaphore()
        vk = logical.vk
        once = vk.const.VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT
        self._begin_info = vk.new("VkCommandBufferBeginInfo", flags=once)
        self._commands = vk.new("VkCommandBufferSubmitInfo")
        every = vk.const.VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT
        self._signal = vk.new("VkSemaphoreSubmitInfo", semaphore=self._semaphore, stageMask=every)
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
        return vk.create(call, self._device, info, "VkCommandPool", "making a command pool")

    def _make_semaphore(self) -> Any:
        vk = self._logical.vk
        timeline = vk.new(
            "VkSemaphoreTypeCreateInfo", semaphoreType=vk.const.VK_SEMAPHORE_TYPE_TIMELINE
        )
        info = vk.new("VkSemaphoreCreateInfo", pNext=timeline)
        call = self._logical.calls.vkCreateSemaphore
        return vk.create(call, self._device, info, "VkSemaphore", "making a semaphore")

    def begin(self) -> Any:
        """A command buffer ready for commands: one whose submission is done, or a new one."""
        logical = self._logical
        if self._in_flight and self._in_flight[0][0] <= self.read_completed():
            commands = self._in_flight.popleft()[1]
        else:
            info = logical.vk.new(
                "VkCommandBufferAllocateInfo", commandPool=self._pool, commandBufferCount=1
            )
            out = logical.vk.ffi.new("VkCommandBuffer *")
            result = logical.calls.vkAllocateCommandBuffers(self._device, info, out)
            commands = logical.vk.take(result, out, "making a command buffer")
        result = logical.calls.vkBeginCommandBuffer(commands, self._begin_info)
        logical.vk.check(result, "recording commands")
        return commands

    def submit(self, commands: Any) -> int:
        """Number of the submission of these commands, which are then the queue's again."""
        calls, check = self._logical.calls, self._logical.vk.check
        check(calls.vkEndCommandBuffer(commands), "recording commands")
        self._commands.commandBuffer = commands
        self._signal.value = self.submitted + 1
        null = self._logical.vk.NULL
        check(
            calls.vkQueueSubmit2(self._logical.queue, 1, self._submit_info, null), "running kernels"
        )
        self.submitted += 1
        self._in_flight.append((self.submitted, commands))
        return self.submitted

    def read_completed(self) -> int:
        """Number of the last submission that is done."""
        if self._completed < self.submitted:
            call = self._logical.calls.vkGetSemaphoreCounterValue
            result = call(self._device, self._semaphore, self._value)
            self._logical.vk.check(result, "asking how far the device is")
            self._completed = self._value[0]
        return self._completed

    def wait(self, number: int) -> None:
        """Return when submission `number` is done. Can be interrupted from the keyboard.

        Raises DeviceError when the device is lost.
        """
        if number <= self.read_completed() or self._spin(number):
            return
        info, value = self._wait_infos.popleft() if self._wait_infos else self._make_wait_info()
        value[0] = number
        result = TIMEOUT
        while result == TIMEOUT:
            result = self._logical.calls.vkWaitSemaphores(self._device, info, SLICE_NS)
        self._wait_infos.append((info, value))
        self._logical.vk.check(result, "waiting for kernels")

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
        semaphores = vk.ffi.new("VkSemaphore[]", [self._semaphore])
        info = vk.new(
            "VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=semaphores, pValues=value
        )
        return info, value

    def close(self) -> None:
        """Destroy the pool and the semaphore; the device must be idle."""
        calls, null = self._logical.calls, self._logical.vk.NULL
        calls.vkDestroyCommandPool(self._device, self._pool, null)
        calls.vkDestroySemaphore(self._device, self._semaphore, null)
