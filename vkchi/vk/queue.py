"""Command buffers, submission and the timeline semaphore of one device.

Each submission has a number, which the timeline reaches when the submission is done. Other APIs can
wait for submissions by an exported timeline (`publish`), and submissions can wait for their
timelines (`wait_for_others`). Not thread-safe, except `wait` and `wait_for`.

    queue = Queue(logical)
    queue.outgoing = Outgoing(queue.submitted + 1, queue.begin())
    ...
    queue.wait(queue.send())

An exception can be raised at any bytecode (docs/design.md, part 6, Interrupts). Therefore one call
of C code both submits and records the result, and `send` resumes an interrupted submission.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter_ns
from typing import Any

from vkchi.errors import DeviceError
from vkchi.vk.logical import Logical
from vkchi.vk.memory.external import HandleExporter, can_export_timelines, make_timeline
from vkchi.vk.raw import SUCCESS, TIMEOUT

SLICE_NS = 50_000_000  # longest uninterruptible wait
# A sleeping thread wakes 20 to 50 microseconds late, about the duration of a short kernel.
# Therefore a wait polls first, unless polling failed recently.
SPIN_NS = 60_000
WAITS_WITHOUT_SPIN = 16


class Outgoing:
    """A command buffer to be submitted under a number. `ended`, `sent`: VkResults of
    vkEndCommandBuffer and vkQueueSubmit2; empty before the call."""

    __slots__ = ("commands", "ended", "number", "sent")

    def __init__(self, number: int, commands: Any) -> None:
        self.number, self.commands = number, commands
        self.ended: list[int] = []
        self.sent: list[int] = []


class Queue:
    """Submission queue. Submissions are numbered from 1; `submitted` is the last number.
    `outgoing`, set by the caller, is the submission that `send` makes next."""

    def __init__(self, logical: Logical) -> None:
        self._logical = logical
        self._device = logical.handle
        self.submitted = 0
        self.outgoing: Outgoing | None = None
        self._completed = 0
        self._in_flight: deque[tuple[int, Any]] = deque()
        vk = logical.vk
        reset = vk.const.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT
        self._pool = logical.make_pool(flags=reset)
        self._semaphore = make_timeline(logical)
        once = vk.const.VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT
        self._begin_info = vk.new("VkCommandBufferBeginInfo", flags=once)
        self._commands = vk.new("VkCommandBufferSubmitInfo")
        self._form = self._make_form((self._semaphore,))
        self._published: Any = None
        self._waits: Any = None
        self._awaited: dict[int, tuple[Any, int]] = {}  # semaphore -> (its cell, value)
        self._counters: deque[Any] = deque()  # cells for results, one per reading thread
        self._waits_without_spin = 0
        self._wait_infos: deque[tuple[Any, Any]] = deque()  # one per waiting thread

    def _make_form(self, cells: tuple[Any, ...]) -> tuple[Any, Any, int]:
        vk = self._logical.vk
        signals = vk.ffi.new("VkSemaphoreSubmitInfo[]", len(cells))
        for info, cell in zip(signals, cells, strict=True):
            info.sType = vk.const.VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO
            info.semaphore = cell[0]
            info.stageMask = vk.const.VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT
        submission = vk.new(
            "VkSubmitInfo2", commandBufferInfoCount=1, pCommandBufferInfos=self._commands,
            signalSemaphoreInfoCount=len(cells), pSignalSemaphoreInfos=signals,
        )  # fmt: skip
        return submission, signals, len(cells)

    def publish(self, exporter: HandleExporter | None) -> int:
        """Return a new handle of a timeline that every later submission sets to its number.

        Other APIs can wait for submissions by it, without the host. Submissions made before are
        done when the next one is. Raises DeviceError if the driver cannot export one.
        """
        if exporter is None or not can_export_timelines(self._logical, exporter.kind):
            raise DeviceError(f"{self._logical.physical.name} gives no semaphores to others")
        if self._published is None:
            cell = make_timeline(self._logical, self.read_completed(), exporter.kind)
            # The own timeline is last: code that saw its signal may destroy the other.
            self._form = self._make_form((cell, self._semaphore))
            self._published = cell
        return exporter.export_semaphore(self._published[0])

    def wait_for_others(self, cell: Any, value: int) -> None:
        """Delay all later submissions until the timeline in `cell` reaches `value`; the host does
        not wait."""
        key = int(self._logical.vk.ffi.cast("uintptr_t", cell[0]))
        _, known = self._awaited.get(key, (cell, 0))
        self._awaited[key] = cell, max(known, value)

    def _set_waits(self) -> dict[int, tuple[Any, int]]:
        vk, awaited = self._logical.vk, dict(self._awaited)
        infos = vk.ffi.new("VkSemaphoreSubmitInfo[]", len(awaited))
        for info, (cell, value) in zip(infos, awaited.values(), strict=True):
            info.sType = vk.const.VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO
            info.semaphore, info.value = cell[0], value
            info.stageMask = vk.const.VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT
        submission = self._form[0]
        submission.waitSemaphoreInfoCount = len(awaited)
        submission.pWaitSemaphoreInfos = self._waits = infos
        return awaited

    def begin(self) -> Any:
        """A command buffer in the recording state: one whose submission is done, or a new one."""
        logical = self._logical
        if self._in_flight and self._in_flight[0][0] <= self.read_completed():
            commands = self._in_flight.popleft()[1]
        else:
            commands = logical.make_commands(self._pool[0])[0]
        result = logical.calls.vkBeginCommandBuffer(commands, self._begin_info)
        logical.vk.check(result, "recording commands")
        return commands

    def send(self) -> int:
        """Submit `outgoing`, if set; return the number of the last submission. Resumes a call that
        an exception interrupted. Raises DeviceError if the driver fails."""
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
            submission, signals, count = self._form
            for k in range(count):
                signals[k].value = going.number
            awaited = self._set_waits() if self._awaited else None
            null = self._logical.vk.NULL
            args = (self._logical.queue,), (1,), (submission,), (null,)
            going.sent.extend(map(calls.vkQueueSubmit2, *args))
            if awaited is not None:
                submission.waitSemaphoreInfoCount = 0
                self._forget(awaited)
        if going.sent[0] >= SUCCESS:
            self.submitted = going.number
            if not self._in_flight or self._in_flight[-1][0] < going.number:
                self._in_flight.append((going.number, going.commands))
        self.outgoing = None
        check(going.sent[0], "running kernels")
        return self.submitted

    def _forget(self, awaited: dict[int, tuple[Any, int]]) -> None:
        for key, waited in awaited.items():
            if self._awaited.get(key) == waited:
                self._awaited.pop(key)

    def read_completed(self) -> int:
        """Return a number up to which all submissions are done.

        Threads share no cell: the validation layer, too, takes a submission for done only when the
        call that reads its number has returned.
        """
        if self._completed < self.submitted:
            vk, call = self._logical.vk, self._logical.calls.vkGetSemaphoreCounterValue
            cell = self._counters.popleft() if self._counters else vk.ffi.new("uint64_t *")
            result = call(self._device, self._semaphore[0], cell)
            vk.check(result, "asking how far the device is")
            self._completed = max(self._completed, cell[0])
            self._counters.append(cell)
        return self._completed

    def wait(self, number: int) -> None:
        """Return when submission `number` is done; poll for a short time before sleeping. Can be
        interrupted from the keyboard. Raises DeviceError if the device is lost."""
        if number <= self.read_completed() or self._spin(number):
            return
        while not self.wait_for(number, SLICE_NS):
            pass

    def wait_for(self, number: int, limit_ns: int) -> bool:
        """Wait up to `limit_ns` nanoseconds for submission `number`; return True if it is done. The
        wait cannot be interrupted. Raises DeviceError if the device is lost."""
        info, value = self._wait_infos.popleft() if self._wait_infos else self._make_wait_info()
        value[0] = number
        result = self._logical.calls.vkWaitSemaphores(self._device, info, limit_ns)
        self._wait_infos.append((info, value))
        self._logical.vk.check(result, "waiting for kernels")
        return bool(result != TIMEOUT)

    def _spin(self, number: int) -> bool:
        """Poll for SPIN_NS; return True if submission `number` is done by then. After a failure,
        the next WAITS_WITHOUT_SPIN calls return False without polling."""
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
        vk = self._logical.vk
        value = vk.ffi.new("uint64_t *")
        semaphores = vk.ffi.new("VkSemaphore[]", [self._semaphore[0]])
        info = vk.new(
            "VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=semaphores, pValues=value
        )
        return info, value
