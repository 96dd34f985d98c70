"""The SPIRV-Tools programs, where they are installed: validation, disassembly, optimisation.

Owns: finding and running them. Must not know: IR, the emitter.
They are found on PATH or in `$VULKAN_SDK/bin`; nothing in vkchi needs them to run.

    >>> validate(shader.words)          # '' if the module is valid
    ''
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from vkchi.errors import DeviceError

TARGET = ("--target-env", "vulkan1.3")
LAYOUT = "--scalar-block-layout"
ADVICE = (
    "is not installed: install SPIRV-Tools (package `spirv-tools` of your system, or the Vulkan "
    "SDK with VULKAN_SDK set)"
)


def find_tool(name: str) -> str | None:
    """The path of a SPIRV-Tools program (`spirv-val`), or None."""
    sdk = os.environ.get("VULKAN_SDK")
    folders = [os.environ.get("PATH", ""), *([os.path.join(sdk, "bin")] if sdk else [])]
    return shutil.which(name, path=os.pathsep.join(folders))


def _run(name: str, words: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    """Run a program with the words on its standard input."""
    program = find_tool(name)
    if program is None:
        raise DeviceError(f"{name} {ADVICE}")
    return subprocess.run([program, *options], input=words, capture_output=True, check=False)


def validate(words: bytes) -> str:
    """What spirv-val finds wrong with a module; empty if nothing. Raises DeviceError without it."""
    run = _run("spirv-val", words, *TARGET, LAYOUT, "-")
    return (run.stdout + run.stderr).decode().strip() if run.returncode else ""


def disassemble_with_tool(words: bytes, *options: str) -> str:
    """The text of spirv-dis. Raises DeviceError without it, or if the words are no module."""
    run = _run("spirv-dis", words, *options, "-")
    if run.returncode:
        raise DeviceError(f"spirv-dis: {run.stderr.decode().strip()}")
    return run.stdout.decode()


def optimise(words: bytes, *passes: str) -> bytes:
    """The module after spirv-opt (`-O` unless passes are named). Raises DeviceError without it."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out.spv"
        options = ["=".join(TARGET), LAYOUT, *(passes or ("-O",)), "-o", str(out)]
        run = _run("spirv-opt", words, *options, "-")
        if run.returncode:
            raise DeviceError(f"spirv-opt: {run.stderr.decode().strip()}")
        return out.read_bytes()
