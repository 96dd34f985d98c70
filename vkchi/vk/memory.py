"""Memory blocks: a VkDeviceMemory, one VkBuffer over all of it, its device address, its mapping.

Owns: the choice of a memory type among those a buffer may use, and the calls. Must not know: how
a block is divided (`allocator`), when its parts are free (`heap`).

    block = make_block(logical, 1 << 20, HOST)
    block.address, block.pointer
    del block       # freed when `logical` sweeps
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vkchi.errors import DeviceError
from vkchi.tuples import NamedTuple
from vkchi.vk.logical import Logical
from vkchi.vk.raw import OUT_OF_HOST_MEMORY

DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT, HOST_CACHED = 1, 2, 4, 8
MIB = 1 << 20
# Numbers where the `vulkan` package lacks the name.
BUFFER_USAGE = 0x20 | 0x20000 | 0x1 | 0x2  # storage, device address, transfer source and target
ADDRESS_END = 1 << 64
DEVICE_ADDRESS = 0x2  # VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT


class Placement(NamedTuple):
    """Which memory types will do: all flags of `needs`, then the most of `likes`, first first."""

    needs: int
    likes: tuple[int, ...]
    dislikes: int = 0


# Memory that the host reads and writes in place, the device's own where the two are one.
SHARED = Placement(HOST_VISIBLE | HOST_COHERENT, (HOST_CACHED, DEVICE_LOCAL))
# Memory of the device alone.
LOCAL = Placement(DEVICE_LOCAL, (), dislikes=HOST_VISIBLE)
# Memory of the host that the device can reach: staging and argument blocks.
HOST = Placement(HOST_VISIBLE | HOST_COHERENT, (HOST_CACHED,), dislikes=DEVICE_LOCAL)


@dataclass(eq=False)
class Block:
    """One piece of memory: handles, bytes, device address, host pointer (None: not mapped), and the
    cells of the handles: it is freed with its last reference, when the device is done with it."""

    buffer: Any
    size_bytes: int
    address: int
    pointer: Any
    cells: tuple[Any, Any]


def make_block(logical: Logical, size_bytes: int, placement: Placement) -> Block:
    """A block of `size_bytes`, mapped if its memory is the host's to see.

    Raises raw.OutOfMemory when the driver is out of memory, DeviceError above the device's limit.
    """
    limit = logical.physical.allocation_limit_bytes
    if size_bytes > limit:
        raise DeviceError(
            f"{size_bytes / MIB:.1f} MiB in one piece is more than {logical.physical.name} "
            f"allows ({limit / MIB:.0f} MiB)"
        )
    buffer = _make_buffer(logical, size_bytes)
    memory, flags = _allocate(logical, buffer[0], placement)
    info = logical.vk.new("VkBufferDeviceAddressInfo", buffer=buffer[0])
    address = int(logical.calls.vkGetBufferDeviceAddress(logical.handle, info))
    _require_range(logical, address, size_bytes)
    is_seen = flags & placement.needs & HOST_VISIBLE
    pointer = _map(logical, memory[0], size_bytes) if is_seen else None
    return Block(buffer[0], size_bytes, address, pointer, (buffer, memory))


def find_type(logical: Logical, allowed_bits: int, placement: Placement) -> int:
    """Index of the memory type that suits best, -1 where none does."""
    best = -1
    best_score: tuple[int, ...] = (-1,)
    for index, kind in enumerate(logical.physical.memory_types):
        if not allowed_bits >> index & 1 or kind.flags & placement.needs != placement.needs:
            continue
        wanted = [int(bool(kind.flags & flag)) for flag in placement.likes]
        score = (*wanted, int(not kind.flags & placement.dislikes), kind.heap_bytes)
        if score > best_score:
            best, best_score = index, score
    return best


def _make_buffer(logical: Logical, size_bytes: int) -> Any:
    """The cell of a new buffer."""
    vk = logical.vk
    info = vk.new("VkBufferCreateInfo", size=size_bytes, usage=BUFFER_USAGE)
    call = logical.calls.vkCreateBuffer
    return logical.handles("VkBuffer").make(call, info, "making a buffer")


def _allocate(logical: Logical, buffer: Any, placement: Placement) -> tuple[Any, int]:
    """(cell of memory bound to the buffer, flags of its type)."""
    vk, calls, device = logical.vk, logical.calls, logical.handle
    needs = vk.ffi.new("VkMemoryRequirements *")
    calls.vkGetBufferMemoryRequirements(device, buffer, needs)
    index = find_type(logical, needs.memoryTypeBits, placement)
    if index < 0:
        raise DeviceError(f"{logical.physical.name} has no memory type for arrays")
    info = vk.new(
        "VkMemoryAllocateInfo", allocationSize=needs.size, memoryTypeIndex=index,
        pNext=vk.new("VkMemoryAllocateFlagsInfo", flags=DEVICE_ADDRESS),
    )  # fmt: skip
    doing = f"allocating {needs.size / MIB:.1f} MiB"
    memory = logical.handles("VkDeviceMemory").make(calls.vkAllocateMemory, info, doing)
    vk.check(calls.vkBindBufferMemory(device, buffer, memory[0], 0), doing)
    return memory, logical.physical.memory_types[index].flags


def _map(logical: Logical, memory: Any, size_bytes: int) -> Any:
    vk = logical.vk
    out = vk.ffi.new("void **")
    result = logical.calls.vkMapMemory(logical.handle, memory, 0, size_bytes, 0, out)
    vk.check(result, "mapping memory")
    _require_range(logical, int(vk.ffi.cast("uintptr_t", out[0])), size_bytes)
    return vk.ffi.cast("char *", out[0])


def _require_range(logical: Logical, start: int, size_bytes: int) -> None:
    """Raise OutOfMemory unless memory can be at `start`. Mesa's lavapipe takes the -1 of a mmap
    that failed for an address, and reports success."""
    if not 0 < start < ADDRESS_END - size_bytes:
        doing = f"allocating {size_bytes / MIB:.1f} MiB"
        logical.vk.check(OUT_OF_HOST_MEMORY, doing)


def read_budget(logical: Logical) -> tuple[int, int]:
    """(bytes free, bytes in all) of the device's largest heap; free is -1 where it is unknown."""
    vk, const = logical.vk, logical.vk.const
    has_budget = "VK_EXT_memory_budget" in logical.extensions
    budget = vk.new("VkPhysicalDeviceMemoryBudgetPropertiesEXT")
    found = vk.new("VkPhysicalDeviceMemoryProperties2", pNext=budget if has_budget else vk.NULL)
    vk.lib.vkGetPhysicalDeviceMemoryProperties2(logical.physical.handle, found)
    heaps = found.memoryProperties.memoryHeaps
    local = [
        i
        for i in range(found.memoryProperties.memoryHeapCount)
        if heaps[i].flags & const.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT
    ]
    at = max(local or [0], key=lambda i: heaps[i].size)
    free = budget.heapBudget[at] - budget.heapUsage[at] if has_budget else -1
    return int(free), int(heaps[at].size)
