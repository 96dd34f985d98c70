"""VkPipelineCache of a device, persisted in the disk cache (`CacheStore`).

The store has one checksummed entry per device and driver version. The entry is read when the first
pipeline is created. It is written when the device is closed, and whenever the number of newly
compiled pipelines reaches a threshold, which then doubles. A write replaces the whole entry. Before
it, the entry of another process is merged. A driver without cache data (lavapipe, SwiftShader)
leaves no entry. The header of an entry is checked before the driver reads it.

    cache = PipelineCache(logical)
    cache.keep_on(shelf)
    make(..., cache.handle, ...)
    cache.save()
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from vkchi import env
from vkchi.errors import DeviceError
from vkchi.vk.logical import Logical
from vkchi.vk.raw import SUCCESS

if TYPE_CHECKING:
    from vkchi.cache.store import CacheStore

HEADER = struct.Struct(
    "<IIII16s"
)  # size, version, vendor, device, UUID: VkPipelineCacheHeaderVersionOne
HEADER_VERSION = 1
MOST_BYTES = 32 << 20  # a larger entry is removed
FIRST_WRITE = 16  # compiled pipelines before a save; then doubled
VALID, IS_HIT = 1, 2  # VkPipelineCreationFeedbackFlagBits


class PipelineCache:
    """The cache of one device; the caller holds the lock."""

    def __init__(self, logical: Logical) -> None:
        self._logical = logical
        self._shelf: CacheStore | None = None
        self._cell: Any = None
        self._key, self._parts = "", dict[str, str]()
        self._header = b""
        self._kept = b""  # last known data on the shelf
        self._made, self._next = 0, FIRST_WRITE  # unsaved pipelines; threshold for a save
        vk = logical.vk
        self._feedback = vk.new("VkPipelineCreationFeedback")
        self.feedback = vk.new(
            "VkPipelineCreationFeedbackCreateInfo", pPipelineCreationFeedback=self._feedback
        )

    def keep_on(self, shelf: CacheStore | None) -> None:
        """Persist the cache in `shelf`, unless that is None or VKCHI_PIPELINE_CACHE=0. Call it
        before the first use of the cache, which loads the stored data."""
        self._shelf = shelf if env.is_on("VKCHI_PIPELINE_CACHE") else None

    @property
    def handle(self) -> Any:
        """The VkPipelineCache, created at first use."""
        if self._cell is None:
            self._cell = self._open()
        return self._cell[0]

    def count(self) -> None:
        """Count a pipeline created with `feedback` in its chain; save after many cache misses."""
        is_hit = self._feedback.flags & (VALID | IS_HIT) == VALID | IS_HIT
        self._feedback.flags = 0  # without feedback, assume a compilation
        self._made += not is_hit
        if self._made >= self._next:
            self._next *= 2
            self.save()

    def save(self) -> None:
        """Write the driver's cache data, if a pipeline was compiled since the last save and the
        data changed.

        Removes the entry if the data exceed MOST_BYTES. A DeviceError becomes a warning.
        """
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

    def _put(self, shelf: CacheStore, data: bytes) -> None:
        physical = self._logical.physical
        header = {
            "kind": "pipelines", "name": "", "signature": physical.driver,
            "device": physical.name, "version": shelf.version, "parts": self._parts,
        }  # fmt: skip
        if shelf.put(self._key, header, data):
            self._kept = data

    # --- the driver's cache ------------------------------------------------------------------

    def _open(self) -> Any:
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
        others = self._find(None if self._shelf is None else self._shelf.peek(self._key))
        if others and others != self._kept:
            cell = self._create(others)
            merge, handle = self._logical.calls.vkMergePipelineCaches, self._logical.handle
            self._logical.vk.check(merge(handle, self._cell[0], 1, cell), "merging pipeline caches")

    def _read(self) -> bytes | None:
        """Return the driver's cache data: empty if it returns none, None above MOST_BYTES."""
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
        """Return the data of an entry; b"" if it is absent or invalid. Removes invalid entries."""
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
        from vkchi.cache.store import digest  # only needed with a cache

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
