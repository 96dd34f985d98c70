"""Installation of vkchi."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest


def is_installed() -> bool:
    try:
        distribution("vkchi")
    except PackageNotFoundError:
        return False
    return True


@pytest.mark.skipif(not is_installed(), reason="vkchi is found through PYTHONPATH alone")
def test_the_folder_above_a_checkout_hides_nothing(tmp_path: Path) -> None:
    """There, `vkchi` is a folder too: the checkout. It is no package, and must not become one."""
    (tmp_path / "vkchi" / "vkchi").mkdir(parents=True)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    source = "import vkchi; print(vkchi.__file__ is not None, callable(vkchi.init))"
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("True True\n", "")
