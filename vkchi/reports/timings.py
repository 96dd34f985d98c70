"""Execution times of a device's dispatches, each timed alone and summed by name.

See also: `vk.timing` measures the times, `profiler` prints them.

    found = start_profiler(device); ...; found.update(); found.totals["step.0"].seconds
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.logs import logger
from vkchi.vk.timing import DispatchTime, DispatchWork, Timer

if TYPE_CHECKING:
    from vkchi.device import Device

MOST_TRACED = 100_000  # dispatches with individual times; totals include all


class DispatchTotal:
    """Count of the dispatches of one name; their total, minimum and maximum time in seconds."""

    __slots__ = ("count", "least", "most", "seconds")

    def __init__(self) -> None:
        self.count, self.seconds, self.least, self.most = 0, 0.0, float("inf"), 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        self.least, self.most = min(self.least, seconds), max(self.most, seconds)


class DispatchRuns:
    """The runs of one dispatch name: all of them, and those after the first.

    - first: seconds of the first run, in which software drivers compile, added up over the
      pipelines of the name; None without such runs.
    - later: the other runs.
    - work: the work of the last run, if known.
    - moved: bytes that the later runs moved at least; None if one is not known.
    """

    __slots__ = ("first", "later", "moved", "total", "work")

    def __init__(self) -> None:
        self.total, self.later = DispatchTotal(), DispatchTotal()
        self.first: float | None = None
        self.work: DispatchWork | None = None
        self.moved: int | None = 0

    def add(self, timed: DispatchTime) -> None:
        self.total.add(timed.seconds)
        self.work = timed.work
        if timed.is_first:
            self.first = (self.first or 0.0) + timed.seconds
            return
        self.later.add(timed.seconds)
        moved = None if timed.work is None else timed.work.moved
        self.moved = None if moved is None or self.moved is None else self.moved + moved

    @property
    def rate(self) -> float | None:
        """Lower bound of the bytes per second that the later runs move; None if unknown."""
        return self.moved / self.later.seconds if self.moved and self.later.seconds else None


class KernelProfiler:
    """Measures all dispatches of a device from the profiler's creation on. `runs` includes all
    since the last `clear` by name, `trace` the first MOST_TRACED of them."""

    is_left = False

    def __init__(self, device: Device) -> None:
        self.device = device
        self.timer: Timer | None = None
        self.clear()
        self.device.start_timing(self)

    def clear(self) -> None:
        self.runs: dict[str, DispatchRuns] = {}
        self.trace: list[DispatchTime] = []

    def collect(self) -> None:
        """Collect the timer's results. Precondition: the device is idle."""
        found = self.timer.collect() if self.timer is not None else []
        for timed in found:
            self.runs.setdefault(timed.name, DispatchRuns()).add(timed)
        self.trace += found[: MOST_TRACED - len(self.trace)]

    def update(self) -> None:
        """Wait for the device, then collect the results."""
        self.device.wait()
        self.collect()

    @property
    def seconds(self) -> float:
        return sum(total.seconds for total in self.totals.values())

    @property
    def totals(self) -> dict[str, DispatchTotal]:
        return {name: runs.total for name, runs in self.runs.items()}


def start_profiler(device: Device) -> KernelProfiler | None:
    """Start measuring the dispatches of a device. None, with a warning in the log, if the device
    has no timestamps."""
    if device.can_time:
        return KernelProfiler(device)
    logger().warning("%s cannot measure time: no kernel_profiler", device.name)
    return None
