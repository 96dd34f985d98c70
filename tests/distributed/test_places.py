"""Ranks and devices of processes, by the variables of launchers and lists of devices."""

from __future__ import annotations

import pytest

import vkchi as ti
from vkchi.distributed import group
from vkchi.errors import ArgumentError
from vkchi.target.devices import DeviceInfo

NAMES = ("discrete amd", "discrete nvidia", "integrated intel", "cpu mesa")
LAUNCHERS = ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST")


def infos(*numbers: int) -> list[DeviceInfo]:
    found = []
    for k in numbers:
        kind, vendor = NAMES[k].split()
        found.append(DeviceInfo(k, NAMES[k], kind, vendor, "", (1, 3, 0), bytes([k])))
    return found


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*LAUNCHERS, "VKCHI_DEVICE", "TI_ARCH", "LP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "present, arch, expected",
    [
        ((0, 1, 2, 3), None, [0, 1, 2, 0, 1]),
        ((0, 1, 3), ti.gpu, [0, 1, 0, 1, 0]),
        ((0, 1, 3), "vulkan", [0, 1, 0, 1, 0]),
        ((0, 1, 2, 3), ti.cuda, [1] * 5),
        ((0, 2, 3), ti.cuda, [0, 2, 0, 2, 0]),  # the fallback
        ((0, 2, 3), [ti.cuda, ti.gpu], [0, 2, 0, 2, 0]),
        ((0, 1, 3), ti.cpu, [None] * 5),
        ((3,), ti.gpu, [None] * 5),
    ],
)
def test_ranks_of_a_machine_get_its_devices_in_turn(
    present, arch, expected, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(group, "usable_devices", lambda: infos(*present))
    options = {} if arch is None else {"arch": arch}
    local_ranks = [2, 3, 5, 6, 8]  # of ten, on two machines
    found = [
        group.choose_device(group.Group(rank, 10, 1.0), local_ranks, None, options)
        for rank in local_ranks
    ]
    assert found == expected
    count = len(set(expected))
    shared = f"ti.distributed: 5 ranks share {count} devices on "
    said = capsys.readouterr().err.splitlines()
    assert len(said) == (None not in expected) and all(one.startswith(shared) for one in said)


def test_devices_that_are_given_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "usable_devices", lambda: infos(0, 1, 3))
    choose, two = group.choose_device, group.Group(1, 2, 1.0)
    assert choose(two, [0, 1], "amd", {}) == "amd" and choose(two, [0, 1], None, {}) == 1
    only = {"arch": ti.cuda, "enable_fallback": False}
    monkeypatch.setattr(group, "usable_devices", lambda: infos(0, 3))
    assert choose(two, [0, 1], None, only) is None  # ti.init raises the error
    monkeypatch.setenv("TI_ARCH", "cpu")
    assert choose(two, [0, 1], None, {}) is None
    monkeypatch.setenv("VKCHI_DEVICE", "amd")
    assert choose(two, [0, 1], None, {}) is None
    assert choose(group.Group(0, 1, 1.0), [0], None, {}) is None


def test_ranks_by_variables_of_torchrun_and_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    assert group.launcher_place() is None and group.slurm_address() == ("", "")
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "8")
    assert group.launcher_place() is None  # a script of sbatch, not a step of srun
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    assert group.launcher_place() == (3, 4)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert group.launcher_place() == (1, 2)
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(ArgumentError, match="RANK=2 and WORLD_SIZE=2"):
        group.launcher_place()


@pytest.mark.parametrize(
    "nodes, host",
    [
        ("login1", "login1"), ("a[007-012,15],b", "a007"), ("x1,x2", "x1"), ("n[3]", "n3"),
        ("10.0.0.7", "10.0.0.7"),
    ],
)  # fmt: skip
def test_the_first_host_of_a_step(nodes: str, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_NODELIST", nodes)
    monkeypatch.setenv("SLURM_JOB_ID", "123456")
    monkeypatch.setenv("SLURM_STEP_ID", "2")
    assert group.slurm_address() == (host, "23458")
