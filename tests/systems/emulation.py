"""Emulation of Windows and macOS in Python on Linux, from the first import of vkchi on.

- `sys.platform`, `os.name` and `os.linesep` are the other system's.
- Modules and names that the other system lacks are removed (`missing_names`).
- Windows: open files can be neither replaced nor deleted; `os.open` without O_BINARY translates
  line ends; folders cannot be opened; `open` in vkchi writes "\\r\\n" and has another encoding.
- VULKAN_SDK is a folder with the other system's name for it.

Modules that were loaded before see everything as it was: pytest and numpy must go on. Paths remain
those of Linux; consoles, drives, and the other system's drivers are not emulated.

    scripts/as-system windows .venv/bin/python program.py
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import errno
import importlib
import importlib.abc
import os
import shutil
import stat
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from missing_names import MODULES, NAMES

PLATFORMS = {"windows": "win32", "macos": "darwin"}
LOADERS = {"windows": "Bin/vulkan-1.dll", "macos": "lib/libvulkan.1.dylib"}  # in $VULKAN_SDK
REAL_LOADER = "libvulkan.so.1"
# Libraries that act by `sys.platform` while they are imported.
LOADED_BEFORE = (
    "asyncio", "cffi", "concurrent.futures", "ctypes.util", "getpass", "glob", "hashlib",
    "importlib.metadata", "json", "logging", "multiprocessing", "numpy", "pathlib", "pickle",
    "platform", "random", "selectors", "shutil", "socket", "subprocess", "sysconfig", "tarfile",
    "tempfile", "threading", "unittest.mock", "urllib.request", "uuid", "webbrowser", "zipfile",
)  # fmt: skip
# Packages whose builds for Linux cannot be imported as on the system.
OF_LINUX = {"windows": ("torch",), "macos": ()}
# They use `type(sys)`.
UNTOUCHED = ("__main__", "importlib._bootstrap", "importlib._bootstrap_external")
O_BINARY, CTRL_Z = 0x8000_0000_0000, b"\x1a"


class Beginning(importlib.abc.MetaPathFinder):
    """Finder that begins the emulation when vkchi is imported, and finds nothing."""

    def __init__(self, system: str) -> None:
        self.system = system

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "vkchi" and self in sys.meta_path:
            sys.meta_path.remove(self)
            begin(self.system)


def begin_with_vkchi(system: str) -> None:
    """Install a finder that begins the emulation when vkchi is imported.

    Raises KeyError for an unknown system.
    """
    assert PLATFORMS[system]
    sys.meta_path.insert(0, Beginning(system))


def begin(system: str) -> None:
    """Emulate a system in this process: change `sys`, `os` and `open`, and remove names and
    modules."""
    for name in LOADED_BEFORE:
        importlib.import_module(name)
    changed = {
        "sys": {"platform": PLATFORMS[system]},
        "os": windows_files() if system == "windows" else {},
    }
    link_loader(LOADERS[system])
    removed = NAMES[system]
    proxies = {
        name: Unchanged(sys.modules[name], {*changed.get(name, ()), *removed.get(name, ())})
        for name in {*changed, *removed}
        if name in sys.modules
    }
    show_to_loaded_modules(proxies)
    for name, names in removed.items():
        for missing in names:
            if name in sys.modules and hasattr(sys.modules[name], missing):
                delattr(sys.modules[name], missing)
    for name, values in changed.items():
        for key, value in values.items():
            setattr(sys.modules[name], key, value)
    for name in MODULES[system]:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in OF_LINUX[system]:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    if system == "windows":
        builtins.open = open_as_windows(builtins.open)


class Unchanged(types.ModuleType):
    """Proxy of a module in which names that are removed or replaced keep their old values."""

    def __init__(self, module: types.ModuleType, names: set[str]) -> None:
        super().__init__(module.__name__)
        old = {name: vars(module)[name] for name in names if name in vars(module)}
        vars(self).update(old, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_module"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(vars(self)["_module"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(vars(self)["_module"], name)


def show_to_loaded_modules(proxies: dict[str, Unchanged]) -> None:
    """Replace the modules by their proxies in the globals of the loaded modules."""
    by_id = {id(sys.modules[name]): proxy for name, proxy in proxies.items()}
    for module in list(sys.modules.values()):
        if type(module) is types.ModuleType and module.__name__ not in UNTOUCHED:
            for name, value in list(vars(module).items()):
                if id(value) in by_id and module is not value:
                    vars(module)[name] = by_id[id(value)]


def link_loader(name: str) -> None:
    """Link the Vulkan loader into a new folder under the system's name; set VULKAN_SDK to the
    folder."""
    ctypes.CDLL(REAL_LOADER)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        path = next(line.split()[-1] for line in maps if "/libvulkan.so" in line)
    folder = tempfile.mkdtemp(prefix="vkchi-sdk-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    link = os.path.join(folder, name)
    os.mkdir(os.path.dirname(link))
    os.symlink(path, link)
    os.environ["VULKAN_SDK"] = folder


# --- files of Windows ----------------------------------------------------------------------------


def windows_files() -> dict[str, Any]:
    """Functions of `os` as on Windows, by name."""
    texts: set[int] = set()  # descriptors in text mode

    def opened(path: Any, flags: int, mode: int = 0o777, **kwargs: Any) -> int:
        if not isinstance(path, int) and os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        fd = real["open"](path, flags & ~O_BINARY, mode, **kwargs)
        if not flags & O_BINARY:
            texts.add(fd)
        return fd

    def read(fd: int, count: int) -> bytes:
        data: bytes = real["read"](fd, count)
        return data.partition(CTRL_Z)[0].replace(b"\r\n", b"\n") if fd in texts else data

    def write(fd: int, data: Any) -> int:
        if fd not in texts:
            return int(real["write"](fd, data))
        real["write"](fd, bytes(data).replace(b"\n", b"\r\n"))
        return len(data)

    def close(fd: int) -> None:
        texts.discard(fd)
        real["close"](fd)

    def utime(path: Any, *args: Any, follow_symlinks: bool = True, **kwargs: Any) -> None:
        if not follow_symlinks:
            raise NotImplementedError("utime: follow_symlinks unavailable on this platform")
        real["utime"](path, *args, **kwargs)

    names = ("open", "read", "write", "close", "utime")
    real = {name: getattr(os, name) for name in names}
    return {
        "name": "nt", "linesep": "\r\n", "O_BINARY": O_BINARY, "O_NOINHERIT": 0x80,
        "supports_follow_symlinks": {os.stat}, "supports_dir_fd": set(), "supports_fd": {os.stat},
        "open": opened, "read": read, "write": write, "close": close, "utime": utime,
        **{name: locking(getattr(os, name)) for name in ("replace", "rename", "unlink", "remove")},
    }  # fmt: skip


def locking(act: Callable[..., None]) -> Callable[..., None]:
    """A function of `os` that raises PermissionError if a file in its arguments is open here."""

    @wraps(act)
    def acting(*paths: Any, **kwargs: Any) -> None:
        for path in paths:
            if is_open(path):
                raise PermissionError(errno.EACCES, "The process cannot access the file", path)
        act(*paths, **kwargs)

    return acting


def is_open(path: Any) -> bool:
    """True if this process has a regular file open."""
    try:
        wanted = os.lstat(path)
    except OSError:
        return False
    if not stat.S_ISREG(wanted.st_mode):
        return False
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.path.samestat(os.fstat(int(fd)), wanted):
                return True
        except OSError:  # closed in the meantime
            continue
    return False


def open_as_windows(real: Callable[..., Any]) -> Callable[..., Any]:
    """`open` whose callers in vkchi get the encoding and the line ends of Windows."""

    @wraps(real)
    def opening(
        file: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None,
        errors: str | None = None, newline: str | None = None, *args: Any, **kwargs: Any,
    ) -> Any:  # fmt: skip
        if "b" not in mode and is_called_by("vkchi"):
            encoding = encoding or "cp1252"
            newline = "\r\n" if newline is None and set(mode) & set("wax") else newline
        return real(file, mode, buffering, encoding, errors, newline, *args, **kwargs)

    return opening


def is_called_by(package: str) -> bool:
    """True if the caller's caller is a module of a package."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).split(".")[0] == package


def main(argv: Sequence[str]) -> None:
    """Print the names in NAMES that this Python's modules do not have."""
    for system, modules in NAMES.items():
        for name, names in modules.items():
            try:
                module = importlib.import_module(name)
            except ImportError:
                continue
            absent = [each for each in names if not hasattr(module, each)]
            print(system, name, *absent)


if __name__ == "__main__":
    main(sys.argv[1:])
