"""Properties of physical devices, read once into plain data: features, limits, memory types.

>>> [row.name for row in read_all(vk, instance.list_handles())]
['llvmpipe (LLVM 15.0.6, 256 bits)']
"""

from __future__ import annotations

from typing import Any

from vkchi.target.caps import KINDS, Caps
from vkchi.tuples import NamedTuple
from vkchi.vk.raw import Vulkan

PLAIN = "VkPhysicalDeviceFeatures2"
# Numeric values if the `vulkan` package lacks the name.
# Storage, device address, transfer source and destination, indirect dispatch.
BUFFER_USAGE = 0x20 | 0x20000 | 0x1 | 0x2 | 0x100
HOST_ALLOCATION = 0x80  # VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT

# (struct, extension that defines it, fields). Features that the device has are enabled.
FEATURES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("VkPhysicalDeviceVulkan11Features", "", ("storageBuffer16BitAccess",)),
    (
        "VkPhysicalDeviceVulkan12Features",
        "",
        (
            "bufferDeviceAddress", "timelineSemaphore", "scalarBlockLayout", "hostQueryReset",
            "shaderInt8", "shaderFloat16", "storageBuffer8BitAccess", "shaderBufferInt64Atomics",
            "shaderSharedInt64Atomics", "shaderSubgroupExtendedTypes",
        ),
    ),
    (
        "VkPhysicalDeviceVulkan13Features",
        "",
        (
            "synchronization2", "maintenance4", "subgroupSizeControl", "computeFullSubgroups",
            "shaderZeroInitializeWorkgroupMemory",
        ),
    ),
    (
        "VkPhysicalDeviceShaderAtomicFloatFeaturesEXT",
        "VK_EXT_shader_atomic_float",
        (
            "shaderBufferFloat32Atomics", "shaderBufferFloat32AtomicAdd",
            "shaderBufferFloat64Atomics", "shaderBufferFloat64AtomicAdd",
            "shaderSharedFloat32Atomics", "shaderSharedFloat32AtomicAdd",
        ),
    ),
    (
        "VkPhysicalDeviceShaderAtomicFloat2FeaturesEXT",
        "VK_EXT_shader_atomic_float2",
        ("shaderBufferFloat32AtomicMinMax",),
    ),
    (
        "VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR",
        "VK_KHR_pipeline_executable_properties",
        ("pipelineExecutableInfo",),
    ),
)  # fmt: skip
CORE_FEATURES = ("shaderInt16", "shaderInt64", "shaderFloat64")
REQUIRED = ("bufferDeviceAddress", "timelineSemaphore", "hostQueryReset", "synchronization2")
# vendor -> drivers that have Vulkan 1.3, which includes all of REQUIRED. Sources: device reports of
# KhronosGroup/Vulkan-Profiles, taichi-dev/taichi#4211, and vkchi's own tests (Mesa 22.3, 26).
DRIVERS = {
    "nvidia": "NVIDIA's 510 or newer (GeForce 600 and 700 have none)",
    "amd": "Mesa 22.0 or newer, or AMD's 2.0.213 or newer (of 2022)",
    "intel": "Mesa 22.0 or newer, or Intel's for Windows 31.0.101.2125 or newer",
    "apple": "MoltenVK 1.4.2 or KosmicKrisp, both in the Vulkan SDK",
    "mesa": "Mesa 22.3 or newer",
    "qualcomm": "Mesa 26",
    "arm": "Mesa 26 (Mali G310, G510, G710 and newer)",
    "broadcom": "Mesa 26 (Raspberry Pi 4 and 5)",
}

# Extensions without feature structs, enabled if present.
EXTENSIONS = (
    "VK_KHR_portability_subset", "VK_EXT_external_memory_host", "VK_KHR_external_memory_fd",
    "VK_KHR_external_semaphore_fd", "VK_EXT_external_memory_dma_buf",
    "VK_KHR_external_memory_win32", "VK_KHR_external_semaphore_win32", "VK_EXT_memory_budget",
)  # fmt: skip

CAPS_OF_FEATURES = {
    "int8": "shaderInt8",
    "int16": "shaderInt16",
    "int64": "shaderInt64",
    "float16": "shaderFloat16",
    "float64": "shaderFloat64",
    "storage8": "storageBuffer8BitAccess",
    "storage16": "storageBuffer16BitAccess",
    "scalar_alignment": "scalarBlockLayout",
    "f32_atomic_add": "shaderBufferFloat32AtomicAdd",
    "f32_atomic_add_shared": "shaderSharedFloat32AtomicAdd",
    "f64_atomic_add": "shaderBufferFloat64AtomicAdd",
    "f32_atomic_minmax": "shaderBufferFloat32AtomicMinMax",
    "i64_atomics": "shaderBufferInt64Atomics",
    "i64_atomics_shared": "shaderSharedInt64Atomics",
    "subgroup_wide": "shaderSubgroupExtendedTypes",
}
# Defects of drivers, by VkDriverId: fields of Caps and their values.
DEFECTS: dict[str, dict[str, Any]] = {
    "VK_DRIVER_ID_GOOGLE_SWIFTSHADER": {"integer_extremes": False},
    "VK_DRIVER_ID_MESA_LLVMPIPE": {"zero_dividends": False},
    # SPIRV-Cross ignores alignments, and writes operations where results are used. Metal's float
    # atomics are for device memory.
    "VK_DRIVER_ID_MOLTENVK": {
        "chain_casts": False, "scalar_alignment": False, "subgroup_scans": False,
        "subgroup_at_once": False, "f32_atomic_add_shared": False,
    },
}  # fmt: skip
WARP = 32  # subgroup size that CUDA programs assume
CAPS_OF_SUBGROUPS = {
    "subgroup_vote": "VK_SUBGROUP_FEATURE_VOTE_BIT",
    "subgroup_arithmetic": "VK_SUBGROUP_FEATURE_ARITHMETIC_BIT",
    "subgroup_ballot": "VK_SUBGROUP_FEATURE_BALLOT_BIT",
    "subgroup_shuffle": "VK_SUBGROUP_FEATURE_SHUFFLE_BIT",
    "subgroup_shuffle_relative": "VK_SUBGROUP_FEATURE_SHUFFLE_RELATIVE_BIT",
}
VENDORS = {
    0x10DE: "nvidia", 0x1002: "amd", 0x8086: "intel", 0x106B: "apple", 0x10005: "mesa",
    0x1AE0: "google", 0x13B5: "arm", 0x5143: "qualcomm", 0x1010: "imgtec", 0x14E4: "broadcom",
}  # fmt: skip


class MemoryType(NamedTuple):
    """One memory type: its VkMemoryPropertyFlags, its heap, and that heap's size in bytes."""

    flags: int
    heap: int
    heap_bytes: int


class Physical(NamedTuple):
    """One physical device. `queue_family` is the index of its queue family for compute, -1 if there
    is none. `host_pointer_alignment` is 0 if buffers cannot use host memory."""

    handle: Any
    name: str
    kind: str
    vendor: str
    driver: str
    api: tuple[int, int, int]
    uuid: bytes
    features: frozenset[str]
    extensions: frozenset[str]
    memory_types: tuple[MemoryType, ...]
    queue_family: int
    timestamp_bits: int
    timestamp_ns: float
    allocation_limit_bytes: int  # smaller sizes are always valid, larger ones maybe
    buffer_limit_bytes: int
    host_pointer_alignment: int
    can_require_subgroup_size: bool
    caps: Caps

    def list_lacks(self) -> list[str]:
        """Return the requirements of vkchi that the device lacks; empty if it is usable. Without
        Vulkan 1.3 this is the only one listed."""
        if self.api < (1, 3, 0):
            return ["Vulkan 1.3 (it has {}.{}.{})".format(*self.api)]
        lacks = [name for name in REQUIRED if name not in self.features]
        return lacks + ([] if self.queue_family >= 0 else ["a compute queue"])


def lack_text(lacks: list[str], vendor: str) -> str:
    """Return the text for missing requirements: `lacks Vulkan 1.3 (...); update the driver: ...`.
    The advice is left out for unknown vendors, and if a compute queue alone is missing."""
    drivers = DRIVERS.get(vendor, "") if lacks != ["a compute queue"] else ""
    return f"lacks {', '.join(lacks)}" + (f"; update the driver: {drivers}" if drivers else "")


def read_all(vk: Vulkan, handles: list[Any]) -> list[Physical]:
    return [read_physical(vk, handle) for handle in handles]


def read_physical(vk: Vulkan, handle: Any) -> Physical:
    extensions = _list_extensions(vk, handle)
    plain, in11, in12, in13, host = _read_properties(vk, handle, extensions)
    features = _read_features(vk, handle, extensions) if _split(plain.apiVersion) >= (1, 3) else []
    imports = _can_import_host(vk, handle, extensions)
    family, timestamp_bits = _find_compute_family(vk, handle)
    text = vk.ffi.string
    limits = plain.limits
    stages = in13.requiredSubgroupSizeStages
    buffer_limit = in13.maxBufferSize or in11.maxMemoryAllocationSize  # 0 without maintenance4
    caps = _read_caps(vk, features, plain, in11, in12, in13)._replace(
        subgroup_size=choose_subgroup(vk, features, in11, in13)
    )
    return Physical(
        handle=handle,
        name=text(plain.deviceName).decode(errors="replace"),
        kind=caps.kind,
        vendor=VENDORS.get(plain.vendorID, f"vendor {plain.vendorID:#x}"),
        driver=f"{text(in12.driverName).decode()} {text(in12.driverInfo).decode()}".strip(),
        api=_split(plain.apiVersion),
        uuid=bytes(in11.deviceUUID),
        features=frozenset(features),
        extensions=extensions,
        memory_types=_read_memory_types(vk, handle),
        queue_family=family,
        timestamp_bits=timestamp_bits,
        timestamp_ns=limits.timestampPeriod,
        allocation_limit_bytes=min(in11.maxMemoryAllocationSize, buffer_limit),
        buffer_limit_bytes=buffer_limit,
        host_pointer_alignment=host.minImportedHostPointerAlignment if imports else 0,
        can_require_subgroup_size="subgroupSizeControl" in features
        and bool(stages & vk.const.VK_SHADER_STAGE_COMPUTE_BIT),
        caps=caps,
    )


def choose_subgroup(vk: Vulkan, features: list[str], in11: Any, in13: Any) -> int:
    """Return the subgroup size for shaders that depend on it: the device's default, or 32. It is 32
    if the default is larger and the device can require 32, because warp masks have 32 bits."""
    can_ask = in13.requiredSubgroupSizeStages & vk.const.VK_SHADER_STAGE_COMPUTE_BIT
    fits = in13.minSubgroupSize <= WARP < in11.subgroupSize
    is_asked = can_ask and fits and "subgroupSizeControl" in features
    return WARP if is_asked else int(in11.subgroupSize)


def _split(version: int) -> tuple[int, int, int]:
    return version >> 22 & 0x7F, version >> 12 & 0x3FF, version & 0xFFF


def _list_extensions(vk: Vulkan, handle: Any) -> frozenset[str]:
    call = vk.lib.vkEnumerateDeviceExtensionProperties
    found = vk.enumerate(call, "VkExtensionProperties", handle, vk.NULL)
    return frozenset(vk.ffi.string(extension.extensionName).decode() for extension in found)


def _read_properties(vk: Vulkan, handle: Any, extensions: frozenset[str]) -> tuple[Any, ...]:
    host = vk.new("VkPhysicalDeviceExternalMemoryHostPropertiesEXT")
    in13 = vk.new("VkPhysicalDeviceVulkan13Properties")
    in12 = vk.new("VkPhysicalDeviceVulkan12Properties", pNext=in13)
    in11 = vk.new("VkPhysicalDeviceVulkan11Properties", pNext=in12)
    both = vk.new("VkPhysicalDeviceProperties2", pNext=in11)
    if "VK_EXT_external_memory_host" in extensions:
        in13.pNext = host
    vk.lib.vkGetPhysicalDeviceProperties2(handle, both)
    plain = vk.ffi.new("VkPhysicalDeviceProperties *", both.properties)
    return plain, in11, in12, in13, host


def memory_features(vk: Vulkan, physical: Any, kind: int) -> int:
    """Return the VkExternalMemoryFeatureFlags of `BUFFER_USAGE` buffers for a handle type."""
    asked = vk.new("VkPhysicalDeviceExternalBufferInfo", usage=BUFFER_USAGE, handleType=kind)
    found = vk.new("VkExternalBufferProperties")
    vk.lib.vkGetPhysicalDeviceExternalBufferProperties(physical, asked, found)
    return int(found.externalMemoryProperties.externalMemoryFeatures)


def _can_import_host(vk: Vulkan, handle: Any, extensions: frozenset[str]) -> bool:
    importable = vk.const.VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT
    return "VK_EXT_external_memory_host" in extensions and bool(
        memory_features(vk, handle, HOST_ALLOCATION) & importable
    )


def new_feature_chain(vk: Vulkan, extensions: frozenset[str]) -> tuple[Any, list[tuple[Any, str]]]:
    """Return (head, slots) of an empty feature query.

    `head` is a VkPhysicalDeviceFeatures2 chained to all structs of `FEATURES` that the extensions
    allow. `slots` has (struct, field) of the fields in FEATURES and CORE_FEATURES.
    """
    head = vk.new(PLAIN)
    slots: list[tuple[Any, str]] = [(head.features, name) for name in CORE_FEATURES]
    last = head
    for name, extension, fields in FEATURES:
        if not extension or extension in extensions:
            struct = vk.new(name)
            last.pNext = struct
            last = struct
            slots += [(struct, field) for field in fields]
    return head, slots


def _read_features(vk: Vulkan, handle: Any, extensions: frozenset[str]) -> list[str]:
    head, slots = new_feature_chain(vk, extensions)
    vk.lib.vkGetPhysicalDeviceFeatures2(handle, head)
    return [field for struct, field in slots if getattr(struct, field)]


def _find_compute_family(vk: Vulkan, handle: Any) -> tuple[int, int]:
    """Return (index, valid timestamp bits) of the first queue family with compute and graphics.
    Without one, those of the first family with compute; (-1, 0) if there is none."""
    const, call = vk.const, vk.lib.vkGetPhysicalDeviceQueueFamilyProperties
    families = list(enumerate(vk.enumerate(call, "VkQueueFamilyProperties", handle)))
    both = const.VK_QUEUE_COMPUTE_BIT | const.VK_QUEUE_GRAPHICS_BIT
    for wanted in (both, const.VK_QUEUE_COMPUTE_BIT):
        for index, family in families:
            if family.queueFlags & wanted == wanted:
                return index, family.timestampValidBits
    return -1, 0


def _read_memory_types(vk: Vulkan, handle: Any) -> tuple[MemoryType, ...]:
    found = vk.ffi.new("VkPhysicalDeviceMemoryProperties *")
    vk.lib.vkGetPhysicalDeviceMemoryProperties(handle, found)
    types = (found.memoryTypes[i] for i in range(found.memoryTypeCount))
    return tuple(
        MemoryType(t.propertyFlags, t.heapIndex, found.memoryHeaps[t.heapIndex].size) for t in types
    )


def _three(lengths: Any) -> tuple[int, int, int]:
    return lengths[0], lengths[1], lengths[2]


def _read_caps(
    vk: Vulkan, features: list[str], plain: Any, in11: Any, in12: Any, in13: Any
) -> Caps:
    in_compute = in11.subgroupSupportedStages & vk.const.VK_SHADER_STAGE_COMPUTE_BIT
    operations = in11.subgroupSupportedOperations if in_compute else 0
    subgroups = {
        name: bool(operations & getattr(vk.const, bit)) for name, bit in CAPS_OF_SUBGROUPS.items()
    }
    arithmetic = {name: feature in features for name, feature in CAPS_OF_FEATURES.items()}
    kind, limits = plain.deviceType, plain.limits
    drivers = [row for name, row in DEFECTS.items() if getattr(vk.const, name) == in12.driverID]
    defects = drivers[0] if drivers else {}
    return Caps(
        kind=KINDS[kind] if kind < len(KINDS) else "other",
        **arithmetic,
        **subgroups,
        subgroup_size=in11.subgroupSize,
        subgroup_least=in13.minSubgroupSize or in11.subgroupSize,
        subgroup_most=in13.maxSubgroupSize or in11.subgroupSize,
        signed_zero_inf_nan_f32=bool(in12.shaderSignedZeroInfNanPreserveFloat32),
        push_constant_bytes=limits.maxPushConstantsSize,
        workgroup_invocations=limits.maxComputeWorkGroupInvocations,
        workgroup_size=_three(limits.maxComputeWorkGroupSize),
        workgroup_count=_three(limits.maxComputeWorkGroupCount),
        shared_bytes=limits.maxComputeSharedMemorySize,
    )._replace(**defects)
