"""Driver statistics of an entry's machine code, queried on request and stored in the entry.

The pipelines of launches are compiled without the driver's statistics option, which costs time.
"""

from __future__ import annotations

import base64
import glob
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vkchi import env, platform
from vkchi.cache.codec import decode, encode
from vkchi.cache.store import CacheStore
from vkchi.errors import DeviceError, VkchiError
from vkchi.interrupts.local import is_file, local
from vkchi.span import PACKAGE
from vkchi.target.artifact import Artifact
from vkchi.target.caps import Caps
from vkchi.target.devices import find_described, names_of_family
from vkchi.target.shader import Shader
from vkchi.tuples import NamedTuple
from vkchi.vk.pipelines import PipelineExecutable

if TYPE_CHECKING:
    from vkchi.device import Device


# --- devices that are not present ----------------------------------------------------------------
#
# Offline compilation by Mesa's RADV for AMD GPUs that are not present.
#
# RADV's null winsys provides a virtual device of a GPU family (RADV_FORCE_FAMILY=navi31), which
# compiles pipelines and runs nothing. It is used in a separate process: the Vulkan loader reads its
# environment variables once, and the compiler may crash. It needs Mesa 23.1 to 25. Mesa 22.3 has
# fewer families. Mesa 26 has removed the variable.
#
#     outcomes = compile_all("navi31", shaders, caps)

LIBRARIES = ("/usr/lib/*-linux-gnu*/", "/usr/lib64/", "/usr/lib/", "/usr/local/lib/")
MANIFESTS = ("/usr/share", "/usr/local/share", "/etc")
DROPPED = ("VKCHI_DEVICE", "VK_INSTANCE_LAYERS", "VK_ICD_FILENAMES", "VKCHI_VALIDATE")
UNKNOWN = "Unknown family"  # RADV's message before it aborts
REMOVED = 26  # the Mesa that removed RADV_FORCE_FAMILY
NEEDS = "Mesa 23.1 to 25 (Mesa 26 has removed RADV_FORCE_FAMILY)"


class CompileOutcome(NamedTuple):
    """Result of compiling a shader: driver statistics, or an error."""

    executables: tuple[PipelineExecutable, ...]
    error: str = ""


def find_driver() -> str:
    """Return the path of the driver's manifest: VKCHI_RADV, else an installed one, else "". Raises
    DeviceError if the file named by VKCHI_RADV does not exist."""
    chosen = env.flag("VKCHI_RADV")
    if chosen and not is_file(chosen):
        raise DeviceError(f"VKCHI_RADV names no file: {chosen}")
    if chosen:
        return chosen
    folders = [os.path.join(root, "vulkan/icd.d/radeon_icd*.json") for root in MANIFESTS]
    return next((path for pattern in folders for path in sorted(glob.glob(pattern))), "")


def environment(family: str) -> dict[str, str]:
    """Return the environment of a process whose only Vulkan device is a virtual one of this family.
    Raises DeviceError if the driver is not installed."""
    driver = find_driver()
    if not driver:
        raise DeviceError(missing())
    kept = {k: v for k, v in os.environ.items() if k not in DROPPED}
    paths = [os.path.dirname(PACKAGE.rstrip(os.sep)), *filter(None, [kept.get("PYTHONPATH")])]
    return {
        **kept, "PYTHONPATH": os.pathsep.join(paths), "VK_DRIVER_FILES": driver,
        "MESA_SHADER_CACHE_DISABLE": "1", "RADV_FORCE_FAMILY": family,
    }  # fmt: skip


def missing() -> str:
    """Return the error message for a driver that is not installed."""
    if not platform.SYSTEM.is_linux:
        return (
            f"Mesa's RADV is for Linux only, and this is {platform.SYSTEM.name}: compile for this "
            f"device on Linux, with {NEEDS}"
        )
    return (
        f"Mesa's RADV is not here: install {NEEDS}, on Debian and Ubuntu the package "
        "mesa-vulkan-drivers, or name its manifest in VKCHI_RADV"
    )


def compile_all(family: str, shaders: Sequence[Shader], caps: Caps) -> list[CompileOutcome]:
    """Compile shaders, built for these capabilities, for a GPU family; return an outcome per
    shader.

    If the driver's compiler crashes, that shader's outcome has an error. Raises DeviceError if the
    driver is not installed or does not support the family.
    """
    names, found = names_of_family(family), list[CompileOutcome]()
    around = environment(names.pop(0))
    while len(found) < len(shaders):
        more, end, said = _compile_from(around, shaders[len(found) :], caps)
        found += more
        if not more and is_unknown(end, said):
            if not names:
                raise DeviceError(unknown(family))
            around = environment(names.pop(0))
        elif len(found) < len(shaders):
            found.append(CompileOutcome((), f"the driver's compiler crashed (status {end})"))
    return found


def read_caps(family: str) -> Caps:
    """Return the capabilities that the driver reports for a family. Raises DeviceError."""
    for name in names_of_family(family):
        end, rows, said = _run(environment(name), None)
        if rows:
            given: dict[str, Any] = {
                k: tuple(v) if type(v) is list else v for k, v in rows[0].items()
            }
            return Caps(**given)
        if not is_unknown(end, said):
            raise DeviceError(said)
    raise DeviceError(unknown(family))


def is_unknown(end: int, said: str) -> bool:
    """True if the process ended since the driver does not support the family or has no device."""
    return end == NO_DEVICE or UNKNOWN in said


def unknown(family: str) -> str:
    """Return the error message for an unsupported family; it names the versions of Mesa that are
    needed."""
    version = mesa_version(find_driver())
    if version and int(version.partition(".")[0]) >= REMOVED:
        return (
            f"Mesa's RADV here ({version}) has no virtual devices: {NEEDS} compiles for "
            f"{family!r}; name the manifest of one in VKCHI_RADV"
        )
    here = f"here ({version})" if version else "here"
    return f"Mesa's RADV {here} knows no family {family!r}; it needs {NEEDS}"


def mesa_version(manifest: str) -> str:
    """Version of Mesa in the driver that a manifest names, or "" if it cannot be found."""
    try:
        with open(manifest, encoding="utf-8") as file:
            library = str(json.load(file)["ICD"]["library_path"])
        if os.sep not in library:
            library = next((p for folder in LIBRARIES for p in glob.glob(folder + library)), "")
        with open(os.path.join(os.path.dirname(manifest), library), "rb") as driver:
            found = re.search(rb"\0Mesa (\d+\.[\w.]+)", driver.read())
    except local(OSError, ValueError, KeyError):
        return ""
    return found[1].decode() if found else ""


def ignores_family(driver: str) -> bool:
    """True if the driver description names Mesa 26 or later, which ignores RADV_FORCE_FAMILY."""
    found = re.search(r"Mesa (\d+)", driver)
    return found is not None and int(found[1]) >= REMOVED


def _compile_from(
    around: dict[str, str], shaders: Sequence[Shader], caps: Caps
) -> tuple[list[CompileOutcome], int, str]:
    """Compile shaders in a new process; return the outcomes before it ended, its exit status and
    stderr."""
    sizes = [caps.subgroup_size if "subgroup_size" in s.needs else 0 for s in shaders]
    texts = [base64.b64encode(encode(shader, "Shader")).decode() for shader in shaders]
    end, rows, said = _run(around, list(zip(texts, sizes)))
    found = [
        CompileOutcome(tuple(PipelineExecutable(*e) for e in r["executables"]), r["error"])
        for r in rows
    ]
    return found, end, said


def _run(around: dict[str, str], work: Any) -> tuple[int, list[dict[str, Any]], str]:
    """Run this module in a new process; return its exit status, its JSON lines and its stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "vkchi.cache.inspection.driver_report"], input=json.dumps(work),
        capture_output=True, text=True, check=False, env=around,
    )  # fmt: skip
    lines = done.stdout.split("\n")[:-1]  # drop the last: a killed process may truncate it
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    return done.returncode, rows, done.stderr


# --- the separate process ------------------------------------------------------------------------

NO_DEVICE = 3


def main() -> Iterator[str]:
    """Yield a line of JSON for each shader on standard input.

    For an input of `null`, yield one line with the device's capabilities. The process ends with
    status NO_DEVICE if there is no virtual device.
    """
    from vkchi.vk.instance import open_instance
    from vkchi.vk.logical import open_logical
    from vkchi.vk.physical import read_all
    from vkchi.vk.pipelines import Pipelines
    from vkchi.vk.raw import load_vulkan

    work = json.load(sys.stdin)
    try:
        instance = open_instance(load_vulkan())
        physical = read_all(instance.vk, instance.list_handles())[0]
        if ignores_family(physical.driver):  # a GPU of this machine
            os._exit(NO_DEVICE)
        pipelines = Pipelines(open_logical(instance.vk, physical))
    except DeviceError:
        os._exit(NO_DEVICE)
    if work is None:
        yield json.dumps(physical.caps._asdict())
        return
    for text, subgroup_size in work:
        shader, error = decode(base64.b64decode(text), "Shader"), ""
        executables: tuple[PipelineExecutable, ...] = ()
        try:
            executables = pipelines.explain(shader, subgroup_size)
        except DeviceError as e:
            error = str(e)
        yield json.dumps({"executables": [list(e) for e in executables], "error": error})


if __name__ == "__main__":
    for line in main():
        print(line, flush=True)
    os._exit(0)  # skip the driver's exit handlers


# --- reports -------------------------------------------------------------------------------------


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
