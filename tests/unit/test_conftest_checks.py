"""The checks of tests/conftest.py fail a session when they should: run here on tiny sessions."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import LAYER, list_layers

ROOT = Path(__file__).parents[2]
EMITS_GARBAGE = """
import os, pathlib
def test_emit():
    (pathlib.Path(os.environ["VKCHI_DUMP_SPV"]) / "bad.spv").write_bytes(bytes(20))
"""
MAKES_AN_EMPTY_BUFFER = """
import vulkan as vk
def test_buffer():
    app = vk.VkApplicationInfo(apiVersion=vk.VK_MAKE_VERSION(1, 3, 0))
    instance = vk.vkCreateInstance(vk.VkInstanceCreateInfo(pApplicationInfo=app), None)
    queue = vk.VkDeviceQueueCreateInfo(queueFamilyIndex=0, pQueuePriorities=[1.0])
    physical = vk.vkEnumeratePhysicalDevices(instance)[0]
    device = vk.vkCreateDevice(physical, vk.VkDeviceCreateInfo(pQueueCreateInfos=[queue]), None)
    vk.vkCreateBuffer(device, vk.VkBufferCreateInfo(size=SIZE, usage=32), None)
"""
IS_SLOW = """
import time
def test_before(): pass
def test_slow(): time.sleep(60)
def test_after(): pass
"""
HANGS_IN_NATIVE_CODE = """
import ctypes, signal
def test_before(): pass
def test_hang():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    ctypes.CDLL(None).pause()
def test_after(): pass
"""
IS_SILENT = "def test_nothing():\n    pass\n"


def run_session(folder: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A pytest session of its own over one file, with the suite's conftest."""
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "test_one.py").write_text(source, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = device: unused\n", encoding="utf-8")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "VK_LAYER"))}
    environment = {k: v for k, v in inherited.items() if k not in ("VKCHI_DUMP_SPV", "COLUMNS")}
    environment.pop("VK_INSTANCE_LAYERS", None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, str(folder)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


needs_validator = pytest.mark.skipif(shutil.which("spirv-val") is None, reason="no spirv-val")
needs_layer = pytest.mark.skipif(LAYER not in list_layers(), reason=f"no {LAYER}")
over_processes = pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "xdist"])


@needs_validator
@over_processes
def test_invalid_spirv_fails_the_session(tmp_path: Path, options: tuple[str, ...]) -> None:
    run = run_session(tmp_path, EMITS_GARBAGE, *options)
    assert run.returncode == 1, run.stdout
    assert "spirv-val: 1 distinct modules checked" in run.stdout
    assert "error: " in run.stdout and "bad.spv" in run.stdout
    assert "1 passed, 1 error" in run.stdout


@needs_layer
@over_processes
def test_a_layer_message_fails_the_session(tmp_path: Path, options: tuple[str, ...]) -> None:
    source = MAKES_AN_EMPTY_BUFFER.replace("SIZE", "0")
    run = run_session(tmp_path, source, "--validation", *options)
    assert run.returncode == 1, run.stdout
    assert "VUID-VkBufferCreateInfo-size-00912" in run.stdout
    assert "1 passed, 1 error" in run.stdout


@needs_layer
def test_a_silent_layer_passes_the_session(tmp_path: Path) -> None:
    source = MAKES_AN_EMPTY_BUFFER.replace("SIZE", "64")
    run = run_session(tmp_path, source, "--validation")
    assert run.returncode == 0, run.stdout


def test_a_clean_session_passes(tmp_path: Path) -> None:
    run = run_session(tmp_path, IS_SILENT)
    assert run.returncode == 0, run.stdout
    assert "1 passed" in run.stdout


needs_timeout = pytest.mark.skipif(
    find_spec("pytest_timeout") is None or not hasattr(signal, "SIGALRM"),
    reason="no pytest-timeout, or no signal by which it ends a test alone",
)


@needs_timeout
def test_a_slow_test_is_named_with_its_limit(tmp_path: Path) -> None:
    run = run_session(tmp_path, IS_SLOW, "--timeout=2", "--hang-limit=30")
    assert run.returncode == 1, run.stdout
    assert "FAILED test_one.py::test_slow - Failed: Timeout (>2.0s)" in run.stdout
    assert "1 failed, 2 passed" in run.stdout


@needs_timeout
def test_a_hang_in_native_code_is_ended_and_named(tmp_path: Path) -> None:
    limits = ("--timeout=2", "--hang-limit=4", "-n", "1")
    run = run_session(tmp_path, HANGS_IN_NATIVE_CODE, *limits)
    assert run.returncode == 1, run.stdout
    assert "test_one.py::test_hang did not return in 4 s; its process is ended" in run.stderr
    assert "in test_hang" in run.stderr
    assert "crashed while running 'test_one.py::test_hang'" in run.stdout
    assert "1 failed, 2 passed" in run.stdout


FAKE_PYTHON = """#!/bin/bash
echo "$*" >>"$LOG"
case "$*" in *"$SLOW"*) sleep 30;; esac
"""
FAKE_DRIVER = "#!/bin/bash\necho VK_DRIVER_FILES=$2\n"


def run_script(folder: Path, slow: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """scripts/test with a Python that does nothing (but sleeps where its arguments say `slow`), and
    the calls of it."""
    scripts = folder / "scripts"
    scripts.mkdir()
    shutil.copy(ROOT / "scripts" / "test", scripts)
    for name, text in {"vulkan-driver": FAKE_DRIVER, "python": FAKE_PYTHON}.items():
        (scripts / name).write_text(text, encoding="utf-8")
        (scripts / name).chmod(0o755)
    log = folder / "log"
    inherited = {k: v for k, v in os.environ.items() if k not in ("JOBS", "TEST_LIMIT_S")}
    environment = {
        **inherited, "PYTHON": str(scripts / "python"), "LOG": str(log), "SLOW": slow,
        "RUN_LIMIT_S": "2",
    }  # fmt: skip
    run = subprocess.run(
        [str(scripts / "test"), "tests/some"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return run, log.read_text(encoding="utf-8").splitlines()


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="scripts/test is for Linux")


@needs_linux
def test_each_test_has_a_limit(tmp_path: Path) -> None:
    run, calls = run_script(tmp_path, slow="nothing")
    assert run.returncode == 0, run.stderr
    assert len(calls) == 4
    assert all("--timeout=300" in call and "--hang-limit=600" in call for call in calls)
    assert all(call.endswith("tests/some") for call in calls)
    assert calls[-1].startswith("-m pytest") and "--numprocesses" not in calls[-1]


@needs_linux
def test_a_run_that_does_not_end_says_so(tmp_path: Path) -> None:
    run, calls = run_script(tmp_path, slow="--validation")
    assert run.returncode == 124
    assert len(calls) == 2
    assert "test: the run `device tests on lavapipe, validation layer on` was ended after 2 s" in (
        run.stderr
    )
    assert "RUN_LIMIT_S" in run.stderr
