"""What the dispatches of a device take: each measured alone, added up by name.

Owns: the sums. Must not know: how times are measured (`vk.timing`), who asks for them (`profiler`).

    found = measure(device); ...; found.update(); found.totals["step.0"].seconds
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.logs import logger
from vkchi.vk.timing import Timed, Timer

if TYPE_CHECKING:
    from vkchi.device import Device

MOST_TRACED = 100_000  # dispatches whose own times are kept; sums are of all


class Total:
    """The sum of the dispatches of one name; seconds."""

    __slots__ = ("count", "least", "most", "seconds")

    def __init__(self) -> None:
        self.count, self.seconds, self.least, self.most = 0, 0.0, float("inf"), 0.0

    def add(self, seconds: float) -> None:
        """Count one more."""
        self.count += 1
        self.seconds += seconds
        self.least, self.most = min(self.least, seconds), max(self.most, seconds)


class KernelProfiler:
    """The measurement of all dispatches of a device, from now on."""

    is_left = False

    def __init__(self, device: Device) -> None:
        self.device = device
        self.timer: Timer | None = None
        self.clear()
        self.device.start_timing(self)

    def clear(self) -> None:
        """Forget what was measured."""
        self.totals: dict[str, Total] = {}
        self.trace: list[Timed] = []

    def collect(self) -> None:
        """Take what the timer measured; the device is idle."""
        found = self.timer.collect() if self.timer is not None else []
        for timed in found:
            self.totals.setdefault(timed.name, Total()).add(timed.seconds)
        self.trace += found[: MOST_TRACED - len(self.trace)]

    def update(self) -> None:
        """Wait for what was launched, and take it in."""
        self.device.wait()
        self.collect()

    @property
    def seconds(self) -> float:
        """All that was measured."""
        return sum(total.seconds for total in self.totals.values())


def measure(device: Device) -> KernelProfiler | None:
    """What measures all that a device runs from now on; None, and a line in the log, where that
    cannot be."""
    if device.can_time:
        return KernelProfiler(device)
    logger().warning("%s cannot measure time: no kernel_profiler", device.name)
    return None
