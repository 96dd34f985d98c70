"""The files of a saved module: a folder, or all of them in one archive, with the sum of each.

Owns: how they are written and read, and that what is read is what was written. Must not know: what
stands in them.

    write_folder("steps", {"module.json": b"{}"}); read_files("steps")["module.json"]
"""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
import zlib
from pathlib import Path

from vkchi.errors import ModuleError

# What reading an archive raises where bytes are wrong, encryption and compressions among it.
BROKEN = (
    zipfile.BadZipFile, EOFError, KeyError, ValueError, RuntimeError, struct.error, zlib.error,
)  # fmt: skip
SUMS = "SHA256SUMS"  # as `sha256sum -c` reads it
MOST_BYTES = 1 << 30
WHEN = (2000, 1, 1, 0, 0, 0)  # archives of equal modules are equal


def sums_of(files: dict[str, bytes]) -> bytes:
    """A line for each file: its SHA-256 and its name."""
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items()]
    return "".join(lines).encode()


def write_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Write files into a folder, which is made, and drop those of the module that was there."""
    folder.mkdir(parents=True, exist_ok=True)
    old = folder / SUMS
    if old.is_file():
        for name in names_in(old.read_bytes()):
            if name not in files and is_plain(name):
                (folder / name).unlink(missing_ok=True)
        old.unlink()  # what is half written has no sums
    for name, data in files.items():
        (folder / name).write_bytes(data)
    part = folder / (SUMS + ".part")
    part.write_bytes(sums_of(files))
    os.replace(part, old)


def write_archive(path: Path, files: dict[str, bytes]) -> None:
    """Write files into one archive."""
    part = path.with_name(path.name + ".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**files, SUMS: sums_of(files)}.items():
            archive.writestr(zipfile.ZipInfo(name, WHEN), data)
    os.replace(part, path)


def read_files(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """The files of a module by name. Raises ModuleError where one is missing or damaged."""
    place = Path(path)
    if not place.exists():
        raise ModuleError(f"there is no module at {place}")
    if place.is_dir() and not (place / SUMS).is_file():
        raise ModuleError(f"{place} is no module: it has no {SUMS}")
    try:
        return checked(read_folder(place) if place.is_dir() else read_archive(place))
    except ModuleError as e:
        raise ModuleError(f"{place} is damaged: {e}") from None
    except (OSError, *BROKEN) as e:
        raise ModuleError(f"{place} cannot be read: {e}") from None


def read_folder(folder: Path) -> dict[str, bytes]:
    """The files that the sums name, and the sums."""
    sums = (folder / SUMS).read_bytes()
    found = {name: folder / name for name in names_in(sums) if is_plain(name)}
    return {SUMS: sums, **{name: p.read_bytes() for name, p in found.items() if p.is_file()}}


def read_archive(path: Path) -> dict[str, bytes]:
    """The files in an archive. Raises BadZipFile, ModuleError."""
    with zipfile.ZipFile(path) as archive:
        if sum(info.file_size for info in archive.infolist()) > MOST_BYTES:
            raise ModuleError("it is too large")
        return {name: archive.read(name) for name in archive.namelist()}


def checked(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files without their sums. Raises ModuleError where these do not say so."""
    sums = files.pop(SUMS, None)
    if sums is None:
        raise ModuleError(f"it has no {SUMS}")
    lines = dict(line.split("  ", 1)[::-1] for line in sums.decode().splitlines())
    for name, expected in lines.items():
        if name not in files:
            raise ModuleError(f"{name} is missing")
        if hashlib.sha256(files[name]).hexdigest() != expected:
            raise ModuleError(f"the sum of {name} is wrong")
    return {name: files[name] for name in lines}


def names_in(sums: bytes) -> list[str]:
    """The names of the files that a text of sums has."""
    lines = sums.decode(errors="replace").splitlines()
    return [line.partition("  ")[2] for line in lines]


def is_plain(name: str) -> bool:
    """Whether a file of this name stands in the folder itself."""
    return bool(name) and name not in (".", "..") and not set(name) & {"/", "\\", "\0"}
