"""Timestamp queries around dispatches, in one query pool that the host resets.

timer = Timer(logical, capacity=256)
timer.start(commands, "saxpy"); ...; timer.stop(commands)
timer.collect()     # after the submission is done: [DispatchTime("saxpy", 0.0012, 7.3)]
"""

from __future__ import annotations

from typing import Any, Protocol

from vkchi.errors import DeviceError
from vkchi.interrupts.contexts import SafeContext
from vkchi.tuples import NamedTuple
from vkchi.vk.logical import Logical


class DispatchWork(NamedTuple):
    """Work of a dispatch: iterations, least bytes that it moves, workgroups and their shape. None
    where it is not known. `is_serial`: it runs a loop in one invocation or workgroup."""

    iterations: int | None
    moved: int | None
    groups: int | None
    block: tuple[int, ...]
    is_serial: bool


class DispatchTime(NamedTuple):
    """Duration of a dispatch, and its start on the device's clock, both in seconds. `is_first`: the
    first run of its pipeline, in which drivers may compile."""

    name: str
    seconds: float
    began_s: float
    work: DispatchWork | None = None
    is_first: bool = False


class Timer:
    """Two timestamps per dispatch, for up to `capacity` dispatches between two `collect`s. The
    constructor raises DeviceError if the queue has no timestamps."""

    def __init__(self, logical: Logical, capacity: int) -> None:
        if not logical.physical.timestamp_bits:
            raise DeviceError(f"{logical.physical.name} cannot measure time on its queue")
        self._logical, self._capacity = logical, capacity
        self._started: list[tuple[str, DispatchWork | None, bool]] = []
        vk = logical.vk
        self._stage = vk.const.VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT
        info = vk.new(
            "VkQueryPoolCreateInfo",
            queryType=vk.const.VK_QUERY_TYPE_TIMESTAMP,
            queryCount=2 * capacity,
        )
        call = logical.calls.vkCreateQueryPool
        doing = "making timestamp queries"
        self._pool = logical.handles("VkQueryPool").make(call, info, doing)
        self._reset(2 * capacity)

    @property
    def is_full(self) -> bool:
        return len(self._started) == self._capacity

    def start(
        self, commands: Any, name: str, work: DispatchWork | None = None, *, is_first: bool = False
    ) -> None:
        self._started.append((name, work, is_first))
        self._write(commands, 2 * len(self._started) - 2)

    def stop(self, commands: Any) -> None:
        self._write(commands, 2 * len(self._started) - 1)

    def collect(self) -> list[DispatchTime]:
        """Return the times of the dispatches since the last call; the device must be idle.
        Dispatches whose recording an exception interrupted are left out."""
        started, self._started = self._started, []
        if not started:
            return []
        logical, vk, count = self._logical, self._logical.vk, 2 * len(started)
        ticks = vk.ffi.new("uint64_t[]", 2 * count)  # (timestamp, availability) pairs
        flags = vk.const.VK_QUERY_RESULT_64_BIT | vk.const.VK_QUERY_RESULT_WITH_AVAILABILITY_BIT
        result = logical.calls.vkGetQueryPoolResults(
            logical.handle, self._pool[0], 0, count, 16 * count, ticks, 16, flags
        )
        vk.check(result, "reading timestamps")
        self._reset(count)
        mask = (1 << logical.physical.timestamp_bits) - 1
        second = logical.physical.timestamp_ns * 1e-9
        return [
            DispatchTime(
                name,
                ((ticks[4 * i + 2] - ticks[4 * i]) & mask) * second,
                ticks[4 * i] * second,
                work,
                is_first,
            )
            for i, (name, work, is_first) in enumerate(started)
            if ticks[4 * i + 1] and ticks[4 * i + 3]
        ]

    def _write(self, commands: Any, index: int) -> None:
        self._logical.calls.vkCmdWriteTimestamp2(commands, self._stage, self._pool[0], index)

    def _reset(self, count: int) -> None:
        self._logical.calls.vkResetQueryPool(self._logical.handle, self._pool[0], 0, count)


class Measurement(Protocol):
    """Receiver of measured times."""

    timer: Timer | None

    @property
    def is_left(self) -> bool:
        """True if the measurement has ended."""

    def collect(self) -> None:
        """Read the timer's results; the device is idle."""


class TimingRecorder(Protocol):
    """A recorder that can measure dispatches."""

    def start_timing(self, timing: Measurement) -> None: ...

    def stop_timing(self, timing: Measurement) -> None: ...


class DispatchTiming(SafeContext):
    """Measurement of a `with` block: `dispatches` has (shader name, seconds), in order."""

    def __init__(self, recorder: TimingRecorder) -> None:
        self._recorder = recorder
        self.dispatches: list[tuple[str, float]] = []
        self.timer: Timer | None = None

    def __enter__(self) -> DispatchTiming:
        self.enter()
        self._recorder.start_timing(self)
        return self

    def leave(self, kind: Any, error: Any, traceback: Any) -> None:
        self._recorder.stop_timing(self)

    def collect(self) -> None:
        """Append the timer's (name, seconds) to `dispatches`; the device must be idle."""
        if self.timer is not None:
            self.dispatches += [(t.name, t.seconds) for t in self.timer.collect()]
