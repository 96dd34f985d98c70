"""Calls of the CUDA driver API that memory sharing needs.

Memory and semaphores are imported from handles. CUDA owns a file descriptor once it is imported; if
the import fails, it is closed here. An NT handle is closed in any case. Callers unmap memory before
they destroy the memory object, else it leaks. Source: CUDA Driver API, External Resource
Interoperability, Virtual Memory Management. The names and structs are those of the package
`cuda-bindings`.

    cuda = open_driver(uuid)
    memory = cuda.import_memory(payload)
    pointer = cuda.map(memory, payload.size_bytes)
    ...
    cuda.unmap(pointer); cuda.destroy_memory(memory)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vkchi.errors import DeviceError
from vkchi.interrupts.local import local
from vkchi.target.memory_handles import OPAQUE_FD, OPAQUE_WIN32, Payload, close_handle
from vkchi.tuples import NamedTuple

NO_BINDINGS = "the Python package cuda-bindings is missing: pip install cuda-bindings"
FD_TYPE = "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR"
SUCCESS = 0


class ExportableAllocation(NamedTuple):
    """An exportable CUDA allocation: its start address, and a new handle of it."""

    start: int
    payload: Payload


class AllocationIdentity(NamedTuple):
    """A CUDA allocation: its device, its unique number, its start address. The number is 0 if CUDA
    counts none, as for some virtual memory."""

    device: int
    number: int
    start: int


class CudaDriver:
    """Operations on one CUDA device, over a module like `cuda.bindings.driver`. They raise
    DeviceError on failure.

    Streams are CUDA's handles as integers; 0 is the default stream. Work on a stream is
    asynchronous and in order.
    """

    def __init__(self, module: Any, ordinal: int) -> None:
        self._cu, self.ordinal = module, ordinal
        self._device = self._call("cuDeviceGet", ordinal)
        self._context = self._call("cuDevicePrimaryCtxRetain", self._device)

    def _call(self, name: str, *args: Any) -> Any:
        return call_cuda(self._cu, name, *args)

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Make the device's primary context, which torch uses too, current in this thread."""
        self._call("cuCtxPushCurrent", self._context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent")

    # --- memory ----------------------------------------------------------------------------

    def import_memory(self, payload: Payload) -> Any:
        """Import a handle as a memory object; takes ownership of the handle."""
        cu, types = self._cu, self._cu.CUexternalMemoryHandleType
        kinds = {
            OPAQUE_FD: types.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            OPAQUE_WIN32: types.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32,
        }
        info = cu.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
        info.type = kinds[payload.kind]
        info.size = payload.size_bytes
        info.flags = int(cu.CUDA_EXTERNAL_MEMORY_DEDICATED) if payload.is_dedicated else 0
        return self._take(payload.kind, payload.handle, "cuImportExternalMemory", info)

    def _take(self, kind: int, handle: int, name: str, info: Any) -> Any:
        """Call `name(info)`, which imports a handle. Close the handle on failure, or if it is an NT
        handle."""
        if kind == OPAQUE_WIN32:
            info.handle.win32.handle = handle
        else:
            info.handle.fd = handle
        try:
            with self._entered():
                made = self._call(name, info)
        except BaseException:
            close_handle(kind, handle)
            raise
        if kind == OPAQUE_WIN32:
            close_handle(kind, handle)
        return made

    def map(self, memory: Any, size_bytes: int) -> int:
        """Map a whole memory object; return its address."""
        info = self._cu.CUDA_EXTERNAL_MEMORY_BUFFER_DESC()
        info.offset, info.size, info.flags = 0, size_bytes, 0
        with self._entered():
            return int(self._call("cuExternalMemoryGetMappedBuffer", memory, info))

    def unmap(self, pointer: int) -> None:
        """Free an address that `map` returned; waits for the device."""
        with self._entered():
            self._call("cuCtxSynchronize")
            self._call("cuMemFree", pointer)

    def destroy_memory(self, memory: Any) -> None:
        with self._entered():
            self._call("cuDestroyExternalMemory", memory)

    def copy(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        with self._entered():
            self._call("cuMemcpyDtoDAsync", target, source, size_bytes, stream)

    def identify(self, pointer: int) -> AllocationIdentity | None:
        """Return the allocation that contains an address; None if CUDA does not report it."""
        names = self._cu.CUpointer_attribute
        wanted = (
            names.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, names.CU_POINTER_ATTRIBUTE_BUFFER_ID,
            names.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        )  # fmt: skip
        try:
            with self._entered():
                found = [int(self._call("cuPointerGetAttribute", w, pointer)) for w in wanted]
        except DeviceError:
            return None
        return AllocationIdentity(*found)

    def find_exportable(self, pointer: int) -> ExportableAllocation | None:
        """Return the allocation that contains an address, with a new handle. None if it is not
        exportable or on another device, or if the address range has several allocations."""
        with self._entered():
            held: list[Any] = []
            try:
                start, size_bytes = map(int, self._call("cuMemGetAddressRange", pointer))
                for address in (start, start + size_bytes - 1):
                    held.append(self._call("cuMemRetainAllocationHandle", address))
                if int(held[0]) != int(held[1]):  # several adjacent allocations
                    return None
                return self._export(held[0], start, size_bytes)
            except DeviceError:  # memory of cudaMalloc, or not exportable
                return None
            finally:
                for allocation in held:
                    self._call("cuMemRelease", allocation)

    def _export(self, allocation: Any, start: int, size_bytes: int) -> ExportableAllocation | None:
        kind = getattr(self._cu.CUmemAllocationHandleType, FD_TYPE)
        made = self._call("cuMemGetAllocationPropertiesFromHandle", allocation)
        try:
            can = int(made.requestedHandleTypes) & int(kind)
        except local(TypeError, ValueError):  # a combination that the bindings have no name for
            return None
        if int(made.location.id) != self.ordinal or not can:
            return None
        handle = int(self._call("cuMemExportToShareableHandle", allocation, kind, 0))
        return ExportableAllocation(start, Payload(handle, OPAQUE_FD, size_bytes))

    # --- synchronization -------------------------------------------------------------------

    def import_timeline(self, kind: int, handle: int) -> Any:
        """Import a Vulkan timeline semaphore; takes ownership of the handle."""
        types = self._cu.CUexternalSemaphoreHandleType
        kinds = {
            OPAQUE_FD: types.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
            OPAQUE_WIN32: types.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32,
        }
        info = self._cu.CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC()
        info.type, info.flags = kinds[kind], 0
        return self._take(kind, handle, "cuImportExternalSemaphore", info)

    def destroy_timeline(self, timeline: Any) -> None:
        """Destroy a timeline that no stream will access any more."""
        with self._entered():
            self._call("cuDestroyExternalSemaphore", timeline)

    def signal(self, timeline: Any, value: int, stream: int) -> None:
        info = self._cu.CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS()
        info.params.fence.value, info.flags = value, 0
        with self._entered():
            self._call("cuSignalExternalSemaphoresAsync", [timeline], [info], 1, stream)

    def wait(self, timeline: Any, value: int, stream: int) -> None:
        """Make a stream wait until a timeline reaches a value."""
        info = self._cu.CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS()
        info.params.fence.value, info.flags = value, 0
        with self._entered():
            self._call("cuWaitExternalSemaphoresAsync", [timeline], [info], 1, stream)

    def synchronize(self) -> None:
        with self._entered():
            self._call("cuCtxSynchronize")

    def close(self) -> None:
        self._call("cuDevicePrimaryCtxRelease", self._device)


def call_cuda(module: Any, name: str, *args: Any) -> Any:
    """Call a CUDA function; return its result, or a tuple if there is not exactly one, without the
    error code. Raises DeviceError for an error code."""
    error, *results = getattr(module, name)(*args)
    if int(error) != SUCCESS:
        raise DeviceError(f"CUDA: {name} failed ({getattr(error, 'name', error)})")
    return results[0] if len(results) == 1 else tuple(results)


def load_bindings() -> Any:
    """Return the module `cuda.bindings.driver`, initialized. Raises DeviceError without the package
    `cuda-bindings`, or without a CUDA driver."""
    try:
        from cuda.bindings import driver
    except ImportError:
        raise DeviceError(NO_BINDINGS) from None
    try:
        call_cuda(driver, "cuInit", 0)
    except local(RuntimeError) as error:  # raised by the package if there is no driver
        raise DeviceError(f"no CUDA driver: {str(error).splitlines()[0]}") from None
    return driver


def open_driver(uuid: bytes, module: Any = None) -> CudaDriver:
    """Return the CUDA device with the UUID of a Vulkan device. Raises DeviceError if there is none.
    `module` replaces `cuda.bindings.driver`."""
    cu = load_bindings() if module is None else module
    ask = "cuDeviceGetUuid_v2" if hasattr(cu, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
    count = call_cuda(cu, "cuDeviceGetCount")
    for ordinal in range(count):
        if bytes(call_cuda(cu, ask, call_cuda(cu, "cuDeviceGet", ordinal)).bytes)[:16] == uuid:
            return CudaDriver(cu, ordinal)
    raise DeviceError(
        f"none of CUDA's {count} devices is this Vulkan device: CUDA_VISIBLE_DEVICES may hide it, "
        "and slices of a device (MIG) have no Vulkan"
    )
