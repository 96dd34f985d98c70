"""Validation by spirv-val of the SPIRV-Tools.

It is found on PATH or in `$VULKAN_SDK/bin`; vkchi itself does not need it.

    >>> validate(shader.words)          # '' if the module is valid
    ''
"""

from __future__ import annotations

import os
import shutil
import subprocess

VALIDATE = ("spirv-val", "--target-env", "vulkan1.3", "--scalar-block-layout")


def find_tool(name: str) -> str | None:
    """The path of a SPIRV-Tools program (`spirv-val`), or None."""
    sdk = os.environ.get("VULKAN_SDK")
    folders = [os.environ.get("PATH", ""), *([os.path.join(sdk, "bin")] if sdk else [])]
    return shutil.which(name, path=os.pathsep.join(folders))


def validate(words: bytes) -> str:
    """Errors of spirv-val for a module; empty if there are none."""
    program, *options = VALIDATE
    path = find_tool(program)
    assert path is not None, "no spirv-val"
    run = subprocess.run([path, *options, "-"], input=words, capture_output=True, check=False)
    return (run.stdout + run.stderr).decode().strip() if run.returncode else ""
