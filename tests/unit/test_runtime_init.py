"""`ti.init`: which device it asks for, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

import vkchi as ti
from vkchi import device
from vkchi.errors import DeviceError


@pytest.mark.parametrize(
    ("arch", "kinds"),
    [
        (None, ["any"]), ([], ["any"]), ("cpu", ["cpu"]), (ti.gpu, ["gpu"]),
        ([ti.cuda, ti.cpu], ["nvidia", "cpu"]), ([ti.metal, "vulkan"], ["gpu", "any"]),
    ],
)  # fmt: skip
def test_archs_are_asked_for_in_order(
    arch: Any, kinds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def open_device(kind: str, device: Any, *, fallback: bool) -> None:
        asked.append((kind, fallback))
        raise DeviceError(f"no {kind} here")

    monkeypatch.setattr(device, "open_device", open_device)
    with pytest.raises(DeviceError):
        ti.init(arch=arch)
    assert asked == [(kind, kind == kinds[-1]) for kind in kinds]


@pytest.mark.parametrize(
    "options",
    [
        {"arch": "nope"}, {"arch": [[]]}, {"arch": 3}, {"random_seed": "x"}, {"random_seed": 1.5},
        {"log_level": "loud"}, {"default_fp": ti.i32}, {"default_ip": ti.f32}, {"colour": 1},
    ],
)  # fmt: skip
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ti.TaichiRuntimeTypeError):
        ti.init(**options)
