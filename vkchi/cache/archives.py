"""Entries as one file, to ship with a program: a tar archive, an entry's bytes under its key.

Owns: writing and reading them; what is not whole, or not under its own key, is not taken. Must not
know: what entries mean, the command line.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence

from vkchi.cache.lookup import by_name
from vkchi.cache.store import Damaged, Store, is_key, pack_entry, read_entry, unpack_entry
from vkchi.interrupts.local import local


def pack(store: Store, path: str, names: Sequence[str]) -> int:
    """Write the entries of kernels of these names (`*` is any) to a file; how many. Raises
    OSError."""
    count = 0
    with tarfile.open(path, "w:gz") as archive:
        for entry in by_name(store, *names):
            try:
                data = pack_entry(*read_entry(store.path_of(entry.key)))
            except local(OSError, Damaged):
                continue
            info = tarfile.TarInfo(entry.key)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
            count += 1
    return count


def unpack(store: Store, path: str) -> tuple[int, int]:
    """Take the entries of a file; how many were, and how many were refused. Raises OSError,
    TarError, EOFError."""
    taken = refused = 0
    with tarfile.open(path, "r:*") as archive:
        for member in archive:
            is_taken = member.isreg() and is_key(member.name) and take(store, archive, member)
            taken, refused = taken + is_taken, refused + (not is_taken)
    return taken, refused


def take(store: Store, archive: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
    """Put one entry of an archive on the shelf; whether it is whole, and under its own key."""
    data = archive.extractfile(member)
    try:
        header, body = unpack_entry(data.read() if data is not None else b"")
    except Damaged:
        return False
    return header.get("key") == member.name and store.put(member.name, header, body)
