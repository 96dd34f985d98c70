"""Files of older formats give a clear message. Modules have such tests in tests/e2e/test_aot.py."""

from __future__ import annotations

import os
import re
import tarfile
from pathlib import Path

import pytest

from vkchi.__main__ import main
from vkchi.cache.store import FORMAT, HEAD, CacheStore
from vkchi.errors import CacheWarning

KEY = "1" * 64
MESSAGE = f"it has another format than this version's, {FORMAT}"


@pytest.fixture
def store(tmp_path: Path) -> CacheStore:
    made = CacheStore(str(tmp_path / "cache"), version="v")
    assert made.put(KEY, {"kind": "kernel", "name": "step"}, b"body")
    return made


def older(data: bytes) -> bytes:
    """The bytes of an entry, as if the first format had been the same but for its number."""
    assert data.startswith(b"VKCHI\0" + FORMAT.encode())
    return data.replace(b"VKCHI\0" + FORMAT.encode(), b"VKCHI\x001", 1)


def test_a_cache_of_an_older_format_is_left_alone(store: CacheStore, tmp_path: Path) -> None:
    """Formats have folders of their own."""
    os.rename(store.folder, tmp_path / "cache" / "1")
    assert CacheStore(store.root).get(KEY) is None and CacheStore(store.root).keys() == []
    assert len(os.listdir(tmp_path / "cache" / "1")) == 1


def test_an_entry_of_an_older_format_is_removed_with_a_warning(store: CacheStore) -> None:
    path = Path(store.path_of(KEY))
    path.write_bytes(older(path.read_bytes()))
    with pytest.warns(CacheWarning, match=re.escape(MESSAGE)):
        assert store.get(KEY) is None
    assert not path.exists()


def test_verify_names_older_formats(store: CacheStore, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(store.path_of(KEY))
    path.write_bytes(older(path.read_bytes()))
    assert main(["cache", "--folder", store.root, "verify"]) == 1
    assert f"111111111111  {MESSAGE}" in capsys.readouterr().out
    path.write_bytes(b"x" * HEAD.size)
    assert main(["cache", "--folder", store.root, "verify"]) == 1
    assert "it is no entry of a cache" in capsys.readouterr().out


def test_archives_of_an_older_format_raise(
    store: CacheStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, archive = Path(store.path_of(KEY)), tmp_path / "old.tar"
    path.write_bytes(older(path.read_bytes()))
    with tarfile.open(archive, "w") as out:
        out.add(path, KEY)
    assert main(["cache", "--folder", str(tmp_path / "new"), "unpack", str(archive)]) == 1
    assert "0 entries taken, 1 refused" in capsys.readouterr().out
