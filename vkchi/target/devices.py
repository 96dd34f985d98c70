"""Devices: information, selection by index or name, and descriptions of devices that are not here.

Descriptions have the capabilities of known devices, in JSON files. `known/` contains those that
vkchi ships.

    {"name": "AMD RDNA3 (navi31)", "radv": "navi31", "source": "...", "caps": {"int64": true, ...}}

`caps` has fields of `Caps`. A missing field has the default of `Caps`; `subgroup_least` and
`subgroup_most` default to `subgroup_size`. `kind` may also be given beside `caps`; without it
the device is a GPU of kind "other". `radv` is the GPU family under which Mesa's RADV compiles for
the device.

>>> select_device(infos, "llvmpipe")
0
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from vkchi.errors import ArgumentError, DeviceError
from vkchi.interrupts.local import local
from vkchi.target.caps import KINDS, SMALLEST, Caps
from vkchi.tuples import NamedTuple

RANKS = {"discrete": 0, "integrated": 1, "virtual": 2, "other": 3, "cpu": 4}
SELECTORS: dict[str, Callable[[DeviceInfo], bool]] = {
    "any": lambda info: True,
    "gpu": lambda info: info.kind != "cpu",
    "cpu": lambda info: info.kind == "cpu",
    "nvidia": lambda info: info.vendor == "nvidia",
}


class DeviceInfo(NamedTuple):
    """One Vulkan device. kind: cpu, discrete, integrated, virtual or other; api: Vulkan version,
    such as (1, 3, 275)."""

    index: int  # type: ignore[assignment]  # no method of tuples
    name: str
    kind: str
    vendor: str
    driver: str
    api: tuple[int, int, int]
    uuid: bytes


def select_device(infos: list[DeviceInfo], select: str | int) -> int:
    """Return the index of the first device that `select` matches (`is_selected_by`). Raises
    DeviceError if there is none."""
    for info in infos:
        if is_selected_by(info, select):
            return info.index
    raise DeviceError(f"no Vulkan device matches {select!r}; there {list_names(infos)}")


def is_selected_by(info: DeviceInfo, select: str | int) -> bool:
    """True if `select` is this device's index, or a part of its name in any case. A string of
    decimal digits is an index. The empty string matches no device."""
    if not isinstance(select, str) or select.isdecimal():
        return str(select) == str(info.index)
    return bool(select) and select.lower() in info.name.lower()


def list_names(infos: list[DeviceInfo]) -> str:
    """Return `are 0: llvmpipe, 1: ...`, for messages."""
    names = ", ".join(f"{info.index}: {info.name}" for info in infos)
    return f"{'is' if len(infos) == 1 else 'are'} {names}"


# --- descriptions --------------------------------------------------------------------------------


FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "known")
ENDING = ".json"


# Names of one AMD GPU family: Mesa's of 2025, Mesa's of 2022 where it differs, LLVM's target.
AMD_FAMILIES: tuple[tuple[str, ...], ...] = (
    ("polaris10", "gfx803"),
    ("vega10", "gfx900"), ("raven", "gfx902"), ("vega12", "gfx904"), ("vega20", "gfx906"),
    ("renoir", "gfx90c"),
    ("navi10", "gfx1010"), ("navi12", "gfx1011"), ("navi14", "gfx1012"),
    ("navi21", "gfx1030"), ("navi22", "gfx1031"), ("navi23", "gfx1032"), ("vangogh", "gfx1033"),
    ("navi24", "gfx1034"), ("rembrandt", "gfx1035"), ("raphael_mendocino", "gfx1036"),
    ("navi31", "gfx1100"), ("navi32", "gfx1101"), ("navi33", "gfx1102"),
    ("phoenix", "gfx1103_r1", "gfx1103"), ("phoenix2", "gfx1103_r2"),
    ("gfx1200", "navi44"), ("gfx1201", "navi48"),
)  # fmt: skip


def names_of_family(family: str) -> list[str]:
    """Return all names of an AMD GPU family, the given one first; it alone if it is unknown."""
    row = next((row for row in AMD_FAMILIES if family.lower() in row), ())
    return [family, *(name for name in row if name != family)]


class DeviceDescription(NamedTuple):
    """A described device: name, capabilities, RADV family, source of the data."""

    name: str
    caps: Caps
    radv: str = ""
    source: str = ""


def known_names() -> list[str]:
    return sorted(f.removesuffix(ENDING) for f in os.listdir(FOLDER) if f.endswith(ENDING))


def find_described(name: str) -> DeviceDescription | None:
    """Return a device description, or None if there is none of this name.

    `name` is the path of a JSON file, or a shipped description's name, where AMD's GPUs have
    several (`AMD_FAMILIES`). Raises ArgumentError for a missing or invalid file.
    """
    if name.endswith(ENDING):
        return read_described(name)
    known = known_names()
    found = next((one for one in names_of_family(name) if one in known), "")
    return read_described(os.path.join(FOLDER, found + ENDING)) if found else None


def read_described(path: str) -> DeviceDescription:
    """Read a device description from a file. Raises ArgumentError if it cannot be read or is
    invalid."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        return parse_description(found, os.path.basename(path).removesuffix(ENDING))
    except local(OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else e
        raise ArgumentError(f"{path} describes no device: {reason}") from None


def parse_description(found: Any, name: str) -> DeviceDescription:
    """Convert parsed JSON to a device description; `name` is the default name. Raises ValueError if
    it is invalid."""
    if not isinstance(found, dict) or not isinstance(found.get("caps"), dict):
        raise ValueError('it has no "caps"')
    texts = {k: found.get(k, "") for k in ("name", "radv", "source")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(f"{key} is a text, not {text!r}")
    kind = {"kind": found["kind"]} if "kind" in found else {}
    given = {field: read_field(field, value) for field, value in {**kind, **found["caps"]}.items()}
    size = given.get("subgroup_size", SMALLEST.subgroup_size)
    sizes = {"subgroup_least": size, "subgroup_most": size}
    caps = SMALLEST._replace(**{**sizes, **given})
    return DeviceDescription(texts["name"] or name, caps, *list(texts.values())[1:])


def read_field(field: str, value: Any) -> Any:
    """Return the checked value of a capability. Raises ValueError for an unknown field or a wrong
    value."""
    least = getattr(SMALLEST, field, None) if field in Caps._fields else None
    if least is None:
        raise ValueError(f"no capability is called {field!r}")
    value = tuple(value) if isinstance(value, list) else value
    fits = type(value) is type(least)
    if fits and isinstance(least, tuple):
        fits = len(value) == len(least) and all(type(n) is int and n > 0 for n in value)
    elif fits and type(least) is int:
        fits = value > 0
    elif fits and type(least) is str:
        fits = value in KINDS
    if not fits:
        raise ValueError(f"{field} is {value!r}, and should be like {least!r}")
    return value
