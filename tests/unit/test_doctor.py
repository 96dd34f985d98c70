"""`vkchi doctor`: problems are reported, with a remedy."""

from __future__ import annotations

import json
import os
import platform as standard_platform
from pathlib import Path

import pytest

from vkchi import platform
from vkchi.__main__ import main
from vkchi.cache.store import CacheStore
from vkchi.cli import doctor
from vkchi.cli.doctor import costs_of
from vkchi.errors import DeviceError
from vkchi.target.caps import FULL, Caps


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("VKCHI_CACHE", "1")
    monkeypatch.setenv("VKCHI_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def look(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    """The exit status, and the JSON output."""
    status = main(["doctor", "--json"])
    said: dict[str, object] = json.loads(capsys.readouterr().out)
    return status, said


@pytest.mark.device
def test_a_healthy_machine(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = look(capsys)
    assert status == 0
    assert any("Vulkan 1." in line for line in said["devices (* is taken by ti.init)"])  # type: ignore[attr-defined]
    assert main(["doctor"]) == 0
    assert "problem" in capsys.readouterr().out


def test_no_driver(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise DeviceError("no Vulkan driver was found")

    monkeypatch.setattr(standard_platform, "freedesktop_os_release", lambda: {"ID": "debian"})
    monkeypatch.setattr(platform, "SYSTEM", platform.find_system("linux"))
    monkeypatch.setattr(doctor, "physical_devices", none)
    status, said = look(capsys)
    assert status == 1
    assert "no Vulkan driver was found" in str(said["problems"])
    assert "make driver" in str(said["problems"])


@pytest.mark.parametrize(
    ("system", "command"),
    [
        ("linux", "dnf install vulkan-loader mesa-vulkan-drivers"),
        ("darwin", "brew install vulkan-loader molten-vk"),
        ("win32", "https://www.nvidia.com/drivers"),
    ],
)
@pytest.mark.parametrize("is_old", [False, True])
def test_an_installed_package_names_the_command_of_the_system(
    system: str, command: str, is_old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a driver, and with an old one: never `make`, which is for checkouts."""

    def none() -> None:
        raise DeviceError("no Vulkan driver was found")

    monkeypatch.setattr(standard_platform, "freedesktop_os_release", lambda: {"ID": "fedora"})
    monkeypatch.setattr(platform, "SYSTEM", platform.find_system(system))
    monkeypatch.setattr(doctor, "find_checkout", str)
    monkeypatch.setattr(doctor, "physical_devices", (lambda: [OldDevice()]) if is_old else none)
    monkeypatch.setattr(doctor, "chosen_index", lambda: 0)
    (problem,) = doctor.check_devices().problems
    assert command in problem["mend"]
    assert "make" not in problem["mend"].replace("GPU's maker", "")


class OldDevice:
    """A physical device with an old driver, as far as it is asked here."""

    name, kind, driver, api, caps = "llvmpipe", "cpu", "llvmpipe Mesa 22.3.6", (1, 3, 0), Caps()

    def list_lacks(self) -> list[str]:
        return []


def test_a_device_that_is_not_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise DeviceError("no Vulkan device matches 'zzz'")

    monkeypatch.setenv("VKCHI_DEVICE", "zzz")
    monkeypatch.setattr(doctor, "physical_devices", none)
    status, said = look(capsys)
    assert status == 1
    assert "unset VKCHI_DEVICE, or name one that is there" in str(said["problems"])


def test_doctor_flags(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKCHI_DEVCE", "0")
    monkeypatch.setenv("VK_DRIVER_FILES", "/nowhere/icd.json")
    monkeypatch.setattr(doctor, "physical_devices", list)
    monkeypatch.setattr(doctor, "chosen_index", lambda: 0)
    status, said = look(capsys)
    problems = str(said["problems"])
    assert "unset VKCHI_DEVCE" in problems
    assert "/nowhere/icd.json, which does not exist" in problems
    assert status == 1


def test_a_wrong_driver_file_is_one_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise DeviceError("no Vulkan driver was found")

    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.setenv(name, "/nowhere/icd.json")
    monkeypatch.setattr(doctor, "physical_devices", none)
    status, said = look(capsys)
    wrong = [p["what"] for p in said["problems"] if p["stops"]]
    assert status == 1
    assert wrong == [
        "VK_DRIVER_FILES and VK_ICD_FILENAMES name /nowhere/icd.json, which does not exist"
    ]


def test_doctor_checks_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = doctor.check_cache()
    assert found.lines[0] == str(folder)
    assert found.lines[-1] == "0 entries"
    assert not found.problems
    assert doctor.can_write(str(folder))
    store = CacheStore(str(folder))
    assert store.is_usable(make=True)
    Path(store.path_of("0" * 64)).write_bytes(b"no entry")
    found = doctor.check_cache()
    assert "1 entries" in found.lines
    assert "damaged" in found.problems[0]["what"]
    monkeypatch.setattr(doctor, "can_write", lambda folder: False)
    assert "VKCHI_CACHE_DIR" in doctor.check_cache().problems[0]["mend"]


@pytest.mark.parametrize(
    ("driver", "slow"),
    [("llvmpipe Mesa 22.3.6 (LLVM 15)", True), ("llvmpipe Mesa 25.0.7", False), ("NVIDIA", False)],
)
def test_old_software_drivers(driver: str, slow: bool) -> None:
    assert doctor.is_slow(driver) is slow


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert not doctor.can_write(str(tmp_path / "file"))


def test_a_folder_that_nobody_may_write_to(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if os.access(locked, os.W_OK):
        pytest.skip("this user may write anywhere")
    assert not doctor.can_write(str(locked / "cache"))


class Card:
    """A physical device, as far as it is asked here."""

    name, vendor, uuid = "A Card", "nvidia", bytes(16)


@pytest.mark.parametrize(
    ("ordinal", "line", "mend"),
    [
        (1, "A Card is CUDA's device 1", ""),
        ("cuda-bindings is missing: pip install", "", "pip install cuda-bindings"),
        ("none of CUDA's 2 devices is this Vulkan device", "", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_doctor_checks_cuda(
    ordinal: int | str, line: str, mend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "physical_devices", lambda: [Card()])
    monkeypatch.setattr(doctor, "cuda_ordinal", lambda uuid: ordinal)
    found = doctor.check_cuda()
    assert line in found.lines[0]
    assert mend in "".join(p["mend"] for p in found.problems) and bool(found.problems) == bool(mend)


def test_cuda_that_vulkan_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "physical_devices", list)
    assert isinstance(doctor.cuda_ordinal(bytes(16)), str) and doctor.cuda_devices() >= 0
    monkeypatch.setattr(doctor, "cuda_devices", lambda: 0)
    assert not doctor.check_cuda().problems
    monkeypatch.setattr(doctor, "cuda_devices", lambda: 2)
    assert doctor.check_cuda().problems[0]["mend"] == platform.SYSTEM.nvidia


def test_a_missing_capability_is_reported_with_its_cost() -> None:
    """Of capabilities that depend on another missing one, only that one is reported."""
    assert costs_of(FULL) == []
    assert costs_of(FULL._replace(f64_atomic_add=False)) == [
        "no 64-bit float atomics: sums into shared f64 elements are slow"
    ]
    assert costs_of(FULL._replace(f64_atomic_add=False, i64_atomics=False)) == [
        "no 64-bit atomics: `+=` on shared f64 elements raises an error",
        "no 64-bit integer atomics: `+=` on shared i64 and u64 elements raises an error",
    ]
    assert costs_of(FULL._replace(f64_atomic_add=False, float64=False)) == [
        "no 64-bit floats: kernels with f64 raise an error"
    ]
    assert costs_of(FULL._replace(int64=False, i64_atomics=False, f32_atomic_add=False)) == [
        "no 64-bit integers: kernels with i64 or u64, and arrays of 2^31 elements, raise an error",
        "no 32-bit float atomics: sums into shared f32 elements are slow",
    ]
