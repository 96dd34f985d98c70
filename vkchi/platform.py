"""Differences between operating systems: one row of SYSTEMS per system, and the functions on it.

Covers flags and sharing of files, owners, exit statuses, consoles, the Vulkan loader, and commands
that install drivers. No other module tests the system: `tests/unit/test_platform.py` checks that.

The rows for Windows and macOS were emulated on Linux (`tests/systems`), and never run there.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, TypeVar

from vkchi.interrupts.local import local, suppress
from vkchi.tuples import NamedTuple

T = TypeVar("T")

# Pages on which drivers are found.
SDK = "https://vulkan.lunarg.com/sdk/home"
NVIDIA, AMD = "https://www.nvidia.com/drivers", "https://www.amd.com/support"
INTEL = "https://www.intel.com/content/www/us/en/support/detect.html"


class System(NamedTuple):
    """Properties of an operating system.

    - loader: paths of the Vulkan loader, in order. Plain names are found by the dynamic linker.
      `$PREFIX` is the folder of this Python, `$VULKAN_SDK` the environment variable.
    - is_linux: Linux or a system like it, with its packages and its C compilers.
    - handles: kind of the handles by which memory is shared, in names of Vulkan extensions.
    - cache: environment variable with the user's cache folder, or "", and its path below the home.
    - locks_open_files: open files can be neither replaced nor deleted.
    - has_creation_time: `st_ctime` is the time of creation.
    - has_screen: there is a screen, whatever the environment says.
    - has_consoles: consoles interpret escape sequences only after a system call.
    - ignores_case: file names that differ in case alone are usually the same.
    - interrupted: exit status after Ctrl-C; None: the signal itself ends the process.
    - driver, layer, nvidia: advice to install a Vulkan driver, the validation layer, and NVIDIA's
      Vulkan driver. `{install}` is a command of PACKAGES.
    """

    name: str
    loader: tuple[str, ...]
    driver: str
    layer: str
    nvidia: str = f"install the newest driver: {NVIDIA}"
    is_linux: bool = False
    handles: str = "fd"
    cache: tuple[str, ...] = ("XDG_CACHE_HOME", ".cache")
    locks_open_files: bool = False
    has_creation_time: bool = False
    has_screen: bool = False
    has_consoles: bool = False
    ignores_case: bool = False
    interrupted: int | None = None


# Keys: `sys.platform`. Other systems count as Linux. Sources: loader: Vulkan-Loader,
# docs/LoaderInterfaceArchitecture.md, and the package layouts of LunarG's SDK, Homebrew and conda;
# cache folders: XDG Base Directory Specification, the package platformdirs; exit status: CPython,
# Modules/main.c, `exit_sigint`; others: Python's documentation of `os` and `stat`.
LINUX = "linux"
SYSTEMS = {
    LINUX: System(
        "Linux",
        ("libvulkan.so.1", "$PREFIX/lib/libvulkan.so.1"),
        driver=f"{{install}} (AMD, Intel, or no GPU), or NVIDIA's driver ({NVIDIA})",
        layer="{install}",
        is_linux=True,
        nvidia="install NVIDIA's Vulkan driver (libnvidia-gl); in a container: "
        "NVIDIA_DRIVER_CAPABILITIES=all",
    ),
    "win32": System(
        "Windows",
        ("vulkan-1.dll", "$PREFIX/Library/bin/vulkan-1.dll", "$VULKAN_SDK/Bin/vulkan-1.dll"),
        driver=f"install the newest driver of your GPU's maker: {NVIDIA}, {AMD} or {INTEL}; "
        "without a GPU: lavapipe (https://github.com/pal1000/mesa-dist-win)",
        layer=f"install the Vulkan SDK ({SDK})",
        handles="win32",
        cache=("LOCALAPPDATA", "AppData", "Local"),
        locks_open_files=True,
        has_creation_time=True,
        has_screen=True,
        has_consoles=True,
        ignores_case=True,
        interrupted=0xC000013A - (1 << 32),  # STATUS_CONTROL_C_EXIT as a C int
    ),
    "darwin": System(
        "macOS",
        (
            "$VULKAN_SDK/lib/libvulkan.1.dylib", "libvulkan.1.dylib", "libvulkan.dylib",
            "$PREFIX/lib/libvulkan.1.dylib", "/opt/homebrew/lib/libvulkan.1.dylib",
            "/usr/local/lib/libvulkan.1.dylib",
            # The driver without the loader in front of it.
            "$VULKAN_SDK/lib/libMoltenVK.dylib", "libMoltenVK.dylib",
            "$PREFIX/lib/libMoltenVK.dylib", "/opt/homebrew/lib/libMoltenVK.dylib",
            "/usr/local/lib/libMoltenVK.dylib",
        ),
        driver=f"install the Vulkan SDK with KosmicKrisp ({SDK}#mac), or "
        "`brew install vulkan-loader molten-vk`",
        layer="`brew install vulkan-validationlayers`",
        cache=("", "Library", "Caches"),
        has_screen=True,
        ignores_case=True,
    ),
}  # fmt: skip


def find_system(name: str) -> System:
    """Return the row of a `sys.platform`; that of Linux for unknown systems."""
    return SYSTEMS.get(name, SYSTEMS[LINUX])


SYSTEM = find_system(sys.platform)


# --- files ---------------------------------------------------------------------------------------

# Flags of `os.open`; 0 where a system lacks one.
BYTES = getattr(os, "O_BINARY", 0)
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # an open of a pipe returns at once
PAUSES_S = (0.001, 0.002, 0.004, 0.008, 0.016)  # between tries, where open files are locked


class FileInUse(PermissionError):
    """Error: a file cannot be replaced, because a process has it open."""


def open_bytes(path: str, flags: int) -> int:
    """Open the file `path` as `os.open` with these flags; new files are private (mode 600).

    Raises OSError, also for a symbolic link.
    """
    if not NO_LINK and os.path.islink(path):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return os.open(path, flags | BYTES | NO_LINK | NO_WAIT, 0o600)


def read_start(descriptor: int, size: int) -> bytes:
    """Return the first bytes of an open file, and keep its position. Raises OSError."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, 0)
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        return os.read(descriptor, size)
    finally:
        os.lseek(descriptor, position, os.SEEK_SET)


def replace(source: str, target: str) -> None:
    """Rename a file, replacing `target`. Raises OSError; FileInUse if `target` stays open."""
    try:
        retry(lambda: os.replace(source, target))
    except PermissionError as e:
        if SYSTEM.locks_open_files and os.path.lexists(target):
            raise FileInUse(e.errno, "the file is in use by another process", target) from None
        raise


def sync_folder(path: str) -> None:
    """Write a folder's entries to the disk, where the system opens folders."""
    if not SYSTEM.locks_open_files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def retry(act: Callable[[], T]) -> T:
    """Return `act()`. After a PermissionError, where other processes lock files, sleep and repeat
    it up to five times."""
    for pause_s in PAUSES_S if SYSTEM.locks_open_files else ():
        try:
            return act()
        except PermissionError:
            time.sleep(pause_s)
    return act()


def set_times(path: str, times: os.stat_result) -> None:
    """Set a file's access and modification times to those of `times`. Raises OSError."""
    ns = (times.st_atime_ns, times.st_mtime_ns)
    if os.utime in os.supports_follow_symlinks:
        os.utime(path, ns=ns, follow_symlinks=False)
    else:
        os.utime(path, ns=ns)


def changed_at(info: os.stat_result) -> float:
    """Return the time of the last change of a file's content or status."""
    return max(info.st_mtime, info.st_ctime) if SYSTEM.has_creation_time else info.st_ctime


def is_of_others(info: os.stat_result) -> bool:
    """True if a file belongs to another user; False on systems without owners in `os.stat`."""
    return hasattr(os, "geteuid") and info.st_uid != os.geteuid()


def is_open_to_others(info: os.stat_result) -> bool:
    """True if a file's group or all users may write to it; False on systems without owners."""
    return hasattr(os, "geteuid") and bool(info.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def find_cache_folder() -> str:
    """Return the folder in which programs of the user keep their caches."""
    variable, *parts = SYSTEM.cache
    given = os.environ.get(variable, "")
    return given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), *parts)


def is_same_file(path: str, wanted: str) -> bool:
    """True if `path` is the absolute path of `wanted`, or ends with the components of `wanted`.

    Both are compared after `fold`.
    """
    path, end = fold(path), fold(os.path.normpath(wanted))
    return path == fold(os.path.abspath(wanted)) or path.endswith(fold("/") + end)


def fold(path: str) -> str:
    """Return `path` with the system's separators, lower case where the system ignores case."""
    path = os.path.normcase(path)
    return path.lower() if SYSTEM.ignores_case else path


def has_folder(path: str) -> bool:
    """True if `path` has a directory part before the file name."""
    return os.path.dirname(path) != ""


# --- processes -----------------------------------------------------------------------------------


def at_fork(
    *, before: Callable[[], object] | None = None, in_child: Callable[[], object] | None = None
) -> None:
    """Register functions for forks of this process; no effect where processes cannot fork."""
    if not hasattr(os, "register_at_fork"):
        return
    if before is not None:
        os.register_at_fork(before=before)
    if in_child is not None:
        os.register_at_fork(after_in_child=in_child)


def end_interrupted() -> None:
    """Flush stdout and stderr, and end the process with the status of an uncaught Ctrl-C.

    Call it in the main thread.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    if SYSTEM.interrupted is not None:
        os._exit(SYSTEM.interrupted)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)
    os._exit(128 + signal.SIGINT)


def count_processors() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def end_with_parent() -> None:
    """Let SIGTERM end this process when its parent ends, where the system can do that.

    For workers of torchrun: they would survive a launcher that was killed.
    """
    if SYSTEM.is_linux and "TORCHELASTIC_RUN_ID" in os.environ:
        import ctypes  # 2 ms

        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, int(signal.SIGTERM))


def limit_of(name: str) -> int | None:
    """Return this process's limit of a resource, such as `RLIMIT_AS`; None if it has none."""
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    allowed, _ = resource.getrlimit(getattr(resource, name))
    return None if allowed == resource.RLIM_INFINITY else int(allowed)


def find_mapped_file(address: int) -> tuple[int, int] | None:
    """Return an open descriptor of the file mapped at an address, and the position mapped there.

    None if no open file is mapped there, and on systems without `/proc`.
    """
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            rows = [line.split(maxsplit=5) for line in maps]
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    except local(OSError):
        return None
    for ends, _, offset, device, inode, *_ in rows:
        start, end = [int(digits, 16) for digits in ends.split("-")]
        if start <= address < end:
            of_file = [int(digits, 16) for digits in device.split(":")], int(inode)
            for descriptor in descriptors:
                with suppress(OSError):
                    found = os.fstat(descriptor)
                    numbers = [os.major(found.st_dev), os.minor(found.st_dev)]
                    if (numbers, found.st_ino) == of_file:
                        return descriptor, int(offset, 16) + address - start
    return None


def find_machine() -> str:
    """Return the name of the CPU's architecture; "" if unknown."""
    if hasattr(os, "uname"):
        return os.uname().machine
    return os.environ.get("PROCESSOR_ARCHITECTURE", "")


def describe() -> str:
    """Return the system's name and version."""
    import platform

    return platform.platform()


# --- screens and consoles ------------------------------------------------------------------------


def has_screen() -> bool:
    """True on Windows and macOS; elsewhere if `DISPLAY` or `WAYLAND_DISPLAY` is set."""
    return SYSTEM.has_screen or any(os.environ.get(k) for k in ("DISPLAY", "WAYLAND_DISPLAY"))


def takes_escapes(stream: Any) -> bool:
    """True if the terminal `stream` interprets escape sequences. Enables them on a Windows console.

    Source: Microsoft, "Console Virtual Terminal Sequences". Consoles before Windows 10 lack them.
    """
    if not SYSTEM.has_consoles:
        return True
    import ctypes  # 2 ms

    enable = 4  # ENABLE_VIRTUAL_TERMINAL_PROCESSING
    try:
        system: Any = ctypes
        handle = ctypes.c_void_p(import_module("msvcrt").get_osfhandle(stream.fileno()))
        calls, mode = system.WinDLL("kernel32"), ctypes.c_uint32()
        return bool(
            calls.GetConsoleMode(handle, ctypes.byref(mode))
            and calls.SetConsoleMode(handle, mode.value | enable)
        )
    except local(ImportError, AttributeError, OSError, ValueError):
        return False


def clearing(stream: Any) -> str:
    """Return the characters that erase the cursor's line on the terminal `stream`."""
    return "\r\x1b[K" if takes_escapes(stream) else f"\r{' ' * 79}\r"


# --- Vulkan --------------------------------------------------------------------------------------


class Packages(NamedTuple):
    """Packages of a Linux distribution: names in /etc/os-release, command, packages."""

    distributions: tuple[str, ...]
    install: str
    driver: str
    validation: str


PACKAGES = (
    Packages(
        ("debian", "ubuntu"), "apt-get install", "libvulkan1 mesa-vulkan-drivers",
        "vulkan-validationlayers",
    ),
    Packages(
        ("fedora", "rhel", "centos"), "dnf install", "vulkan-loader mesa-vulkan-drivers",
        "vulkan-validation-layers",
    ),
    Packages(
        ("arch",), "pacman -S", "vulkan-icd-loader vulkan-radeon vulkan-intel vulkan-swrast",
        "vulkan-validation-layers",
    ),
    Packages(
        ("suse", "opensuse"), "zypper install",
        "libvulkan1 libvulkan_radeon libvulkan_intel libvulkan_lvp", "vulkan-validationlayers",
    ),
    Packages(
        ("alpine",), "apk add", "vulkan-loader mesa-vulkan-ati mesa-vulkan-intel "
        "mesa-vulkan-swrast", "vulkan-validation-layers",
    ),
)  # fmt: skip


def loader_paths() -> Iterator[str]:
    """Yield the names and paths of the Vulkan loader, in the order in which to try them.

    Paths below an unset VULKAN_SDK are left out.
    """
    known = {"PREFIX": sys.prefix, "VULKAN_SDK": os.environ.get("VULKAN_SDK", "")}
    for path in SYSTEM.loader:
        if not path.startswith("$"):
            yield path
            continue
        variable, _, rest = path[1:].partition("/")
        if known[variable]:
            yield os.path.join(known[variable], *rest.split("/"))


def find_packages() -> Packages | None:
    """Return the packages of this Linux distribution; None if it is unknown."""
    import platform

    try:
        found = platform.freedesktop_os_release()
    except local(OSError):
        return None
    names = [found.get("ID", ""), *found.get("ID_LIKE", "").split()]
    names += [name.partition("-")[0] for name in names]  # opensuse-leap
    rows = (row for name in names for row in PACKAGES if name in row.distributions)
    return next(rows, None)


def driver_hint() -> str:
    """Advice that names the command or the page for a Vulkan driver on this system."""
    return SYSTEM.driver.format(install=install_command("driver"))


def layer_hint() -> str:
    """Advice that names the command or the page for Khronos' validation layer."""
    return SYSTEM.layer.format(install=install_command("validation"))


UNKNOWN = {
    "driver": "install the packages of Mesa's Vulkan drivers and of the loader",
    "validation": "install the package of Khronos' validation layers",
}  # advice on distributions that are not in PACKAGES


def install_command(what: str) -> str:
    """Return, in backquotes, the command that installs the packages in field `what` of Packages.

    It begins with sudo, unless this user is root. A sentence of advice on unknown systems.
    """
    packages = find_packages() if SYSTEM.is_linux else None
    if packages is None:
        return UNKNOWN[what]
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    names = getattr(packages, what)
    return f"`{'' if is_root else 'sudo '}{packages.install} {names}`"
