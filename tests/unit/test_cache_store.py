"""The store of compiled code: entries are whole or not there, whatever becomes of the files."""

from __future__ import annotations

import errno
import os
import struct
import threading
import time
import tracemalloc
import warnings
from pathlib import Path

import pytest

from vkchi import platform
from vkchi.cache import store as store_module
from vkchi.cache.store import HITS, PART, CacheStore, Limits, digest, pack_entry
from vkchi.cache.version import JUST_NOW_S, PACKAGE, digest_of, is_changed, noted_version
from vkchi.errors import CacheWarning

WITH_OWNERS = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners")
KEY, OTHER = digest([b"one"]), digest([b"two"])
HEADER, BODY = {"name": "step"}, bytes(range(256)) * 40


@pytest.fixture
def store(tmp_path):
    return CacheStore(str(tmp_path / "cache"))


def put(store, key=KEY, body=BODY):
    assert store.put(key, HEADER, body)
    return store.path_of(key)


def test_entry_is_read_by_another_store(store):
    put(store)
    header, body = CacheStore(store.root).get(KEY)
    assert body == BODY and header["name"] == "step"
    assert store.get(OTHER) is None


def test_uses_are_counted(store):
    put(store)
    for _ in range(3):
        store.get(KEY)
    (entry,) = store.entries()
    assert entry.hits == 3 and entry.key == KEY and entry.size_bytes > len(BODY)


def test_the_folder_is_private(store):
    path = put(store)
    assert os.stat(store.folder).st_mode & 0o777 == 0o700
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_reading_takes_memory_of_the_entry(store):
    put(store)
    tracemalloc.start()
    assert store.get(KEY) is not None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * len(BODY)


# --- broken entries


def is_recovered(store, path):
    """True if a broken entry counts as none, with one warning, is gone, and can be made anew."""
    fresh = CacheStore(store.root)
    with pytest.warns(CacheWarning) as told:
        assert fresh.get(KEY) is None
        assert fresh.get(KEY) is None
    assert len(told) == 1
    assert not os.path.lexists(path)
    put(fresh)
    assert fresh.get(KEY)[1] == BODY
    return True


@pytest.mark.parametrize("length", [0, 1, 7, 20, 51, 60, 100, -1])
def test_a_truncated_entry_is_none(store, length):
    path = put(store)
    os.truncate(path, length % os.path.getsize(path))
    assert is_recovered(store, path)


def test_any_flipped_bit_is_noticed(store):
    path = put(store, body=b"body of a few bytes")
    good = open(path, "rb").read()
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with open(path, "wb") as file:
            file.write(bad)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert CacheStore(store.root).get(KEY) is None, bit
        with open(path, "wb") as file:
            file.write(good)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04\x95 a pickle",
        os.urandom(5000),
        pack_entry(HEADER, BODY),  # an entry, of no key
        pack_entry({"key": OTHER, **HEADER}, BODY),  # another one, under this name
        pack_entry({"key": KEY, **HEADER}, BODY).replace(b"VKCHI\x002", b"VKCHI\x000"),
        pack_entry({"key": KEY, **HEADER}, BODY).replace(b"VKCHI\x002", b"VKCHI\x009"),
        pack_entry({"key": KEY, **HEADER}, BODY) + b"more",
    ],
    ids=["pickle", "noise", "keyless", "renamed", "older", "newer", "longer"],
)
def test_a_foreign_file_is_no_entry(store, data):
    path = put(store)
    with open(path, "wb") as file:
        file.write(data)
    assert is_recovered(store, path)


def test_a_link_is_not_followed(store, tmp_path):
    path = put(store)
    aim = tmp_path / "elsewhere"
    os.rename(path, aim)
    os.symlink(aim, path)
    assert is_recovered(store, path)
    assert aim.exists() and not os.path.islink(path)


def test_a_link_under_a_key_is_replaced_by_writing(store, tmp_path):
    put(store, OTHER)
    aim = tmp_path / "precious"
    aim.write_text("mine", encoding="utf-8")
    os.symlink(aim, store.path_of(KEY))
    os.symlink(aim, store.path_of(OTHER) + HITS)
    put(store)
    assert store.get(OTHER) and store.get(KEY)[1] == BODY
    assert aim.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("name", ["mkdir", "mkfifo"])
def test_special_files_are_no_entries(store, name):
    make = getattr(os, name, None)
    if make is None:
        pytest.skip(f"os has no {name}")
    put(store, OTHER)
    make(store.path_of(KEY))
    with pytest.warns(CacheWarning):
        assert store.get(KEY) is None


# --- folders


def is_without_cache(store):
    """True if nothing is kept, with one warning."""
    with pytest.warns(CacheWarning) as told:
        assert not store.put(KEY, HEADER, BODY)
        assert not store.put(OTHER, HEADER, BODY)
        assert store.get(KEY) is None
    return len(told) == 1


@WITH_OWNERS
def test_a_folder_that_others_can_write_is_not_used(store):
    put(store)
    os.chmod(store.folder, 0o777)
    assert is_without_cache(CacheStore(store.root))


def test_a_folder_that_is_a_link_is_not_used(store, tmp_path):
    os.makedirs(store.root)
    os.mkdir(tmp_path / "other", 0o700)
    os.symlink(tmp_path / "other", store.folder)
    assert is_without_cache(store)
    assert not os.listdir(tmp_path / "other")


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch):
    """As in /proc, where it is no folder that is missing."""

    def missing(*args, **options):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    store = CacheStore(str(tmp_path / "none"))
    assert store.get(KEY) is None and not store.problem
    monkeypatch.setattr(os, "mkdir", missing)
    with pytest.warns(CacheWarning, match="cannot be used: No such file"):
        assert not store.put(KEY, HEADER, BODY)


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "cache").write_text("", encoding="utf-8")
    assert is_without_cache(CacheStore(str(tmp_path / "cache")))


@WITH_OWNERS
def test_another_users_folder_is_not_used(store, monkeypatch):
    put(store)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert is_without_cache(CacheStore(store.root))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["write", "fsync", "replace", "open", "mkdir"])
def test_unwritable_entry_is_not_kept(store, monkeypatch, code, call):
    def fail(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    assert is_without_cache(store)
    monkeypatch.undo()
    found = os.listdir(store.folder) if os.path.isdir(store.folder) else []
    assert found == []
    put(CacheStore(store.root))


FAULTS = (
    AttributeError("module 'os' has no attribute 'O_NOFOLLOW'"), NotImplementedError("utime"),
    PermissionError(errno.EACCES, "Access is denied"), OSError("no number"), ValueError("a NUL"),
    UnicodeEncodeError("ascii", "é", 0, 1, "ordinal not in range"), MemoryError(),
    RecursionError("too deep"), TypeError("an integer is required"), OverflowError("too large"),
    KeyError("home"), AssertionError(), struct.error("bad size"), EOFError(),
)  # fmt: skip
CALLS = (
    "open", "read", "write", "close", "fsync", "fstat", "lstat", "fdopen", "unlink", "mkdir",
    "listdir", "scandir", "getpid", "urandom",
)  # fmt: skip


class FaultyOs:
    """`os`, of which one function raises."""

    def __init__(self, call: str, fault: Exception) -> None:
        self.call, self.fault = call, fault

    def __getattr__(self, name: str) -> object:
        return self._fail if name == self.call else getattr(os, name)

    def _fail(self, *args: object, **kwargs: object) -> None:
        raise self.fault


USES = {
    "get": (lambda s: s.get(KEY), None), "peek": (lambda s: s.peek(KEY), None),
    "put": (lambda s: s.put(OTHER, HEADER, BODY), False),
    "annotate": (lambda s: s.annotate(KEY, "driver", 1), False),
    "note": (lambda s: s.note("compiler"), ""),
    "leave_note": (lambda s: s.leave_note("compiler", "1"), None),
    "keys": (lambda s: s.keys(), []),
    "is_empty": (lambda s: s.is_empty(), True), "clean": (lambda s: s.clean(), 0),
    "is_usable": (lambda s: s.is_usable(make=True), False),
    "remove": (lambda s: s.remove(KEY), False),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("call", [*CALLS, "replace", "set_times", "is_of_others"])
def test_no_exception_leaves_the_store(store, monkeypatch, call, fault):
    """Each operation, with each function of the system that fails, warns once at most."""
    put(store)
    store.leave_note("compiler", "1")
    module, name = store_module, "os"
    broken = FaultyOs(call, fault)
    if call not in CALLS:
        module, name, broken = platform, call, broken._fail
    usual = {use: act(CacheStore(store.root)) for use, (act, _) in USES.items()}
    put(store)
    for use, (act, failed) in USES.items():
        fresh = CacheStore(store.root)
        with warnings.catch_warnings(record=True) as told, monkeypatch.context() as patch:
            warnings.simplefilter("always")
            patch.setattr(module, name, broken)
            if call == "open":
                patch.setattr(platform, "os", broken)
            assert act(fresh) in (failed, usual.get(use)), use
        assert len(told) <= 1, use
        assert all(issubclass(w.category, CacheWarning) for w in told)


def test_warnings_that_are_errors_leave_the_store(store, monkeypatch):
    monkeypatch.setattr(store_module, "os", FaultyOs("lstat", TypeError("strange")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CacheWarning, match="cannot be used: TypeError: strange"):
            store.get(KEY)


def test_an_entry_that_is_being_replaced_is_read_again(store, monkeypatch):
    """On Windows a file cannot be opened while another process replaces it."""
    put(store)
    monkeypatch.setattr(platform, "SYSTEM", platform.find_system("win32"))
    usual, left = platform.open_bytes, [3]

    def busy(path, flags):
        left[0] -= 1
        if left[0] >= 0:
            raise PermissionError(errno.EACCES, "denied")
        return usual(path, flags)

    monkeypatch.setattr(platform, "open_bytes", busy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.get(KEY)[1] == BODY


def test_an_entry_that_others_read_is_left_in_silence(store, monkeypatch):
    """On Windows an open file cannot be replaced: another process has an entry of this key."""
    put(store)
    monkeypatch.setattr(platform, "SYSTEM", platform.find_system("win32"))
    monkeypatch.setattr(platform, "PAUSES_S", (0.0,))
    monkeypatch.setattr(os, "replace", FaultyOs("", PermissionError(errno.EACCES, "denied"))._fail)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not store.put(KEY, HEADER, b"another")
    assert store.get(KEY)[1] == BODY
    assert not [name for name in os.listdir(store.folder) if name.startswith(PART)]


def test_a_folder_that_cannot_be_written_is_still_read(store, monkeypatch):
    put(store)
    monkeypatch.setattr(os, "write", lambda *a: (_ for _ in ()).throw(OSError(errno.EROFS, "ro")))
    fresh = CacheStore(store.root)
    assert fresh.get(KEY)[1] == BODY
    with pytest.warns(CacheWarning):
        assert not fresh.put(OTHER, HEADER, BODY)


def test_a_short_write_goes_on(store, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:1000])))
    put(store)
    assert store.get(KEY)[1] == BODY


# --- writers


@pytest.mark.parametrize("call", ["write", "fsync", "close", "replace"])
def test_a_writer_killed_on_its_way_leaves_no_entry(store, monkeypatch, call):
    """The state after each step is that of a kill there: nothing cleans up after it."""

    class Killed(BaseException):
        pass

    def die(*args):
        raise Killed

    if call == "close" and platform.SYSTEM.locks_open_files:
        pytest.skip("here, a file that stays open cannot be deleted")
    put(store, OTHER)
    monkeypatch.setattr(os, "unlink", die)
    monkeypatch.setattr(os, call, die)
    with pytest.raises(Killed):
        store.put(KEY, HEADER, BODY)
    monkeypatch.undo()
    fresh = CacheStore(store.root)
    assert fresh.get(KEY) is None and fresh.get(OTHER)[1] == BODY
    (left,) = [name for name in os.listdir(store.folder) if name.startswith(PART)]
    old = time.time() - 2 * store_module.PART_LIFE_S
    os.utime(os.path.join(store.folder, left), (old, old))
    fresh.clean()
    assert left not in os.listdir(store.folder)


def test_many_writers_and_readers(store):
    wrong = []

    def work(k):
        mine = CacheStore(store.root)
        for n in range(40):
            key = digest([bytes([n % 7])])
            mine.put(key, HEADER, bytes([n % 7]) * 3000)
            found = mine.get(key)
            if found is not None and found[1] != bytes([n % 7]) * 3000:
                wrong.append((k, n))
            if n % 10 == 9:
                mine.remove(key)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_times_that_lie_ahead_do_no_harm(store):
    path = put(store)
    ahead = time.time() + 1e9
    os.utime(path, (ahead, ahead))
    assert store.get(KEY)[1] == BODY
    store.clean()
    assert store.get(KEY)[1] == BODY


# --- limits


def keys_left(store, policy, factor=0.25):
    """Five entries, 0 to 4 by age, of which 0 was used last; two fit."""
    keys = [digest([bytes([k])]) for k in range(5)]
    for k, key in enumerate(keys):
        put(store, key, b"x" * 10_000)
        os.utime(store.path_of(key), (1000 + k, 1000 + k))
    store.get(keys[0])
    store.prune(Limits(policy, 25_000, factor))
    return [k for k, key in enumerate(keys) if store.get(key)]


def test_the_least_recently_used_go_first(store):
    assert keys_left(store, "lru") == [0, 4]


def test_the_oldest_go_first(store):
    assert keys_left(store, "fifo") == [3, 4]


def test_none_go(store):
    assert keys_left(store, "never") == [0, 1, 2, 3, 4]


def test_more_go_than_must(store):
    assert keys_left(store, "fifo", 0.8) == [4]


def test_entries_of_other_versions_are_removed(tmp_path):
    store = CacheStore(str(tmp_path / "c"), Limits("version"), "new")
    store.put(KEY, {"version": "old"}, b"")
    store.put(OTHER, {"version": "new"}, b"")
    store.clean()
    assert store.keys() == [OTHER]


def test_too_many_files(store):
    for k in range(6):
        put(store, digest([bytes([k])]), b"")
    assert store.prune(Limits(most_files=4, factor=0.1)) == 2


# --- the compiler's version


def test_sources_that_change_are_noticed(tmp_path):
    source = tmp_path / "a.py"
    source.write_text("a = 1", encoding="utf-8")
    made = source.stat().st_ctime
    assert not is_changed(str(tmp_path), made + 1)
    os.utime(source, (made + 100, 0))  # as archives do, whose files are old
    assert not is_changed(str(tmp_path), made + 60)
    assert is_changed(str(tmp_path), made - 60)
    assert is_changed(str(tmp_path), source.stat().st_ctime - 0.001)


def test_the_version_is_of_all_sources(tmp_path):
    package = tmp_path / "p"
    (package / "inner").mkdir(parents=True)
    assert digest_of(str(package)) == ""
    (package / "a.py").write_text("x = 1", encoding="utf-8")
    (package / "inner" / "b.py").write_text("y = 1", encoding="utf-8")
    found = [digest_of(str(package))]
    (package / "inner" / "b.py").write_text("y = 2", encoding="utf-8")
    found.append(digest_of(str(package)))
    (package / "inner" / "b.py").rename(package / "b.py")
    found.append(digest_of(str(package)))
    (package / "notes.txt").write_text("no source", encoding="utf-8")
    assert len(set(found)) == 3 and digest_of(str(package)) == found[-1]
    assert len(digest_of(PACKAGE)) == 64


def test_the_version_is_noted(store, tmp_path, monkeypatch):
    package = tmp_path / "p"
    package.mkdir()
    source = package / "a.py"
    source.write_text("x = 1", encoding="utf-8")
    later = time.time() + 2 * JUST_NOW_S
    assert noted_version(store, str(package), later) == digest_of(str(package))
    assert store.note("compiler") == "", "it was written just now"
    monkeypatch.setattr("vkchi.cache.version.time.time", lambda: later)
    assert noted_version(store, str(package), later) == digest_of(str(package))
    noted = store.note("compiler")
    assert noted.endswith(" " + digest_of(str(package)))
    monkeypatch.setattr("vkchi.cache.version.digest_of", lambda package: "f" * 64)
    assert noted_version(store, str(package), later) == noted.split()[1], "nothing was read"
    assert noted_version(store, str(package), later - 60) == "", "written since this process began"
    source.write_text("x = 2", encoding="utf-8")  # of the same size
    assert noted_version(store, str(package), later) == "f" * 64


@pytest.mark.parametrize("text", ["", "x", "x y", "\xff" * 10, "a" * 9000])
def test_a_wrong_note_is_none(store, tmp_path, text):
    package = tmp_path / "p"
    package.mkdir()
    (package / "a.py").write_text("x = 1", encoding="utf-8")
    store.leave_note("compiler", text)
    assert noted_version(store, str(package), time.time() + 60) == digest_of(str(package))
    assert store.keys() == []


def test_a_note_that_is_a_link_is_not_followed(store, tmp_path):
    store.leave_note("compiler", "x")
    secret = tmp_path / "secret"
    secret.write_text("y", encoding="utf-8")
    (Path(store.folder) / ".compiler").unlink()
    (Path(store.folder) / ".compiler").symlink_to(secret)
    assert store.note("compiler") == ""
    store.leave_note("compiler", "z")
    assert (secret.read_text(encoding="utf-8"), store.note("compiler")) == ("y", "z")


def test_the_compilers_version_follows_links(tmp_path: Path) -> None:
    package, apart = tmp_path / "package", tmp_path / "apart"
    package.mkdir(), apart.mkdir()
    (package / "parts").symlink_to(apart)
    (package / "one.py").symlink_to(apart / "two.py")
    found = []
    for text in ("a = 1", "a = 2"):
        (apart / "two.py").write_text(text, encoding="utf-8")
        found.append(digest_of(str(package)))
        (apart / "three.py").write_text(text, encoding="utf-8")
        found.append(digest_of(str(package)))
    assert len(set(found)) == 4
