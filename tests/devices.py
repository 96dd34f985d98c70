"""Capabilities of other devices, and the standard error of programs that use a device."""

from __future__ import annotations

import os
import sys

import pytest

from vkchi.cache.inspection import driver_report
from vkchi.target.caps import Caps

NOTICE = "kernels still run on"  # printed at the end of a process whose device is slow


def errors_of(stderr: str) -> str:
    """Standard error of a program without the notice that kernels still run.

    On a busy machine any program that ends with work on the device may print the notice.
    """
    return "".join(line for line in stderr.splitlines(keepends=True) if NOTICE not in line)


FEW_GROUPS = (5, 3, 2)  # workgroups along x, y and z, so that small loops take several dispatches


def like_gpu(caps: Caps) -> Caps:
    """Capabilities of a discrete GPU with subgroups of 32 and few workgroups.

    Subgroup operations keep their true size.
    """
    return caps._replace(kind="discrete", subgroup_size=32, workgroup_count=FEW_GROUPS)


# As `vk.physical.DEFECTS` has it; shared float atomics are left as they are.
MOLTENVK = {
    "chain_casts": False, "scalar_alignment": False, "subgroup_scans": False,
    "subgroup_at_once": False,
}  # fmt: skip


def like_moltenvk(caps: Caps) -> Caps:
    """Capabilities of this device with the pointers, vectors and scans of MoltenVK."""
    return caps._replace(**MOLTENVK)


# In CI on Linux, which installs Mesa, the tests fail without it. Other systems have no RADV, also
# emulated ones, which see the files of Linux.
MUST_HAVE_RADV = bool(os.environ.get("CI")) and sys.platform == "linux"
needs_radv = pytest.mark.skipif(
    sys.platform != "linux" or not (driver_report.find_driver() or MUST_HAVE_RADV),
    reason="Mesa's RADV is not here (mesa-vulkan-drivers)",
)
