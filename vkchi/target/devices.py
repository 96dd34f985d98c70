"""Device information, device selection by index or name, and tests of a device's kind.

>>> select_device(infos, "llvmpipe")
0
"""

from __future__ import annotations

from collections.abc import Callable

from vkchi.errors import DeviceError
from vkchi.tuples import NamedTuple

RANKS = {"discrete": 0, "integrated": 1, "virtual": 2, "other": 3, "cpu": 4}
KINDS: dict[str, Callable[[DeviceInfo], bool]] = {
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
