"""File store of the disk cache: bytes by key, one file per entry, written atomically.

    FOLDER/2/<key>        magic, sizes, SHA-256 of the rest, a header (JSON), a body
    FOLDER/2/<key>.hits   one byte per use of the entry; its mtime is the last use
    FOLDER/2/.part-*      temporary file of a write, renamed when complete
    FOLDER/2/.<name>      a note: a hint that only saves time

Guarantees:

- A reader finds a complete entry or none: files are written under another name, synced and renamed.
- `get` and `peek` verify the checksum; a damaged entry is removed and counts as absent.
- The folder must belong to the user; others must not be able to write to it. Systems without
  owners in `os.stat` are not checked. Symbolic links in it are not followed.
- Methods marked `harmless` warn and return a fixed value instead of raising. Exceptions of signal
  handlers and warnings turned into errors pass. A store warns once at most.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import wraps
from typing import Any, TypeVar, cast

from vkchi import env, platform
from vkchi.errors import CacheWarning
from vkchi.interrupts.local import is_file, local, make_folders, suppress

# hashlib loads OpenSSL (2.5 ms) to hash some 100 KiB per process. Source: Python's `random`.
try:
    from _sha2 import sha256  # type: ignore[import-not-found]
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]
    except ImportError:
        from hashlib import sha256
from vkchi.tuples import NamedTuple

FORMAT = "2"
MAGIC = b"VKCHI\x00" + FORMAT.encode() + b"\n"
HEAD = struct.Struct(f"<{len(MAGIC)}sIQ32s")
KEY_CHARACTERS = frozenset("0123456789abcdef")
KEY_LENGTH = 64
PART, HITS = ".part-", ".hits"
PART_LIFE_S = 3600.0  # age at which a temporary file counts as abandoned
MOST_HEADER_BYTES, MOST_BODY_BYTES = 1 << 20, 1 << 28
MOST_ENTRY_BYTES = HEAD.size + MOST_HEADER_BYTES + MOST_BODY_BYTES
MOST_NOTE_BYTES = 4096
# Checked types of header fields: archives may come from untrusted sources.
FIELDS: dict[str, type | tuple[type, ...]] = {
    "kind": str, "name": str, "place": str, "signature": str, "device": str, "version": str,
    "seconds": (int, float), "spirv_bytes": int, "parts": dict,
}  # fmt: skip
MOST_FILES = 20_000
WRITES_BETWEEN_CLEANINGS = 64


class Limits(NamedTuple):
    """Limits beyond which entries are dropped: Taichi's `offline_cache_*` options.

    - policy: `never`, `version` (all entries of other versions, without other limits), `lru` (least
      recently used first) or `fifo` (oldest first).
    - factor: share of the entries that a cleaning drops at least, if a limit is exceeded.
    """

    policy: str = "lru"
    most_bytes: int = 100 << 20
    factor: float = 0.25
    most_files: int = MOST_FILES


USUAL = Limits()


class CacheEntry(NamedTuple):
    """Metadata of an entry. Times are seconds since 1970."""

    key: str
    header: dict[str, Any]
    size_bytes: int
    written: float
    used: float
    hits: int


class Damaged(Exception):
    """Error: a file or archive member is not accepted as an entry: damaged, of another format, a
    link, another user's, or under another key."""


Method = TypeVar("Method", bound=Callable[..., Any])


def harmless(failed: Callable[[], object]) -> Callable[[Method], Method]:
    """Decorate a method of CacheStore: after an Exception, it warns and returns `failed()`.
    Exceptions of signal handlers pass, and cache warnings that the user turned into errors."""

    def decorate(act: Method) -> Method:
        @wraps(act)
        def acting(store: CacheStore, *args: Any, **kwargs: Any) -> Any:
            try:
                return act(store, *args, **kwargs)
            except CacheWarning:
                raise
            except local(Exception) as e:
                store.warn(f"{store.folder} cannot be used: {type(e).__name__}: {e}")
                return failed()

        return cast(Method, acting)

    return decorate


def nothing() -> None:
    """Result of a failed search."""


class CacheStore:
    """The entries of one folder.

    - version: the compiler's version, which callers include in their keys.
    - device: the device name that callers put into the headers of new entries.
    """

    def __init__(self, folder: str, limits: Limits = USUAL, version: str = "") -> None:
        self.root, self.limits, self.version = folder, limits, version
        self.folder = os.path.join(folder, FORMAT)
        self.problem = ""  # why the folder cannot be used, or ""
        self.has_warned = False
        self.writes = 0
        self.device = ""

    def of_device(self, name: str) -> CacheStore:
        made = copy(self)
        made.device = name
        return made

    # --- reading

    @harmless(nothing)
    def get(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """Return header and body of an entry and count the use; None without an intact entry."""
        found = self.peek(key)
        if found is not None:
            self._note_use(key)
        return found

    @harmless(nothing)
    def peek(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """Like `get`, without counting a use. A damaged entry is removed, and None returned."""
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
            self.warn(f"{self.path_of(key)} cannot be read: {e.strerror or e}")
            return None
        return found

    def _note_use(self, key: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with suppress(OSError):
            fd = platform.open_bytes(self.path_of(key) + HITS, flags)
            try:
                os.write(fd, b"+")
            finally:
                os.close(fd)

    def entries(self) -> Iterator[CacheEntry]:
        """Yield all entries with readable headers, in order of their keys; checksums are not
        verified."""
        for key in self.keys():
            with suppress(OSError, Damaged):
                yield self.entry(key)

    def entry(self, key: str) -> CacheEntry:
        """Return the metadata of one entry. Raises OSError, Damaged."""
        path = self.path_of(key)
        header, info = read_header(path)
        try:
            uses = os.lstat(path + HITS)
            used, hits = max(uses.st_mtime, info.st_mtime), uses.st_size
        except local(OSError):
            used, hits = info.st_mtime, 0
        return CacheEntry(key, header, info.st_size, info.st_mtime, used, hits)

    @harmless(list)
    def keys(self) -> list[str]:
        """Return the keys of all entries, sorted; empty if the folder cannot be used."""
        if not self.is_usable(make=False):
            return []
        try:
            return sorted(name for name in os.listdir(self.folder) if is_key(name))
        except local(OSError):
            return []

    @harmless(lambda: True)
    def is_empty(self) -> bool:
        """True if the folder has no entries or cannot be used."""
        if not self.is_usable(make=False):
            return True
        try:
            with os.scandir(self.folder) as files:
                return not any(is_key(file.name) for file in files)
        except local(OSError):
            return True

    def path_of(self, key: str) -> str:
        assert is_key(key), key
        return os.path.join(self.folder, key)

    # --- writing

    @harmless(bool)
    def put(self, key: str, header: dict[str, Any], body: bytes) -> bool:
        """Write an entry, replacing one of that key; warn and return False if that failed.

        If another process has the entry open and the system forbids replacing it, return False
        without a warning. The first write of a store, and each WRITES_BETWEEN_CLEANINGS-th after
        it, calls `clean`.
        """
        if not self.is_usable(make=True):
            return False
        try:
            self._write(self.path_of(key), pack_entry({"key": key, **header}, body))
        except platform.FileInUse:  # another process has an entry of this key
            return False
        except local(OSError, ValueError) as e:
            reason = getattr(e, "strerror", None) or e
            self.warn(f"nothing can be written to {self.folder}: {reason}")
            return False
        self.writes += 1
        if self.writes % WRITES_BETWEEN_CLEANINGS == 1:
            self.clean()
        return True

    @harmless(bool)
    def annotate(self, key: str, name: str, value: Any) -> bool:
        """Add a field to an entry's header, keeping its timestamps; return False if that failed."""
        try:
            path = self.path_of(key)
            header, body = read_entry(path)
            times = os.lstat(path)
            self._write(path, pack_entry({**header, name: value}, body))
            platform.set_times(path, times)
        except local(OSError, ValueError, Damaged):
            return False
        return True

    @harmless(str)
    def note(self, name: str) -> str:
        """Return the first MOST_NOTE_BYTES of the note `name`, or "" if there is none."""
        if not self.is_usable(make=False):
            return ""
        try:
            with os.fdopen(open_entry(self._note_path(name)), "rb") as file:
                return file.read(MOST_NOTE_BYTES).decode("ascii", "replace")
        except local(OSError, Damaged):
            return ""

    @harmless(nothing)
    def leave_note(self, name: str, text: str) -> None:
        """Write a note; failures are ignored."""
        if self.is_usable(make=True):
            with suppress(OSError):
                self._write(self._note_path(name), text.encode())

    def _note_path(self, name: str) -> str:
        return os.path.join(self.folder, f".{name}")

    def _write(self, path: str, data: bytes) -> None:
        part = os.path.join(self.folder, f"{PART}{os.getpid()}-{os.urandom(8).hex()}")
        fd = platform.open_bytes(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.fsync(fd)
            finally:
                os.close(fd)
            platform.replace(part, path)  # replaces a link of that name, does not follow it
        except BaseException:
            with suppress(OSError):
                os.unlink(part)
            raise

    @harmless(bool)
    def remove(self, key: str) -> bool:
        """Delete an entry and its use counter; return False if there was no entry, or it cannot be
        deleted."""
        path = self.path_of(key)
        with suppress(OSError):
            os.unlink(path + HITS)
        try:
            os.unlink(path)
        except local(OSError):
            return False
        return True

    # --- the folder

    @harmless(bool)
    def is_usable(self, *, make: bool) -> bool:
        """True if the folder exists, belongs to the user and is not writable by others.

        `make` creates it. Any fault except absence is remembered: later calls return False. A fault
        warns.
        """
        if self.problem:
            return False
        try:
            if make:
                make_folders(self.folder, 0o700)
            info = os.lstat(self.folder)
        except local(OSError, ValueError) as e:
            if isinstance(e, FileNotFoundError) and not make:
                return False
            reason = getattr(e, "strerror", None) or e
            self.problem = f"{self.folder} cannot be used: {reason}"
        else:
            self.problem = fault_of(self.folder, info)
        if self.problem:
            self.warn(self.problem)
        return not self.problem

    @harmless(int)
    def clean(self) -> int:
        """Delete leftover files of killed writers and entries beyond the limits.

        Returns the number of deleted entries.
        """
        with suppress(OSError):
            for name in os.listdir(self.folder):
                path = os.path.join(self.folder, name)
                if is_left_over(path, name):
                    os.unlink(path)
        return self.prune(self.limits)

    def prune(self, limits: Limits) -> int:
        """Delete entries according to `limits`; return their number."""
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
        if not self.has_warned:
            self.has_warned = True
            warnings.warn(f"vkchi's cache: {text}", CacheWarning, stacklevel=2)


def is_left_over(path: str, name: str) -> bool:
    """True for a stale temporary file, or a use counter whose entry is gone."""
    if name.endswith(HITS):
        return not os.path.lexists(path.removesuffix(HITS))
    return name.startswith(PART) and abs(time.time() - os.lstat(path).st_mtime) > PART_LIFE_S


def is_key(name: str) -> bool:
    """True if a file name is a key: 64 lowercase hexadecimal digits."""
    return len(name) == KEY_LENGTH and KEY_CHARACTERS.issuperset(name)


def digest(parts: Iterable[bytes]) -> str:
    """Return the SHA-256, in hexadecimal, of the parts, each prefixed with its length."""
    found = sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return str(found.hexdigest())


def fault_of(folder: str, info: os.stat_result) -> str:
    """Return the reason not to use a folder, or "": a link or file, another owner, or write access
    of others."""
    if not stat.S_ISDIR(info.st_mode):
        return f"{folder} is a link or a file, and no folder"
    if platform.is_of_others(info):
        return f"{folder} belongs to another user"
    if platform.is_open_to_others(info):
        return f"{folder} can be written by others: chmod 700 it"
    return ""


def pack_entry(header: dict[str, Any], body: bytes) -> bytes:
    """Return the bytes of an entry's file. Raises ValueError above MOST_HEADER_BYTES of header or
    MOST_BODY_BYTES of body."""
    head = json.dumps(header, separators=(",", ":")).encode()
    if len(head) > MOST_HEADER_BYTES or len(body) > MOST_BODY_BYTES:
        raise ValueError("an entry is too large")
    sizes = struct.pack("<IQ", len(head), len(body))
    total = sha256(b"".join([sizes, head, body])).digest()
    return HEAD.pack(MAGIC, len(head), len(body), total) + head + body


def open_entry(path: str) -> int:
    """Open an entry's file and return its descriptor. Raises OSError, and Damaged unless it is a
    plain file of the user."""
    try:
        fd = platform.retry(lambda: platform.open_bytes(path, os.O_RDONLY))
    except local(OSError) as e:
        if os.path.islink(path):
            raise Damaged("a link") from None
        raise e
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise Damaged("no plain file")
    if platform.is_of_others(info):
        os.close(fd)
        raise Damaged("another user's")
    return fd


def read_header(path: str) -> tuple[dict[str, Any], os.stat_result]:
    """Return an entry's header and file status, without verifying the checksum. Raises OSError,
    Damaged."""
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
    """Return an entry's header and body, with the checksum verified. Raises OSError, Damaged."""
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
    """Return header and body from the bytes of an entry's file. Raises Damaged."""
    size, _ = sizes_of(data, len(data))
    if (
        sha256(data[len(MAGIC) : len(MAGIC) + 12] + data[HEAD.size :]).digest()
        != (HEAD.unpack_from(data)[3])
    ):
        raise Damaged("its sum is wrong")
    return header_of(data[HEAD.size : HEAD.size + size]), data[HEAD.size + size :]


def sizes_of(data: bytes, total: int) -> tuple[int, int]:
    """Return the sizes of header and body from a file's first bytes. Raises Damaged."""
    if len(data) < HEAD.size:
        raise Damaged("it is too short")
    magic, size, body_size, _ = HEAD.unpack_from(data)
    if magic != MAGIC:
        is_other = magic.startswith(MAGIC.partition(b"\0")[0])
        raise Damaged(
            f"it has another format than this version's, {FORMAT}"
            if is_other
            else "it is no entry of a cache"
        )
    if HEAD.size + size + body_size != total or size > MOST_HEADER_BYTES:
        raise Damaged("its length is wrong")
    return size, body_size


def header_of(text: bytes) -> dict[str, Any]:
    """Parse and check a header. Raises Damaged."""
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


# --- location -------------------------------------------------------------------------------------


def find_folder(given: str | os.PathLike[str] | None = None) -> str:
    """Return the absolute path of the cache folder, which may not exist.

    It is `given` or VKCHI_CACHE_DIR if set, else `shaders_cache/` in a source checkout, else in the
    user's cache folder.
    """
    chosen = given or env.flag("VKCHI_CACHE_DIR")
    if chosen:
        return os.path.abspath(os.path.expanduser(os.fspath(chosen)))
    checkout = find_checkout()
    if checkout:
        return os.path.join(checkout, "shaders_cache")
    return os.path.join(platform.find_cache_folder(), "vkchi")


def find_checkout() -> str:
    """Return the folder that contains this package if it has a pyproject.toml, else ""."""
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return folder if is_file(os.path.join(folder, "pyproject.toml")) else ""
