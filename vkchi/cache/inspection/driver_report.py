"""Driver statistics of an entry's machine code, queried on request and stored in the entry.

The pipelines of launches are compiled without the driver's statistics option, which costs time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.cache.inspection.radv import CompileOutcome, compile_all
from vkchi.cache.store import CacheStore
from vkchi.errors import VkchiError
from vkchi.target.artifact import Artifact
from vkchi.target.caps import Caps
from vkchi.target.devices import find_described
from vkchi.target.shader import Shader
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.device import Device


class DriverReport(NamedTuple):
    """Outcomes of compiling an entry's shaders with the driver `driver`, or the reason `why` there
    are none."""

    driver: str
    outcomes: tuple[CompileOutcome, ...]
    why: str = ""

    def as_header(self) -> dict[str, Any]:
        rows = [o.executables[-1].statistics if o.executables else {} for o in self.outcomes]
        return {"driver": self.driver, "statistics": rows}


def query_driver(
    store: CacheStore, key: str, header: dict[str, Any], made: Artifact, device: str
) -> DriverReport:
    """Compile an entry's shaders for statistics, store these in its header and return them.

    `device` is part of the name of a present device (empty: any), or the name of a described
    device, for which RADV compiles. If the device does not match the entry or has no statistics,
    nothing is stored, and `why` of the result is the reason. Raises VkchiError.
    """
    shaders = [d.shader for d in made.dispatches]
    parts = header.get("parts", {})
    described = find_described(device) if device else None
    if described is not None and described.radv:
        fault = capability_mismatch(parts, described.caps, described.name)
        if fault:
            return DriverReport("", (), fault)
        outcomes = compile_all(described.radv, shaders, described.caps)
        report = DriverReport(f"RADV, as for {described.radv}", tuple(outcomes))
    elif described is not None:
        return DriverReport("", (), f"there is no compiler for {described.name} here")
    else:
        report = ask_here(parts, shaders, device)
    if report.outcomes:
        store.annotate(key, "driver", report.as_header())
    return report


def ask_here(parts: dict[str, str], shaders: Sequence[Shader], device: str) -> DriverReport:
    """Open a present device, return its driver's report and close it. Raises DeviceError if none
    can be opened. The error of a shader that fails to compile is part of the report."""
    from vkchi.device import open_device  # lazy

    opened = open_device(select=device or None)
    try:
        info = opened.info
        fault = capability_mismatch(parts, opened.caps, info.name)
        if fault:
            return DriverReport("", (), fault)
        outcomes = [compile_on(opened, shader) for shader in shaders]
        if not any(o.executables or o.error for o in outcomes):
            return DriverReport(
                "", (), f"the driver of {info.name} tells nothing of its machine code"
            )
        return DriverReport(f"{info.name}, {info.driver}", tuple(outcomes))
    finally:
        opened.close()


def compile_on(device: Device, shader: Shader) -> CompileOutcome:
    """Compile a shader with a device's driver. An error of the driver is in the result."""
    from vkchi.vk.pipelines import required_subgroup

    size = required_subgroup(shader, device.caps, device._logical.physical)
    try:
        return CompileOutcome(device.pipelines.explain(shader, size))
    except VkchiError as e:
        return CompileOutcome((), str(e))


def capability_mismatch(parts: dict[str, str], caps: Caps, name: str) -> str:
    """Return an error message if a capability in the key's `parts` differs from `caps`, else ""."""
    mine = {f"device {field}": repr(value) for field, value in caps._asdict().items()}
    if all(parts.get(field, text) == text for field, text in mine.items()):
        return ""
    return f"compiled for a device with other capabilities than {name} has: see --device"
