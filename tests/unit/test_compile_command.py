"""`vkchi compile`: nothing runs, and devices that are only described are compiled for as well."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

import vkchi as ti
from tests.devices import MUST_HAVE_RADV, needs_radv
from vkchi import platform
from vkchi.__main__ import main
from vkchi.cache.inspection import driver_report
from vkchi.errors import DeviceError
from vkchi.target.caps import Caps
from vkchi.target.devices import (
    AMD_FAMILIES,
    find_described,
    known_names,
    names_of_family,
    parse_description,
    read_described,
)

Run = Callable[..., tuple[str, str]]
Shaders = Callable[..., list[dict[str, Any]]]
ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
import vkchi as ti
ti.init(arch=ti.gpu)
x = ti.field(ti.f32, 1024, needs_grad=True)
loss = ti.field(ti.f32, (), needs_grad=True)
x.fill(3)

@ti.kernel
def scale(a: ti.f32):
    for i in x:
        x[i] *= a

@ti.kernel
def total():
    for i in x:
        loss[None] += x[i] ** 2

@ti.kernel
def wide(y: ti.types.ndarray(ti.f64, 1)):
    for i in y:
        y[i] = ti.sqrt(y[i])

@ti.kernel
def step(y: ti.types.ndarray(), v: ti.types.vector(3, ti.f32), out: ti.template(), n: ti.i32):
    for i, j in y:
        out[i] = y[i, j] * v[0] + n

@ti.data_oriented
class Model:
    k = 3

    @ti.kernel
    def move(self):
        for i in x:
            x[i] += self.k

model = Model()
scale(2.0)
with ti.ad.Tape(loss):
    total()
print("x is", x[5], *sys.argv[1:])
if __name__ == "__main__":
    raise SystemExit("this ran")
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return str(path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run the command; return stdout and stderr."""

    def run_one(*words: str, status: int = 0) -> tuple[str, str]:
        assert main(["compile", *words]) == status, capsys.readouterr()
        found = capsys.readouterr()
        return found.out, found.err

    yield run_one
    ti.reset()


@pytest.fixture
def shaders(run: Run) -> Shaders:
    """Output about the shaders that a command line compiles."""

    def compiled(*words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(run(*words, "--json")[0])["shaders"]
        return found

    return compiled


def test_called_kernels_are_compiled_but_not_run(program: str, run: Run) -> None:
    said, told = run(program, "--device", "apple-moltenvk", "--", "some", "words")
    assert "x is 3.0 some words" in told  # fills are done, kernels are not
    assert "scale.0" in said and "total.grad.0" in said and "this ran" not in said + told
    assert "Apple M1" in said


def test_kernels_of_other_devices_are_compiled_but_not_run(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "other.py"
    path.write_text(
        "import vkchi as ti\nti.init()\n@ti.kernel\ndef put(y: ti.types.ndarray(ti.f32, 1)):\n"
        "    for i in y:\n        y[i] = 5\n"
        "with ti.device('other'):\n    y = ti.ndarray(ti.f32, 4)\n    put(y)\n"
        "    print('y is', y[0])\n",
        encoding="utf-8",
    )
    said, told = run(str(path), "--device", "apple-moltenvk")
    assert "y is 0.0" in told and "put.0" in said
    assert "results that it prints are not valid" in told


def test_kernel_option_selects_kernel_and_derived_kernels(program: str, shaders: Shaders) -> None:
    names = [row["name"] for row in shaders(f"{program}:total", "--device", "mali-valhall")]
    assert {name.partition(".")[0] for name in names} == {"total"} and "total.grad.0" in names


def test_command_line_arguments(program: str, shaders: Shaders, run: Run) -> None:
    words = (f"{program}:step", "--device", "intel-xe")
    (row,) = shaders(*words, "--arg", "y=f32[?,64]", "--arg", "out=x")
    assert row["name"] == "step.0"
    assert "nothing says what `y` is: --arg y=" in run(*words, status=1)[1]
    assert "has no argument z" in run(*words, "--arg", "z=1", status=1)[1]
    assert "--arg is NAME=VALUE" in run(*words, "--arg", "z", status=2)[1]


def test_compile_methods(program: str, shaders: Shaders, run: Run) -> None:
    assert shaders(f"{program}:model.move", "--device", "navi21")
    assert "as in obj.step" in run(f"{program}:Model.move", status=1)[1]
    assert "there is no 'fly'" in run(f"{program}:model.fly", status=1)[1]
    assert "nothing called 'nothing'" in run(f"{program}:nothing", status=1)[1]


def test_missing_device_feature_is_reported(program: str, run: Run) -> None:
    _, told = run(f"{program}:wide", "--device", "mali-valhall", status=1)
    assert "Arm Mali" in told and "f64" in told


def test_code_follows_capabilities(
    program: str, tmp_path: Path, shaders: Shaders, run: Run
) -> None:
    """The same kernel, with atomics on floats and without."""
    fast = tmp_path / "fast.json"
    fast.write_text('{"name": "My card", "caps": {"f32_atomic_add": true}}', encoding="utf-8")
    assert "f32_atomic_add" in shaders(f"{program}:total", "--device", str(fast))[0]["needs"]
    assert shaders(f"{program}:total", "--device", "smallest")[0]["needs"] == ["chain_casts"]
    assert "My card" in run(program, "--device", str(fast))[0]


def test_a_device_that_is_here(program: str, run: Run) -> None:
    assert "scale.0" in run(program)[0]
    told = run(program, "--device", "zzz", status=1)[1]
    assert "no Vulkan device matches 'zzz'" in told and "vkchi compile --list" in told


def test_wrong_command_lines(program: str, tmp_path: Path, run: Run) -> None:
    run(program, "--colour", status=2)
    assert "there is no file" in run("nowhere.py:step", status=1)[1]
    bad = tmp_path / "bad.py"
    bad.write_text("import vkchi as ti\n1 / 0\n", encoding="utf-8")
    assert "failed while it was imported: division by zero" in run(str(bad), status=1)[1]
    assert run("--list")[0].split() == known_names()


def test_modules_are_written(program: str, tmp_path: Path, run: Run) -> None:
    run(program, "--device", "navi31", "--spv", str(tmp_path / "spv"))
    assert (tmp_path / "spv" / "0.scale.0.spv").read_bytes()[:4] == b"\x03\x02\x23\x07"


def test_folders_that_cannot_be_written(program: str, tmp_path: Path, run: Run) -> None:
    said = run(program, "--device", "navi31", "--spv", str(tmp_path / "program.py"), status=1)[1]
    assert "program.py" in said and "standard output" not in said


@pytest.mark.parametrize("text", ["f32[a]", "f32[-1]", "f32[1.5]", "f32x3x3x3[3]", "f32[²]"])
def test_arrays_that_are_none(text: str, program: str, run: Run) -> None:
    at = f"{program}:step", "--device", "navi31", "--arg", f"y={text}"
    assert f"{text!r} is no array: f32[64,64]" in run(*at, status=1)[1]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("no json", "Expecting value"),
        ("[]", 'it has no "caps"'),
        ('{"caps": {"float63": true}}', "no capability is called 'float63'"),
        ('{"caps": {"float64": 1}}', "float64 is 1, and should be like False"),
        ('{"caps": {"subgroup_size": 0}}', "subgroup_size is 0"),
        ('{"caps": {"workgroup_size": [1, 2]}}', "workgroup_size is (1, 2)"),
        ('{"name": 3, "caps": {}}', "name is a text, not 3"),
        ('{"caps": {"kind": "gpu"}}', "kind is 'gpu'"),
        ('{"kind": 4, "caps": {}}', "kind is 4"),
    ],
)
def test_files_that_describe_no_device(
    text: str, fault: str, program: str, tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "device.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as told:
        read_described(str(path))
    assert fault in str(told.value)
    if text == "[]":
        assert fault in run(program, "--device", str(path), status=2)[1]


def test_descriptions_that_come_with_vkchi() -> None:
    found = {name: find_described(name) for name in known_names()}
    assert {"navi31", "mali-valhall", "intel-xe", "apple-moltenvk", "smallest"} <= found.keys()
    assert all(d is not None and d.name and d.source for d in found.values())
    assert not any(d.caps.is_cpu for d in found.values() if d is not None)
    smallest = found["smallest"]
    assert smallest is not None and smallest.caps == Caps()


def test_the_kind_of_a_described_device() -> None:
    """A GPU unless it says otherwise; in the capabilities or beside them."""
    assert parse_description({"caps": {}}, "x").caps == Caps()
    assert parse_description({"caps": {"subgroup_size": 4}}, "x").caps.kind == "other"
    for found in ({"caps": {"kind": "cpu"}}, {"kind": "cpu", "caps": {}}):
        assert parse_description(found, "x").caps.is_cpu


# --- another vendor's compiler -------------------------------------------------------------------


def test_ci_has_a_compiler_for_amd() -> None:
    """Mesa 23.1 to 25, so that the tests below run there."""
    if not MUST_HAVE_RADV:
        pytest.skip("not in CI on Linux")
    assert driver_report.read_caps("navi31").float64


@needs_radv
@pytest.mark.parametrize("family", ["polaris10", "raphael_mendocino", "phoenix", "GFX1201"])
def test_families_by_all_their_names(family: str) -> None:
    """Mesa's names of several years, LLVM's targets; capital letters."""
    row = next(row for row in AMD_FAMILIES if family.lower() in row)
    assert len(row) > 1 and len({driver_report.read_caps(name) for name in (family, *row)}) == 1


@needs_radv
@pytest.mark.parametrize("name", ["gfx1100", "radv:gfx1100", "GFX1100", "radv:NAVI31"])
def test_a_device_by_its_other_names(name: str, program: str, shaders: Shaders) -> None:
    (row, *_) = shaders(f"{program}:scale", "--device", name)
    assert row["common"]["registers"] > 0


def test_descriptions_by_other_names() -> None:
    found = find_described("gfx1100")
    assert found is not None and found == find_described("navi31")
    assert find_described("gfx803") == find_described("polaris10")
    assert names_of_family("vega10") == ["vega10", "gfx900"]
    assert names_of_family("apple-m1") == ["apple-m1"]


def test_all_names_of_a_family_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_report, "environment", lambda name: {"name": name})

    def compile_from(
        around: dict[str, str], shaders: list[Any], caps: Caps
    ) -> tuple[list[driver_report.CompileOutcome], int, str]:
        known = around["name"] == "gfx1103"
        return (
            [driver_report.CompileOutcome(())] * known,
            0 if known else driver_report.NO_DEVICE,
            "",
        )

    monkeypatch.setattr(driver_report, "_compile_from", compile_from)
    shader: Any = None
    assert driver_report.compile_all("phoenix", [shader], Caps()) == [
        driver_report.CompileOutcome(())
    ]


@pytest.fixture
def driver_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int, str], None]:
    """A driver of some version, whose process ends with a status and a message."""

    def install(version: str, end: int, said: str) -> None:
        (tmp_path / "libradv.so").write_bytes(b"\x7fELF\0Mesa " + version.encode() + b"%s\0")
        manifest = tmp_path / "radv.json"
        manifest.write_text('{"ICD": {"library_path": "./libradv.so"}}', encoding="utf-8")
        monkeypatch.setenv("VKCHI_RADV", str(manifest))
        monkeypatch.setattr(driver_report, "_run", lambda *_: (end, [], said))

    return install


@pytest.mark.parametrize(
    ("version", "end", "said", "told"),
    [
        (
            "26.0.1",
            driver_report.NO_DEVICE,
            "",
            "here (26.0.1) has no virtual devices: Mesa 23.1 to 25",
        ),
        (
            "22.3.6",
            -6,
            "Unknown family",
            "here (22.3.6) knows no family 'navi31'; it needs Mesa 23",
        ),
    ],
)
def test_versions_of_mesa_that_cannot(
    version: str, end: int, said: str, told: str, program: str, run: Run,
    driver_of: Callable[[str, int, str], None],
) -> None:  # fmt: skip
    driver_of(version, end, said)
    assert told in run(f"{program}:scale", "--device", "navi31", status=1)[1]
    with pytest.raises(DeviceError, match="Mesa 26 has removed RADV_FORCE_FAMILY"):
        driver_report.read_caps("navi31")


def test_no_compiler_for_amd(
    program: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(driver_report, "MANIFESTS", ("/nowhere",))
    monkeypatch.setattr(platform, "SYSTEM", platform.SYSTEMS["linux"])
    said = run(f"{program}:scale", "--device", "navi31", status=1)[1]
    assert "RADV is not here: install Mesa 23.1 to 25" in said and "VKCHI_RADV" in said
    monkeypatch.setenv("VKCHI_RADV", "/nowhere/radeon_icd.json")
    said = run(f"{program}:scale", "--device", "navi31", status=1)[1]
    assert "VKCHI_RADV names no file: /nowhere/radeon_icd.json" in said


@pytest.mark.parametrize("name", ["win32", "darwin"])
def test_radv_is_for_linux_only(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other systems have no package of it to install."""
    monkeypatch.setattr(driver_report, "MANIFESTS", ("/nowhere",))
    monkeypatch.setattr(platform, "SYSTEM", platform.SYSTEMS[name])
    monkeypatch.delenv("VKCHI_RADV", raising=False)
    with pytest.raises(DeviceError) as error:
        driver_report.environment("navi31")
    said = str(error.value)
    assert f"for Linux only, and this is {platform.SYSTEMS[name].name}" in said
    assert "mesa-vulkan-drivers" not in said


def test_drivers_that_ignore_the_family() -> None:
    """Such a driver would compile for a GPU of this machine."""
    assert driver_report.ignores_family("radv Mesa 26.2.6")
    assert not driver_report.ignores_family("radv Mesa 25.0.7-2~bpo12+1")


@needs_radv
def test_statistics_of_amd(program: str, shaders: Shaders, run: Run) -> None:
    (row, *_) = shaders(f"{program}:scale", "--device", "navi31", "--isa")
    assert row["common"]["registers"] > 0 and row["common"]["spills"] == 0
    assert row["common"]["code bytes"] > 0 and row["statistics"]["SGPRs"] > 0
    assert "s_endpgm" in row["isa"] and row["subgroup"] in (32, 64)
    assert "spills 0" in run(f"{program}:scale", "--device", "polaris10")[0]


WARPS = """import vkchi as ti
x, y = ti.field(ti.i32, 256), ti.field(ti.u64, 256)

@ti.kernel
def warps():
    for i in x:
        w = ti.simt.warp.ballot(x[i] > 3)
        w += ti.simt.warp.match_any(0xFFFFFFFF, x[i]) + ti.simt.warp.any_nonzero(7, x[i])
        x[i] = ti.simt.warp.shfl_down_i32(w, x[i], 1) + ti.simt.warp.shfl_xor_i32(w, x[i], 2)

@ti.kernel
def wide():
    for i in y:
        y[i] = ti.simt.subgroup.ballot64(i % 3 == 0)

@ti.kernel
def narrow():
    for i in x:
        x[i] = ti.cast(ti.simt.subgroup.ballot(x[i] > 3), ti.i32)
"""


@needs_radv
@pytest.mark.parametrize("name", ["warps", "wide", "narrow"])
def test_ballots_of_all_sizes(name: str, tmp_path: Path, run: Run, shaders: Shaders) -> None:
    """RDNA has subgroups of 32 and 64, and takes 32 for ballots; GCN has 64."""
    path = tmp_path / "warps.py"
    path.write_text(WARPS, encoding="utf-8")
    for device in ("navi31", "navi21", "radv:gfx1201"):
        (row,) = shaders(f"{path}:{name}", "--device", device, "--isa")
        assert row["subgroup"] == 32
    for device in ("polaris10", "radv:vega10"):
        if name == "narrow":
            said = run(f"{path}:{name}", "--device", device, status=1)[1]
            assert "use ti.simt.subgroup.ballot64" in said
            continue
        (row,) = shaders(f"{path}:{name}", "--device", device, "--isa")
        assert row["subgroup"] == 64 and row["common"]["spills"] == 0


@needs_radv
@pytest.mark.parametrize(("family", "least"), [("navi31", 32), ("vega10", 64)])
def test_sizes_of_subgroups(family: str, least: int) -> None:
    caps = driver_report.read_caps(family)
    assert (caps.subgroup_least, caps.subgroup_size, caps.subgroup_most) == (least, least, 64)


@needs_radv
def test_an_unknown_family(program: str, tmp_path: Path, run: Run) -> None:
    odd = tmp_path / "odd.json"
    odd.write_text('{"radv": "navi99", "caps": {}}', encoding="utf-8")
    assert "no family 'navi99'" in run(program, "--device", str(odd), status=1)[1]


@needs_radv
def test_any_family_that_radv_knows(program: str, run: Run) -> None:
    assert "AMD vega10, 0 refused" in run(f"{program}:scale", "--device", "radv:vega10")[0]
    assert "no family 'navi99'" in run(program, "--device", "radv:navi99", status=2)[1]
    told = driver_report.read_caps("navi31")
    known = find_described("navi31")
    assert known is not None and told.subgroup_size == known.caps.subgroup_size
    assert told.float64 and told.f32_atomic_add and not told.f64_atomic_add


@needs_radv
def test_a_compiler_that_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process ends at the second of three shaders; those before and after count."""
    found = find_described("navi31")
    assert found is not None
    calls = []

    def one_by_one(
        around: Any, shaders: Any, caps: Any
    ) -> tuple[list[driver_report.CompileOutcome], int, str]:
        calls.append(len(shaders))
        return [driver_report.CompileOutcome(())], -11 if len(shaders) > 1 else 0, ""

    monkeypatch.setattr(driver_report, "_compile_from", one_by_one)
    outcomes = driver_report.compile_all("navi31", [None] * 3, found.caps)  # type: ignore[list-item]
    assert calls == [3, 1] and [o.error for o in outcomes] == [
        "", "the driver's compiler crashed (status -11)", "",
    ]  # fmt: skip


def test_a_compiler_that_is_killed_during_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    told = '{"executables": [], "error": ""}\n{"executables": [["comp'
    monkeypatch.setattr(driver_report, "find_driver", lambda: "radv.json")
    monkeypatch.setattr(
        driver_report.subprocess, "run", lambda *_, **__: CompletedProcess([], -9, told, "")
    )
    end, rows, _ = driver_report._run({}, [])
    assert (end, rows) == (-9, [{"executables": [], "error": ""}])


FAMILIES = (
    "navi31",
    "navi21",
    "polaris10",
    "radv:vega10",
    "radv:gfx1201",
    "radv:raphael_mendocino",
)


@needs_radv
@pytest.mark.parametrize("family", FAMILIES)
def test_amd_takes_all_benchmark_programs(family: str, run: Run) -> None:
    """None is refused, and none has more values than registers, on any generation."""
    said, told = run(
        str(ROOT / "benchmarks" / "programs.py"), "--device", family, "--json",
        "--", "vkchi", "vulkan",
    )  # fmt: skip
    found = json.loads(said)["shaders"]
    assert len(found) > 40 and not any("error" in row for row in found)
    assert not [row["name"] for row in found if row["common"]["spills"]]
    assert not [row["name"] for row in found if row["statistics"].get("Scratch size")]
    figures = json.loads(told.strip().splitlines()[-1])
    failures = {k: v for k, v in figures.items() if isinstance(v, str)}
    # nothing ran, so results are wrong; nothing else may be
    assert all(v.startswith("AssertionError") for v in failures.values()), failures


ROOTS = """import vkchi as ti
ti.init(fast_math=False)
x, y = ti.field(ti.f32, 256), ti.field(ti.f32, 256)

@ti.kernel
def divide():
    for i in x:
        y[i] = 3.0 / ti.sqrt(x[i])
"""


@needs_radv
def test_reciprocal_roots_are_one_instruction_under_fast_math(
    tmp_path: Path, shaders: Shaders
) -> None:
    """They round otherwise than a root and a quotient, and so are not used without."""
    found = []
    for is_fast in ("False", "True"):
        path = tmp_path / f"{is_fast}.py"
        path.write_text(ROOTS.replace("False", is_fast), encoding="utf-8")
        found += shaders(f"{path}:divide", "--device", "navi31", "--isa")
    exact, fast = found
    assert "v_sqrt_f32" in exact["isa"] and "v_rsq_f32" not in exact["isa"]
    assert "v_rsq_f32" in fast["isa"] and "v_sqrt_f32" not in fast["isa"]
    assert "signed_zero_inf_nan_f32" in exact["needs"] and not fast["needs"]
