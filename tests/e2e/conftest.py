"""Fixtures of the end-to-end tests: one device for the session, and skips for missing features."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vkchi as ti
from tests.devices import like_gpu
from vkchi.runtime import Runtime, current_runtime, find_runtime
from vkchi.types import SCALARS

LACKING = ("not available on this device", "cannot keep")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Skip language tests that fail because the device lacks a scalar type; others use `need`."""
    try:
        return (yield)
    except ti.DeviceError as e:
        is_told = "language" in item.path.as_posix() and any(words in str(e) for words in LACKING)
        if is_told and lacks_a_type():  # if the device has all types, such an error is a bug
            pytest.skip(str(e).splitlines()[0])
        raise


def lacks_a_type() -> bool:
    """True if the session's device lacks a type."""
    caps = current_runtime().device.caps
    return not all(caps.has_type(name) and caps.can_store(name) for name in SCALARS)


class Started:
    """The runtime of the last `start`."""

    runtime: Runtime | None = None


def start() -> None:
    """Open the session's device (`VKCHI_DEVICE` and the driver's environment choose it)."""
    ti.init(random_seed=7)
    Started.runtime = find_runtime()


@pytest.fixture(scope="module", autouse=True)
def session_device() -> None:
    """Initialize vkchi before a file's own fixtures, unless the runtime is that of `start`.

    Tests of other files may have closed it, or left one with other options.
    """
    if Started.runtime is None or find_runtime() is not Started.runtime:
        start()


@pytest.fixture(autouse=True)
def is_open(session_device: None) -> None:
    """Initialize vkchi again if the test before has closed it."""
    if find_runtime() is None:
        start()


@pytest.fixture
def own_runtime() -> Iterator[None]:
    """For tests that call ti.init or ti.reset: initialize vkchi again afterwards."""
    yield
    start()


@pytest.fixture
def caps() -> Any:
    """The capability record of the session's device."""
    return current_runtime().device.caps


@pytest.fixture
def need(caps: Any) -> Callable[..., None]:
    """Function that skips the test if the device lacks one of the scalar types: `need("f64",
    "i8")`."""

    def check(*names: str) -> None:
        for name in names:
            if not (caps.has_type(name) and caps.can_store(name)):
                pytest.skip(f"{current_runtime().device.info.name} has no {name}")

    return check


@pytest.fixture
def as_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the test's kernels as for a GPU with small workgroup counts."""
    device = current_runtime().device
    monkeypatch.setattr(device, "caps", like_gpu(device.caps))


@pytest.fixture
def is_fast() -> bool:
    """False on SwiftShader, where large problems take too long."""
    return "swiftshader" not in current_runtime().device.info.name.lower()


@pytest.fixture(scope="session")
def cache_environment() -> Callable[[Path], dict[str, str]]:
    """Function that returns the environment of a process with the given cache folder.

    Without validation layer: newer ones print a line on standard output, also in the processes that
    this one starts or forks.
    """

    def environment(folder: Path) -> dict[str, str]:
        left_out = ("VKCHI_DUMP", "VK_INSTANCE_LAYERS")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
        root = str(Path(__file__).parents[2])
        paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        return {**kept, "VKCHI_CACHE": "1", "VKCHI_CACHE_DIR": str(folder), "PYTHONPATH": paths}

    return environment


@pytest.fixture
def display() -> Iterator[str]:
    """Start Xvfb for the test; yield its display name. Skips the test without Xvfb or xdotool."""
    if not (shutil.which("Xvfb") and shutil.which("xdotool")):
        pytest.skip("Xvfb or xdotool is not installed")
    reading, writing = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(writing), "-screen", "0", "640x480x24"],
        pass_fds=[writing], stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(writing)
    with os.fdopen(reading) as pipe:
        number = pipe.readline().strip()
    yield f":{number}"
    server.terminate()
    server.wait()
