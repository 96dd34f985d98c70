"""Export and import of cache entries as a tar archive, whose members are named by the entries'
keys.

Export compresses with gzip. Import rejects a member that is damaged or whose header has another
key.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zlib
from collections.abc import Sequence
from typing import BinaryIO, cast

from vkchi.cache.inspection.lookup import by_name
from vkchi.cache.store import (
    MOST_ENTRY_BYTES,
    MOST_HEADER_BYTES,
    CacheStore,
    Damaged,
    is_key,
    pack_entry,
    read_entry,
    unpack_entry,
)
from vkchi.interrupts.local import local

MOST_RATIO, LEAST_BYTES = 200, 16 << 20  # SPIR-V and JSON compress to a tenth


def pack(store: CacheStore, path: str, names: Sequence[str]) -> int:
    """Write entries to a gzip tar file at `path`; return their number.

    Written are entries whose kernel name matches one of `names` (`*` and `?` are wildcards), except
    unreadable and damaged ones. Raises OSError.
    """
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


def unpack(store: CacheStore, path: str) -> tuple[int, int]:
    """Import the entries of the tar file at `path`; return the numbers of imported and of rejected
    members.

    Raises OSError, TarError, EOFError. Raises Damaged for corrupt compressed data, a GNU sparse
    member, and sizes above the limits of `Bounded` and `Member`.
    """
    taken = refused = 0
    try:
        with open_plain(path) as plain:
            bounded = Bounded(plain, os.path.getsize(path))
            with tarfile.open(fileobj=bounded, mode="r:", tarinfo=Member) as archive:
                while (member := bounded.next_of(archive)) is not None:
                    is_entry = member.isreg() and not member.issparse() and is_key(member.name)
                    is_taken = is_entry and take(store, archive, member)
                    taken, refused = taken + is_taken, refused + (not is_taken)
                    archive.members = []  # type: ignore[attr-defined]
    except local(zlib.error, lzma.LZMAError, ValueError, OverflowError, LookupError) as e:
        raise Damaged(str(e)) from None
    return taken, refused


def take(store: CacheStore, archive: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
    """Import one entry; return False if it is damaged, under another key, or cannot be written."""
    data = archive.extractfile(member)
    try:
        header, body = unpack_entry(data.read() if data is not None else b"")
    except Damaged:
        return False
    return header.get("key") == member.name and store.put(member.name, header, body)


class Member(tarfile.TarInfo):
    """A tar member whose size is checked before its contents are read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Member:
        """Parse a tar header. Raises Damaged for a GNU sparse member, and for a size above
        MOST_ENTRY_BYTES."""
        made = super().frombuf(buf, encoding, errors)
        if made.type == tarfile.GNUTYPE_SPARSE:
            raise Damaged(f"{made.name!r} is a file with holes")
        if made.size > MOST_ENTRY_BYTES:
            raise Damaged(f"{made.name!r} has {made.size} bytes, more than an entry may have")
        return made


class Bounded(io.RawIOBase):
    """Wrapper of a decompressed file, against decompression bombs. It raises Damaged beyond
    MOST_RATIO times the packed size plus LEAST_BYTES, and for long member headers."""

    def __init__(self, plain: BinaryIO, packed_bytes: int) -> None:
        self.plain, self.most = plain, MOST_RATIO * packed_bytes + LEAST_BYTES
        self.header_bytes: int | None = 0  # since the last member; None between members

    def next_of(self, archive: tarfile.TarFile) -> tarfile.TarInfo | None:
        """Return the archive's next member, or None at its end. Raises Damaged if its headers
        exceed MOST_HEADER_BYTES."""
        self.header_bytes = 0
        found = archive.next()
        self.header_bytes = None
        return found

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.plain.tell()

    def read(self, size: int = -1) -> bytes:
        if self.header_bytes is not None:
            self.header_bytes += size
            if self.header_bytes > MOST_HEADER_BYTES or size < 0:
                raise Damaged("the header of a member is too long")
        self._check(self.plain.tell() + max(size, 0))
        return self.plain.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._check(offset)
        return self.plain.seek(offset, whence)

    def _check(self, offset: int) -> None:
        if offset > self.most:
            raise Damaged("it is packed more than entries can be")


def open_plain(path: str) -> BinaryIO:
    """Open a file for reading. Files that begin like gzip, bzip2 or xz are decompressed. Raises
    OSError."""
    with open(path, "rb") as file:
        begins = file.read(6)
    if begins.startswith(b"\x1f\x8b"):
        return cast(BinaryIO, gzip.open(path))
    if begins.startswith(b"BZh"):
        return cast(BinaryIO, bz2.open(path))
    if begins.startswith(b"\xfd7zXZ\x00"):
        return cast(BinaryIO, lzma.open(path))
    return open(path, "rb")
