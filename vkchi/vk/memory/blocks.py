"""Memory blocks: a VkDeviceMemory, one VkBuffer over all of it, its device address, its mapping.

There are three kinds:

- memory that the driver allocates;
- the same, exportable: dedicated to its buffer, so that a handle of it exposes the whole block;
- memory imported from outside: pages of the host, or the memory of an external handle.

`heap` divides a block into spans, and determines when they are free.

    block = make_block(logical, 1 << 20, HOST)
    block.address, block.pointer
    del block       # freed when `logical` sweeps
"""

from __future__ import annotations

import os
from math import ceil
from typing import Any

from vkchi import platform
from vkchi.errors import DeviceError
from vkchi.interrupts.local import local
from vkchi.target.memory_handles import DMA_BUF, OPAQUE_FD, Payload
from vkchi.tuples import NamedTuple
from vkchi.vk.logical import Logical
from vkchi.vk.memory.external import HandleExporter
from vkchi.vk.physical import BUFFER_USAGE, HOST_ALLOCATION
from vkchi.vk.raw import OUT_OF_HOST_MEMORY, OutOfMemory

DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT, HOST_CACHED = 1, 2, 4, 8
MIB = 1 << 20
ADDRESS_END = 1 << 64
DEVICE_ADDRESS = 0x2  # VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT; `vulkan` lacks the name


class MemoryPlacement(NamedTuple):
    """Preferences for a memory type, which must have all flags of `needs`.

    The best such type has the flags of `likes`, of which earlier ones count more. Ties are decided
    by having no flag of `dislikes`, then by the size of the heap.
    """

    needs: int
    likes: tuple[int, ...]
    dislikes: int = 0


# Host-visible memory for arrays; device-local too if the device shares the host's memory.
SHARED = MemoryPlacement(HOST_VISIBLE | HOST_COHERENT, (HOST_CACHED, DEVICE_LOCAL))
# Imported host memory.
IMPORTED = MemoryPlacement(HOST_VISIBLE | HOST_COHERENT, (HOST_CACHED,))
# Device-local memory without host access.
LOCAL = MemoryPlacement(DEVICE_LOCAL, (), dislikes=HOST_VISIBLE)
# Host memory that the device can access: staging and argument blocks.
HOST = MemoryPlacement(HOST_VISIBLE | HOST_COHERENT, (HOST_CACHED,), dislikes=DEVICE_LOCAL)


# Memory that another library allocated, of any type.
ANYWHERE = MemoryPlacement(0, (DEVICE_LOCAL,), dislikes=HOST_VISIBLE)


class DriverAllocation(NamedTuple):
    """Driver allocation of a block: its cell, its size in the driver's granularity, its memory
    type."""

    cell: Any
    size_bytes: int
    type_index: int


class MemoryBlock:
    """One piece of memory: VkBuffer, size, device address, host pointer (None: not mapped), cells.

    Freed after its last reference, when the device has finished with it. `made` is the allocation
    from which handles are exported; None if the block is not exportable.
    """

    __slots__ = ("__weakref__", "address", "buffer", "cells", "made", "pointer", "size_bytes")

    def __init__(
        self, buffer: Any, size_bytes: int, address: int, pointer: Any, cells: tuple[Any, ...]
    ) -> None:
        self.buffer, self.size_bytes, self.address = buffer, size_bytes, address
        self.pointer, self.cells = pointer, cells
        self.made: DriverAllocation | None = None


def make_block(
    logical: Logical,
    size_bytes: int,
    placement: MemoryPlacement,
    exporter: HandleExporter | None = None,
) -> MemoryBlock:
    """Make a block of `size_bytes`, mapped if `placement` needs host-visible memory.

    With an exporter, the block can be exported (`export_block`). Raises `raw.OutOfMemory` if the
    driver is out of memory. Raises DeviceError if the size exceeds the device's buffer limit, or
    exceeds its allocation limit and the driver is out of memory. NVIDIA reports an allocation limit
    of 4 GiB and allows more. Source: Vulkan, VkPhysicalDeviceMaintenance3Properties.
    """
    if size_bytes > logical.physical.buffer_limit_bytes:
        raise size_limit_error(logical, size_bytes, logical.physical.buffer_limit_bytes)
    try:
        return _make_block(logical, size_bytes, placement, exporter)
    except OutOfMemory:
        if size_bytes > logical.physical.allocation_limit_bytes:
            raise size_limit_error(
                logical, size_bytes, logical.physical.allocation_limit_bytes
            ) from None
        raise


def size_limit_error(logical: Logical, size_bytes: int, limit_bytes: int) -> DeviceError:
    return DeviceError(
        f"{ceil(10 * size_bytes / MIB) / 10} MiB in one piece is more than "
        f"{logical.physical.name} allows ({10 * limit_bytes // MIB / 10} MiB): use several arrays"
    )


def tell_file_limit(logical: Logical) -> str:
    """Return the process's limit for file sizes, as part of a message.

    "" without a limit, and on drivers other than llvmpipe, which may keep memory in a file.
    """
    most = platform.limit_of("RLIMIT_FSIZE")
    if most is None or not logical.physical.name.startswith("llvmpipe"):
        return ""
    return (
        f", it may keep memory in a file, and this process may write files of {most / MIB:.1f} MiB "
        "(allow more: `ulimit -f unlimited`)"
    )


def check_file_limit(logical: Logical, memory: Any, start: Any, size_bytes: int) -> None:
    """Check that the file in which mapped memory is, if any, contains it; extend a shorter file.

    If the process's limit for file sizes forbids that, the memory is freed, and OutOfMemory is
    raised. llvmpipe does not check it, and an access to such memory kills the process (SIGBUS).
    """
    found = platform.find_mapped_file(int(logical.vk.ffi.cast("uintptr_t", start)))
    if found is None:
        return
    file, position = found
    try:
        if os.fstat(file).st_size < position + size_bytes:
            os.ftruncate(file, position + size_bytes)
    except local(OSError):
        handle, memory[0] = memory[0], logical.vk.NULL  # a NULL handle may be freed again
        logical.calls.vkFreeMemory(logical.handle, handle, logical.vk.NULL)
        raise OutOfMemory(
            f"{logical.physical.name} cannot allocate {size_bytes / MIB:.1f} MiB"
            + tell_file_limit(logical)
        ) from None


def _make_block(
    logical: Logical, size_bytes: int, placement: MemoryPlacement, exporter: HandleExporter | None
) -> MemoryBlock:
    vk = logical.vk
    outside = chain = vk.NULL
    if exporter is not None:
        outside = vk.new("VkExternalMemoryBufferCreateInfo", handleTypes=exporter.kind)
    buffer = _make_buffer(logical, size_bytes, outside)
    if exporter is not None:
        chain = vk.new("VkExportMemoryAllocateInfo", handleTypes=exporter.kind,
                       pNext=_dedicate(logical, buffer[0]))  # fmt: skip
    made, flags = _allocate(logical, buffer[0], placement, chain)
    address = _read_address(logical, buffer[0], size_bytes)
    is_seen = flags & placement.needs & HOST_VISIBLE
    pointer = _map(logical, made.cell[0], size_bytes) if is_seen else None
    if flags & HOST_VISIBLE and tell_file_limit(logical):
        start = _map(logical, made.cell[0], size_bytes) if pointer is None else pointer
        check_file_limit(logical, made.cell, start, size_bytes)
    block = MemoryBlock(buffer[0], size_bytes, address, pointer, (buffer, made.cell))
    block.made = made if exporter is not None else None
    return block


def export_block(block: MemoryBlock, exporter: HandleExporter) -> Payload:
    """Export the whole memory of an exportable block; return a new handle.

    An importer takes over a file descriptor. The caller must close an NT handle. Raises DeviceError
    if the block is not exportable.
    """
    if block.made is None:
        raise DeviceError("this memory was not made to be given away")
    cell, size_bytes, type_index = block.made
    return exporter.export_memory(cell[0], size_bytes, type_index)


def import_payload(logical: Logical, payload: Payload, size_bytes: int) -> MemoryBlock:
    """Make a block of `size_bytes` in the memory of a file descriptor, mapped if it is
    host-visible.

    The descriptor is closed. If DeviceError is raised, it stays open, and still the caller's. An
    opaque handle exported by Vulkan must be imported with the size, type and buffer of its
    creation. Source: VkMemoryAllocateInfo.
    """
    vk = logical.vk
    doing = f"using {payload.size_bytes} bytes of another library's memory"
    if payload.kind not in (OPAQUE_FD, DMA_BUF):
        raise DeviceError("only file descriptors can be imported as memory")
    outside = vk.new("VkExternalMemoryBufferCreateInfo", handleTypes=payload.kind)
    buffer = _make_buffer(logical, size_bytes, outside)
    needs = _read_needs(logical, buffer[0])
    index = payload.type_index
    if index < 0:
        index = find_type(logical, needs.memoryTypeBits & _types_of(logical, payload), ANYWHERE)
    if index < 0 or needs.size > payload.size_bytes:
        raise DeviceError(f"{logical.physical.name} cannot use this memory in place")
    chain = _dedicate(logical, buffer[0]) if payload.is_dedicated else vk.NULL
    try:
        own = os.dup(payload.handle)  # the driver owns it as soon as memory is made of it
    except local(OSError) as e:
        raise DeviceError(f"{doing}: {e.strerror}") from None
    source = vk.new("VkImportMemoryFdInfoKHR", handleType=payload.kind, fd=own, pNext=chain)
    try:
        memory = _new_memory(logical, payload.size_bytes, index, source, doing)
    except DeviceError:
        os.close(own)
        raise
    _bind(logical, buffer[0], memory, doing)
    address = _read_address(logical, buffer[0], size_bytes)
    is_seen = logical.physical.memory_types[index].flags & HOST_VISIBLE
    pointer = _map(logical, memory[0], size_bytes) if is_seen else None
    os.close(payload.handle)
    return MemoryBlock(buffer[0], size_bytes, address, pointer, (buffer, memory))


def _types_of(logical: Logical, payload: Payload) -> int:
    """Return the bits of the memory types that a handle can be imported as. Raises DeviceError.
    Opaque handles allow all, because Vulkan forbids the query for them."""
    if payload.kind == OPAQUE_FD:
        return (1 << 32) - 1
    found = logical.vk.new("VkMemoryFdPropertiesKHR")
    ask = logical.calls.vkGetMemoryFdPropertiesKHR
    result = ask(logical.handle, payload.kind, payload.handle, found)
    logical.vk.check(result, "looking at another library's memory")
    return int(found.memoryTypeBits)


def _dedicate(logical: Logical, buffer: Any) -> Any:
    return logical.vk.new("VkMemoryDedicatedAllocateInfo", buffer=buffer)


def import_block(logical: Logical, start: int, size_bytes: int, keeper: Any) -> MemoryBlock:
    """Make a block over host memory at address `start`.

    `start` and `size_bytes` are multiples of `host_pointer_alignment`. `keeper` is a further cell
    that keeps the memory alive. Raises DeviceError if the driver does not accept it. Source:
    VK_EXT_external_memory_host.
    """
    vk, calls = logical.vk, logical.calls
    doing = f"using {size_bytes} bytes of the host's memory"
    pointer = vk.ffi.cast("void *", start)
    external = vk.new("VkExternalMemoryBufferCreateInfo", handleTypes=HOST_ALLOCATION)
    buffer = _make_buffer(logical, size_bytes, external)
    found = vk.new("VkMemoryHostPointerPropertiesEXT")
    ask = calls.vkGetMemoryHostPointerPropertiesEXT
    vk.check(ask(logical.handle, HOST_ALLOCATION, pointer, found), doing)
    needs = _read_needs(logical, buffer[0])
    index = find_type(logical, needs.memoryTypeBits & found.memoryTypeBits, IMPORTED)
    if index < 0 or needs.size > size_bytes:
        raise DeviceError(f"{logical.physical.name} cannot use this memory of the host in place")
    source = vk.new(
        "VkImportMemoryHostPointerInfoEXT", handleType=HOST_ALLOCATION, pHostPointer=pointer
    )
    memory = _bind_new(logical, buffer[0], size_bytes, index, source, doing)
    address = _read_address(logical, buffer[0], size_bytes)
    cells = (buffer, memory, keeper)
    return MemoryBlock(buffer[0], size_bytes, address, vk.ffi.cast("char *", start), cells)


def find_type(logical: Logical, allowed_bits: int, placement: MemoryPlacement) -> int:
    """The index of the best memory type for a placement among the bits `allowed_bits`, or -1."""
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


def _make_buffer(logical: Logical, size_bytes: int, chain: Any) -> Any:
    vk = logical.vk
    info = vk.new("VkBufferCreateInfo", size=size_bytes, usage=BUFFER_USAGE, pNext=chain)
    call = logical.calls.vkCreateBuffer
    return logical.handles("VkBuffer").make(call, info, "making a buffer")


def _allocate(
    logical: Logical, buffer: Any, placement: MemoryPlacement, chain: Any
) -> tuple[DriverAllocation, int]:
    needs = _read_needs(logical, buffer)
    index = find_type(logical, needs.memoryTypeBits, placement)
    if index < 0:
        raise DeviceError(f"{logical.physical.name} has no memory type for arrays")
    doing = f"allocating {needs.size / MIB:.1f} MiB"
    memory = _bind_new(logical, buffer, needs.size, index, chain, doing)
    flags = logical.physical.memory_types[index].flags
    return DriverAllocation(memory, needs.size, index), flags


def _read_needs(logical: Logical, buffer: Any) -> Any:
    needs = logical.vk.ffi.new("VkMemoryRequirements *")
    logical.calls.vkGetBufferMemoryRequirements(logical.handle, buffer, needs)
    return needs


def _bind_new(
    logical: Logical, buffer: Any, size_bytes: int, index: int, chain: Any, doing: str
) -> Any:
    memory = _new_memory(logical, size_bytes, index, chain, doing)
    _bind(logical, buffer, memory, doing)
    return memory


def _new_memory(logical: Logical, size_bytes: int, index: int, chain: Any, doing: str) -> Any:
    vk, calls = logical.vk, logical.calls
    flags = vk.new("VkMemoryAllocateFlagsInfo", flags=DEVICE_ADDRESS, pNext=chain)
    info = vk.new(
        "VkMemoryAllocateInfo", allocationSize=size_bytes, memoryTypeIndex=index, pNext=flags
    )
    return logical.handles("VkDeviceMemory").make(calls.vkAllocateMemory, info, doing)


def _bind(logical: Logical, buffer: Any, memory: Any, doing: str) -> None:
    call = logical.calls.vkBindBufferMemory
    logical.vk.check(call(logical.handle, buffer, memory[0], 0), doing)


def _read_address(logical: Logical, buffer: Any, size_bytes: int) -> int:
    info = logical.vk.new("VkBufferDeviceAddressInfo", buffer=buffer)
    address = int(logical.calls.vkGetBufferDeviceAddress(logical.handle, info))
    _require_range(logical, address, size_bytes)
    return address


def _map(logical: Logical, memory: Any, size_bytes: int) -> Any:
    vk = logical.vk
    out = vk.ffi.new("void **")
    result = logical.calls.vkMapMemory(logical.handle, memory, 0, size_bytes, 0, out)
    vk.check(result, "mapping memory")
    _require_range(logical, int(vk.ffi.cast("uintptr_t", out[0])), size_bytes)
    return vk.ffi.cast("char *", out[0])


def _require_range(logical: Logical, start: int, size_bytes: int) -> None:
    """Raise OutOfMemory unless `start` is not null and `start + size_bytes` is below 2^64. If mmap
    fails, Mesa's lavapipe uses its result -1 as an address and reports success."""
    if not 0 < start < ADDRESS_END - size_bytes:
        doing = f"allocating {size_bytes / MIB:.1f} MiB"
        logical.vk.check(OUT_OF_HOST_MEMORY, doing)


def read_budget(logical: Logical) -> tuple[int, int]:
    """Return (free bytes, total bytes) of the largest device-local heap, or of heap 0 if there is
    none. Free is -1 without VK_EXT_memory_budget, and 0 if more than the budget is in use."""
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
    free = max(0, budget.heapBudget[at] - budget.heapUsage[at]) if has_budget else -1
    return int(free), int(heaps[at].size)
