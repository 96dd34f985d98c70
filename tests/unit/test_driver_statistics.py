"""Driver statistics of machine code, with a stand-in at the calls: no software driver has them.

That RADV tells is tested where that is here (test_compile_command.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.test_device import make_shader
from vkchi.device import Device, open_device
from vkchi.vk.pipelines import (
    CAPTURE_STATISTICS,
    CAPTURE_TEXTS,
    EXTENSION,
    FEATURE,
    PipelineExecutable,
)

EXECUTABLES = [(b"SIMD8", 8), (b"SIMD16", 16)]
NUMBERS: list[tuple[bytes, int, str, int | float]] = [
    (b"Instruction Count", 2, "u64", 9),
    (b"Spill Count", 1, "i64", -1),
    (b"Is good", 0, "b32", 1),
    (b"Ratio", 3, "f64", 0.5),
]
TEXTS = [(b"NIR", b"ssa_1 = load"), (b"GEN Assembly", "add(16) g1 \u2026".encode())]


class Teller:
    """A device whose driver tells these things."""

    def __init__(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device, self.flags = device, list[int]()
        logical = device._logical
        self.ffi = device._vk.ffi
        told = logical.physical.features | {FEATURE}
        monkeypatch.setattr(logical, "physical", logical.physical._replace(features=told))
        make = logical.calls.vkCreateComputePipelines

        def making(owner: Any, cache: Any, count: int, info: Any, *rest: Any) -> int:
            self.flags.append(info.flags)
            info.flags = 0
            return int(make(owner, cache, count, info, *rest))

        monkeypatch.setattr(logical.calls, "vkCreateComputePipelines", making)
        for name, rows, fill in (
            ("vkGetPipelineExecutablePropertiesKHR", EXECUTABLES, self.fill_executable),
            ("vkGetPipelineExecutableStatisticsKHR", NUMBERS, self.fill_number),
            ("vkGetPipelineExecutableInternalRepresentationsKHR", TEXTS, self.fill_text),
        ):
            monkeypatch.setitem(vars(logical.calls), name, self.listing(rows, fill))

    def listing(self, rows: Any, fill: Any) -> Any:
        def call(owner: Any, info: Any, count: Any, out: Any) -> int:
            count[0] = len(rows)
            for k, row in enumerate(rows if out != self.ffi.NULL else ()):
                assert out[k].sType
                fill(out[k], row)
            return 0

        return call

    def fill_executable(self, out: Any, row: Any) -> None:
        out.name, out.subgroupSize = row

    def fill_number(self, out: Any, row: Any) -> None:
        out.name, out.format = row[:2]
        setattr(out.value, row[2], row[3])

    def fill_text(self, out: Any, row: Any) -> None:
        out.name, text = row
        if out.pData != self.ffi.NULL:
            assert out.dataSize >= len(text)
            self.ffi.memmove(out.pData, text, len(text))
        out.dataSize = len(text)


@pytest.fixture
def device() -> Iterator[Device]:
    made = open_device()
    yield made
    made.close()


def test_driver_statistics(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    teller = Teller(device, monkeypatch)
    found = device.pipelines.explain(make_shader(), 0)
    assert [(e.name, e.subgroup_size) for e in found] == [("SIMD8", 8), ("SIMD16", 16)]
    assert found[-1].statistics == {
        "Instruction Count": 9, "Spill Count": -1, "Is good": 1, "Ratio": 0.5,
    }  # fmt: skip
    assert found[-1].texts == {"NIR": "ssa_1 = load", "GEN Assembly": "add(16) g1 \u2026"}
    assert found[-1].common() == {"instructions": 9, "spills": -1}
    assert found[-1].machine_code() == "add(16) g1 \u2026"
    assert teller.flags == [CAPTURE_STATISTICS | CAPTURE_TEXTS]


def test_pipelines_that_run_are_made_without(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    teller = Teller(device, monkeypatch)
    device.load(make_shader())
    assert teller.flags == [0]


def test_a_driver_without_statistics(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    physical = device._logical.physical
    assert (EXTENSION in physical.extensions) == (FEATURE in physical.features)
    silent = physical._replace(features=physical.features - {FEATURE})
    monkeypatch.setattr(device._logical, "physical", silent)
    assert device.pipelines.explain(make_shader(), 0) == ()


def test_names_that_drivers_share() -> None:
    amd = PipelineExecutable("CS", 64, {"VGPRs": 12, "Spilled VGPRs": 0, "Code size": 52}, {})
    nvidia = PipelineExecutable("CS", 32, {"Register Count": 20, "Binary Size": 640}, {})
    assert amd.common() == {"registers": 12, "spills": 0, "code bytes": 52}
    assert nvidia.common() == {"registers": 20, "code bytes": 640}
    assert amd.machine_code() == ""
