"""The device that kernels run on: which one, its memory, its pipelines, what is recorded and when.

Owns: the policy of all that; `vkchi.vk` makes the calls. Must not know: the IR, kernels, arrays.

Commands are recorded as they are asked for, with a barrier only where one needs what another since
the last barrier wrote (or would overwrite what it reads), and submitted when something waits or
enough is recorded. All methods can be called from any thread.

    device = open_device("gpu")
    x = device.allocate(4096)
    ramp = device.load(shader)
    device.record(ramp, args, 16, 1, frozenset(), frozenset((x.key,)))
    x.read(0, 4096)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

TRASH_BYTES = 4096
FIRST_BATCH, LARGEST_BATCH = 8, 64  # dispatches per submission: few when the device is idle
MOST_IN_FLIGHT = 32  # submissions that Python may be ahead of the device
MOST_TRACKED = 1024  # buffers remembered between barriers
PRESSURE_BYTES = 256 << 20  # memory waiting to be freed that makes `allocate` wait for it
ARGUMENT_CHUNK_BYTES, STAGING_CHUNK_BYTES = 1 << 16, 4 << 20
DOWNLOAD_CHUNKS = 4
TIMED_DISPATCHES = 256
COMPUTE = 1  # VK_PIPELINE_BIND_POINT_COMPUTE
COMPUTE_STAGE = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT
ALL_ORDERS = range(1 << 32)

NOBODY: frozenset[int] = frozenset()
GPU_RANKS = {"discrete": 0, "integrated": 1, "virtual": 2, "other": 3, "cpu": 4}
KINDS: dict[str, Callable[[DeviceInfo], bool]] = {
    "any": lambda info: True,
    "gpu": lambda info: info.kind != "cpu",
    "cpu": lambda info: info.kind == "cpu",
    "nvidia": lambda info: info.vendor == "nvidia",
}
RESET = "the runtime was reset: call init() again, and make arrays and fields anew"
FORKED = "this process was forked from one that had opened the device: call init() in the child"


@dataclass(frozen=True)
class DeviceInfo:
    """One Vulkan device. kind: cpu, discrete, integrated, virtual or other; api: (1, 3, 275)."""

    index: int
    name: str
    kind: str
    vendor: str
    driver: str
    api: tuple[int, int, int]
    uuid: bytes
