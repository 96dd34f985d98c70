"""Taichi's capability names, and the check that a device can run saved shaders.

Example:

    >>> caps_of(["spirv_has_int64"], device).int64
    True
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from vkchi.errors import ArgumentError, nearest_name
from vkchi.target.caps import SMALLEST, Caps
from vkchi.target.shader import Grid, Shader


class DeviceCapability:
    """`ti.DeviceCapability`: names for `caps=`. Source: Taichi's class of that name."""

    spirv_version_1_3 = "spirv_version=66304"
    spirv_version_1_4 = "spirv_version=66560"
    spirv_version_1_5 = "spirv_version=66816"
    spirv_has_int8 = "spirv_has_int8"
    spirv_has_int16 = "spirv_has_int16"
    spirv_has_int64 = "spirv_has_int64"
    spirv_has_float16 = "spirv_has_float16"
    spirv_has_float64 = "spirv_has_float64"
    spirv_has_atomic_int64 = "spirv_has_atomic_int64"
    spirv_has_atomic_float16 = "spirv_has_atomic_float16"
    spirv_has_atomic_float16_add = "spirv_has_atomic_float16_add"
    spirv_has_atomic_float16_minmax = "spirv_has_atomic_float16_minmax"
    spirv_has_atomic_float = "spirv_has_atomic_float"
    spirv_has_atomic_float_add = "spirv_has_atomic_float_add"
    spirv_has_atomic_float_minmax = "spirv_has_atomic_float_minmax"
    spirv_has_atomic_float64 = "spirv_has_atomic_float64"
    spirv_has_atomic_float64_add = "spirv_has_atomic_float64_add"
    spirv_has_atomic_float64_minmax = "spirv_has_atomic_float64_minmax"
    spirv_has_variable_ptr = "spirv_has_variable_ptr"
    spirv_has_physical_storage_buffer = "spirv_has_physical_storage_buffer"
    spirv_has_subgroup_basic = "spirv_has_subgroup_basic"
    spirv_has_subgroup_vote = "spirv_has_subgroup_vote"
    spirv_has_subgroup_arithmetic = "spirv_has_subgroup_arithmetic"
    spirv_has_subgroup_ballot = "spirv_has_subgroup_ballot"
    spirv_has_non_semantic_info = "spirv_has_non_semantic_info"
    spirv_has_no_integer_wrap_decoration = "spirv_has_no_integer_wrap_decoration"


# Fields of Caps per name. Other names have no effect: every Vulkan 1.3 device has the feature, or
# emitted code does not use it.
MEANING = {
    "spirv_has_int8": ("int8", "storage8"),
    "spirv_has_int16": ("int16", "storage16"),
    "spirv_has_int64": ("int64",),
    "spirv_has_float16": ("float16", "storage16"),
    "spirv_has_float64": ("float64",),
    "spirv_has_atomic_int64": ("i64_atomics",),
    "spirv_has_atomic_float_add": ("f32_atomic_add",),
    "spirv_has_atomic_float_minmax": ("f32_atomic_minmax",),
    "spirv_has_atomic_float64_add": ("f64_atomic_add",),
    "spirv_has_subgroup_vote": ("subgroup_vote",),
    "spirv_has_subgroup_arithmetic": ("subgroup_arithmetic",),
    "spirv_has_subgroup_ballot": ("subgroup_ballot",),
}
KNOWN = frozenset(v for k, v in vars(DeviceCapability).items() if k.startswith("spirv"))


# Correct driver behaviour that shaders rely on, unless the driver has the bug.
RIGHT = ("integer_extremes", "zero_dividends", "subgroup_at_once")


def portable(caps: Caps) -> Caps:
    """Return a copy of a device's capabilities for code that other devices can run too.

    RIGHT are false; the bytes of push constants and the workgroup counts are lowered to those that
    every device has.
    """
    return caps._replace(
        integer_extremes=False,
        zero_dividends=False,
        subgroup_at_once=False,
        push_constant_bytes=SMALLEST.push_constant_bytes,
        workgroup_count=least_count(caps),
    )


def least_count(device: Caps) -> tuple[int, int, int]:
    """Return the workgroup counts along x, y and z that both the minimal device and this one
    support. Shaders omit base offsets (`GridAxis.has_base`) if no dispatch exceeds these counts."""
    pairs = zip(SMALLEST.workgroup_count, device.workgroup_count, strict=True)
    x, y, z = [min(pair) for pair in pairs]
    return x, y, z


def caps_of(names: Iterable[str], device: Caps) -> Caps:
    """Return the minimum capabilities of any device, plus the named ones.

    `kind` and `subgroup_size` are those of `device`, `workgroup_count` is `least_count(device)`.
    RIGHT are false. Raises ArgumentError for an unknown name; names `spirv_version=...` have no
    effect.
    """
    found: dict[str, bool] = {}
    for name in names:
        if name not in KNOWN and not str(name).startswith("spirv_version="):
            near = nearest_name(str(name), sorted(KNOWN))
            hint = f": did you mean {near}?" if near else ""
            raise ArgumentError(f"ti.aot.Module: no capability is called {name!r}{hint}")
        found |= dict.fromkeys(MEANING.get(name, ()), True)
    found |= dict.fromkeys(RIGHT, False)
    facts = {
        "kind": device.kind,
        "subgroup_size": device.subgroup_size,
        "workgroup_count": least_count(device),
    }
    return SMALLEST._replace(**facts, **found)  # type: ignore[arg-type]


OP_VARIABLE, WORKGROUP, HEADER_WORDS = 59, 4, 5


def uses_shared_memory(words: bytes) -> bool:
    """True if a SPIR-V module has variables in workgroup memory."""
    code = struct.unpack(f"<{len(words) // 4}I", words)
    at = HEADER_WORDS
    while at < len(code) and code[at] >> 16:
        if code[at] & 0xFFFF == OP_VARIABLE and code[at + 3] == WORKGROUP:
            return True
        at += code[at] >> 16
    return False


def missing_features(shader: Shader, made_for: Caps, device: Caps) -> list[str]:
    """Return descriptions of the features that a shader needs and the device lacks."""
    found = [name for name in shader.needs if not getattr(device, name)]
    found += [name for name in RIGHT if getattr(made_for, name) and not getattr(device, name)]
    numbers = {"workgroup_invocations": shader.grid.block}
    if "subgroup_size" in shader.needs and made_for.subgroup_size != device.subgroup_size:
        found.append(f"subgroups of {made_for.subgroup_size}")
    if not shader.indirect:
        numbers["push_constant_bytes"] = shader.size_bytes
    if uses_shared_memory(shader.words):
        numbers["shared_bytes"] = made_for.shared_bytes
    lengths = [axis.block for axis in shader.grid.axes]
    if any(n > most for n, most in zip(lengths, device.workgroup_size, strict=False)):
        found.append(f"workgroups of {' by '.join(map(str, lengths))}")
    if exceeds_workgroup_count(shader.grid, made_for, device):
        found.append(f"{' by '.join(map(str, made_for.workgroup_count))} workgroups")
    found += [f"{name} {n}" for name, n in numbers.items() if getattr(device, name) < n]
    return found


def exceeds_workgroup_count(grid: Grid, made_for: Caps, device: Caps) -> bool:
    """True if the device may need several dispatches along an axis without a base offset. False for
    grids of one axis, whose workgroups continue along a second one."""
    limits = zip(grid.axes, made_for.workgroup_count, device.workgroup_count, strict=False)
    return len(grid.axes) > 1 and any(
        not axis.has_base and here < there for axis, there, here in limits
    )
