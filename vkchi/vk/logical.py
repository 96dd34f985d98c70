"""A logical device and its one queue.

All features of `physical.FEATURES` and `CORE_FEATURES` that the device has are enabled. The device
also keeps the tables of the objects created on it.

    logical = open_logical(vk, physical)
    logical.calls.vkDeviceWaitIdle(logical.handle)
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any

from vkchi.interrupts.weak import run_each_once
from vkchi.vk.physical import EXTENSIONS, FEATURES, Physical, new_feature_chain
from vkchi.vk.raw import DeviceCalls, Vulkan

# --- lifetimes of objects ------------------------------------------------------------------------
#
# Lifetimes of Vulkan objects: each is held by a cell, and destroyed once after its last reference.
#
# A cell is the pointer to which the driver writes a handle. It is registered before the driver
# creates the object, so that an exception in between loses none (docs/design.md, part 6,
# Interrupts). When the last reference to a cell dies, cffi appends the pointer to a deque, in C
# code. `sweep(recorded, completed)` gives newly queued objects the number `recorded` of the last
# recorded submission, and destroys those whose submission has completed.
#
#     pipelines = HandleTable(vk, device, calls, "VkPipeline")
#     cell = pipelines.new()
#     make(..., cell)         # cell[0] is the handle
#     del cell
#     pipelines.sweep(recorded=7, completed=7)

DESTROYERS = {"VkDeviceMemory": "vkFreeMemory"}  # default: "vkDestroy" + type name
FIRST, SECOND = itemgetter(0), itemgetter(1)


class ReleaseQueue:
    """FIFO of released objects, each with the number of the submission that must complete first.

    `add` appends an object without a number; it is C code, for destructors. `tag` numbers these
    objects. `next(pop)` removes and returns the first numbered object.
    """

    def __init__(self) -> None:
        self._new: deque[Any] = deque()
        self._due: deque[tuple[int, Any]] = deque()
        self.deques = self._new, self._due  # for fast emptiness checks
        self.add = self._new.append
        self.pop = map(SECOND, iter(self._due.popleft, None))

    def __bool__(self) -> bool:
        return bool(self._new or self._due)

    def tag(self, recorded: int) -> list[Any]:
        """Give the objects added since the last call the number `recorded`; return them."""
        fresh = list(self._new)
        for _ in fresh:
            self._due.extend(zip((recorded,), iter(self._new.popleft, None), strict=False))
        return fresh

    def is_due(self, completed: int) -> bool:
        """True if the first numbered object has a number of at most `completed`."""
        return bool(self._due) and self._due[0][0] <= completed

    def first(self) -> Any:
        return self._due[0][1]

    def waiting(self) -> list[Any]:
        return [thing for _, thing in self._due]


class RetainedObjects:
    """Python objects that the device may still use, each kept alive by a cell.

    An object is released by `sweep`, after its cell has died and the device has finished with it.
    Call `sweep` under the device's lock.
    """

    def __init__(self, ffi: Any) -> None:
        self._ffi = ffi
        self.released = ReleaseQueue()

    def hold(self, thing: Any) -> Any:
        return self._ffi.gc(self._ffi.new_handle(thing), self.released.add)

    def sweep(self, recorded: int, completed: int) -> None:
        """Release objects whose submission number is at most `completed`. Objects whose cells died
        since the last sweep first get the number `recorded`."""
        if self.released:
            self.released.tag(recorded)
        while self.released.is_due(completed):
            next(self.released.pop)


class HandleTable:
    """Objects of one Vulkan type, such as `VkBuffer`. Call `sweep` and `close` under the device's
    lock."""

    def __init__(self, vk: Vulkan, device: Any, calls: DeviceCalls, kind: str) -> None:
        self._vk, self._device, self._kind = vk, device, kind
        self._made: dict[int, Any] = {}
        self.released = ReleaseQueue()
        destroy = getattr(calls, DESTROYERS.get(kind, "vkDestroy" + kind[2:]))
        known = map(self._made.pop, map(id, self.released.pop), repeat((vk.NULL,)))
        self._destroy = map(destroy, repeat(device), map(FIRST, known), repeat(vk.NULL))

    def new(self) -> Any:
        """Return a cell for a handle that is about to be created; the handle is NULL until then."""
        place = self._vk.ffi.new(self._kind + " *")
        self._made[id(place)] = place
        return self._vk.ffi.gc(place, self.released.add)

    def make(self, function: Any, info: Any, doing: str) -> Any:
        """Return a cell with the handle created by `function(device, info, NULL, cell)`. Raises
        DeviceError."""
        cell = self.new()
        self._vk.take(function(self._device, info, self._vk.NULL, cell), cell, doing)
        return cell

    def sweep(self, recorded: int, completed: int) -> None:
        """Destroy released objects whose submission number is at most `completed`. Objects released
        since the last sweep first get the number `recorded`."""
        if self.released:
            self.released.tag(recorded)
        while self.released.is_due(completed):
            next(self._destroy)

    def close(self) -> None:
        """Destroy all objects, held or not; the device must be idle."""
        for place in list(self._made.values()):
            self.released.add(place)
        self.sweep(recorded=0, completed=1 << 62)


# --- the device ----------------------------------------------------------------------------------

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
