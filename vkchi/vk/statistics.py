"""What a driver tells of the machine code that it makes: VK_KHR_pipeline_executable_properties.

Owns: reading it, and names by which drivers call the same things. Must not know: how pipelines are
made.

    registers, spills and the like, by the driver's own names, and texts: the driver's own IR, and
    the machine code disassembled
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vkchi.tuples import NamedTuple
from vkchi.vk.logical import Logical

EXTENSION = "VK_KHR_pipeline_executable_properties"
FEATURE = "pipelineExecutableInfo"
CAPTURE_STATISTICS, CAPTURE_TEXTS = 0x40, 0x80  # VkPipelineCreateFlagBits
VALUES = ("b32", "i64", "u64", "f64")  # members of VkPipelineExecutableStatisticValueKHR, by format
# What drivers call it, the first that there is: RADV, ANV, NVIDIA's.
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
MACHINE_CODE = ("assembly", "isa", "sass", "disassembly")  # parts of names of such texts


class Executable(NamedTuple):
    """One piece of machine code; drivers may make several of a shader, the last is the widest."""

    name: str
    subgroup_size: int
    statistics: dict[str, int | float]
    texts: dict[str, str]

    def common(self) -> dict[str, int | float]:
        """Statistics by names that drivers share."""
        known = self.statistics
        found = {name: [known[k] for k in theirs if k in known] for name, theirs in COMMON.items()}
        return {name: values[0] for name, values in found.items() if values}

    def machine_code(self) -> str:
        """The machine code as text; empty where the driver gives none."""
        names = [n for n in self.texts if any(part in n.lower() for part in MACHINE_CODE)]
        return self.texts[names[-1]] if names else ""


def tells(logical: Logical) -> bool:
    """Whether the driver tells anything."""
    return FEATURE in logical.physical.features


def read_executables(logical: Logical, pipeline: Any) -> tuple[Executable, ...]:
    """What there is of a pipeline that was made with both flags. Raises DeviceError."""
    vk, calls = logical.vk, logical.calls
    whole = vk.new("VkPipelineInfoKHR", pipeline=pipeline)
    kind = "VkPipelineExecutablePropertiesKHR"
    rows = _list(logical, calls.vkGetPipelineExecutablePropertiesKHR, kind, whole)
    return tuple(
        _read(logical, pipeline, k, vk.ffi.string(row.name).decode(errors="replace"), row)
        for k, row in enumerate(rows)
    )


def _read(logical: Logical, pipeline: Any, index: int, name: str, row: Any) -> Executable:
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
    return Executable(name, row.subgroupSize, numbers, written)


def _list(
    logical: Logical, call: Any, kind: str, info: Any, buffers: list[Any] | None = None
) -> Sequence[Any]:
    """What a call lists; asked once more with room for texts, where these are wanted."""
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
