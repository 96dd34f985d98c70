"""Device buffers: parts of a device's memory that store arrays.

They are read and written in place or through the device.

    buffer = device.allocate(4096)
    buffer.write(0, b"abcd"); buffer.read(0, 4)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.errors import DeviceError, InternalError
from vkchi.vk.memory.allocator import MemorySpan
from vkchi.vk.memory.heap import HeapMemory

if TYPE_CHECKING:
    from vkchi.device import Device
    from vkchi.vk.memory.blocks import MemoryBlock


IMPORTED = 0


class Buffer:
    """A part of a device's memory.

    Freed by `free` or with its last reference, once the device has finished with it.

    - `key`: unique among the device's buffers, never reused. Exception: IMPORTED, the common key of
      buffers that may overlap others, made by `Device.import_host`, `lend` and `part_of`.
    - `address`: the device address.
    - `view`: memoryview of the bytes; None after `free`, and if the host does not map the device's
      memory. A reference to the `view`, or to an array over it, keeps the memory alive.
    """

    __slots__ = (
        "__weakref__", "_span", "address", "device", "key", "pointer", "size_bytes", "view",
    )  # fmt: skip

    def __init__(self, device: Device, key: int, memory: HeapMemory, size_bytes: int) -> None:
        self.device, self.key, self.size_bytes = device, key, size_bytes
        span = memory.span
        self._span: MemorySpan | None = span
        self.address: int = span.block.address + span.offset
        # The memory is released with the last reference to this pointer: the buffer's or a view's.
        self.pointer: Any = memory.pointer
        self.view: memoryview | None = None
        if device.unified:
            self.view = memoryview(device._vk.ffi.buffer(self.pointer, size_bytes))

    def locate(self, offset: int, size_bytes: int) -> tuple[Any, int]:
        """(VkBuffer, offset in it) of a range.

        Raises InternalError if the range is outside of the buffer, DeviceError after `free` or
        `Device.close`.
        """
        if self._span is None:
            self.device.require_open()
            raise DeviceError("this array was freed")
        if offset < 0 or size_bytes < 0 or offset + size_bytes > self.size_bytes:
            raise InternalError(
                f"{size_bytes} bytes at {offset} are not in a buffer of {self.size_bytes}"
            )
        return self._span.block.buffer, self._span.offset + offset

    def place(self) -> tuple[MemoryBlock, int]:
        """(memory block, offset in it). Raises DeviceError after `free`."""
        self.locate(0, 0)
        assert self._span is not None
        return self._span.block, self._span.offset

    def read(self, offset: int, size_bytes: int) -> bytearray:
        """Return a copy of `size_bytes` bytes from `offset`; waits for all recorded commands."""
        result = bytearray(size_bytes)
        self.read_into(offset, result)
        return result

    def read_into(self, offset: int, target: Any) -> None:
        """Fill the writable contiguous buffer `target` from `offset` on; waits for all recorded
        commands."""
        memory = self.device._vk.ffi.from_buffer(target, require_writable=True)
        size_bytes = len(memory)
        self.locate(offset, size_bytes)
        self.device.wait()
        if self.view is not None:
            self.device._vk.ffi.memmove(memory, self.pointer + offset, size_bytes)
        elif size_bytes:
            self.device.download(self, offset, memory, size_bytes)

    def write(self, offset: int, data: Any) -> None:
        """Write the bytes of a contiguous buffer (bytes, array, numpy) at `offset`.

        Commands recorded earlier do not see the data, later ones do. If the device is `unified`,
        the call waits for the earlier commands.
        """
        memory = self.device._vk.ffi.from_buffer(data)
        size_bytes = len(memory)
        self.locate(offset, size_bytes)
        if self.view is not None:
            self.device.wait()
            self.device._vk.ffi.memmove(self.pointer + offset, memory, size_bytes)
        elif size_bytes:
            self.device.upload(self, offset, memory, size_bytes)

    def free(self) -> None:
        """Drop the references to the memory. Idempotent; later reads and writes raise DeviceError.

        The memory is freed when the device has finished with it and no `view` of it is referenced.
        """
        self._span = self.pointer = self.view = None
