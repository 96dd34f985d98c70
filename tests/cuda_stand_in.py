"""A stand-in for `cuda.bindings.driver`, for memory that a software Vulkan driver exported.

It records the calls, checks them against rules of CUDA's driver, and performs them on the host.
Structs have the fields of the real ones and no others (`test_cuda_bindings` compares), enums their
numbers. Streams run work immediately: a wait that does not end in five seconds fails.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from enum import IntEnum
from types import SimpleNamespace

DEADLOCK_NS = 5_000_000_000
LAVAPIPE_HEADER = 4096  # bytes before the memory in its files

CUresult = IntEnum("CUresult", {"CUDA_SUCCESS": 0, "CUDA_ERROR_INVALID_VALUE": 1,
                                "CUDA_ERROR_OUT_OF_MEMORY": 2})  # fmt: skip
CUexternalMemoryHandleType = IntEnum("CUexternalMemoryHandleType", {
    "CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD": 1,
    "CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32": 2,
})  # fmt: skip
CUexternalSemaphoreHandleType = IntEnum("CUexternalSemaphoreHandleType", {
    "CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD": 9,
    "CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32": 10,
})  # fmt: skip
CUmemAllocationHandleType = IntEnum("CUmemAllocationHandleType", {
    "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR": 1,
})  # fmt: skip
CUpointer_attribute = IntEnum("CUpointer_attribute", {
    "CU_POINTER_ATTRIBUTE_BUFFER_ID": 7, "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL": 9,
    "CU_POINTER_ATTRIBUTE_RANGE_START_ADDR": 11,
})  # fmt: skip
ENUMS = (CUexternalMemoryHandleType, CUexternalSemaphoreHandleType, CUmemAllocationHandleType,
         CUpointer_attribute, CUresult)  # fmt: skip
CUDA_EXTERNAL_MEMORY_DEDICATED = 1

FIELDS = {
    "CUDA_EXTERNAL_MEMORY_HANDLE_DESC":
        ("type", "handle.fd", "handle.win32.handle", "size", "flags"),
    "CUDA_EXTERNAL_MEMORY_BUFFER_DESC": ("offset", "size", "flags"),
    "CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC": ("type", "handle.fd", "handle.win32.handle", "flags"),
    "CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS": ("params.fence.value", "flags"),
    "CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS": ("params.fence.value", "flags"),
}  # fmt: skip


class Struct:
    """A struct with the given fields, all zero at first; others cannot be assigned."""

    def __init__(self, fields):
        inner = {}
        for field in fields:
            head, _, rest = field.partition(".")
            inner.setdefault(head, []).append(rest)
        for head, rests in inner.items():
            value = Struct([rest for rest in rests if rest]) if rests != [""] else 0
            object.__setattr__(self, head, value)

    def __setattr__(self, name, value):
        assert name in vars(self), f"there is no field {name}"
        object.__setattr__(self, name, value)


class Allocation:
    """A handle of virtual memory: a number, as CUDA's are."""

    def __init__(self, one):
        self.one = one

    def __int__(self):
        return id(self.one)


class Failed(Exception):
    """A call that gives an error."""


class StandIn:
    """The stand-in for the module.

    calls: (name, facts) of the recorded calls, in order; failing: names of calls that return an
    error; vmm: allocations of virtual memory, by address; semaphores: Vulkan's (device, semaphore),
    by descriptor.
    """

    CUexternalMemoryHandleType = CUexternalMemoryHandleType
    CUexternalSemaphoreHandleType = CUexternalSemaphoreHandleType
    CUmemAllocationHandleType = CUmemAllocationHandleType
    CUpointer_attribute = CUpointer_attribute
    CUDA_EXTERNAL_MEMORY_DEDICATED = CUDA_EXTERNAL_MEMORY_DEDICATED

    def __init__(self, uuids=(bytes(16),)):
        self.uuids, self.calls, self.failing = uuids, [], set()
        self.semaphores, self.vmm, self.values = {}, {}, {}
        self._depth, self._memory, self._mapped, self._number = 0, {}, {}, 100
        self._timelines, self.devices = {}, {}

    def names(self):
        """Names of the recorded calls, in order."""
        return [name for name, _ in self.calls]

    def __getattr__(self, name):
        if name in FIELDS:
            return lambda: Struct(FIELDS[name])
        if not name.startswith("cu"):
            raise AttributeError(name)
        act = type(self).__dict__.get("_" + name)
        if act is None:
            raise AttributeError(name)

        def call(*args):
            is_context = name.startswith(("cuCtxP", "cuDevice", "cuInit"))
            assert is_context or self._depth == 1, f"{name} without a context"
            if name in self.failing:
                return (CUresult.CUDA_ERROR_INVALID_VALUE, None)
            try:
                found = act(self, *args)
            except Failed:
                return (CUresult.CUDA_ERROR_INVALID_VALUE, None)
            results = found if isinstance(found, tuple) else () if found is None else (found,)
            return (CUresult.CUDA_SUCCESS, *results)

        return call

    def _note(self, name, **facts):
        self.calls.append((name, facts))

    def _new(self):
        self._number += 1
        return self._number

    # --- devices -----------------------------------------------------------------------------

    def _cuInit(self, flags):
        assert flags == 0

    def _cuDeviceGetCount(self):
        return len(self.uuids)

    def _cuDeviceGet(self, ordinal):
        return ordinal

    def _cuDeviceGetUuid(self, device):
        return SimpleNamespace(bytes=self.uuids[device])

    def _cuDevicePrimaryCtxRetain(self, device):
        self._note("retain")
        return "context"

    def _cuDevicePrimaryCtxRelease(self, device):
        self._note("release")

    def _cuCtxPushCurrent(self, context):
        assert context == "context"
        self._depth += 1

    def _cuCtxPopCurrent(self):
        self._depth -= 1
        return "context"

    def _cuCtxSynchronize(self):
        self._note("synchronize")

    # --- memory ------------------------------------------------------------------------------

    def _cuImportExternalMemory(self, info):
        assert info.type == 1
        made = self._new()
        file = os.readlink(f"/proc/self/fd/{info.handle.fd}")
        at = LAVAPIPE_HEADER if "llvmpipe" in file else 0
        self._memory[made] = mmap.mmap(info.handle.fd, info.size, offset=at)
        os.close(info.handle.fd)  # CUDA owns it from now on
        self._note("import memory", memory=made, size=info.size, flags=info.flags)
        return made

    def _cuExternalMemoryGetMappedBuffer(self, memory, info):
        assert (info.offset, info.flags) == (0, 0) and info.size <= len(self._memory[memory])
        pointer = ctypes.addressof(ctypes.c_char.from_buffer(self._memory[memory]))
        assert pointer not in self._mapped
        self._mapped[pointer] = memory
        self._note("map", memory=memory, size=info.size)
        return pointer

    def _cuMemFree(self, pointer):
        self._note("unmap", memory=self._mapped.pop(pointer))

    def _cuDestroyExternalMemory(self, memory):
        assert memory not in self._mapped.values(), "destroyed before it was unmapped"
        self._memory.pop(memory)
        self._note("destroy memory", memory=memory)

    def _cuMemcpyDtoDAsync(self, target, source, size, stream):
        self._note("copy", stream=stream, size=size)
        ctypes.memmove(target, source, size)

    def _cuPointerGetAttribute(self, attribute, pointer):
        start = self._start(pointer)
        if attribute == CUpointer_attribute.CU_POINTER_ATTRIBUTE_BUFFER_ID:
            return self.vmm[start].number if start is not None else pointer
        if attribute == CUpointer_attribute.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            return pointer if start is None else start
        return self.devices.get(pointer, 0)

    def _start(self, pointer):
        """Start of the virtual memory range that contains an address."""
        return next((s for s, one in self.vmm.items() if 0 <= pointer - s < one.size), None)

    def _cuMemGetAddressRange(self, pointer):
        for start, one in self.vmm.items():
            if 0 <= pointer - start < one.size:
                return start, one.size
        return pointer, 1

    def _cuMemRetainAllocationHandle(self, pointer):
        start = self._start(pointer)
        if start is None:
            raise Failed
        self._note("retain allocation")
        return Allocation(self.vmm[start])

    def _cuMemGetAllocationPropertiesFromHandle(self, handle):
        one = handle.one
        return SimpleNamespace(
            requestedHandleTypes=1 if one.fd >= 0 else 0, location=SimpleNamespace(id=one.device)
        )

    def _cuMemExportToShareableHandle(self, handle, kind, flags):
        assert (kind, flags) == (1, 0)
        self._note("export allocation")
        return os.dup(handle.one.fd)

    def _cuMemRelease(self, one):
        self._note("release allocation")

    # --- semaphores --------------------------------------------------------------------------

    def _cuImportExternalSemaphore(self, info):
        assert (info.type, info.flags) == (9, 0)
        made = self._new()
        self._timelines[made] = self.semaphores.pop(info.handle.fd)
        os.close(info.handle.fd)
        self._note("import timeline", timeline=made)
        return made

    def _cuDestroyExternalSemaphore(self, timeline):
        self._timelines.pop(timeline)
        self._note("destroy timeline", timeline=timeline)

    def _cuSignalExternalSemaphoresAsync(self, timelines, infos, count, stream):
        value = infos[0].params.fence.value
        assert count == len(timelines) == len(infos) == 1 and infos[0].flags == 0
        self._note("signal", timeline=timelines[0], value=value, stream=stream)
        device, semaphore = self._timelines[timelines[0]]
        vk, logical = device._vk, device._logical
        assert value > read_value(device, semaphore), "the values of a timeline rise"
        info = vk.new("VkSemaphoreSignalInfo", semaphore=semaphore, value=value)
        vk.check(logical.calls.vkSignalSemaphore(logical.handle, info), "signalling")

    def _cuWaitExternalSemaphoresAsync(self, timelines, infos, count, stream):
        value = infos[0].params.fence.value
        assert count == len(timelines) == len(infos) == 1 and infos[0].flags == 0
        self._note("wait", timeline=timelines[0], value=value, stream=stream)
        device, semaphore = self._timelines[timelines[0]]
        vk, logical = device._vk, device._logical
        info = vk.new("VkSemaphoreWaitInfo", semaphoreCount=1,
                      pSemaphores=vk.ffi.new("VkSemaphore[]", [semaphore]),
                      pValues=vk.ffi.new("uint64_t[]", [value]))  # fmt: skip
        result = logical.calls.vkWaitSemaphores(logical.handle, info, DEADLOCK_NS)
        assert result == 0, f"a stream waits for {value}, and {read_value(device, semaphore)} it is"


def read_value(device, semaphore):
    """Current value of a timeline."""
    out = device._vk.ffi.new("uint64_t *")
    device._logical.calls.vkGetSemaphoreCounterValue(device._logical.handle, semaphore, out)
    return out[0]


def new_handle():
    """A new file descriptor that represents a semaphore."""
    return os.memfd_create("semaphore")
