"""Files of a saved module: a folder or one zip archive, with SHA-256 checksums.

Example:

    write_folder("steps", {"module.json": b"{}"}); read_files("steps")["module.json"]
"""

from __future__ import annotations

import hashlib
import os

from vkchi import platform
from vkchi.errors import ModuleError
from vkchi.interrupts.local import local, suppress

SUMS = "SHA256SUMS"  # in the format of `sha256sum -c`
CONTENT = "__content__"  # identifies a module: every one has this file
MOST_BYTES = 1 << 30
WHEN = (2000, 1, 1, 0, 0, 0)  # a fixed time, so that archives are reproducible


def checksum_file(files: dict[str, bytes]) -> bytes:
    """Return a checksum file: a line with SHA-256 and name per file."""
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items()]
    return "".join(lines).encode()


def write_folder(folder: str, files: dict[str, bytes]) -> None:
    """Write files and their checksums into a folder, created if needed.

    Files of an older module in it, those in its checksum file, are deleted. Raises OSError, and
    ModuleError if the folder has a checksum file that is not a module's.
    """
    os.makedirs(folder, exist_ok=True)
    sums = os.path.join(folder, SUMS)
    if os.path.isfile(sums):
        names = checksummed_names(read_bytes(sums))
        if CONTENT not in names:
            raise ModuleError(
                f"{sums} belongs to other files, not to a saved module: save into another folder"
            )
        for name in names:
            if name not in files and is_plain_file_name(name):
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, name))
        os.unlink(sums)  # an incomplete module has no checksums
    for name, data in {**files, SUMS + ".part": checksum_file(files)}.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
    platform.replace(sums + ".part", sums)


def write_archive(path: str, files: dict[str, bytes]) -> None:
    """Write files and their checksums into one zip archive, replacing `path`. Raises OSError."""
    import zipfile  # lazy: only for archives

    part = path + ".part"
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**files, SUMS: checksum_file(files)}.items():
            archive.writestr(zipfile.ZipInfo(name, WHEN), data)
    platform.replace(part, path)


def read_files(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """Return the files of a module by name. Raises ModuleError if there is no module, or if a file
    is missing, damaged or cannot be read."""
    place = os.fspath(path)
    if not os.path.exists(place):
        raise ModuleError(f"there is no module at {place}")
    is_folder = os.path.isdir(place)
    if is_folder and not os.path.isfile(os.path.join(place, SUMS)):
        raise ModuleError(f"{place} is no module: it has no {SUMS}")
    try:
        return verify_checksums(read_folder(place) if is_folder else read_archive(place))
    except ModuleError as e:
        raise ModuleError(f"{place} is damaged: {e}") from None
    except local(OSError) as e:
        raise ModuleError(f"{place} cannot be read: {e}") from None
    except local(Exception):  # zipfile does not document its errors for corrupt archives
        raise ModuleError(f"{place} is damaged or is not a module") from None


def read_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def read_folder(folder: str) -> dict[str, bytes]:
    """Return the checksum file, and the files it names that exist directly in `folder`."""
    found = {SUMS: read_bytes(os.path.join(folder, SUMS))}
    for name in checksummed_names(found[SUMS]):
        path = os.path.join(folder, name)
        if is_plain_file_name(name) and os.path.isfile(path):
            found[name] = read_bytes(path)
    return found


def read_archive(path: str) -> dict[str, bytes]:
    """Return the files in an archive. Raises ModuleError for more than MOST_BYTES of contents, and
    zipfile's errors."""
    import zipfile

    with zipfile.ZipFile(path) as archive:
        if sum(info.file_size for info in archive.infolist()) > MOST_BYTES:
            raise ModuleError("it is too large")
        return {name: archive.read(name) for name in archive.namelist()}


def verify_checksums(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files that the checksum file names. Removes the checksum file from `files`. Raises
    ModuleError if it or a named file is missing, or a checksum differs."""
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


def checksummed_names(sums: bytes) -> list[str]:
    lines = sums.decode(errors="replace").splitlines()
    return [line.partition("  ")[2] for line in lines]


def is_plain_file_name(name: str) -> bool:
    """True if the name contains no path, so that the file is directly in the folder."""
    return bool(name) and name not in (".", "..") and not set(name) & {"/", "\\", "\0"}
