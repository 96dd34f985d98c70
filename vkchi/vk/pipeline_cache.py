"""The driver's cache of pipelines, and where what is in it lasts: on the shelf of compiled code.

Owns: the VkPipelineCache of a device, the key of its content (which device, which driver), the
check of that before a driver sees it, when it is written. Must not know: shaders, files.

What is kept is one entry per device and driver version, checksummed as all entries are. It is read
when a first pipeline is made, and written when the device is closed and as pipelines become many:
the write is of a whole entry, so a process that is killed takes nothing away. What others wrote
meanwhile is merged. A driver that keeps nothing there (lavapipe, SwiftShader) leaves no entry.

    cache = PipelineCache(logical)
    cache.keep_on(shelf)
    make(..., cache.handle, ...)
    cache.save()
"""

from __future__ import annotations

import struct
from typing import Any

from vkchi import env
from vkchi.errors import DeviceError
from vkchi.target.options import Shelf
from vkchi.vk.logical import Logical
from vkchi.vk.raw import SUCCESS

HEADER = struct.Struct(
    "<IIII16s"
)  # size, version, vendor, device, UUID: VkPipelineCacheHeaderVersionOne
HEADER_VERSION = 1
MOST_BYTES = 32 << 20  # what is larger is begun anew
FIRST_WRITE = 16  # pipelines that the driver compiled; then as many again as were made
VALID, IS_HIT = 1, 2  # VkPipelineCreationFeedbackFlagBits


class PipelineCache:
    """The cache of one device, under its owner's lock."""

    def __init__(self, logical: Logical) -> None:
        self._logical = logical
        self._shelf: Shelf | None = None
        self._cell: Any = None
        self._key, self._parts = "", dict[str, str]()
        self._header = b""
        self._kept = b""  # what is on the shelf, as far as is known
        self._made, self._next = 0, FIRST_WRITE  # pipelines that are not in it; when to write
        vk = logical.vk
        self._feedback = vk.new("VkPipelineCreationFeedback")
        self.feedback = vk.new(
            "VkPipelineCreationFeedbackCreateInfo", pPipelineCreationFeedback=self._feedback
        )

    def keep_on(self, shelf: Shelf | None) -> None:
        """Keep what the driver compiles there, and use what is there; before any pipeline is made.
        None, or VKCHI_PIPELINE_CACHE=0: neither."""
        self._shelf = shelf if env.is_on("VKCHI_PIPELINE_CACHE") else None

    @property
    def handle(self) -> Any:
        """The VkPipelineCache; made when first asked for."""
        if self._cell is None:
            self._cell = self._open()
        return self._cell[0]

    def count(self) -> None:
        """A pipeline was made with `feedback` in its chain. Writes, where many were."""
        is_hit = self._feedback.flags & (VALID | IS_HIT) == VALID | IS_HIT
        self._feedback.flags = 0  # a driver that tells nothing is taken to have compiled
        self._made += not is_hit
        if self._made >= self._next:
            self._next *= 2
            self.save()

    def save(self) -> None:
        """Put what the driver compiled on the shelf, if it is anything new."""
        made, self._made = self._made, 0
        if not made or self._shelf is None or self._cell is None:
            return
        try:
            self._take_in_others()
            data = self._read()
        except DeviceError as e:
            self._shelf.warn(f"what the driver compiled is not kept: {e}")
            return
        if data is None:
            self._shelf.remove(self._key)
        elif len(data) > HEADER.size and data != self._kept:
            self._put(self._shelf, data)

    def _put(self, shelf: Shelf, data: bytes) -> None:
        physical = self._logical.physical
        header = {
            "kind": "pipelines", "name": "", "signature": physical.driver,
            "device": physical.name, "version": shelf.version, "parts": self._parts,
        }  # fmt: skip
        if shelf.put(self._key, header, data):
            self._kept = data

    # --- the driver's ------------------------------------------------------------------------

    def _open(self) -> Any:
        """A cache with what is on the shelf, if that is this driver's."""
        self._identify()
        self._kept = self._find(None if self._shelf is None else self._shelf.get(self._key))
        return self._create(self._kept)

    def _create(self, data: bytes) -> Any:
        vk, kind = self._logical.vk, "VkPipelineCache"
        source = vk.ffi.from_buffer(data) if data else vk.NULL
        info = vk.new("VkPipelineCacheCreateInfo", initialDataSize=len(data), pInitialData=source)
        create = self._logical.calls.vkCreatePipelineCache
        try:
            return self._logical.handles(kind).make(create, info, "making a pipeline cache")
        except DeviceError:
            if not data:
                raise
            self._drop("the driver refuses it")
            return self._create(b"")

    def _take_in_others(self) -> None:
        """Merge what another process put on the shelf since."""
        others = self._find(None if self._shelf is None else self._shelf.peek(self._key))
        if others and others != self._kept:
            cell = self._create(others)
            merge, handle = self._logical.calls.vkMergePipelineCaches, self._logical.handle
            self._logical.vk.check(merge(handle, self._cell[0], 1, cell), "merging pipeline caches")

    def _read(self) -> bytes | None:
        """The driver's cache as bytes; none where it does not give them, None for too many."""
        vk, get = self._logical.vk, self._logical.calls.vkGetPipelineCacheData
        size = vk.ffi.new("size_t *")
        if get(self._logical.handle, self._cell[0], size, vk.NULL) != SUCCESS:
            return b""
        if size[0] > MOST_BYTES:
            return None
        data = vk.ffi.new("char[]", max(1, size[0]))
        result = get(self._logical.handle, self._cell[0], size, data)
        return bytes(vk.ffi.buffer(data, size[0])) if result == SUCCESS else b""

    # --- the shelf ---------------------------------------------------------------------------

    def _find(self, found: tuple[dict[str, Any], bytes] | None) -> bytes:
        """What was found on the shelf; empty where that is nothing, or wrong."""
        data = b"" if found is None else found[1]
        fault = self._fault_of(data) if found is not None else ""
        if fault:
            self._drop(fault)
        return b"" if fault else data

    def _fault_of(self, data: bytes) -> str:
        if len(data) < HEADER.size:
            return "it is too short"
        if len(data) > MOST_BYTES:
            return "it is too large"
        return "" if data.startswith(self._header) else "it is of another device or driver"

    def _drop(self, why: str) -> None:
        if self._shelf is not None:
            self._shelf.warn(f"pipelines {self._key[:12]} cannot be used ({why}): removed")
            self._shelf.remove(self._key)

    def _identify(self) -> None:
        """Which device and driver this is: the key, and how the driver's data begins."""
        from vkchi.cache.store import digest  # not without a cache

        vk, physical = self._logical.vk, self._logical.physical
        both = vk.new("VkPhysicalDeviceProperties2")
        vk.lib.vkGetPhysicalDeviceProperties2(physical.handle, both)
        found = both.properties
        uuid = bytes(found.pipelineCacheUUID)
        ids = (found.vendorID, found.deviceID, uuid)
        self._header = HEADER.pack(HEADER.size, HEADER_VERSION, *ids)
        self._parts = {
            "kind": "pipelines",
            "device": f"{found.vendorID:#x}:{found.deviceID:#x} {physical.uuid.hex()}",
            "driver": physical.driver,
            "driver version": f"{found.driverVersion:#x}",
            "pipeline cache UUID": uuid.hex(),
        }
        self._key = digest(f"{name}={value}".encode() for name, value in self._parts.items())
