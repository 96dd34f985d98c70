"""Driver statistics of compiled shaders, by VK_KHR_pipeline_executable_properties.

Reads registers, spills and other statistics under the driver's own names, and strings such as the
driver's IR and the disassembly. `COMMON` maps the names of several drivers to shared ones.
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
