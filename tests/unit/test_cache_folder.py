"""Location of the cache: of a checkout, of an installed package, of an option."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from vkchi import platform
from vkchi.cache import store
from vkchi.cache.store import find_folder


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("VKCHI_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As if the package stood in this folder."""
    place = tmp_path / "site-packages"
    (place / "vkchi" / "cache").mkdir(parents=True)
    monkeypatch.setattr(store, "__file__", str(place / "vkchi" / "cache" / "store.py"))
    return place


def test_in_a_checkout() -> None:
    root = Path(__file__).parents[2]
    assert find_folder() == str(root / "shaders_cache")
    assert (root / "shaders_cache" / "README.md").is_file()


@pytest.mark.parametrize(
    "system, name, value, place",
    [
        ("linux", "", "", ".cache/vkchi"),
        ("linux", "XDG_CACHE_HOME", "/tmp/caches", "/tmp/caches/vkchi"),
        ("linux", "XDG_CACHE_HOME", "relative", ".cache/vkchi"),
        ("darwin", "", "", "Library/Caches/vkchi"),
        ("win32", "", "", "AppData/Local/vkchi"),
        ("win32", "LOCALAPPDATA", "/data", "/data/vkchi"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_of_a_wheel(
    system: str, name: str, value: str, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(platform, "SYSTEM", platform.find_system(system))
    if name:
        monkeypatch.setenv(name, value)
    assert find_folder() == os.path.join(str(tmp_path / "me"), place)


@pytest.mark.parametrize("given", [None, "given", Path("given"), "~/given"])
@pytest.mark.usefixtures("installed")
def test_init_option_overrides_environment(
    given: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The option of `init` overrides the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VKCHI_CACHE_DIR", "~/chosen")
    there = {None: "me/chosen", "~/given": "me/given"}.get(given, "given")
    assert find_folder(given) == str(tmp_path / there)
