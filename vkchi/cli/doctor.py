"""`vkchi doctor`: checks of this machine's setup for vkchi, with a fix for each problem.

Exit status: 0 kernels can run; 1 they cannot.

    $ vkchi doctor
    $ vkchi doctor --json
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypedDict

from vkchi import env, platform
from vkchi.cache.store import CacheStore, Damaged, find_checkout, find_folder, read_entry
from vkchi.errors import VkchiError
from vkchi.tuples import NamedTuple
from vkchi.vk.instance import DRIVER_FILES, explain_broken_files, find_problem, physical_devices

if TYPE_CHECKING:
    from vkchi.target.caps import Caps

SLOW_MESA = 24  # lavapipe of older versions is several times slower
# Optional capabilities, and the effect of lacking them.
COSTS = {
    "int8": "no 8-bit integers: kernels with i8 or u8 raise an error",
    "int16": "no 16-bit integers: kernels with i16, u16 or bf16 raise an error",
    "int64": "no 64-bit integers: kernels with i64 or u64, and arrays of 2^31 elements, raise an "
    "error",
    "float16": "no 16-bit floats: kernels with f16 raise an error",
    "float64": "no 64-bit floats: kernels with f64 raise an error",
    "f32_atomic_add": "no 32-bit float atomics: sums into shared f32 elements are slow",
    "f64_atomic_add": "no 64-bit float atomics: sums into shared f64 elements are slow",
    "i64_atomics": "no 64-bit integer atomics: `+=` on shared i64 and u64 elements raises an error",
    "subgroup_arithmetic": "no sums across lanes: sums over whole loops are slower",
    "subgroup_ballot": "no votes across lanes: `ti.simt.warp` functions that vote raise an error",
    "subgroup_shuffle": "no exchange between lanes: `ti.simt.warp` shuffles raise an error",
}
# Capabilities without effect unless the device has another one, which is reported instead.
NEEDS = {"f64_atomic_add": "float64", "i64_atomics": "int64"}
NO_F64_SUMS = "no 64-bit atomics: `+=` on shared f64 elements raises an error"
PACKAGES = (
    "numpy", "vulkan", "cffi", "torch", "cuda-bindings", "pygame-ce", "pygfx", "Pillow", "scipy",
    "matplotlib", "cmap", "av",
)  # fmt: skip


class Problem(TypedDict):
    """A problem, and the command or advice that fixes it."""

    what: str
    mend: str
    stops: bool


class CheckResult(NamedTuple):
    """Result of a check: a title, lines of text, and problems."""

    title: str
    lines: list[str]
    problems: list[Problem]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "exit status: 0 kernels can run; 1 they cannot; 2 wrong command line"
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Run the checks and print their results; return 1 if a problem stops kernels, else 0."""
    found = [check() for check in CHECKS]
    problems = [p for f in found for p in f.problems]
    if given.as_json:
        print(json.dumps({**{f.title: f.lines for f in found}, "problems": problems}, indent=1))
    else:
        for f in found:
            print("\n".join([f.title, *(f"  {line}" for line in f.lines)]))
        print(f"\n{len(problems)} problem{'s' * (len(problems) != 1)}" + ":" * bool(problems))
        for p in problems:
            print(f"  {p['what']}\n    {p['mend']}")
    return int(any(p["stops"] for p in problems))


def make_problem(what: str, mend: str, *, stops: bool = False) -> Problem:
    """Return a problem; `stops`: it prevents all kernels from running."""
    return {"what": what, "mend": mend, "stops": stops}


# --- checks --------------------------------------------------------------------------------------


def check_versions() -> CheckResult:
    """List the versions of vkchi, Python and the packages that it uses.

    Problem: numpy, vulkan or cffi is missing.
    """
    lines = [f"vkchi {version_of('vkchi')}, Python {sys.version.split()[0]}, {platform.describe()}"]
    packages = {name: version_of(name) for name in PACKAGES}
    lines.append(", ".join(f"{name} {v}" for name, v in packages.items()))
    needed = ("numpy", "vulkan", "cffi")
    missing = [name for name in needed if find_spec(name) is None]
    mend = f"pip install {' '.join(missing)}"
    wrong = [make_problem(f"no package {', '.join(missing)}", mend, stops=True)] if missing else []
    return CheckResult("versions", lines, wrong)


def costs_of(caps: Caps) -> list[str]:
    """Return the effects of the capabilities that a device lacks."""
    lacks = [name for name in COSTS if not getattr(caps, name)]
    costs = {name: COSTS[name] for name in lacks if NEEDS.get(name) not in lacks}
    if "f64_atomic_add" in costs and not caps.i64_atomics:  # nothing to emulate it with
        costs["f64_atomic_add"] = NO_F64_SUMS
    return list(costs.values())


def version_of(package: str) -> str:
    """Return the version of a package, or `-` if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "-"


def check_devices() -> CheckResult:
    """List the Vulkan devices, marking that of `ti.init()`, and features that they lack.

    Problems: no usable device, and a slow software driver. `check_environment` reports driver
    files that are wrong.
    """
    try:
        rows = physical_devices()
        chosen = chosen_index()
    except (VkchiError, ImportError) as e:
        if explain_broken_files():
            return CheckResult("devices", ["none: see the environment"], [])
        mend = platform.driver_hint()
        if make_target():
            mend = f"install the GPU's Vulkan driver; for a software one: {make_target()}"
        if env.flag("VKCHI_DEVICE"):
            mend = f"unset VKCHI_DEVICE, or name one that is there; if there is none: {mend}"
        return CheckResult("devices", [], [make_problem(str(e), mend, stops=True)])
    lines, wrong = [], []
    for k, row in enumerate(rows):
        mark = "*" if k == chosen else " "
        api = ".".join(map(str, row.api))
        lines.append(f"{mark} {k}: {row.name}, {row.kind}, {row.driver}, Vulkan {api}")
        lacks = row.list_lacks()
        if lacks:
            from vkchi.vk.physical import lack_text

            lines.append(f"     cannot be used: it {lack_text(lacks, row.vendor)}")
            continue
        lines += [f"     {cost}" for cost in costs_of(row.caps)]
        if k == chosen and is_slow(row.driver):
            newer = f"install Mesa {SLOW_MESA} or later, if need be from backports"
            mend = make_target() or f"{newer}: {platform.driver_hint()}"
            wrong.append(
                make_problem(f"{row.driver} is slow: newer ones are several times as fast", mend)
            )
    if all(row.kind == "cpu" for row in rows):
        lines.append("  software only: no GPU has a Vulkan driver here")
    return CheckResult("devices (* is taken by ti.init)", lines, wrong)


def make_target() -> str:
    """Return `make driver`, for a software driver, in a checkout with apt-get; else ""."""
    has_target = find_checkout() and "apt-get" in platform.install_command("driver")
    return "make driver" if has_target else ""


def check_cuda() -> CheckResult:
    """Match the NVIDIA devices of Vulkan to CUDA devices.

    Problems: devices of one API that the other lacks. Arrays of torch and cupy on a matched device
    are used in place (docs/interop.md).
    """
    try:
        rows = [row for row in physical_devices() if row.vendor == "nvidia"]
    except (VkchiError, ImportError):
        rows = []
    lines, wrong = [], []
    for row in rows:
        found = cuda_ordinal(row.uuid)
        if isinstance(found, int):
            lines.append(f"{row.name} is CUDA's device {found}")
            continue
        mend = "pip install cuda-bindings" if "pip install" in found else "see CUDA_VISIBLE_DEVICES"
        wrong.append(make_problem(f"{row.name} shares no memory with CUDA: {found}", mend))
    count = 0 if rows else cuda_devices()
    if count:
        wrong.append(
            make_problem(
                f"CUDA has {count} devices, and Vulkan none of them",
                platform.SYSTEM.nvidia,
            )
        )
    return CheckResult("CUDA", lines or ["no NVIDIA device has a Vulkan driver here"], wrong)


def cuda_ordinal(uuid: bytes) -> int | str:
    """Return the CUDA ordinal of the device with this UUID, or the reason why it has none."""
    from vkchi.interop.cuda.driver import open_driver

    try:
        driver = open_driver(uuid)
    except VkchiError as e:
        return str(e)
    driver.close()
    return driver.ordinal


def cuda_devices() -> int:
    """Return the number of CUDA devices; 0 without CUDA."""
    from vkchi.interop.cuda.driver import call_cuda, load_bindings

    try:
        return int(call_cuda(load_bindings(), "cuDeviceGetCount"))
    except VkchiError:
        return 0


def chosen_index() -> int:
    """Return the index of the device that `ti.init()` opens. Raises DeviceError if none."""
    from vkchi.device import open_device

    device = open_device()
    try:
        return device.info.index
    finally:
        device.close()


def is_slow(driver: str) -> bool:
    """True for llvmpipe of a Mesa version below SLOW_MESA."""
    mesa = re.search(r"llvmpipe.*Mesa (\d+)", driver)
    return mesa is not None and int(mesa[1]) < SLOW_MESA


def check_environment() -> CheckResult:
    """List the VKCHI_ variables that are set, and those that name Vulkan drivers.

    Problems: unknown variables, invalid values, and driver files that are missing or invalid.
    """
    names = sorted(n for n in os.environ if n.startswith("VKCHI_"))
    known = [f"{n}={os.environ[n]}: {env.FLAGS[n][1]}" for n in names if n in env.FLAGS]
    wrong = [
        make_problem(f"no flag is called {n}", f"unset {n}") for n in names if n not in env.FLAGS
    ]
    known += [f"{name}={os.environ[name]}" for name in DRIVER_FILES if os.environ.get(name)]
    wrong += wrong_driver_files()
    try:
        env.check_flags()
    except VkchiError as e:
        wrong.append(make_problem(str(e), "unset it, or give it one of these", stops=True))
    return CheckResult("environment", known or ["no VKCHI_ variable is set"], wrong)


def wrong_driver_files() -> list[Problem]:
    """Return a problem per driver file that is missing or invalid.

    The first of the variables that is set takes effect.
    """
    names: dict[str, list[str]] = {}  # by file
    for name in DRIVER_FILES:
        for file in filter(None, os.environ.get(name, "").split(os.pathsep)):
            names.setdefault(file, []).append(name)
    first = next((name for name in DRIVER_FILES if name in os.environ), "")
    return [
        make_problem(
            f"{' and '.join(found)} name{'s' * (len(found) == 1)} {file}, which {fault}",
            f"correct it, or unset {' '.join(found)}",
            stops=first in found,
        )
        for file, found in names.items()
        for fault in [find_problem(file)]
        if fault
    ]


def check_cache() -> CheckResult:
    """Count the entries of the disk cache.

    Problems: damaged entries, and a folder that cannot be written to.
    """
    folder = find_folder()
    store, lines, wrong = CacheStore(folder), [folder], []
    mend = "VKCHI_CACHE_DIR=FOLDER, one that you may write to; or VKCHI_CACHE=0"
    if not env.is_on("VKCHI_CACHE"):
        lines.append("switched off by VKCHI_CACHE")
    elif not can_write(folder):
        wrong.append(make_problem(f"nothing can be written to {folder}", mend))
    keys = store.keys()
    damaged = sum(is_damaged(store, key) for key in keys)
    lines.append(f"{len(keys)} entries")
    if damaged:
        wrong.append(
            make_problem(f"{damaged} entries are damaged", "vkchi cache verify; vkchi cache clear")
        )
    return CheckResult("cache", lines, wrong)


def can_write(folder: str) -> bool:
    """True if a file can be created in the folder, or in its nearest parent if it is missing."""
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x" * 4096)
    except OSError:
        return False
    return True


def is_damaged(store: CacheStore, key: str) -> bool:
    """True if an entry's checksum or format is wrong, or it cannot be read."""
    try:
        read_entry(store.path_of(key))
    except (Damaged, OSError):
        return True
    return False


CHECKS: tuple[Callable[[], CheckResult], ...] = (
    check_versions, check_devices, check_cuda, check_environment, check_cache,
)  # fmt: skip
