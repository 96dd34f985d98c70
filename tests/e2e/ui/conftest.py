"""Tests of `ti.ui` need its dependencies, and a device that wgpu takes."""

from __future__ import annotations

import pytest

from vkchi.errors import MissingPackageError
from vkchi.ui.packages import require_ggui


@pytest.fixture(scope="session", autouse=True)
def what_draws() -> None:
    """Skip where the extra `ggui` is not installed, or wgpu finds no device."""
    try:
        require_ggui()
    except MissingPackageError as error:
        pytest.skip(str(error))
    import wgpu

    if not wgpu.gpu.enumerate_adapters_sync():
        pytest.skip("wgpu finds no device here")
