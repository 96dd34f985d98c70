"""Execution times of a device's dispatches, each timed alone and summed by name.

See also: `vk.timing` measures the times, `profiler` prints them.

    found = start_profiler(device); ...; found.update(); found.totals["step.0"].seconds
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.logs import logger
from vkchi.vk.timing import DispatchTime, Timer

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


class KernelProfiler:
    """Measures all dispatches of a device from the profiler's creation on.

    `totals` includes all since the last `clear` by name, `trace` the first MOST_TRACED of them.
    """

    is_left = False

    def __init__(self, device: Device) -> None:
        self.device = device
        self.timer: Timer | None = None
        self.clear()
        self.device.start_timing(self)

    def clear(self) -> None:
        self.totals: dict[str, DispatchTotal] = {}
        self.trace: list[DispatchTime] = []

    def collect(self) -> None:
        """Collect the timer's results. Precondition: the device is idle."""
        found = self.timer.collect() if self.timer is not None else []
        for timed in found:
            self.totals.setdefault(timed.name, DispatchTotal()).add(timed.seconds)
        self.trace += found[: MOST_TRACED - len(self.trace)]

    def update(self) -> None:
        """Wait for the device, then collect the results."""
        self.device.wait()
        self.collect()

    @property
    def seconds(self) -> float:
        """Total time of all collected dispatches."""
        return sum(total.seconds for total in self.totals.values())


def start_profiler(device: Device) -> KernelProfiler | None:
    """Start measuring the dispatches of a device.

    None, with a warning in the log, if the device has no timestamps.
    """
    if device.can_time:
        return KernelProfiler(device)
    logger().warning("%s cannot measure time: no kernel_profiler", device.name)
    return None
