"""A logical device and its one queue.

All features of `physical.FEATURES` and `CORE_FEATURES` that the device has are enabled. The device
also keeps the tables of the objects created on it.

    logical = open_logical(vk, physical)
    logical.calls.vkDeviceWaitIdle(logical.handle)
"""

from __future__ import annotations

from functools import partial
from typing import Any

from vkchi.interrupts.callbacks import run_each_once
from vkchi.vk.memory.lifetimes import HandleTable
from vkchi.vk.physical import EXTENSIONS, FEATURES, Physical, new_feature_chain
from vkchi.vk.raw import DeviceCalls, Vulkan

# Types of objects created on a device, in a valid order of destruction.
KINDS = (
    "VkQueryPool", "VkShaderModule", "VkPipeline", "VkPipelineLayout", "VkPipelineCache",
    "VkCommandPool", "VkSemaphore", "VkBuffer", "VkDeviceMemory",
)  # fmt: skip


class Logical:
    """A VkDevice: `handle`, `queue`, `calls` (its functions), `physical`, and the enabled
    `extensions`.

    `has_names`: the instance has debug utilities, so objects can be named. `ending`: an iterator
    that destroys the device; everything created on it must be destroyed before.
    """

    def __init__(
        self, vk: Vulkan, physical: Physical, handle: Any, extensions: frozenset[str]
    ) -> None:
        self.vk, self.physical, self.handle = vk, physical, handle
        self.extensions = extensions
        self.has_names = False
        self.calls = DeviceCalls(vk, handle)
        out = vk.ffi.new("VkQueue *")
        self.calls.vkGetDeviceQueue(handle, physical.queue_family, 0, out)
        self.queue = out[0]
        self.ending = run_each_once(partial(self.calls.vkDestroyDevice, handle, vk.NULL))
        self._handles = {kind: HandleTable(vk, handle, self.calls, kind) for kind in KINDS}
        self.deques = [d for handles in self._handles.values() for d in handles.released.deques]

    def handles(self, kind: str) -> HandleTable:
        return self._handles[kind]

    def make_pool(self, flags: int = 0) -> Any:
        """Return the cell of a new command pool for the queue. Raises DeviceError."""
        info = self.vk.new(
            "VkCommandPoolCreateInfo", queueFamilyIndex=self.physical.queue_family, flags=flags
        )
        make = self.handles("VkCommandPool").make
        return make(self.calls.vkCreateCommandPool, info, "making a command pool")

    def make_commands(self, pool: Any, level: int = 0) -> Any:
        """Return a cell with a new command buffer of a pool, by default a primary one. Raises
        DeviceError."""
        info = self.vk.new(
            "VkCommandBufferAllocateInfo", commandPool=pool, commandBufferCount=1, level=level
        )
        cell = self.vk.ffi.new("VkCommandBuffer *")
        result = self.calls.vkAllocateCommandBuffers(self.handle, info, cell)
        self.vk.take(result, cell, "making a command buffer")
        return cell

    def sweep(self, recorded: int, completed: int) -> None:
        """Destroy released objects that the device has finished with, as `HandleTable.sweep`."""
        if not any(self.deques):
            return
        for handles in self._handles.values():
            handles.sweep(recorded, completed)

    def close(self) -> None:
        """Destroy the device and everything created on it; it must be idle. Idempotent."""
        self.close_but(frozenset())
        for _ in self.ending:
            pass

    def close_but(self, kept: frozenset[str]) -> None:
        """Destroy the objects of all kinds except `kept`; the device must be idle. Idempotent."""
        for kind, handles in self._handles.items():
            if kind not in kept:
                handles.close()


def open_logical(vk: Vulkan, physical: Physical) -> Logical:
    """Open a device with one queue of its compute family. Raises DeviceError."""
    brought = [extension for _, extension, _ in FEATURES if extension]
    wanted = [name for name in (*EXTENSIONS, *brought) if name in physical.extensions]
    head, slots = new_feature_chain(vk, physical.extensions)
    for struct, field in slots:
        setattr(struct, field, field in physical.features)
    queue = vk.new(
        "VkDeviceQueueCreateInfo", queueFamilyIndex=physical.queue_family, queueCount=1,
        pQueuePriorities=vk.ffi.new("float[]", [1.0]),
    )  # fmt: skip
    info = vk.new(
        "VkDeviceCreateInfo", pNext=head, queueCreateInfoCount=1, pQueueCreateInfos=queue,
        enabledExtensionCount=len(wanted),
        ppEnabledExtensionNames=[name.encode() for name in wanted],
    )  # fmt: skip
    doing = f"opening {physical.name}"
    out = vk.ffi.new("VkDevice *")
    try:
        handle = vk.take(vk.lib.vkCreateDevice(physical.handle, info, vk.NULL, out), out, doing)
        return Logical(vk, physical, handle, frozenset(wanted))
    except BaseException:
        if out[0]:
            vk.lib.vkDestroyDevice(out[0], vk.NULL)
        raise
