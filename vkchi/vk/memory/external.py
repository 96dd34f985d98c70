"""Export of memory and semaphores as operating-system handles, and the kinds a driver supports.

A handle is a file descriptor, on Windows an NT handle; `HandleExporter` abstracts from both. An
opaque handle is understood only by the driver that created it, and by CUDA for NVIDIA's. The
importer must repeat the parameters of the allocation (`Payload`). A dma-buf carries them itself.
Source: Vulkan, VK_KHR_external_memory_fd, VK_KHR_external_semaphore_fd, and _win32 of both.

    exporter = find_exporter(logical)
    payload = exporter.export_memory(memory, size_bytes, type_index)
    os.close(payload.handle)        # if nobody imports it: the importer owns a descriptor
"""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from vkchi import platform
from vkchi.errors import DeviceError
from vkchi.target.memory_handles import OPAQUE_FD, OPAQUE_WIN32, Payload
from vkchi.vk.physical import memory_features

if TYPE_CHECKING:
    from vkchi.vk.logical import Logical

MEMORY_WIN32, SEMAPHORE_WIN32 = 1000073003, 1000078003  # VkStructureType


class Win32Info(ctypes.Structure):
    """VkMemoryGetWin32HandleInfoKHR and VkSemaphoreGetWin32HandleInfoKHR, which have the same
    layout."""

    _fields_ = (
        ("sType", ctypes.c_int), ("pNext", ctypes.c_void_p), ("object", ctypes.c_uint64),
        ("handleType", ctypes.c_int),
    )  # fmt: skip


class HandleExporter:
    """Conversion of a device's memory and semaphores to operating-system handles of type `kind`."""

    kind: int

    def __init__(self, logical: Logical) -> None:
        self._logical = logical

    def export_memory(self, memory: Any, size_bytes: int, type_index: int) -> Payload:
        """Export memory that was allocated for export and is dedicated to one buffer.

        Returns a new handle with the parameters that the importer must repeat. Raises DeviceError.
        """
        handle = self._export_memory(memory)
        return Payload(handle, self.kind, size_bytes, type_index, is_dedicated=True)

    def _export_memory(self, memory: Any) -> int:
        raise NotImplementedError

    def export_semaphore(self, semaphore: Any) -> int:
        """Return a new handle of a semaphore that was created for export. Raises DeviceError."""
        raise NotImplementedError


class FdExporter(HandleExporter):
    kind = OPAQUE_FD

    def _export_memory(self, memory: Any) -> int:
        info = self._logical.vk.new("VkMemoryGetFdInfoKHR", memory=memory, handleType=OPAQUE_FD)
        return self._get(self._logical.calls.vkGetMemoryFdKHR, info)

    def export_semaphore(self, semaphore: Any) -> int:
        vk = self._logical.vk
        info = vk.new("VkSemaphoreGetFdInfoKHR", semaphore=semaphore, handleType=OPAQUE_FD)
        return self._get(self._logical.calls.vkGetSemaphoreFdKHR, info)

    def _get(self, call: Any, info: Any) -> int:
        vk = self._logical.vk
        out = vk.ffi.new("int *", -1)
        vk.check(call(self._logical.handle, info, out), "giving memory to another library")
        return int(out[0])


class Win32Exporter(HandleExporter):
    """Exporter of NT handles. An importer does not take them over: the exporting side closes
    them."""

    kind = OPAQUE_WIN32

    def _export_memory(self, memory: Any) -> int:
        return self._get(b"vkGetMemoryWin32HandleKHR", MEMORY_WIN32, memory)

    def export_semaphore(self, semaphore: Any) -> int:
        return self._get(b"vkGetSemaphoreWin32HandleKHR", SEMAPHORE_WIN32, semaphore)

    def _get(self, name: bytes, structure_type: int, thing: Any) -> int:
        vk = self._logical.vk
        number = vk.ffi.cast
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Win32Info),
            ctypes.POINTER(ctypes.c_void_p),
        )  # fmt: skip
        call = kind(int(number("uintptr_t", self._find(name))))
        info = Win32Info(structure_type, None, int(number("uint64_t", thing)), OPAQUE_WIN32)
        out = ctypes.c_void_p()
        device = int(number("uintptr_t", self._logical.handle))
        result = call(device, ctypes.byref(info), ctypes.byref(out))
        vk.check(result, "giving memory to another library")
        return int(out.value or 0)

    def _find(self, name: bytes) -> Any:
        found = self._logical.vk.lib.vkGetDeviceProcAddr(self._logical.handle, name)
        if found == self._logical.vk.NULL:
            raise DeviceError(f"the Vulkan driver has no function {name.decode()}")
        return found


EXPORTERS: dict[str, type[HandleExporter]] = {"fd": FdExporter, "win32": Win32Exporter}


def find_exporter(logical: Logical) -> HandleExporter | None:
    """Return the exporter of a device; None if its driver cannot export the memory of buffers."""
    kind = platform.SYSTEM.handles
    exporter = EXPORTERS[kind](logical)
    name = f"VK_KHR_external_memory_{kind}"
    if name not in logical.extensions:
        return None
    features = memory_features(logical.vk, logical.physical.handle, exporter.kind)
    can = logical.vk.const.VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT
    return exporter if features & can else None


def choose_exporter(logical: Logical) -> HandleExporter | None:
    """Return the exporter for memory that CUDA may use. None if the device is not NVIDIA's, the
    `cuda` package is missing, or the driver cannot export."""
    if logical.physical.vendor != "nvidia" or find_spec("cuda") is None:
        return None
    return find_exporter(logical)


def can_export_timelines(logical: Logical, kind: int) -> bool:
    """True if timeline semaphores can be exported as handles of this type."""
    vk, const = logical.vk, logical.vk.const
    timeline = vk.new("VkSemaphoreTypeCreateInfo", semaphoreType=const.VK_SEMAPHORE_TYPE_TIMELINE)
    asked = vk.new("VkPhysicalDeviceExternalSemaphoreInfo", pNext=timeline, handleType=kind)
    found = vk.new("VkExternalSemaphoreProperties")
    ask = vk.lib.vkGetPhysicalDeviceExternalSemaphoreProperties
    ask(logical.physical.handle, asked, found)
    can = const.VK_EXTERNAL_SEMAPHORE_FEATURE_EXPORTABLE_BIT
    return bool(found.externalSemaphoreFeatures & can)


def make_timeline(logical: Logical, value: int = 0, kind: int = 0) -> Any:
    """Create a timeline semaphore with the initial `value`; return its cell (`HandleTable`). It can
    be exported as a handle of `kind`, unless `kind` is 0."""
    vk = logical.vk
    chain = vk.NULL
    if kind:
        chain = vk.new("VkExportSemaphoreCreateInfo", handleTypes=kind)
    timeline = vk.new(
        "VkSemaphoreTypeCreateInfo", semaphoreType=vk.const.VK_SEMAPHORE_TYPE_TIMELINE,
        initialValue=value, pNext=chain,
    )  # fmt: skip
    info = vk.new("VkSemaphoreCreateInfo", pNext=timeline)
    call = logical.calls.vkCreateSemaphore
    return logical.handles("VkSemaphore").make(call, info, "making a semaphore")
