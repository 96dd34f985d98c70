"""Entries on disk: bytes by key, each in a file of its own that is right or not there.

Owns: the folder, the form of files, checks, which entries go when there are too many. Must not
know: what entries mean, the compiler (the command line lists entries without it).

    FOLDER/1/<key>        magic, sizes, SHA-256 of the rest, a header (JSON), a body
    FOLDER/1/<key>.hits   a byte for each time that the entry was used; its time is that of the last
    FOLDER/1/.part-*      what is being written; renamed when it is whole
    FOLDER/1/.<name>      a note, of which nothing depends but time

Files are written whole to another name, synced and renamed: readers find an entry or none. What is
read is checked against its sum; a bad entry is removed, and counts as none. The folder is the
user's own and closed to others; no link is followed in it. Whatever goes wrong, callers get None
and the user one warning: the cache never stops a program.

sqlite3 (and diskcache, which stands on it), lmdb and one archive for all were considered: one
flipped bit, a full disk or a writer that is killed then costs every entry, or an exception in
another process; diskcache unpickles what it finds. Files lose one entry at most.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import time
import warnings
from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any

from vkchi.errors import CacheWarning
from vkchi.interrupts.local import local, make_folders, suppress

# hashlib loads OpenSSL, 2.5 ms, for what is some 100 KiB in a process. Source: Python's `random`.
try:
    from _sha2 import sha256  # type: ignore[import-not-found]
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]
    except ImportError:
        from hashlib import sha256
from vkchi.tuples import NamedTuple

FORMAT = "1"
MAGIC = b"VKCHI\x00" + FORMAT.encode() + b"\n"
HEAD = struct.Struct(f"<{len(MAGIC)}sIQ32s")
KEY_CHARACTERS = frozenset("0123456789abcdef")
KEY_LENGTH = 64
PART, HITS = ".part-", ".hits"
PART_LIFE_S = 3600.0  # what was being written so long ago was left by a process that was killed
MOST_HEADER_BYTES, MOST_BODY_BYTES = 1 << 20, 1 << 28
MOST_ENTRY_BYTES = HEAD.size + MOST_HEADER_BYTES + MOST_BODY_BYTES
MOST_NOTE_BYTES = 4096
# What those who show entries may count on, whoever wrote them: archives come from others.
FIELDS: dict[str, type | tuple[type, ...]] = {
    "kind": str, "name": str, "place": str, "signature": str, "device": str, "version": str,
    "seconds": (int, float), "spirv_bytes": int, "parts": dict,
}  # fmt: skip
MOST_FILES = 20_000
WRITES_BETWEEN_CLEANINGS = 64


class Limits(NamedTuple):
    """When entries go, and how many: Taichi's `offline_cache_*` options. policy: `never`, `version`
    (those of other versions), `lru` (least recently used) or `fifo` (oldest first)."""

    policy: str = "lru"
    most_bytes: int = 100 << 20
    factor: float = 0.25
    most_files: int = MOST_FILES


USUAL = Limits()


class Entry(NamedTuple):
    """What `ls` shows of an entry: times are seconds since 1970."""

    key: str
    header: dict[str, Any]
    size_bytes: int
    written: float
    used: float
    hits: int


class Damaged(Exception):
    """A file that is no whole entry."""


class Store:
    """The entries of one folder. `version` is that of the compiler, on which keys depend; `device`
    is what entries say that they were made on."""

    def __init__(self, folder: str, limits: Limits = USUAL, version: str = "") -> None:
        self.root, self.limits, self.version = folder, limits, version
        self.folder = os.path.join(folder, FORMAT)
        self.problem = ""  # why the folder cannot be used, where it cannot
        self.has_warned = False
        self.writes = 0
        self.device = ""

    def of_device(self, name: str) -> Store:
        """The same store, for a program on this device."""
        made = copy(self)
        made.device = name
        return made

    # --- reading

    def get(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """The header and body of an entry; None where there is none that is whole."""
        found = self.peek(key)
        if found is not None:
            self._note_use(key)
        return found

    def peek(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """The same, which counts as no use."""
        if not self.is_usable(make=False):
            return None
        try:
            found = read_entry(self.path_of(key))
            if found[0].get("key") != key:
                raise Damaged("it is another entry under its name")
        except local(FileNotFoundError):
            return None
        except Damaged as e:
            self.warn(f"{self.path_of(key)} is damaged ({e}): it is removed and made anew")
            self.remove(key)
            return None
        except local(OSError) as e:
            self.warn(f"{self.path_of(key)} cannot be read: {e.strerror}")
            return None
        return found

    def _note_use(self, key: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        flags |= os.O_NONBLOCK  # a pipe of that name is not waited for
        with suppress(OSError):
            fd = os.open(self.path_of(key) + HITS, flags, 0o600)
            try:
                os.write(fd, b"+")
            finally:
                os.close(fd)

    def entries(self) -> Iterator[Entry]:
        """All entries whose headers can be read, in no order; their sums are not checked."""
        for key in self.keys():
            with suppress(OSError, Damaged):
                yield self.entry(key)

    def entry(self, key: str) -> Entry:
        """One entry. Raises OSError, Damaged."""
        path = self.path_of(key)
        header, info = read_header(path)
        try:
            uses = os.lstat(path + HITS)
            used, hits = max(uses.st_mtime, info.st_mtime), uses.st_size
        except local(OSError):
            used, hits = info.st_mtime, 0
        return Entry(key, header, info.st_size, info.st_mtime, used, hits)

    def keys(self) -> list[str]:
        """The keys of all entries, sorted; none where the folder cannot be used."""
        if not self.is_usable(make=False):
            return []
        try:
            return sorted(name for name in os.listdir(self.folder) if is_key(name))
        except local(OSError):
            return []

    def is_empty(self) -> bool:
        """Whether there is no entry, or none that can be used."""
        if not self.is_usable(make=False):
            return True
        try:
            with os.scandir(self.folder) as files:
                return not any(is_key(file.name) for file in files)
        except local(OSError):
            return True

    def path_of(self, key: str) -> str:
        """The file of an entry."""
        assert is_key(key), key
        return os.path.join(self.folder, key)

    # --- writing

    def put(self, key: str, header: dict[str, Any], body: bytes) -> bool:
        """Keep an entry; whether that was possible."""
        if not self.is_usable(make=True):
            return False
        try:
            self._write(self.path_of(key), pack_entry({"key": key, **header}, body))
        except local(OSError, ValueError) as e:
            reason = e.strerror if isinstance(e, OSError) else e
            self.warn(f"nothing can be written to {self.folder}: {reason}")
            return False
        self.writes += 1
        if self.writes % WRITES_BETWEEN_CLEANINGS == 1:
            self.clean()
        return True

    def annotate(self, key: str, name: str, value: Any) -> bool:
        """Add to an entry's header; whether that was possible. Its age stays."""
        try:
            path = self.path_of(key)
            header, body = read_entry(path)
            times = os.lstat(path)
            self._write(path, pack_entry({**header, name: value}, body))
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns), follow_symlinks=False)
        except local(OSError, ValueError, Damaged):
            return False
        return True

    def note(self, name: str) -> str:
        """A short text that some process left; empty where there is none."""
        if not self.is_usable(make=False):
            return ""
        try:
            with os.fdopen(open_entry(self._note_path(name)), "rb") as file:
                return file.read(MOST_NOTE_BYTES).decode("ascii", "replace")
        except local(OSError, Damaged):
            return ""

    def leave_note(self, name: str, text: str) -> None:
        """Leave a short text; nothing where that is not possible."""
        if self.is_usable(make=True):
            with suppress(OSError):
                self._write(self._note_path(name), text.encode())

    def _note_path(self, name: str) -> str:
        return os.path.join(self.folder, f".{name}")

    def _write(self, path: str, data: bytes) -> None:
        part = os.path.join(self.folder, f"{PART}{os.getpid()}-{os.urandom(8).hex()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(part, flags, 0o600)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.fsync(fd)
            finally:
                os.close(fd)
            os.replace(part, path)  # a link of that name is replaced, not followed
        except BaseException:
            with suppress(OSError):
                os.unlink(part)
            raise

    def remove(self, key: str) -> bool:
        """Drop an entry; whether it was there."""
        path = self.path_of(key)
        with suppress(OSError):
            os.unlink(path + HITS)
        try:
            os.unlink(path)
        except local(OSError):
            return False
        return True

    # --- the folder

    def is_usable(self, *, make: bool) -> bool:
        """Whether the folder is there and the user's own; with `make`, it is made."""
        if self.problem:
            return False
        try:
            if make:
                make_folders(self.folder, 0o700)
            info = os.lstat(self.folder)
        except local(OSError, ValueError) as e:
            if isinstance(e, FileNotFoundError) and not make:
                return False
            reason = e.strerror if isinstance(e, OSError) else e
            self.problem = f"{self.folder} cannot be used: {reason}"
        else:
            self.problem = fault_of(self.folder, info)
        if self.problem:
            self.warn(self.problem)
        return not self.problem

    def clean(self) -> int:
        """Drop what killed writers left, and entries where there are too many; how many."""
        with suppress(OSError):
            for name in os.listdir(self.folder):
                path = os.path.join(self.folder, name)
                if is_left_over(path, name):
                    os.unlink(path)
        return self.prune(self.limits)

    def prune(self, limits: Limits) -> int:
        """Drop entries where there are more than the limits allow; how many."""
        if limits.policy == "never":
            return 0
        entries = list(self.entries())
        total = sum(entry.size_bytes for entry in entries)
        if limits.policy == "version":
            old = [e for e in entries if e.header.get("version") != self.version]
            return sum(self.remove(e.key) for e in old)
        if total <= limits.most_bytes and len(entries) <= limits.most_files:
            return 0
        entries.sort(key=lambda e: e.used if limits.policy == "lru" else e.written)
        least = max(1, int(len(entries) * limits.factor))
        dropped = 0
        for entry in entries:
            is_full = total > limits.most_bytes or len(entries) - dropped > limits.most_files
            if dropped >= least and not is_full:
                break
            dropped += self.remove(entry.key)
            total -= entry.size_bytes
        return dropped

    def warn(self, text: str) -> None:
        """Tell the user, once."""
        if not self.has_warned:
            self.has_warned = True
            warnings.warn(f"vkchi's cache: {text}", CacheWarning, stacklevel=2)


def is_left_over(path: str, name: str) -> bool:
    """Whether a file is what a killed writer left, or counts the uses of what is gone."""
    if name.endswith(HITS):
        return not os.path.lexists(path.removesuffix(HITS))
    return name.startswith(PART) and abs(time.time() - os.lstat(path).st_mtime) > PART_LIFE_S


def is_key(name: str) -> bool:
    """Whether a file's name is that of an entry."""
    return len(name) == KEY_LENGTH and KEY_CHARACTERS.issuperset(name)


def digest(parts: Iterable[bytes]) -> str:
    """SHA-256 of these parts, each with its length, as text."""
    found = sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return str(found.hexdigest())


def fault_of(folder: str, info: os.stat_result) -> str:
    """Why a folder is none to trust; empty if it is."""
    if not stat.S_ISDIR(info.st_mode):
        return f"{folder} is a link or a file, and no folder"
    if hasattr(os, "geteuid"):
        if info.st_uid != os.geteuid():
            return f"{folder} belongs to another user"
        if info.st_mode & 0o022:
            return f"{folder} can be written by others: chmod 700 it"
    return ""


def pack_entry(header: dict[str, Any], body: bytes) -> bytes:
    """The bytes of an entry's file."""
    head = json.dumps(header, separators=(",", ":")).encode()
    if len(head) > MOST_HEADER_BYTES or len(body) > MOST_BODY_BYTES:
        raise ValueError("an entry is too large")
    sizes = struct.pack("<IQ", len(head), len(body))
    total = sha256(b"".join([sizes, head, body])).digest()
    return HEAD.pack(MAGIC, len(head), len(body), total) + head + body


def open_entry(path: str) -> int:
    """A descriptor of an entry's file. Raises OSError, and Damaged for what is no plain file of the
    user's."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except local(OSError) as e:
        if os.path.islink(path):
            raise Damaged("a link") from None
        raise e
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise Damaged("no plain file")
    if hasattr(os, "geteuid") and info.st_uid != os.geteuid():
        os.close(fd)
        raise Damaged("another user's")
    return fd


def read_header(path: str) -> tuple[dict[str, Any], os.stat_result]:
    """An entry's header, and what is known of its file. Raises OSError, Damaged."""
    fd = open_entry(path)
    try:
        data, info = os.read(fd, 8192), os.fstat(fd)
        size = sizes_of(data, info.st_size)[0]
        if HEAD.size + size > len(data):
            data += os.read(fd, HEAD.size + size - len(data))
        return header_of(data[HEAD.size : HEAD.size + size]), info
    finally:
        os.close(fd)


def read_entry(path: str) -> tuple[dict[str, Any], bytes]:
    """An entry's header and body. Raises OSError, Damaged."""
    fd = open_entry(path)
    try:
        size = os.fstat(fd).st_size
        if not HEAD.size <= size <= MOST_ENTRY_BYTES:
            raise Damaged("its length is wrong")
        parts = []
        while size and (part := os.read(fd, size)):
            parts.append(part)
            size -= len(part)
    finally:
        os.close(fd)
    return unpack_entry(b"".join(parts))


def unpack_entry(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and body in an entry's bytes. Raises Damaged."""
    size, _ = sizes_of(data, len(data))
    if (
        sha256(data[len(MAGIC) : len(MAGIC) + 12] + data[HEAD.size :]).digest()
        != (HEAD.unpack_from(data)[3])
    ):
        raise Damaged("its sum is wrong")
    return header_of(data[HEAD.size : HEAD.size + size]), data[HEAD.size + size :]


def sizes_of(data: bytes, total: int) -> tuple[int, int]:
    """The sizes of header and body, as the first bytes of a file of this length say."""
    if len(data) < HEAD.size:
        raise Damaged("it is too short")
    magic, size, body_size, _ = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise Damaged("it is no entry of this version")
    if HEAD.size + size + body_size != total or size > MOST_HEADER_BYTES:
        raise Damaged("its length is wrong")
    return size, body_size


def header_of(text: bytes) -> dict[str, Any]:
    """The header that a text says."""
    try:
        found = json.loads(text)
    except local(ValueError):
        raise Damaged("its header is no JSON") from None
    if not isinstance(found, dict):
        raise Damaged("its header is no JSON object")
    for field, kind in FIELDS.items():
        if field in found and not isinstance(found[field], kind):
            raise Damaged(f"its header's {field} is {found[field]!r}")
    return found
