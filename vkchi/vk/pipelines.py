"""Compute pipelines: one layout per push-constant size, no descriptor sets, one cache.

pipelines = Pipelines(logical)
pipeline = pipelines.make(shader, subgroup_size=0)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from vkchi import env
from vkchi.errors import DeviceError, InternalError
from vkchi.target.caps import Caps
from vkchi.target.shader import Shader
from vkchi.tuples import NamedTuple
from vkchi.vk.logical import Logical
from vkchi.vk.physical import Physical
from vkchi.vk.raw import SUCCESS

# --- the driver's statistics ---------------------------------------------------------------------
#
# Driver statistics of compiled shaders, by VK_KHR_pipeline_executable_properties.
#
# Reads registers, spills and other statistics under the driver's own names, and strings such as the
# driver's IR and the disassembly. `COMMON` maps the names of several drivers to shared ones.

EXTENSION = "VK_KHR_pipeline_executable_properties"
FEATURE = "pipelineExecutableInfo"
CAPTURE_STATISTICS, CAPTURE_TEXTS = 0x40, 0x80  # VkPipelineCreateFlagBits
VALUES = ("b32", "i64", "u64", "f64")  # members of VkPipelineExecutableStatisticValueKHR, by format
# Shared name -> names of RADV, ANV and NVIDIA; the first present is used.
COMMON: dict[str, tuple[str, ...]] = {
    "registers": ("VGPRs", "Max live registers", "Register Count"),
    "scalar registers": ("SGPRs",),
    "spills": ("Spilled VGPRs", "Spill Count", "Local Memory Size"),
    "code bytes": ("Code size", "Binary Size"),
    "instructions": ("Instructions", "Instruction Count"),
    "shared bytes": ("LDS size", "Workgroup Memory Size", "Shared Memory Size"),
    "occupancy": ("Subgroups per SIMD",),
    "cycles": ("Inverse Throughput", "Cycle Count"),
}
MACHINE_CODE = (
    "assembly",
    "isa",
    "sass",
    "disassembly",
)  # substrings of their names


class PipelineExecutable(NamedTuple):
    """One piece of machine code that the driver made of a shader, with statistics and texts about
    it."""

    name: str
    subgroup_size: int
    statistics: dict[str, int | float]
    texts: dict[str, str]

    def common(self) -> dict[str, int | float]:
        """Return the statistics under the names in COMMON; those that the driver does not report
        are absent."""
        known = self.statistics
        found = {name: [known[k] for k in theirs if k in known] for name, theirs in COMMON.items()}
        return {name: values[0] for name, values in found.items() if values}

    def machine_code(self) -> str:
        """Return the disassembly of the machine code; "" if the driver gives none."""
        names = [n for n in self.texts if any(part in n.lower() for part in MACHINE_CODE)]
        return self.texts[names[-1]] if names else ""


def read_executables(logical: Logical, pipeline: Any) -> tuple[PipelineExecutable, ...]:
    """Return the executables of a pipeline that was created with both capture flags. Raises
    DeviceError if the driver fails."""
    vk, calls = logical.vk, logical.calls
    whole = vk.new("VkPipelineInfoKHR", pipeline=pipeline)
    kind = "VkPipelineExecutablePropertiesKHR"
    rows = _list(logical, calls.vkGetPipelineExecutablePropertiesKHR, kind, whole)
    return tuple(
        _read(logical, pipeline, k, vk.ffi.string(row.name).decode(errors="replace"), row)
        for k, row in enumerate(rows)
    )


def _read(logical: Logical, pipeline: Any, index: int, name: str, row: Any) -> PipelineExecutable:
    vk, calls = logical.vk, logical.calls
    one = vk.new("VkPipelineExecutableInfoKHR", pipeline=pipeline, executableIndex=index)
    kind = "VkPipelineExecutableStatisticKHR"
    found = _list(logical, calls.vkGetPipelineExecutableStatisticsKHR, kind, one)
    text = vk.ffi.string
    numbers = {text(s.name).decode(): getattr(s.value, VALUES[s.format]) for s in found}
    kind = "VkPipelineExecutableInternalRepresentationKHR"
    call = calls.vkGetPipelineExecutableInternalRepresentationsKHR
    buffers: list[Any] = []
    texts = _list(logical, call, kind, one, buffers)
    pairs = zip(texts, buffers, strict=True)
    written = {text(t.name).decode(): text(b).decode(errors="replace") for t, b in pairs}
    return PipelineExecutable(name, row.subgroupSize, numbers, written)


def _list(
    logical: Logical, call: Any, kind: str, info: Any, buffers: list[Any] | None = None
) -> Sequence[Any]:
    """Return the structs of a two-call enumeration. Raises DeviceError. With `buffers`, a further
    call fills newly allocated string buffers, which are appended to it."""
    vk, count = logical.vk, logical.vk.ffi.new("uint32_t *")
    doing = "reading what the driver's compiler says"
    vk.check(call(logical.handle, info, count, vk.NULL), doing)
    rows = vk.ffi.new(kind + "[]", max(1, count[0]))
    for row in rows:
        row.sType = vk.new(kind).sType
    vk.check(call(logical.handle, info, count, rows), doing)
    if buffers is not None:
        for k in range(count[0]):
            rows[k].pData = buffer = vk.ffi.new("char[]", rows[k].dataSize + 1)
            buffers.append(buffer)
        vk.check(call(logical.handle, info, count, rows), doing)
    return [vk.ffi.new(kind + " *", rows[k]) for k in range(count[0])]


if TYPE_CHECKING:
    from vkchi.cache.store import CacheStore

    pass
    from vkchi.vk.timing import DispatchWork


# --- the driver's cache --------------------------------------------------------------------------
#
# VkPipelineCache of a device, persisted in the disk cache (`CacheStore`).
#
# The store has one checksummed entry per device and driver version. The entry is read when the
# first pipeline is created. It is written when the device is closed, and whenever the number of
# newly compiled pipelines reaches a threshold, which then doubles. A write replaces the whole
# entry. Before it, the entry of another process is merged. A driver without cache data (lavapipe,
# SwiftShader) leaves no entry. The header of an entry is checked before the driver reads it.
#
#     cache = PipelineCache(logical)
#     cache.keep_on(shelf)
#     make(..., cache.handle, ...)
#     cache.save()

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


# --- pipelines -----------------------------------------------------------------------------------

ADDRESS_BYTES = 8
FULL_SUBGROUPS = 2  # VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT
HEADER_WORDS, OP_ENTRY_POINT, MAGIC = 5, 15, 0x07230203


class Pipeline:
    """A shader compiled by the driver. Freed after its last reference, once the device has finished
    with it.

    - push_bytes: size of the push constants. They hold the `args_bytes` of arguments or, if
      `indirect`, the device address of a copy of them.
    - work: the work of its dispatches; None without a profiler.
    - plain: the pipeline that this one copies (`with_work`), or None.
    - has_run: it was recorded while times were measured.
    - counts: a VkBuffer and an offset in it, at which dispatches read their workgroup counts
      (`with_counts`), or None.
    """

    __slots__ = (
        "__weakref__", "_cell", "args_bytes", "counts", "handle", "has_run", "indirect", "layout",
        "name", "plain", "push_bytes", "work",
    )  # fmt: skip

    def __init__(self, shader: Shader, cell: Any, layout: Any) -> None:
        self.name, self.indirect, self.args_bytes = shader.name, shader.indirect, shader.size_bytes
        self.push_bytes = count_push_bytes(shader)
        self._cell, self.handle, self.layout = cell, cell[0], layout
        self.work: DispatchWork | None = None
        self.plain: Runnable | None = None
        self.has_run = False
        self.counts: tuple[Any, int] | None = None


class BufferFills:
    """Memory fills recorded in place of a pipeline's dispatch: each sets a range to one 32-bit
    word. `fills` has one (VkBuffer, offset, bytes, word) per range."""

    __slots__ = ("__weakref__", "fills", "has_run", "name", "plain", "work")
    indirect, args_bytes, push_bytes, counts = False, 0, 0, None

    def __init__(self, name: str, fills: tuple[tuple[Any, int, int, int], ...]) -> None:
        self.name, self.fills = name, fills
        self.work: DispatchWork | None = None
        self.plain: Runnable | None = None
        self.has_run = False

    def record(self, fill: Callable[..., None], commands: Any) -> None:
        for one in self.fills:
            fill(commands, *one)


Runnable = Pipeline | BufferFills


def with_work(pipeline: Runnable, work: DispatchWork) -> Runnable:
    """Return a copy of a pipeline or of fills with `work` set, and `plain` set to the original."""
    made = copy(pipeline)
    made.work = work
    made.plain = pipeline.plain or pipeline
    return made


def with_counts(pipeline: Pipeline, counts: tuple[Any, int]) -> Pipeline:
    """Return a copy of a pipeline with `counts` set, and `plain` set to the original."""
    made = copy(pipeline)
    made.counts = counts
    made.plain = pipeline.plain or pipeline
    return made


class Pipelines:
    """Creates pipelines; the caller holds the lock."""

    def __init__(self, logical: Logical) -> None:
        self._logical = logical
        self._layouts: dict[int, Any] = {}
        self.cache = PipelineCache(logical)

    def make(self, shader: Shader, subgroup_size: int) -> Pipeline:
        """Compile a shader in the driver, using the cache. With `subgroup_size` 0 the driver
        chooses the size.

        Raises DeviceError if the driver rejects the shader, InternalError if it has no entry point.
        """
        handle = self.cache.handle
        cell, layout = self._compile(shader, subgroup_size, 0, handle, self.cache.feedback)
        self._name(cell[0], shader.name)
        self.cache.count()
        return Pipeline(shader, cell, layout)

    def explain(self, shader: Shader, subgroup_size: int) -> tuple[PipelineExecutable, ...]:
        """Compile a shader again, without the cache; return the statistics and disassembly that the
        driver reports. Empty if it reports none. Raises as `make`."""
        pass

        if FEATURE not in self._logical.physical.features:
            return ()
        flags, vk = CAPTURE_STATISTICS | CAPTURE_TEXTS, self._logical.vk
        cell, _ = self._compile(shader, subgroup_size, flags, vk.NULL, vk.NULL)
        return read_executables(self._logical, cell[0])

    def _compile(
        self, shader: Shader, subgroup_size: int, flags: int, cache: Any, chain: Any
    ) -> tuple[Any, Any]:
        logical, vk, name = self._logical, self._logical.vk, shader.name
        layout = self._find_layout(count_push_bytes(shader))
        entry = find_entry(shader.words)
        module = self._make_module(shader.words, name)
        sizes = vk.NULL
        if subgroup_size:
            required = "VkPipelineShaderStageRequiredSubgroupSizeCreateInfo"
            sizes = vk.new(required, requiredSubgroupSize=subgroup_size)
        stage = vk.new(
            "VkPipelineShaderStageCreateInfo", pNext=sizes, module=module[0],
            flags=FULL_SUBGROUPS if needs_full_subgroups(shader, subgroup_size,
            logical.physical) else 0,
            stage=vk.const.VK_SHADER_STAGE_COMPUTE_BIT, pName=entry,
        )  # fmt: skip
        info = vk.new(
            "VkComputePipelineCreateInfo", pNext=chain, flags=flags, stage=stage[0], layout=layout
        )
        cell = logical.handles("VkPipeline").new()
        make = logical.calls.vkCreateComputePipelines
        result = make(logical.handle, cache, 1, info, vk.NULL, cell)
        vk.take(result, cell, f"compiling {name} in the driver")
        return cell, layout

    def _make_module(self, words: bytes, name: str) -> Any:
        logical, vk = self._logical, self._logical.vk
        code = vk.ffi.new("uint32_t[]", len(words) // 4)
        vk.ffi.memmove(code, words, len(words))
        info = vk.new("VkShaderModuleCreateInfo", codeSize=len(words), pCode=code)
        call = logical.calls.vkCreateShaderModule
        return logical.handles("VkShaderModule").make(call, info, f"loading {name}")

    def _find_layout(self, push_bytes: int) -> Any:
        logical, vk = self._logical, self._logical.vk
        if push_bytes not in self._layouts:
            stage = vk.const.VK_SHADER_STAGE_COMPUTE_BIT
            bytes_ = vk.new("VkPushConstantRange", stageFlags=stage, size=push_bytes)
            info = vk.new(
                "VkPipelineLayoutCreateInfo",
                pushConstantRangeCount=1 if push_bytes else 0,
                pPushConstantRanges=bytes_,
            )
            self._layouts[push_bytes] = logical.handles("VkPipelineLayout").make(
                logical.calls.vkCreatePipelineLayout, info, "making a pipeline layout"
            )
        return self._layouts[push_bytes][0]

    def _name(self, pipeline: Any, name: str) -> None:
        logical, vk = self._logical, self._logical.vk
        if not logical.has_names:
            return
        info = vk.new(
            "VkDebugUtilsObjectNameInfoEXT", objectType=vk.const.VK_OBJECT_TYPE_PIPELINE,
            objectHandle=int(vk.ffi.cast("uintptr_t", pipeline)), pObjectName=name.encode(),
        )  # fmt: skip
        logical.calls.vkSetDebugUtilsObjectNameEXT(logical.handle, info)


def count_push_bytes(shader: Shader) -> int:
    """Return the size of a shader's push constants in bytes: its arguments rounded up to 4, or 8 if
    indirect."""
    return ADDRESS_BYTES if shader.indirect else -(-shader.size_bytes // 4) * 4


def required_subgroup(shader: Shader, caps: Caps, physical: Physical) -> int:
    """Return the subgroup size that the pipeline must require for a shader: that of `caps`. 0 if
    the shader does not depend on the size, or if the device cannot require that size."""
    own, size = physical.caps, caps.subgroup_size
    is_possible = own.subgroup_least <= size <= own.subgroup_most
    is_asked = "subgroup_size" in shader.needs and physical.can_require_subgroup_size
    return size if is_asked and is_possible else 0


def needs_full_subgroups(shader: Shader, subgroup_size: int, physical: Physical) -> bool:
    """True if the pipeline must request full subgroups. This needs a device with the feature, a
    required subgroup size, and a workgroup whose first axis is a multiple of that size."""
    can = "computeFullSubgroups" in physical.features
    row = shader.grid.axes[0].block if shader.grid.axes else 1
    return can and subgroup_size > 0 and row % subgroup_size == 0


def find_entry(words: bytes) -> bytes:
    """Return the name of the first entry point of a little-endian SPIR-V module. Raises
    InternalError if there is none."""
    view = memoryview(words).cast("I") if len(words) % 4 == 0 else memoryview(b"").cast("I")
    at = HEADER_WORDS
    if len(view) > at and view[0] == MAGIC:
        while at < len(view) and view[at] >> 16:
            if view[at] & 0xFFFF == OP_ENTRY_POINT:
                return words[4 * (at + 3) :].split(b"\0", 1)[0]
            at += view[at] >> 16
    raise InternalError("a shader without an entry point reached the device")
