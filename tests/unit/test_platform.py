"""Differences between operating systems: one module has them, and it is right for each row.

Windows and macOS are emulated here by their rows and, for paths, by `ntpath`.
"""

from __future__ import annotations

import ast
import collections
import functools
import ntpath
import os
import platform as standard_platform
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.systems.missing_names import MODULES, NAMES
from vkchi import env, platform
from vkchi.aot.files import write_archive
from vkchi.errors import ArgumentError, DeviceError, Unsupported
from vkchi.interop.cuda import pool
from vkchi.platform import FileInUse
from vkchi.vk import instance, raw

PACKAGE = Path(platform.__file__).parent
ROOT = PACKAGE.parent
TESTS = {
    "sys.platform", "os.name", "os.replace", "os.rename", "os.utime", "os.linesep",
    "import platform", "hasattr os", "hasattr signal", "hasattr sys",
}  # fmt: skip
LACKING = {
    f"{module}.{name}"
    for system in NAMES.values()
    for module, names in system.items()
    for name in names
} | {f"import {name}" for names in MODULES.values() for name in names}
# Most modules of vkchi match this nowhere, and need not be parsed.
PARTS = [name.replace(" ", ".").split(".") for name in TESTS | LACKING]
FIRST, SECOND = ("|".join(sorted({parts[k] for parts in PARTS})) for k in (0, 1))
SUSPECT = re.compile(
    rf"\b({FIRST})\.({SECOND})\b|from ({FIRST}) import|import ({SECOND})$|hasattr\(", re.MULTILINE
)
EXPECTED = {
    "linux": "`sudo apt-get install libvulkan1 mesa-vulkan-drivers` (AMD, Intel, or no GPU)",
    "win32": "install the newest driver of your GPU's maker",
    "darwin": "install the Vulkan SDK with KosmicKrisp",
}


@pytest.fixture(params=list(platform.SYSTEMS))
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each system in turn; Linux is Debian, and the user is not root."""
    release = {"ID": "debian"}
    monkeypatch.setattr(standard_platform, "freedesktop_os_release", lambda: release)
    monkeypatch.setattr(os, "geteuid", lambda: 1000, raising=False)
    return use(request.param, monkeypatch)


def use(system: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Use the row of a system."""
    monkeypatch.setattr(platform, "SYSTEM", platform.find_system(system))
    return system


# --- one module has them all


@functools.cache
def uses() -> dict[str, list[str]]:
    """Places in all modules but `vkchi.platform`, by `module.name` and `import module`."""
    found = collections.defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path == PACKAGE / "platform.py" or not SUSPECT.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            for name in names_in(node):
                found[name].append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}")
    return found


def names_in(node: ast.AST) -> Iterator[str]:
    """`module.name` of an access or an import of a name, `import module`, `hasattr module`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield f"{node.value.id}.{node.attr}"
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Import):
        yield from (f"import {alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        yield f"{node.func.id} {ast.unparse(node.args[0])}" if node.func.id == "hasattr" else ""


@pytest.mark.parametrize("names", [TESTS, LACKING], ids=["tests", "lacking"])
def test_no_other_module_depends_on_the_system(names: set[str]) -> None:
    assert {name: uses()[name] for name in names & uses().keys()} == {}, "use vkchi.platform"


# --- no driver


def test_the_hint_fits_the_system(system: str) -> None:
    hint = platform.driver_hint()
    assert hint.startswith(EXPECTED[system])
    assert not any(EXPECTED[other] in hint for other in EXPECTED if other != system)
    assert "make " not in hint


def test_no_loader_names_the_command_of_the_system(
    system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "loader_paths", lambda: iter(["libnowhere.so"]))
    monkeypatch.delitem(sys.modules, raw.PACKAGE, raising=False)  # with its open loader
    with pytest.raises(DeviceError, match="no Vulkan loader") as caught:
        raw.load_vulkan()
    assert EXPECTED[system] in str(caught.value)


def test_no_driver_names_the_command_of_the_system(system: str) -> None:
    named = types.SimpleNamespace(elements={})
    vulkan = raw.Vulkan(types.SimpleNamespace(NULL=None, typeof=lambda name: named), None)
    with pytest.raises(raw.NoDriver, match="no Vulkan driver was found") as caught:
        vulkan.check(raw.INCOMPATIBLE_DRIVER, "starting Vulkan")
    assert EXPECTED[system] in str(caught.value)


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ({"ID": "debian"}, "apt-get install libvulkan1 mesa-vulkan-drivers"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "apt-get install libvulkan1"),
        ({"ID": "fedora"}, "dnf install vulkan-loader mesa-vulkan-drivers"),
        ({"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, "dnf install vulkan-loader"),
        ({"ID": "arch"}, "pacman -S vulkan-icd-loader"),
        ({"ID": "manjaro", "ID_LIKE": "arch"}, "pacman -S vulkan-icd-loader"),
        ({"ID": "opensuse-leap", "ID_LIKE": "suse opensuse"}, "zypper install libvulkan1"),
        ({"ID": "alpine"}, "apk add vulkan-loader"),
    ],
)
@pytest.mark.parametrize("user", [0, 1000])
def test_linux_distributions_have_their_commands(
    release: dict[str, str], command: str, user: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use("linux", monkeypatch)
    monkeypatch.setattr(standard_platform, "freedesktop_os_release", lambda: release)
    monkeypatch.setattr(os, "geteuid", lambda: user, raising=False)
    assert platform.driver_hint().startswith("`" + "sudo " * (user > 0) + command)


def test_an_unknown_distribution_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> dict[str, str]:
        raise OSError("no such file")

    use("linux", monkeypatch)
    monkeypatch.setattr(standard_platform, "freedesktop_os_release", fail)
    assert "Mesa's Vulkan drivers" in platform.driver_hint()
    monkeypatch.setattr(standard_platform, "freedesktop_os_release", lambda: {"ID": "nixos"})
    assert "Mesa's Vulkan drivers" in platform.driver_hint()
    assert "validation layers" in platform.layer_hint() and "Mesa" not in platform.layer_hint()


def test_the_commands_are_those_of_the_install_page() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    for row in platform.PACKAGES:
        assert f"`{row.install} {row.driver}`" in page
    for link in (platform.NVIDIA, platform.AMD, platform.INTEL, platform.SDK):
        assert link in page
    assert "`brew install vulkan-loader molten-vk`" in page


# --- the loader


def test_the_loader_is_searched_where_systems_keep_it(
    system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", "/conda")
    monkeypatch.setenv("VULKAN_SDK", "/sdk")
    paths = list(platform.loader_paths())
    expected = {
        "linux": ["libvulkan.so.1", "/conda/lib/libvulkan.so.1"],
        "win32": ["vulkan-1.dll", "/conda/Library/bin/vulkan-1.dll", "/sdk/Bin/vulkan-1.dll"],
    }
    if system in expected:
        assert paths == expected[system]
        return
    assert paths[0] == "/sdk/lib/libvulkan.1.dylib"
    for folder in ("/conda/lib", "/opt/homebrew/lib", "/usr/local/lib"):
        loader, driver = f"{folder}/libvulkan.1.dylib", f"{folder}/libMoltenVK.dylib"
        assert paths.index(loader) < paths.index(driver)
    monkeypatch.delenv("VULKAN_SDK")
    assert next(platform.loader_paths()) == "libvulkan.1.dylib"


@pytest.mark.parametrize("path", [r".\driver.dll", "./driver.dll", r"..\bin\driver.dll"])
def test_relative_libraries_of_manifests_have_either_separator(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "os", windows_os())
    assert platform.has_folder(path)
    assert not platform.has_folder("driver.dll")


def test_a_relative_library_is_beside_its_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "icd").mkdir()
    manifest = tmp_path / "icd" / "driver.json"
    manifest.write_text('{"ICD": {"library_path": "./driver.so"}}', encoding="utf-8")
    assert f"{tmp_path}/icd/./driver.so" in instance.find_problem(str(manifest))


# --- files


def windows_os() -> Any:
    """`os` with the paths of Windows."""
    return types.SimpleNamespace(**{**vars(os), "path": ntpath})


@pytest.mark.parametrize(
    ("wanted", "is_same"),
    [
        ("sim/step.py", True), (r"sim\step.py", True), ("SIM/Step.py", True), ("step.py", True),
        ("./step.py", True), ("ep.py", False), ("other/step.py", False),
    ],
)  # fmt: skip
def test_files_are_found_by_either_separator_and_any_case(
    wanted: str, is_same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    use("win32", monkeypatch)
    monkeypatch.setattr(platform, "os", windows_os())
    assert platform.is_same_file(r"C:\me\Sim\step.py", wanted) is is_same


def test_case_counts_on_linux_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    use("linux", monkeypatch)
    assert not platform.is_same_file("/me/Step.py", "step.py")
    assert platform.is_same_file("/me/.step.py", ".step.py")
    use("darwin", monkeypatch)
    assert platform.is_same_file("/me/Step.py", "step.py")


class Busy:
    """`os.replace` onto a file that others have open for some calls."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __call__(self, source: str, target: str) -> None:
        self.left -= 1
        if self.left >= 0:
            raise PermissionError(13, "Access is denied", target)
        os.rename(source, target)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A file, and another one to be replaced by it."""
    for name in ("new", "old"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    return str(tmp_path / "new"), str(tmp_path / "old")


def test_a_file_is_replaced_when_others_close_it(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use("win32", monkeypatch)
    monkeypatch.setattr(os, "replace", Busy(3))
    platform.replace(*files)
    assert Path(files[1]).read_text(encoding="utf-8") == "new"


def test_a_file_that_stays_open_is_not_replaced(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use("win32", monkeypatch)
    monkeypatch.setattr(os, "replace", Busy(1000))
    with pytest.raises(FileInUse, match="in use by another process"):
        platform.replace(*files)
    os.unlink(files[1])
    with pytest.raises(PermissionError, match="Access is denied"):
        platform.replace(*files)  # the folder cannot be written


def test_only_systems_that_lock_files_repeat(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use("linux", monkeypatch)
    busy = Busy(1000)
    monkeypatch.setattr(os, "replace", busy)
    with pytest.raises(PermissionError):
        platform.replace(*files)
    assert busy.left == 999


def test_dumps_and_archives_say_that_a_file_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use("win32", monkeypatch)
    monkeypatch.setattr(platform, "PAUSES_S", (0.0,))
    monkeypatch.setattr(os, "replace", Busy(1000))
    monkeypatch.setenv("VKCHI_DUMP", str(tmp_path))
    for name in ("ir.txt", "module.zip"):
        (tmp_path / name).write_text("", encoding="utf-8")
    with pytest.raises(ArgumentError, match="the file is in use by another process"):
        env.dump("VKCHI_DUMP", "ir.txt", b"")
    with pytest.raises(FileInUse, match="the file is in use by another process"):
        write_archive(str(tmp_path / "module.zip"), {})


def test_links_are_not_opened_without_the_flag(
    files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "NO_LINK", 0)
    os.symlink(files[0], tmp_path / "link")
    with pytest.raises(OSError, match="symbolic links"):
        platform.open_bytes(str(tmp_path / "link"), os.O_RDONLY)
    os.close(platform.open_bytes(files[0], os.O_RDONLY))


def test_times_are_set_where_links_are_followed(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "supports_follow_symlinks", set())
    os.utime(files[1], ns=(10**18, 10**18))
    platform.set_times(files[0], os.stat(files[1]))
    assert os.stat(files[0]).st_mtime_ns == 10**18


def test_creation_times_are_no_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    info: Any = types.SimpleNamespace(st_mtime=20.0, st_ctime=10.0)
    use("win32", monkeypatch)
    assert platform.changed_at(info) == 20.0
    use("linux", monkeypatch)
    assert platform.changed_at(info) == 10.0


# --- consoles and processes


class Console:
    """The calls of Windows' kernel32 on a console; `knows` escape sequences or not."""

    def __init__(self, knows: bool) -> None:
        self.knows, self.mode = knows, 3

    def GetConsoleMode(self, handle: Any, mode: Any) -> int:  # noqa: N802
        mode._obj.value = self.mode
        return 1

    def SetConsoleMode(self, handle: Any, mode: int) -> int:  # noqa: N802
        self.mode = mode if self.knows else self.mode
        return int(self.knows)


@pytest.mark.parametrize("knows", [False, True])
def test_consoles_are_asked_to_interpret_escapes(
    knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    use("win32", monkeypatch)
    console = Console(knows)
    monkeypatch.setattr("ctypes.WinDLL", lambda name: console, raising=False)
    made: Any = types.ModuleType("msvcrt")
    made.get_osfhandle = lambda fd: fd
    monkeypatch.setitem(sys.modules, "msvcrt", made)
    stream = types.SimpleNamespace(fileno=lambda: 2)
    assert platform.takes_escapes(stream) is knows
    assert console.mode == (7 if knows else 3)
    assert ("\x1b" in platform.clearing(stream)) is knows


def test_lines_are_cleared_by_spaces_without_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    use("win32", monkeypatch)
    monkeypatch.setitem(sys.modules, "msvcrt", None)
    assert platform.clearing(sys.stderr).strip() == ""


def test_ctrl_c_ends_with_the_status_of_the_system() -> None:
    program = "from vkchi import platform; platform.SYSTEM = platform.SYSTEMS[{!r}]; " \
        "platform.end_interrupted()"  # fmt: skip
    statuses = {
        system: subprocess.run([sys.executable, "-c", program.format(system)]).returncode
        for system in platform.SYSTEMS
    }
    assert statuses == {"linux": -2, "darwin": -2, "win32": 0xC000013A & 0xFF}  # 8 bits on Linux


def test_screens_are_taken_for_granted_on_desktops(
    system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert platform.has_screen() is (system != "linux")


def test_torch_memory_is_for_linux(system: str) -> None:
    if system != "linux":
        with pytest.raises(Unsupported, match="for Linux only, and this is (Windows|macOS)"):
            pool.torch_memory()


def test_limits_are_unknown_without_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    assert platform.limit_of("RLIMIT_AS") is None


def test_the_start_of_an_open_file_is_read_in_place(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pread", raising=False)
    with open(files[0], "rb") as file:
        assert file.read(1) == b"n"
        at = os.lseek(file.fileno(), 0, os.SEEK_CUR)
        assert platform.read_start(file.fileno(), 3) == b"new"
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == at
