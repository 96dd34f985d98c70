"""Pipeline cache of drivers: read once, checked before a driver sees it, written rarely and whole.

The software drivers keep nothing in a VkPipelineCache, so a stand-in at the calls does: it gives
the header that drivers give, and one byte for each pipeline.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.devices import needs_radv
from tests.unit.test_device import make_shader
from vkchi.cache.inspection import driver_report
from vkchi.cache.store import CacheStore
from vkchi.device import Device, open_device
from vkchi.errors import CacheWarning
from vkchi.target.shader import Shader
from vkchi.vk import pipelines
from vkchi.vk.pipelines import HEADER

pytestmark = pytest.mark.device


@functools.cache
def saxpy_shader() -> Shader:
    """Some shader."""
    return make_shader()


class Driver:
    """A device whose driver keeps something: `given` is the data passed to it, call by call."""

    def __init__(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device, self.given, self.merged = device, list[bytes](), 0
        self.cache = device.pipelines.cache
        self.payload = b""
        calls, ffi = device._logical.calls, device._vk.ffi
        create, make = calls.vkCreatePipelineCache, calls.vkCreateComputePipelines

        def making(*args: Any) -> int:
            result = int(make(*args))
            self.cache._feedback.flags = pipelines.VALID  # SwiftShader knows it from before
            return result

        def creating(owner: Any, info: Any, allocator: Any, out: Any) -> int:
            data = bytes(ffi.buffer(info.pInitialData, info.initialDataSize))
            self.given.append(data)
            self.payload = data[HEADER.size :]
            return int(create(owner, info, allocator, out))

        def getting(owner: Any, cache: Any, size: Any, data: Any) -> int:
            found = self.cache._header + self.payload
            if data != ffi.NULL:
                ffi.memmove(data, found, len(found))
            size[0] = len(found)
            return 0

        monkeypatch.setattr(calls, "vkCreatePipelineCache", creating)
        monkeypatch.setattr(calls, "vkGetPipelineCacheData", getting)
        monkeypatch.setattr(calls, "vkCreateComputePipelines", making)

    def compile(self, count: int = 1) -> None:
        """Make pipelines that are new to the driver."""
        for _ in range(count):
            self.device.load(saxpy_shader())
            self.payload += b"p"


@pytest.fixture
def store(tmp_path: Path) -> CacheStore:
    return CacheStore(str(tmp_path / "cache"), version="v1")


@pytest.fixture
def begin(store: CacheStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Driver]]:
    """Opens a device that keeps its pipelines in the store."""
    opened = []

    def begin_one(kept: CacheStore | None = store) -> Driver:
        device = open_device()
        opened.append(device)
        driver = Driver(device, monkeypatch)
        driver.cache.keep_on(kept)
        return driver

    yield begin_one
    for device in opened:
        device.close()


def blob_in(store: CacheStore) -> bytes:
    """Stored contents."""
    (key,) = store.keys()
    found = store.get(key)
    assert found is not None and found[0]["kind"] == "pipelines"
    return found[1]


def replace(store: CacheStore, data: bytes) -> None:
    """Put something else in its place, as a whole entry."""
    (key,) = store.keys()
    found = store.get(key)
    assert found is not None
    store.put(key, found[0], data)


def test_compiled_pipeline_is_found(store: CacheStore, begin: Callable[[], Driver]) -> None:
    first = begin()
    first.compile(2)
    first.device.close()
    assert first.given == [b""]
    assert blob_in(store)[HEADER.size :] == b"pp"
    second = begin()
    second.compile()
    assert second.given == [blob_in(store)]
    second.device.close()
    assert [e.hits for e in store.entries()] == [3]  # two of them are this test's own
    assert blob_in(store)[HEADER.size :] == b"ppp"


def test_cache_is_per_device_and_driver(store: CacheStore, begin: Callable[[], Driver]) -> None:
    driver = begin()
    driver.compile()
    driver.device.close()
    parts = next(store.entries()).header["parts"]
    assert driver.device.info.uuid.hex() in parts["device"]
    assert {"driver", "driver version", "pipeline cache UUID"} <= parts.keys()


def test_unchanged_cache_is_not_written(
    store: CacheStore, begin: Callable[[], Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline that the driver found in the given data is not new."""
    driver = begin()
    calls = driver.device._logical.calls
    make = calls.vkCreateComputePipelines

    def finding(*args: Any) -> int:
        result = int(make(*args))
        driver.cache._feedback.flags = pipelines.VALID | pipelines.IS_HIT
        return result

    monkeypatch.setattr(calls, "vkCreateComputePipelines", finding)
    driver.compile()
    driver.device.close()
    assert store.keys() == []


@pytest.mark.parametrize(
    "break_it",
    [
        lambda data: b"",
        lambda data: data[: HEADER.size - 1],
        lambda data: bytes(HEADER.size) + data[HEADER.size :],
        lambda data: data[:8] + b"\xff" + data[9:],  # another vendor
        lambda data: data[:16] + bytes(16) + data[32:],  # another driver's build
        lambda data: data + bytes(pipelines.MOST_BYTES),
    ],
    ids=["empty", "short", "zeros", "vendor", "driver", "large"],
)
def test_foreign_data_never_reaches_the_driver(
    break_it: Callable[[bytes], bytes], store: CacheStore, begin: Callable[[], Driver]
) -> None:
    first = begin()
    first.compile()
    first.device.close()
    replace(store, break_it(blob_in(store)))
    second = begin()
    with pytest.warns(CacheWarning) as told:
        second.compile()
    assert second.given == [b""] and len(told) == 1
    second.device.close()
    assert blob_in(store)[HEADER.size :] == b"p"


def test_a_flipped_bit_and_a_truncated_file(store: CacheStore, begin: Callable[[], Driver]) -> None:
    for damage in (lambda d: d[:-1], lambda d: d[:-1] + bytes([d[-1] ^ 1])):
        first = begin()
        first.compile()
        first.device.close()
        path = Path(store.path_of(*store.keys()))
        path.write_bytes(damage(path.read_bytes()))
        store.has_warned = False
        second = begin()
        with pytest.warns(CacheWarning) as told:
            second.compile()
        assert second.given == [b""] and len(told) == 1
        second.device.close()


def test_a_driver_that_rejects_it(
    store: CacheStore, begin: Callable[[], Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begin()
    first.compile()
    first.device.close()
    second = begin()
    calls = second.device._logical.calls
    create = calls.vkCreatePipelineCache

    def refuse(owner: Any, info: Any, *rest: Any) -> int:
        return -13 if info.initialDataSize else int(create(owner, info, *rest))

    monkeypatch.setattr(calls, "vkCreatePipelineCache", refuse)
    with pytest.warns(CacheWarning, match="the driver refuses it"):
        second.compile()
    assert second.given == [b""]


def test_cache_size_is_bounded(
    store: CacheStore, begin: Callable[[], Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begin()
    first.compile(2)
    first.device.close()
    monkeypatch.setattr(pipelines, "MOST_BYTES", HEADER.size + 2)
    second = begin()
    second.compile()
    second.device.close()
    assert store.keys() == []


def test_cache_is_written_rarely(
    store: CacheStore, begin: Callable[[], Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = []
    put = store.put
    monkeypatch.setattr(store, "put", lambda *a: writes.append(len(a[2])) or put(*a))
    driver = begin()
    driver.compile(100)
    assert len(writes) == 2, writes  # after 16 and 32 more; the process may be killed from here on
    driver.device.close()
    assert len(writes) == 3


def test_concurrent_writes_are_merged(
    store: CacheStore, begin: Callable[[], Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = begin(), begin()
    slow.compile()
    quick.compile(3)
    quick.device.close()
    mine, calls = slow.payload, slow.device._logical.calls

    def merge(owner: Any, target: Any, count: int, sources: Any) -> int:
        slow.payload = mine + b"merged"
        return 0

    monkeypatch.setattr(calls, "vkMergePipelineCaches", merge)
    slow.device.close()
    assert slow.given[-1][HEADER.size :] == b"ppp"
    assert blob_in(store)[HEADER.size :] == mine + b"merged"


def test_a_driver_that_fails_to_merge(
    store: CacheStore, begin: Callable[[], Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = begin(), begin()
    slow.compile()
    quick.compile()
    quick.device.close()
    monkeypatch.setattr(slow.device._logical.calls, "vkMergePipelineCaches", lambda *_: -1)
    with pytest.warns(CacheWarning, match="the host ran out of memory"):
        slow.compile(16)
    slow.device.close()


def test_the_switch(
    store: CacheStore, begin: Callable[[], Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VKCHI_PIPELINE_CACHE", "0")
    driver = begin()
    driver.compile()
    driver.device.close()
    assert store.keys() == []


def test_a_full_disk(
    store: CacheStore, begin: Callable[[], Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = begin()
    driver.compile()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.warns(CacheWarning) as told:
        driver.device.close()
    assert len(told) == 1 and store.keys() == []


def test_a_driver_that_keeps_nothing_leaves_no_entry(store: CacheStore) -> None:
    with closing(open_device()) as device, warnings.catch_warnings():
        warnings.simplefilter("error")
        device.pipelines.cache.keep_on(store)
        device.load(saxpy_shader())
    kept = store.keys()
    if kept:  # a driver that keeps something: then that is found
        with closing(open_device()) as device:
            device.pipelines.cache.keep_on(store)
            device.load(saxpy_shader())
            assert device.pipelines.cache._made == 0


PROGRAM = """
import vkchi as ti
ti.init(log_level="error")
x = ti.field(ti.i32, 4)
@ti.kernel
def fill():
    for i in x:
        x[i] = i
fill()
print(x.to_numpy().sum())
"""


def test_programs_keep_their_pipelines_where_the_cache_is(tmp_path: Path) -> None:
    """Whatever the driver keeps, the cache of a program is whole afterwards."""
    path, cache = tmp_path / "program.py", tmp_path / "cache"
    path.write_text(PROGRAM, encoding="utf-8")
    root = str(Path(__file__).parents[2])
    around = {k: v for k, v in os.environ.items() if not k.startswith("VKCHI_DUMP")}
    around |= {"VKCHI_CACHE": "1", "VKCHI_CACHE_DIR": str(cache), "PYTHONPATH": root}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(path)], capture_output=True, text=True, env=around, check=True
        )
        assert done.stdout == "6\n" and "CacheWarning" not in done.stderr
    kinds = [e.header["kind"] for e in CacheStore(str(cache)).entries()]
    assert sorted(set(kinds)) in (["kernel", "shaders"], ["kernel", "pipelines", "shaders"])


RADV = """
import sys
from tests.unit.test_device import make_shader
from vkchi.cache.store import CacheStore
from vkchi.vk.instance import open_instance
from vkchi.vk.logical import open_logical
from vkchi.vk.physical import read_all
from vkchi.vk.pipelines import Pipelines
from vkchi.vk.raw import load_vulkan
instance = open_instance(load_vulkan())
physical = read_all(instance.vk, instance.list_handles())[0]
pipelines = Pipelines(open_logical(instance.vk, physical))
pipelines.cache.keep_on(CacheStore(sys.argv[1], version="v1"))
kept = [pipelines.make(make_shader(indirect), 0) for indirect in (False, True)]
print(pipelines.cache._made)
pipelines.cache.save()
"""


@needs_radv
def test_a_driver_that_keeps_something(store: CacheStore) -> None:
    """Mesa's RADV, which compiles for a made-up card: its pipelines are found, broken or not."""

    def compiled() -> tuple[int, bool]:
        done = subprocess.run(
            [sys.executable, "-c", RADV, store.root], capture_output=True, text=True, check=False,
            env=driver_report.environment("navi31"),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return int(done.stdout), "CacheWarning" in done.stderr

    assert compiled() == (2, False)
    assert compiled() == (0, False)
    data = blob_in(store)
    assert len(data) > 1000
    replace(store, data[: HEADER.size] + os.urandom(len(data) - HEADER.size))
    assert compiled() == (2, False)  # the header is right: the driver finds nothing of use in it
    replace(store, data[:8] + b"\0\0\0\0" + data[12:])
    assert compiled() == (2, True)
    assert compiled() == (0, False)
