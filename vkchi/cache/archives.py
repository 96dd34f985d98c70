"""Entries as one file, to ship with a program: a tar archive, an entry's bytes under its key.

Owns: writing and reading them; what is not whole, or not under its own key, is not taken. Must not
know: what entries mean, the command line.
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

from vkchi.cache.lookup import by_name
from vkchi.cache.store import (
    MOST_ENTRY_BYTES,
    MOST_HEADER_BYTES,
    Damaged,
    Store,
    is_key,
    pack_entry,
    read_entry,
    unpack_entry,
)
from vkchi.interrupts.local import local

MOST_RATIO, LEAST_BYTES = 200, 16 << 20  # SPIR-V and JSON become a tenth


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
    TarError, EOFError; Damaged for an archive that would take much memory."""
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


def take(store: Store, archive: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
    """Put one entry of an archive on the shelf; whether it is whole, and under its own key."""
    data = archive.extractfile(member)
    try:
        header, body = unpack_entry(data.read() if data is not None else b"")
    except Damaged:
        return False
    return header.get("key") == member.name and store.put(member.name, header, body)


class Member(tarfile.TarInfo):
    """A member whose size is checked before anything of it is read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Member:
        """The member of a header. Raises Damaged."""
        made = super().frombuf(buf, encoding, errors)
        if made.type == tarfile.GNUTYPE_SPARSE:
            raise Damaged(f"{made.name!r} is a file with holes")
        if made.size > MOST_ENTRY_BYTES:
            raise Damaged(f"{made.name!r} has {made.size} bytes, more than an entry may have")
        return made


class Bounded(io.RawIOBase):
    """A decompressed file, of which no more is read than a whole archive can have."""

    def __init__(self, plain: BinaryIO, packed_bytes: int) -> None:
        self.plain, self.most = plain, MOST_RATIO * packed_bytes + LEAST_BYTES
        self.header_bytes: int | None = 0  # read since the last member; None between members

    def next_of(self, archive: tarfile.TarFile) -> tarfile.TarInfo | None:
        """The next member. Raises Damaged for headers that are too long."""
        self.header_bytes = 0
        found = archive.next()
        self.header_bytes = None
        return found

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The offset."""
        return self.plain.tell()

    def read(self, size: int = -1) -> bytes:
        """Some bytes. Raises Damaged beyond the limits."""
        if self.header_bytes is not None:
            self.header_bytes += size
            if self.header_bytes > MOST_HEADER_BYTES or size < 0:
                raise Damaged("the header of a member is too long")
        self._check(self.plain.tell() + max(size, 0))
        return self.plain.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to an offset. Raises Damaged beyond the limit."""
        self._check(offset)
        return self.plain.seek(offset, whence)

    def _check(self, offset: int) -> None:
        if offset > self.most:
            raise Damaged("it is packed more than entries can be")


def open_plain(path: str) -> BinaryIO:
    """A file without its compression. Raises OSError."""
    with open(path, "rb") as file:
        begins = file.read(6)
    if begins.startswith(b"\x1f\x8b"):
        return cast(BinaryIO, gzip.open(path))
    if begins.startswith(b"BZh"):
        return cast(BinaryIO, bz2.open(path))
    if begins.startswith(b"\xfd7zXZ\x00"):
        return cast(BinaryIO, lzma.open(path))
    return open(path, "rb")
