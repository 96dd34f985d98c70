"""Arrays in place are never touched outside, by loads either."""

import subprocess
import sys
from pathlib import Path

import pytest

from vkchi.runtime import current_runtime

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform == "win32", reason="pages are protected by mprotect")
def test_no_access_outside():
    if not current_runtime().device.host_pointer_alignment:
        pytest.skip("this device does not use memory of the host in place")
    program = [sys.executable, str(Path(__file__).parent / "fences.py")]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == "no access outside\n", (done.returncode, done.stderr[-2000:])
