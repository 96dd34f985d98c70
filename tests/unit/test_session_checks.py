"""The checks of tests/conftest.py fail a session when they should: run here on tiny sessions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
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
IS_SILENT = "def test_nothing():\n    pass\n"


def run_session(folder: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A pytest session of its own over one file, with the suite's conftest."""
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "test_one.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = device: unused\n")
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
