"""The end of a process by Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform == "win32", reason="statuses of signals")
def test_buffered_output_is_written() -> None:
    program = "from vkchi.platform import end_interrupted; print('said'); end_interrupted()"
    surroundings = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env=surroundings,
    )  # fmt: skip
    assert done.stdout == "said\n" and done.returncode == -2
